//! Checks of single transitions and timeouts.

use std::borrow::Cow;

use super::{ChartDraft, TRANSITIONS_MAX, item_location};
use crate::chart::{Guard, GuardBody};
use crate::chart::{TIMEOUT, TRIGGERS_MAX, TimeoutThreshold};
use crate::error::ChartError;
use crate::expression::{CompiledExpression, NameResolver, parse, tokens};
use crate::source::{ChartSource, GuardSource, StateSelector, ThresholdSource, TransitionSource};
use crate::value::{ScalarKind, ScalarValue};

/// A transition or timeout that is valid on its own.
pub(super) struct CheckedTransition {
    pub(super) location: String,
    pub(super) trigger: usize,
    /// Nodes of the tree. For `*` these are leaf states.
    pub(super) sources: Vec<usize>,
    /// True if the source is `*`.
    pub(super) from_any: bool,
    pub(super) target: usize,
    pub(super) guard: Option<u16>,
    pub(super) effects: Vec<u16>,
    pub(super) oracle: bool,
    pub(super) threshold: Option<TimeoutThreshold>,
}

impl ChartDraft {
    pub(super) fn index_by_trigger(&mut self) {
        self.by_trigger = vec![Vec::new(); self.triggers.len()];
        for (transition, checked) in self.checked.iter().enumerate() {
            self.by_trigger[checked.trigger].push(transition);
        }
    }

    pub(super) fn check_transitions(&mut self, source: &ChartSource) {
        let count = source.transitions.len() + source.timeouts.len();
        if count > TRANSITIONS_MAX {
            let message = format!(
                "there are {count} transitions, and the limit transitions is {TRANSITIONS_MAX}"
            );
            self.error("transitions", message);
        }
        for (index, transition) in source.transitions.iter().enumerate() {
            self.check_transition(&format!("transitions[{index}]"), transition);
        }
        if self.triggers.len() >= TRIGGERS_MAX {
            let message = format!(
                "there are too many triggers: with timeout, the limit triggers is {TRIGGERS_MAX}"
            );
            self.error("transitions", message);
        }
    }

    fn check_transition(&mut self, location: &str, transition: &TransitionSource) {
        let TransitionSource { trigger, source, target, guard, action, oracle } = transition;
        let at = format!("{location}.trigger");
        self.check_name(&at, "trigger", trigger);
        if trigger == TIMEOUT {
            let message =
                "the trigger \"timeout\" is kept for timeouts; declare it under \"timeouts\"";
            self.error(at, message);
        }
        let target = self.find_state(&format!("{location}.target"), "target", target);
        let sources = self.find_sources(location, "source", source, target);
        let guard = guard.as_ref().map(|guard| self.guard(&format!("{location}.guard"), guard));
        let effects = self.effects(location, "action", action);
        let (Some(target), Some(sources)) = (target, sources) else { return };
        let trigger = self.trigger(trigger);
        self.checked.push(CheckedTransition {
            location: location.to_owned(),
            trigger,
            sources,
            from_any: matches!(source, StateSelector::Any),
            target,
            guard,
            effects,
            oracle: *oracle,
            threshold: None,
        });
    }

    pub(super) fn check_timeouts(&mut self, source: &ChartSource) {
        for (index, timeout) in source.timeouts.iter().enumerate() {
            let location = format!("timeouts[{index}]");
            let target = self.find_state(&format!("{location}.target"), "target", &timeout.target);
            let sources = self.find_sources(&location, "state", &timeout.state, target);
            let threshold = self.threshold(&format!("{location}.threshold"), &timeout.threshold);
            let effects = self.effects(&location, "action", &timeout.action);
            let (Some(target), Some(sources)) = (target, sources) else { continue };
            let trigger = self.trigger(TIMEOUT);
            self.checked.push(CheckedTransition {
                location,
                trigger,
                sources,
                from_any: matches!(timeout.state, StateSelector::Any),
                target,
                guard: None,
                effects,
                oracle: false,
                threshold,
            });
        }
    }

