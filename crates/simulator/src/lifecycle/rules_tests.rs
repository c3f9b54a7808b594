use serde_json::json;

use super::*;
use crate::kernel::Slot;

/// A population of agents a, b and c that may have five agents.
fn population() -> Population {
    let mut population = Population::new(5, 2);
    for (serial, name) in ["a", "b", "c"].into_iter().enumerate() {
        let (serial, slot) = (serial as u64, u32::try_from(serial).unwrap());
        population.declare(name, AgentSerial(serial));
        population.enter(AgentSerial(serial), Slot(slot), 0);
    }
    population
}

fn request(operation: Operation, target: &str) -> LifecycleAction {
    let mut request = LifecycleAction::new(operation, target);
    if operation == Operation::AddAgent {
        request.initial_state = Some(Map::new());
    }
    request
}

fn pause(target: &str, turns: i64) -> LifecycleAction {
    LifecycleAction { auto_resume_turns: Some(turns), ..request(Operation::PauseAgent, target) }
}

fn opening(_: usize, initial: &Map<String, Value>) -> Result<(), String> {
    if initial.contains_key("mood") { Err("there is no field \"mood\"".to_owned()) } else { Ok(()) }
}

fn rule(population: &mut Population, requests: &[LifecycleAction]) -> Vec<Ruling<()>> {
    Stage::new(population).rule(requests, &opening, false)
}

fn reason(ruling: &Ruling<()>) -> &str {
    assert!(!ruling.result.valid && ruling.change.is_none());
    ruling.result.reason.as_deref().unwrap()
}

#[test]
fn an_agent_with_a_name_that_is_taken_is_renamed() {
    let add = request(Operation::AddAgent, "a");
    let rulings = rule(&mut population(), &[add.clone(), add]);
    let names: Vec<_> = rulings.iter().map(|ruling| ruling.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["a_1", "a_2"]);
    let warnings = &rulings[0].result.warnings;
    assert_eq!(warnings, &["the name \"a\" is taken, the new agent is \"a_1\""]);
    let expected = Change::Add { serial: AgentSerial(4), name: "a_2".to_owned(), start: () };
    assert_eq!(rulings[1].change, Some(expected));
}

#[test]
fn an_agent_is_added_only_with_an_initial_state_that_fits() {
    let without = LifecycleAction::new(Operation::AddAgent, "d");
    let mut wrong = request(Operation::AddAgent, "d");
    wrong.initial_state = json!({"mood": 1}).as_object().cloned();
    let rulings = rule(&mut population(), &[without, wrong]);
    assert!(reason(&rulings[0]).starts_with("initial_state is missing"));
    assert_eq!(reason(&rulings[1]), "there is no field \"mood\"");
}

#[test]
fn no_agent_is_added_when_there_are_as_many_as_max_agents_allows() {
    let requests = [
        request(Operation::AddAgent, "d"),
        request(Operation::AddAgent, "e"),
        request(Operation::AddAgent, "f"),
        request(Operation::RemoveAgent, "a"),
        request(Operation::AddAgent, "f"),
    ];
    let rulings = rule(&mut population(), &requests);
    assert_eq!(reason(&rulings[2]), "there are 5 agents, and max_agents is 5");
    assert!(rulings[4].result.valid);
}

#[test]
fn the_last_agent_may_be_removed() {
    let requests = ["a", "b", "c"].map(|name| request(Operation::RemoveAgent, name));
    let rulings = rule(&mut population(), &requests);
    assert!(rulings.iter().all(|ruling| ruling.result.valid));
    assert_eq!(rulings[2].result.warnings, ["no agents are left"]);
}

#[test]
fn an_agent_may_remove_itself() {
    let mut removal = request(Operation::RemoveAgent, "b");
    removal.initiating_agent = Some("b".to_owned());
    let rulings = rule(&mut population(), &[removal]);
    assert!(rulings[0].result.valid);
    assert_eq!(rulings[0].result.warnings, Vec::<String>::new());
}

