//! Enables or disables an agent, overriding its file. A person drives it, from any process. It
//! concerns an agent rather than a task, so its state is the agent's newest toggle. Running tasks
//! are not affected; `CreateTask` refuses work for a disabled agent.

use polity_model::event::Event;

use crate::agent_toggles::AgentToggle;

/// A change of an agent's toggle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToggleAgent {
    /// The agent accepts work.
    Enable,
    /// The agent accepts no work.
    Disable {
        /// The reason to show.
        reason: Option<String>,
    },
}

impl ToggleAgent {
    /// Returns the event, or none if it would repeat the newest toggle.
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

    fn toggle(enabled: bool, reason: Option<&str>) -> AgentToggle {
        AgentToggle { enabled, reason: reason.map(str::to_owned), at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn repeated_toggle_has_no_event() {
        let disable =
            |reason: Option<&str>| ToggleAgent::Disable { reason: reason.map(Into::into) };
        assert_eq!(ToggleAgent::Enable.decide(None), [Event::AgentEnabled]);
        assert_eq!(ToggleAgent::Enable.decide(Some(&toggle(false, None))), [Event::AgentEnabled]);
        assert_eq!(ToggleAgent::Enable.decide(Some(&toggle(true, None))), []);
        assert_eq!(disable(None).decide(Some(&toggle(false, None))), []);
        let reason = Some("no key".to_owned());
        let again = disable(Some("no key")).decide(Some(&toggle(false, None)));
        assert_eq!(again, [Event::AgentDisabled { reason }]);
    }
}
