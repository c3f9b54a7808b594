//! Streams of agents and schedules.

use polity_model::digest::Digest;
use polity_model::event::{Event, ScheduleChange, StreamId, StreamSequence};
use polity_model::name::Name;
use polity_store::{Commit, CommitError};

use super::{SharedStore, begin};
use crate::task_fixtures::{commit, task_id};

/// Agent streams accept only agent events, and task streams only task events.
pub fn agent_toggles_have_their_own_streams(store: &SharedStore) {
    begin(store, task_id(1));
    let commit_to_agent = |agent: &str, expected: u64, event: Event| {
        let stream = StreamId::Agent(agent.parse().unwrap());
        let commit = Commit { stream, ..commit(task_id(1), expected, None, vec![event]) };
        store.commit(commit).wait()
    };
    assert_eq!(store.toggled_agents().wait().unwrap(), Vec::<Name>::new());
    commit_to_agent("greeter", 0, Event::AgentDisabled { reason: None }).unwrap();
    commit_to_agent("coder", 0, Event::AgentEnabled).unwrap();
    commit_to_agent("greeter", 1, Event::AgentEnabled).unwrap();
    let refused = commit_to_agent("greeter", 2, Event::TaskStarted);
    assert!(matches!(refused, Err(CommitError::Illegal { .. })), "{refused:?}");
    let refused = store.commit(commit(task_id(1), 2, None, vec![Event::AgentEnabled])).wait();
    assert!(matches!(refused, Err(CommitError::Illegal { .. })), "{refused:?}");
    let agents: Vec<String> =
        store.toggled_agents().wait().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(agents, ["coder", "greeter"]);
    let stream = StreamId::Agent("greeter".parse().unwrap());
    let events = store.events(&stream, StreamSequence::default()).wait().unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].event, Event::AgentEnabled);
    assert_eq!(store.remove(vec![vec![task_id(2)]]).wait().unwrap().len(), 1);
    assert_eq!(store.newest_events(&stream, 1).wait().unwrap().len(), 1);
}

/// The records of a schedule have their own stream, and its sequence decides between two processes.
pub fn schedules_have_their_own_streams(store: &SharedStore) {
    let stream = StreamId::Schedule("daily".parse().unwrap());
    let register = ScheduleChange::Register { timing: Digest::of(b"") };
    let event = |change| Event::ScheduleChanged { change };
    let commit_to = |expected, change| {
        let stream = stream.clone();
        let commit = commit(task_id(1), expected, None, vec![event(change)]);
        store.commit(Commit { stream, ..commit }).wait()
    };
    commit_to(0, register.clone()).unwrap();
    commit_to(1, ScheduleChange::Remove).unwrap();
    assert!(matches!(commit_to(1, ScheduleChange::Remove), Err(CommitError::Conflict { .. })));
    begin(store, task_id(1));
    let in_task = commit(task_id(1), 2, None, vec![event(register.clone())]);
    assert!(matches!(store.commit(in_task).wait(), Err(CommitError::Illegal { .. })));
    let recorded = store.events(&stream, StreamSequence::default()).wait().unwrap();
    let events: Vec<_> = recorded.into_iter().map(|recorded| recorded.event).collect();
    assert_eq!(events, [event(register), event(ScheduleChange::Remove)]);
}
