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

fn add(target: &str) -> LifecycleAction {
    let initial_state = Some(Map::new());
    LifecycleAction { initial_state, ..LifecycleAction::new(LifecycleOperation::AddAgent, target) }
}

fn remove(target: &str) -> LifecycleAction {
    LifecycleAction::new(LifecycleOperation::RemoveAgent, target)
}

fn pause(target: &str, auto_resume_turns: Option<i64>) -> LifecycleAction {
    let pause = LifecycleAction::new(LifecycleOperation::PauseAgent, target);
    LifecycleAction { auto_resume_turns, ..pause }
}

fn resume(target: &str) -> LifecycleAction {
    LifecycleAction::new(LifecycleOperation::ResumeAgent, target)
}

fn by(initiator: &str, request: LifecycleAction) -> LifecycleAction {
    LifecycleAction { initiating_agent: Some(initiator.to_owned()), ..request }
}

fn resolve_start(_: usize, initial: &Map<String, Value>) -> Result<(), String> {
    if initial.contains_key("mood") { Err("there is no field \"mood\"".to_owned()) } else { Ok(()) }
}

/// The expected reason of a request that is valid.
const VALID: &str = "";

fn assert_reason(ruling: &RequestRuling<()>, expected: &str) {
    let valid = expected == VALID;
    assert_eq!(ruling.result.reason.as_deref().unwrap_or(VALID), expected);
    assert_eq!((ruling.result.valid, ruling.change.is_some()), (valid, valid), "{ruling:?}");
}

/// Rules on requests of one turn, each with its expected reason.
fn check<const N: usize>(cases: [(LifecycleAction, &str); N]) -> Vec<RequestRuling<()>> {
    let requests = cases.each_ref().map(|(request, _)| request.clone());
    let rulings = PopulationDraft::new(&population()).rule_all(&requests, &resolve_start, false);
    rulings.iter().zip(cases).for_each(|(ruling, (_, reason))| assert_reason(ruling, reason));
    rulings
}

#[test]
fn renames_an_agent_whose_name_is_taken() {
    let rulings = check([(add("a"), VALID), (add("a"), VALID)]);
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
    let missing = LifecycleAction { initial_state: None, ..add("d") };
    let wrong = json!({"mood": 1}).as_object().cloned();
    check([
        (missing, "initial_state is missing: a new agent needs one, {} will do"),
        (LifecycleAction { initial_state: wrong, ..add("d") }, "there is no field \"mood\""),
    ]);
}

#[test]
fn add_respects_max_agents() {
    check([
        (add("d"), VALID),
        (add("e"), VALID),
        (add("f"), "there are 5 agents, and max_agents is 5"),
        (remove("a"), VALID),
        (add("f"), VALID),
    ]);
}

#[test]
fn last_agent_can_be_removed() {
    let rulings = check(["a", "b", "c"].map(|name| (remove(name), VALID)));
    assert_eq!(rulings[2].result.warnings, ["no agents are left"]);
}

#[test]
fn agent_can_remove_itself() {
    let rulings = check([(by("b", remove("b")), VALID)]);
    assert_eq!(rulings[0].result.warnings, Vec::<String>::new());
}

/// An invalid request does not affect the others.
#[test]
fn rejects_requests_for_missing_agents() {
    check([
        (remove("z"), "there is no agent \"z\""),
        (pause("z", None), "there is no agent \"z\""),
        (resume("z"), "there is no agent \"z\""),
        (remove("a"), VALID),
        (remove("a"), "there is no agent \"a\""),
        (pause("a", None), "there is no agent \"a\""),
    ]);
}

#[test]
fn pause_and_resume_need_the_right_state() {
    check([
        (resume("a"), "\"a\" is not paused"),
        (pause("a", None), VALID),
        (pause("a", None), "\"a\" is paused already"),
        (resume("a"), VALID),
        (resume("a"), "\"a\" is not paused"),
    ]);
}

#[test]
fn pause_needs_at_least_one_turn() {
    let range = "auto_resume_turns must be a whole number from 1 to 4294967295";
    for turns in [0, -1, i64::MAX] {
        check([(pause("a", Some(turns)), &format!("{range}, found {turns}"))]);
    }
    let rulings = check([(pause("a", Some(1)), VALID)]);
    let expected = PopulationChange::Pause { serial: AgentSerial(0), turns: NonZeroU32::new(1) };
    assert_eq!(rulings[0].change, Some(expected));
}