    fn threshold(
        &mut self,
        location: &str,
        threshold: &ThresholdSource,
    ) -> Option<TimeoutThreshold> {
        match threshold {
            ThresholdSource::Ticks(ticks) if *ticks > 0.0 && ticks.is_finite() => {
                Some(TimeoutThreshold::Ticks(*ticks))
            }
            ThresholdSource::Ticks(ticks) => {
                self.error(location, format!("threshold must be above 0, found {ticks}"));
                None
            }
            ThresholdSource::Field(name) => match self.names.field(name) {
                Ok((field, None | Some(ScalarKind::Number))) => {
                    let default = &self.names.fields[field.index()].default;
                    if let Some(ScalarValue::Number(ticks)) = default.as_ref()
                        && *ticks <= 0.0
                    {
                        let message =
                            format!("agent.{name} must be above 0 as a threshold, and is {ticks}");
                        self.error(location, message);
                    }
                    Some(TimeoutThreshold::Field(field))
                }
                Ok((_, Some(kind @ (ScalarKind::Bool | ScalarKind::Text)))) => {
                    let kind = kind.describe();
                    self.error(location, format!("agent.{name} must be a number and is {kind}"));
                    None
                }
                Err(error) => {
                    self.errors.push(error.at(location));
                    None
                }
            },
        }
    }

    fn trigger(&mut self, name: &str) -> usize {
        let known = self.triggers.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.triggers.push(name.to_owned());
            self.triggers.len() - 1
        })
    }

    fn find_sources(
        &mut self,
        location: &str,
        name: &str,
        states: &StateSelector,
        target: Option<usize>,
    ) -> Option<Vec<usize>> {
        match states {
            StateSelector::Any => {
                let target = target?;
                let others = self.tree.leaves.iter().copied();
                Some(others.filter(|leaf| !self.tree.is_inside(*leaf, target)).collect())
            }
            StateSelector::Listed(names) => {
                if names.is_empty() {
                    self.error(format!("{location}.{name}"), format!("{name} is missing or empty"));
                    return None;
                }
                let mut nodes = Vec::new();
                for (index, state) in names.iter().enumerate() {
                    let at = item_location(location, name, names.len(), index);
                    let node = self.find_state(&at, name, state);
                    if node.is_some_and(|node| nodes.contains(&Some(node))) {
                        self.error(at, format!("{name} \"{state}\" is listed twice"));
                    }
                    nodes.push(node);
                }
                nodes.into_iter().collect()
            }
        }
    }

    fn guard(&mut self, location: &str, guard: &GuardSource) -> u16 {
        let number = self.next_index("guards", self.guards.len());
        let guard = match guard {
            GuardSource::Rust(name, guard) => {
                Guard { text: name.clone(), body: GuardBody::Rust(guard.clone()) }
            }
            GuardSource::Text(text) => match self.guard_text(text) {
                Ok(guard) => guard,
                Err(mut error) => {
                    let text = shortened(text);
                    error.message = format!("guard \"{text}\": {}", error.message);
                    self.errors.push(error.at(location));
                    return number;
                }
            },
        };
        self.guards.push(guard);
        number
    }

    fn guard_text(&mut self, text: &str) -> Result<Guard, ChartError> {
        let words = tokens(text)?;
        if words.is_empty() {
            return Err("it is empty; leave the field out where there is no guard"
                .to_owned()
                .into());
        }
        let (code, kind) = CompiledExpression::compile(&parse(&words)?, &mut self.names)?;
        if let Some(kind @ (ScalarKind::Number | ScalarKind::Text)) = kind {
            let kind = kind.describe();
            return Err(format!("it must be true or false, and is {kind}").into());
        }
        let body = match code.comparisons() {
            Some(comparisons) => GuardBody::Simple(comparisons.into(), code),
            None => GuardBody::Code(code),
        };
        Ok(Guard { text: text.trim().to_owned(), body })
    }
}

/// Shortens a text for a message to one line.
fn shortened(text: &str) -> Cow<'_, str> {
    const CHARACTERS_MAX: usize = 200;
    match text.char_indices().nth(CHARACTERS_MAX) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
    }
}
