use serde_json::json;

use super::*;
use crate::kernel::AgentSlot;

/// A population of agents a, b and c with room for five agents.
fn population() -> Population {
    let mut population = Population::new(5, 2);
    for (serial, name) in ["a", "b", "c"].into_iter().enumerate() {
        let (serial, slot) = (serial as u64, u32::try_from(serial).unwrap());
        population.declare(name, AgentSerial(serial));
        population.insert(AgentSerial(serial), AgentSlot(slot), 0);
    }
    population
}

fn request(operation: LifecycleOperation, target: &str) -> LifecycleAction {
    let mut request = LifecycleAction::new(operation, target);
    if operation == LifecycleOperation::AddAgent {
        request.initial_state = Some(Map::new());
    }
    request
}

fn pause(target: &str, turns: i64) -> LifecycleAction {
    LifecycleAction {
        auto_resume_turns: Some(turns),
        ..request(LifecycleOperation::PauseAgent, target)
    }
}

fn resolve_start(_: usize, initial: &Map<String, Value>) -> Result<(), String> {
    if initial.contains_key("mood") { Err("there is no field \"mood\"".to_owned()) } else { Ok(()) }
}

fn rule(population: &mut Population, requests: &[LifecycleAction]) -> Vec<RequestRuling<()>> {
    PopulationDraft::new(population).rule_all(requests, &resolve_start, false)
}

fn reason(ruling: &RequestRuling<()>) -> &str {
    assert!(!ruling.result.valid && ruling.change.is_none());
    ruling.result.reason.as_deref().unwrap()
}

#[test]
fn renames_an_agent_whose_name_is_taken() {
    let add = request(LifecycleOperation::AddAgent, "a");
    let rulings = rule(&mut population(), &[add.clone(), add]);
    let names: Vec<_> = rulings.iter().map(|ruling| ruling.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["a_1", "a_2"]);
    let warnings = &rulings[0].result.warnings;
    assert_eq!(warnings, &["the name \"a\" is taken, the new agent is \"a_1\""]);
    let expected =
        PopulationChange::Add { serial: AgentSerial(4), name: "a_2".to_owned(), start: () };
    assert_eq!(rulings[1].change, Some(expected));
}

#[test]
fn add_needs_a_valid_initial_state() {
    let without = LifecycleAction::new(LifecycleOperation::AddAgent, "d");
    let mut wrong = request(LifecycleOperation::AddAgent, "d");
    wrong.initial_state = json!({"mood": 1}).as_object().cloned();
    let rulings = rule(&mut population(), &[without, wrong]);
    assert!(reason(&rulings[0]).starts_with("initial_state is missing"));
    assert_eq!(reason(&rulings[1]), "there is no field \"mood\"");
}

#[test]
fn add_respects_max_agents() {
    let requests = [
        request(LifecycleOperation::AddAgent, "d"),
        request(LifecycleOperation::AddAgent, "e"),
        request(LifecycleOperation::AddAgent, "f"),
        request(LifecycleOperation::RemoveAgent, "a"),
        request(LifecycleOperation::AddAgent, "f"),
    ];
    let rulings = rule(&mut population(), &requests);
    assert_eq!(reason(&rulings[2]), "there are 5 agents, and max_agents is 5");
    assert!(rulings[4].result.valid);
}

#[test]
fn last_agent_can_be_removed() {
    let requests = ["a", "b", "c"].map(|name| request(LifecycleOperation::RemoveAgent, name));
    let rulings = rule(&mut population(), &requests);
    assert!(rulings.iter().all(|ruling| ruling.result.valid));
    assert_eq!(rulings[2].result.warnings, ["no agents are left"]);
}

#[test]
fn agent_can_remove_itself() {
    let mut removal = request(LifecycleOperation::RemoveAgent, "b");
    removal.initiating_agent = Some("b".to_owned());
    let rulings = rule(&mut population(), &[removal]);
    assert!(rulings[0].result.valid);
    assert_eq!(rulings[0].result.warnings, Vec::<String>::new());
}