#[test]
fn removing_a_paused_agent_removes_its_pause() {
    let mut population = population();
    population.pause(AgentSerial(0), 7, NonZeroU32::new(2));
    let draft = PopulationDraft::new(&population);
    assert_reason(&draft.rule_all(&[remove("a")], &resolve_start, false)[0], VALID);
    population.remove(AgentSerial(0));
    assert_eq!(population.paused(), []);
    assert_eq!(population.take_ended_pauses(9), []);
}

#[test]
fn added_agent_can_be_paused_and_removed_in_the_same_turn() {
    let requests = [add("d"), pause("d", Some(3)), remove("d"), add("d")];
    let rulings = check(requests.map(|request| (request, VALID)));
    let expected = PopulationChange::Pause { serial: AgentSerial(3), turns: NonZeroU32::new(3) };
    assert_eq!(rulings[1].change, Some(expected));
    assert_eq!(rulings[3].name.as_deref(), Some("d"));
}

#[test]
fn rejects_empty_names() {
    let requests = [add(""), remove(""), pause("", None), resume("")];
    check(requests.map(|request| (request, "the name of an agent must not be empty")));
}

#[test]
fn strict_ruling_rejects_all_requests() {
    let requests = [add("a"), remove("z")];
    let population = population();
    let rulings = PopulationDraft::new(&population).rule_all(&requests, &resolve_start, true);
    let reason = "another request of this turn cannot be done (remove_agent of \"z\"), and the \
        run is strict";
    assert_reason(&rulings[0], reason);
    assert_reason(&rulings[1], "there is no agent \"z\"");
    let again = PopulationDraft::new(&population).rule_all(&requests[..1], &resolve_start, true);
    assert_eq!(again[0].name.as_deref(), Some("a_1"));
}

#[test]
fn ignored_fields_are_warnings() {
    let initial_state = Some(Map::new());
    let removal = LifecycleAction { initial_state, auto_resume_turns: Some(3), ..remove("a") };
    let rulings = check([(removal, VALID)]);
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
    check([
        (by("nobody", remove("a")), "initiating_agent: there is no agent \"nobody\""),
        (pause("b", None), VALID),
        (by("b", remove("a")), "initiating_agent: \"b\" is paused and cannot ask for anything"),
        (remove("c"), VALID),
        (by("c", pause("a", None)), "initiating_agent: there is no agent \"c\""),
        (by("a", add("d")), VALID),
        (by("d", pause("a", None)), VALID),
    ]);

    // An agent that acts is not paused, even if it has requested a pause before.
    let requests = [by("a", pause("a", None)), by("a", add("a"))];
    let population = population();
    let draft = PopulationDraft::new(&population).with_agent_requests(requests.len());
    let rulings = draft.rule_all(&requests, &resolve_start, false);
    for ruling in &rulings {
        assert_reason(ruling, VALID);
    }
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

fn names<const N: usize>(requests: [LifecycleAction; N]) -> [String; N] {
    let rulings = check(requests.map(|request| (request, VALID)));
    let names: Vec<String> = rulings.into_iter().map(|ruling| ruling.name.unwrap()).collect();
    names.try_into().unwrap()
}

#[test]
fn copies_of_copies_keep_the_base_name() {
    assert_eq!(names([add("a"), add("a_1")]), ["a_1", "a_2"]);
    assert_eq!(names([add("a_7"), add("a")]), ["a_7", "a_8"]);
    // A number is not reused, even if its agent was removed in the same turn.
    assert_eq!(names([add("a_3"), remove("a_3"), add("a")]), ["a_3", "a_3", "a_4"]);
    let long = "n".repeat(names::AGENT_NAME_CHARACTERS_MAX);
    assert_eq!(names([add(&long), add(&long)]), [long.clone(), format!("{}_1", &long[..80])]);
}

#[test]
fn numbers_of_a_base_name_are_limited() {
    let last = format!("a_{}", names::NAME_NUMBER_MAX);
    let reason = "the name \"a\" is taken, and \"a\" has no free number";
    check([(add(&last), VALID), (add("a"), reason)]);
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
