//! Requests by agent actions, collected during a turn.

use std::collections::{HashMap, HashSet};

use polity_statechart::{AgentRef, AgentRequest, Chart};

use crate::kernel::AgentSlot;

/// The maximum number of agent requests per turn; more are only counted.
pub(crate) const REQUESTS_PER_TURN: usize = 1_000_000;

/// The number of agent ticks after which requests are filtered.
const AGENT_TICKS_PER_BATCH: u64 = 4_000_000;

/// The agent requests of a turn so far.
#[derive(Debug)]
pub(super) struct AgentRequests {
    accepted: Vec<(AgentSlot, AgentRequest)>,
    filter: RequestFilter,
    /// True if the chart has any request.
    has_requests: bool,
    limit: usize,
    dropped: u64,
}

/// Filters repeated requests that nothing can have undone since.
#[derive(Debug)]
enum RequestFilter {
    /// Agents only target themselves: the last request of each agent.
    SelfOnly(HashMap<AgentSlot, AgentRequest>),
    /// Agents target others: the agents that made the last request, until a different one is made.
    AnyTarget(Option<AgentRequest>, HashSet<AgentSlot>),
}

impl RequestFilter {
    /// True for a new request. Each copy is new.
    fn is_new(&mut self, slot: AgentSlot, request: &AgentRequest) -> bool {
        let is_copy = matches!(request, AgentRequest::Copy { .. });
        match self {
            Self::SelfOnly(last) => {
                is_copy || last.insert(slot, request.clone()).as_ref() != Some(request)
            }
            Self::AnyTarget(last, who) => {
                if last.as_ref() != Some(request) {
                    *last = Some(request.clone());
                    who.clear();
                }
                who.insert(slot) || is_copy
            }
        }
    }

    fn forget(&mut self) {
        match self {
            Self::SelfOnly(last) => last.clear(),
            Self::AnyTarget(last, who) => {
                *last = None;
                who.clear();
            }
        }
    }
}

impl AgentRequests {
    pub(super) fn new(chart: &Chart) -> Self {
        let filter = if chart.requests().any(targets_another) {
            RequestFilter::AnyTarget(None, HashSet::new())
        } else {
            RequestFilter::SelfOnly(HashMap::new())
        };
        Self {
            accepted: Vec::new(),
            filter,
            has_requests: chart.requests().next().is_some(),
            limit: REQUESTS_PER_TURN,
            dropped: 0,
        }
    }

    /// Returns the number of ticks to run before adding the requests of this many agents.
    pub(super) fn ticks(&self, agents: u64) -> u32 {
        if !self.has_requests {
            return u32::MAX;
        }
        u32::try_from(AGENT_TICKS_PER_BATCH / agents.max(1)).unwrap_or(u32::MAX).max(1)
    }

    pub(super) fn add(&mut self, agent_requests: Vec<(AgentSlot, AgentRequest)>) {
        for (slot, request) in agent_requests {
            if !self.filter.is_new(slot, &request) {
                continue;
            }
            if self.accepted.len() < self.limit {
                self.accepted.push((slot, request));
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Takes the requests of a turn, and the number of dropped ones.
    pub(super) fn take(&mut self) -> (Vec<(AgentSlot, AgentRequest)>, u64) {
        self.filter.forget();
        (std::mem::take(&mut self.accepted), std::mem::take(&mut self.dropped))
    }
}

fn targets_another(request: &AgentRequest) -> bool {
    match request {
        AgentRequest::Pause { who: AgentRef::Named(_), .. }
        | AgentRequest::Remove { who: AgentRef::Named(_) }
        | AgentRequest::Resume { .. } => true,
        AgentRequest::Pause { who: AgentRef::Requester, .. }
        | AgentRequest::Remove { who: AgentRef::Requester }
        | AgentRequest::Copy { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent_requests(action: &str) -> AgentRequests {
        let text = format!(
            "name: n\nstates: [a, b]\ninitial: a\ntransitions:\n  \
             - {{trigger: t, source: a, target: b, action: {action}}}\n"
        );
        AgentRequests { limit: 3, ..AgentRequests::new(&Chart::from_text(&text).unwrap()) }
    }

    #[test]
    fn repeated_self_requests_are_dropped() {
        let mut asked = agent_requests("[pause, copy]");
        let pause =
            |slot| (AgentSlot(slot), AgentRequest::Pause { who: AgentRef::Requester, turns: None });
        let copy = |slot| (AgentSlot(slot), AgentRequest::Copy { name: None });
        asked.add(vec![pause(1), copy(1), pause(1)]);
        asked.add(vec![pause(1), copy(1), copy(1), pause(2)]);
        assert_eq!(asked.take(), (vec![pause(1), copy(1), copy(1)], 2));
        asked.add(vec![pause(1)]);
        assert_eq!(asked.take(), (vec![pause(1)], 0));
    }

    #[test]
    fn requests_that_may_have_been_undone_are_kept() {
        let mut asked = AgentRequests { limit: 5, ..agent_requests("resume 'boss'") };
        let resume = |slot| (AgentSlot(slot), AgentRequest::Resume { name: "boss".into() });
        let pause =
            |slot| (AgentSlot(slot), AgentRequest::Pause { who: AgentRef::Requester, turns: None });
        asked.add(vec![resume(1), resume(2), resume(1)]);
        asked.add(vec![resume(2), resume(1), pause(3), pause(3), resume(1)]);
        asked.add(vec![resume(1), resume(2), pause(1)]);
        let kept = vec![resume(1), resume(2), pause(3), resume(1), resume(2)];
        assert_eq!(asked.take(), (kept, 1));
    }

    #[test]
    fn more_agents_mean_smaller_batches() {
        let asked = agent_requests("pause");
        assert_eq!((asked.ticks(10), asked.ticks(1_000_000)), (400_000, 4));
        assert_eq!((asked.ticks(0), asked.ticks(100_000_000)), (4_000_000, 1));
        assert_eq!(agent_requests("[]").ticks(1_000_000), u32::MAX);
    }
}