#[test]
fn an_agent_that_does_not_exist_or_is_removed_already_cannot_be_changed() {
    let requests = [
        request(Operation::RemoveAgent, "z"),
        request(Operation::PauseAgent, "z"),
        request(Operation::ResumeAgent, "z"),
        request(Operation::RemoveAgent, "a"),
        request(Operation::RemoveAgent, "a"),
        request(Operation::PauseAgent, "a"),
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
fn an_agent_is_paused_once_and_resumed_only_when_paused() {
    let requests = [
        request(Operation::ResumeAgent, "a"),
        request(Operation::PauseAgent, "a"),
        request(Operation::PauseAgent, "a"),
        request(Operation::ResumeAgent, "a"),
        request(Operation::ResumeAgent, "a"),
    ];
    let rulings = rule(&mut population(), &requests);
    assert_eq!(reason(&rulings[0]), "\"a\" is not paused");
    assert!(rulings[1].result.valid);
    assert_eq!(reason(&rulings[2]), "\"a\" is paused already");
    assert!(rulings[3].result.valid);
    assert_eq!(reason(&rulings[4]), "\"a\" is not paused");
}

#[test]
fn a_pause_lasts_for_one_turn_at_least() {
    for turns in [0, -1, i64::MAX] {
        let rulings = rule(&mut population(), &[pause("a", turns)]);
        assert_eq!(
            reason(&rulings[0]),
            format!("auto_resume_turns must be a whole number from 1 to 4294967295, found {turns}")
        );
    }
    let rulings = rule(&mut population(), &[pause("a", 1)]);
    let expected = Change::Pause { serial: AgentSerial(0), turns: NonZeroU32::new(1) };
    assert_eq!(rulings[0].change, Some(expected));
}

#[test]
fn a_paused_agent_may_be_removed_and_its_pause_goes_with_it() {
    let mut population = population();
    population.pause(AgentSerial(0), 7, NonZeroU32::new(2));
    assert!(rule(&mut population, &[request(Operation::RemoveAgent, "a")])[0].result.valid);
    population.leave(AgentSerial(0));
    assert_eq!(population.paused(), []);
    assert_eq!(population.take_due(9), []);
}

#[test]
fn an_agent_that_is_added_in_a_turn_can_be_paused_and_removed_in_it() {
    let requests = [
        request(Operation::AddAgent, "d"),
        pause("d", 3),
        request(Operation::RemoveAgent, "d"),
        request(Operation::AddAgent, "d"),
    ];
    let rulings = rule(&mut population(), &requests);
    assert!(rulings.iter().all(|ruling| ruling.result.valid));
    assert_eq!(
        rulings[1].change,
        Some(Change::Pause { serial: AgentSerial(3), turns: NonZeroU32::new(3) })
    );
    assert_eq!(rulings[3].name.as_deref(), Some("d"));
}

#[test]
fn a_name_is_never_empty() {
    for operation in
        [Operation::AddAgent, Operation::RemoveAgent, Operation::PauseAgent, Operation::ResumeAgent]
    {
        let rulings = rule(&mut population(), &[request(operation, "")]);
        assert_eq!(reason(&rulings[0]), "the name of an agent must not be empty");
    }
}

#[test]
fn one_request_that_cannot_be_done_is_dropped_and_the_others_are_done() {
    let requests = [request(Operation::RemoveAgent, "z"), request(Operation::RemoveAgent, "a")];
    let rulings = rule(&mut population(), &requests);
    assert!(rulings[0].change.is_none() && rulings[1].change.is_some());
}

#[test]
fn in_a_strict_run_one_request_that_cannot_be_done_takes_all_with_it() {
    let requests = [request(Operation::AddAgent, "a"), request(Operation::RemoveAgent, "z")];
    let mut population = population();
    let rulings = Stage::new(&mut population).rule(&requests, &opening, true);
    assert!(rulings.iter().all(|ruling| ruling.change.is_none() && !ruling.result.valid));
    assert_eq!(
        reason(&rulings[0]),
        "another request of this turn cannot be done (remove_agent of \"z\"), and the run is strict"
    );
    let again = Stage::new(&mut population).rule(&requests[..1], &opening, true);
    assert_eq!(again[0].name.as_deref(), Some("a_1"));
}

#[test]
fn what_has_no_meaning_for_an_operation_is_a_warning() {
    let mut removal = pause("a", 3);
    removal.operation = Operation::RemoveAgent;
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
fn nothing_is_asked_for_in_the_name_of_one_who_is_paused_or_not_there() {
    let by = |initiator: &str, request: LifecycleAction| LifecycleAction {
        initiating_agent: Some(initiator.to_owned()),
        ..request
    };
    let requests = [
        by("nobody", request(Operation::RemoveAgent, "a")),
        request(Operation::PauseAgent, "b"),
        by("b", request(Operation::RemoveAgent, "a")),
        request(Operation::RemoveAgent, "c"),
        by("c", request(Operation::PauseAgent, "a")),
        by("a", request(Operation::AddAgent, "d")),
        by("d", request(Operation::PauseAgent, "a")),
    ];
    let rulings = rule(&mut population(), &requests);
    assert_eq!(reason(&rulings[0]), "initiating_agent: there is no agent \"nobody\"");
    let paused = "initiating_agent: \"b\" is paused and cannot ask for anything";
    assert_eq!(reason(&rulings[2]), paused);
    assert_eq!(reason(&rulings[4]), "initiating_agent: there is no agent \"c\"");
    assert!(rulings[5].result.valid && rulings[6].result.valid);

    // What an agent does it asks for itself, and it may have asked for a pause before.
    let wishes =
        [by("a", request(Operation::PauseAgent, "a")), by("a", request(Operation::AddAgent, "a"))];
    let mut population = population();
    let stage = Stage::new(&mut population).with_wishes(wishes.len());
    let rulings = stage.rule(&wishes, &opening, false);
    assert!(rulings.iter().all(|ruling| ruling.result.valid));
}

#[test]
fn a_pause_skips_as_many_turns_as_it_says() {
    let mut population = population();
    population.pause(AgentSerial(1), 4, NonZeroU32::new(2));
    population.pause(AgentSerial(0), 4, None);
    let left = |population: &Population, turn| {
        population.auto_resume(AgentSerial(1), turn).map(NonZeroU32::get)
    };
    assert_eq!(population.paused(), [AgentSerial(0), AgentSerial(1)]);
    assert_eq!(left(&population, 4), Some(2));
    assert_eq!(population.take_due(5), []);
    assert_eq!(left(&population, 5), Some(1));
    assert_eq!(population.take_due(6), [AgentSerial(1)]);
    assert_eq!(population.paused(), [AgentSerial(0)]);
}

#[test]
fn a_pause_that_was_ended_and_begun_anew_ends_when_the_new_one_says() {
    let mut population = population();
    population.pause(AgentSerial(0), 1, NonZeroU32::new(2));
    population.resume(AgentSerial(0));
    population.pause(AgentSerial(0), 2, NonZeroU32::new(5));
    assert_eq!(population.take_due(3), []);
    assert_eq!(population.take_due(7), [AgentSerial(0)]);
}

#[test]
fn a_name_is_not_too_long_with_its_number_either() {
    let mut population = population();
    let long = "n".repeat(names::AGENT_NAME_CHARACTERS_MAX);
    let add = request(Operation::AddAgent, &long);
    let rulings = rule(&mut population, &[add.clone(), add]);
    assert!(rulings[0].result.valid);
    assert!(reason(&rulings[1]).ends_with("has 100 characters at most"), "{rulings:?}");
}

#[test]
fn those_who_came_later_are_forgotten_when_they_go() {
    let mut population = population();
    for serial in 3..1000 {
        population.declare("d", AgentSerial(serial));
        population.enter(AgentSerial(serial), Slot(3), 0);
        assert_eq!(population.agents().last(), Some((AgentSerial(serial), Slot(3))));
        population.leave(AgentSerial(serial));
    }
    assert_eq!(population.agents().count(), 3);
    assert_eq!(population.next_serial(), AgentSerial(1000));
}
