//! Says whether an agent takes work, whatever its file says. A person drives it, from any process.
//! It is about an agent and no task, so it has what was said before to start from.

use polity_model::event::Event;

use crate::agent_toggles::AgentToggle;

/// What is said about an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToggleAgent {
    /// It takes work.
    Enable,
    /// It takes none.
    Disable {
        /// Why, for people.
        reason: Option<String>,
    },
}

impl ToggleAgent {
    /// What follows. Where the same was said before, nothing does.
    pub(crate) fn decide(&self, before: Option<&AgentToggle>) -> Vec<Event> {
        let event = match (self, before) {
            (Self::Enable, Some(AgentToggle { enabled: true, .. })) => return Vec::new(),
            (Self::Enable, Some(_) | None) => Event::AgentEnabled,
            (Self::Disable { reason }, Some(before))
                if !before.enabled && before.reason == *reason =>
            {
                return Vec::new();
            }
            (Self::Disable { reason }, Some(_) | None) => {
                Event::AgentDisabled { reason: reason.clone() }
            }
        };
        vec![event]
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn said(enabled: bool, reason: Option<&str>) -> AgentToggle {
        AgentToggle { enabled, reason: reason.map(str::to_owned), at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn nothing_is_said_twice() {
        let disable =
            |reason: Option<&str>| ToggleAgent::Disable { reason: reason.map(Into::into) };
        assert_eq!(ToggleAgent::Enable.decide(None), [Event::AgentEnabled]);
        assert_eq!(ToggleAgent::Enable.decide(Some(&said(false, None))), [Event::AgentEnabled]);
        assert_eq!(ToggleAgent::Enable.decide(Some(&said(true, None))), []);
        assert_eq!(disable(None).decide(Some(&said(false, None))), []);
        let reason = Some("no key".to_owned());
        let again = disable(Some("no key")).decide(Some(&said(false, None)));
        assert_eq!(again, [Event::AgentDisabled { reason }]);
    }
}