#[test]
fn rejects_requests_for_missing_agents() {
    let requests = [
        request(LifecycleOperation::RemoveAgent, "z"),
        request(LifecycleOperation::PauseAgent, "z"),
        request(LifecycleOperation::ResumeAgent, "z"),
        request(LifecycleOperation::RemoveAgent, "a"),
        request(LifecycleOperation::RemoveAgent, "a"),
        request(LifecycleOperation::PauseAgent, "a"),
    ];
    let rulings = rule(&mut population(), &requests);
    for at in [0, 1, 2] {
        assert_eq!(reason(&rulings[at]), "there is no agent \"z\"");
    }
    assert!(rulings[3].result.valid);
    assert_eq!(reason(&rulings[4]), "there is no agent \"a\"");
    assert_eq!(reason(&rulings[5]), "there is no agent \"a\"");
}

#[test]
fn pause_and_resume_need_the_right_state() {
    let requests = [
        request(LifecycleOperation::ResumeAgent, "a"),
        request(LifecycleOperation::PauseAgent, "a"),
        request(LifecycleOperation::PauseAgent, "a"),
        request(LifecycleOperation::ResumeAgent, "a"),
        request(LifecycleOperation::ResumeAgent, "a"),
    ];
    let rulings = rule(&mut population(), &requests);
    assert_eq!(reason(&rulings[0]), "\"a\" is not paused");
    assert!(rulings[1].result.valid);
    assert_eq!(reason(&rulings[2]), "\"a\" is paused already");
    assert!(rulings[3].result.valid);
    assert_eq!(reason(&rulings[4]), "\"a\" is not paused");
}

#[test]
fn pause_needs_at_least_one_turn() {
    for turns in [0, -1, i64::MAX] {
        let rulings = rule(&mut population(), &[pause("a", turns)]);
        assert_eq!(
            reason(&rulings[0]),
            format!("auto_resume_turns must be a whole number from 1 to 4294967295, found {turns}")
        );
    }
    let rulings = rule(&mut population(), &[pause("a", 1)]);
    let expected = PopulationChange::Pause { serial: AgentSerial(0), turns: NonZeroU32::new(1) };
    assert_eq!(rulings[0].change, Some(expected));
}

#[test]
fn removing_a_paused_agent_removes_its_pause() {
    let mut population = population();
    population.pause(AgentSerial(0), 7, NonZeroU32::new(2));
    assert!(
        rule(&mut population, &[request(LifecycleOperation::RemoveAgent, "a")])[0].result.valid
    );
    population.remove(AgentSerial(0));
    assert_eq!(population.paused(), []);
    assert_eq!(population.take_ended_pauses(9), []);
}

#[test]
fn added_agent_can_be_paused_and_removed_in_the_same_turn() {
    let requests = [
        request(LifecycleOperation::AddAgent, "d"),
        pause("d", 3),
        request(LifecycleOperation::RemoveAgent, "d"),
        request(LifecycleOperation::AddAgent, "d"),
    ];
    let rulings = rule(&mut population(), &requests);
    assert!(rulings.iter().all(|ruling| ruling.result.valid));
    assert_eq!(
        rulings[1].change,
        Some(PopulationChange::Pause { serial: AgentSerial(3), turns: NonZeroU32::new(3) })
    );
    assert_eq!(rulings[3].name.as_deref(), Some("d"));
}

#[test]
fn rejects_empty_names() {
    for operation in [
        LifecycleOperation::AddAgent,
        LifecycleOperation::RemoveAgent,
        LifecycleOperation::PauseAgent,
        LifecycleOperation::ResumeAgent,
    ] {
        let rulings = rule(&mut population(), &[request(operation, "")]);
        assert_eq!(reason(&rulings[0]), "the name of an agent must not be empty");
    }
}

#[test]
fn invalid_request_does_not_affect_others() {
    let requests = [
        request(LifecycleOperation::RemoveAgent, "z"),
        request(LifecycleOperation::RemoveAgent, "a"),
    ];
    let rulings = rule(&mut population(), &requests);
    assert!(rulings[0].change.is_none() && rulings[1].change.is_some());
}

#[test]
fn strict_ruling_rejects_all_requests() {
    let requests =
        [request(LifecycleOperation::AddAgent, "a"), request(LifecycleOperation::RemoveAgent, "z")];
    let mut population = population();
    let rulings = PopulationDraft::new(&mut population).rule_all(&requests, &resolve_start, true);
    assert!(rulings.iter().all(|ruling| ruling.change.is_none() && !ruling.result.valid));
    assert_eq!(
        reason(&rulings[0]),
        "another request of this turn cannot be done (remove_agent of \"z\"), and the run is strict"
    );
    let again =
        PopulationDraft::new(&mut population).rule_all(&requests[..1], &resolve_start, true);
    assert_eq!(again[0].name.as_deref(), Some("a_1"));
}

#[test]
fn ignored_fields_are_warnings() {
    let mut removal = pause("a", 3);
    removal.operation = LifecycleOperation::RemoveAgent;
    removal.initial_state = Some(Map::new());
    let rulings = rule(&mut population(), &[removal]);
    assert_eq!(
        rulings[0].result.warnings,
        [
            "initial_state has a meaning only for add_agent, and is passed over",
            "auto_resume_turns has a meaning only for pause_agent, and is passed over",
        ]
    );
}

#[test]
fn initiator_must_be_present_and_active() {
    let by = |initiator: &str, request: LifecycleAction| LifecycleAction {
        initiating_agent: Some(initiator.to_owned()),
        ..request
    };
    let requests = [
        by("nobody", request(LifecycleOperation::RemoveAgent, "a")),
        request(LifecycleOperation::PauseAgent, "b"),
        by("b", request(LifecycleOperation::RemoveAgent, "a")),
        request(LifecycleOperation::RemoveAgent, "c"),
        by("c", request(LifecycleOperation::PauseAgent, "a")),
        by("a", request(LifecycleOperation::AddAgent, "d")),
        by("d", request(LifecycleOperation::PauseAgent, "a")),
    ];
    let rulings = rule(&mut population(), &requests);
    assert_eq!(reason(&rulings[0]), "initiating_agent: there is no agent \"nobody\"");
    let paused = "initiating_agent: \"b\" is paused and cannot ask for anything";
    assert_eq!(reason(&rulings[2]), paused);
    assert_eq!(reason(&rulings[4]), "initiating_agent: there is no agent \"c\"");
    assert!(rulings[5].result.valid && rulings[6].result.valid);

    // An agent that acts is not paused, even if it has requested a pause before.
    let agent_requests = [
        by("a", request(LifecycleOperation::PauseAgent, "a")),
        by("a", request(LifecycleOperation::AddAgent, "a")),
    ];
    let mut population = population();
    let draft = PopulationDraft::new(&mut population).with_agent_requests(agent_requests.len());
    let rulings = draft.rule_all(&agent_requests, &resolve_start, false);
    assert!(rulings.iter().all(|ruling| ruling.result.valid));
}

#[test]
fn pause_skips_its_number_of_turns() {
    let mut population = population();
    population.pause(AgentSerial(1), 4, NonZeroU32::new(2));
    population.pause(AgentSerial(0), 4, None);
    let left = |population: &Population, turn| {
        population.auto_resume(AgentSerial(1), turn).map(NonZeroU32::get)
    };
    assert_eq!(population.paused(), [AgentSerial(0), AgentSerial(1)]);
    assert_eq!(left(&population, 4), Some(2));
    assert_eq!(population.take_ended_pauses(5), []);
    assert_eq!(left(&population, 5), Some(1));
    assert_eq!(population.take_ended_pauses(6), [AgentSerial(1)]);
    assert_eq!(population.paused(), [AgentSerial(0)]);
}

#[test]
fn new_pause_replaces_the_end_of_an_old_one() {
    let mut population = population();
    population.pause(AgentSerial(0), 1, NonZeroU32::new(2));
    population.resume(AgentSerial(0));
    population.pause(AgentSerial(0), 2, NonZeroU32::new(5));
    assert_eq!(population.take_ended_pauses(3), []);
    assert_eq!(population.take_ended_pauses(7), [AgentSerial(0)]);
}

#[test]
fn numbered_name_respects_the_length_limit() {
    let mut population = population();
    let long = "n".repeat(names::AGENT_NAME_CHARACTERS_MAX);
    let add = request(LifecycleOperation::AddAgent, &long);
    let rulings = rule(&mut population, &[add.clone(), add]);
    assert!(rulings[0].result.valid);
    assert!(reason(&rulings[1]).ends_with("has 100 characters at most"), "{rulings:?}");
}

#[test]
fn removed_agents_leave_no_entry() {
    let mut population = population();
    for serial in 3..1000 {
        population.declare("d", AgentSerial(serial));
        population.insert(AgentSerial(serial), AgentSlot(3), 0);
        assert_eq!(population.agents().last(), Some((AgentSerial(serial), AgentSlot(3))));
        population.remove(AgentSerial(serial));
    }
    assert_eq!(population.agents().count(), 3);
    assert_eq!(population.next_serial(), AgentSerial(1000));
}
