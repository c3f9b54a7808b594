//! Actions of a list of agents at once.
//!
//! Agents see nothing of each other in a tick, so it makes no difference that all of them perform
//! the first action of a way before any performs the second.

use std::sync::Arc;

use polity_statechart::{
    ActionKind, ErrorSite, EvalError, ExpressionTree, FieldId, ScalarKind, ScalarValue,
    TransitionAction, WorldId,
};

use super::BLOCK;
use super::doubts::{Cause, Doubts};
use super::fields::Column;
use super::lists::Tick;
use super::outbox::{Asked, Failed};
use super::pool::place;
use super::sight::Source;
use super::sums::are_within;
use super::tree::{Numbers, Truths, Workings};
use super::world::{At, ValueChanges};

impl Tick<'_> {
    /// Performs an action for some agents.
    pub(super) fn act(
        &mut self,
        act: &TransitionAction<'_>,
        list: &[u16],
        workings: &mut Workings,
    ) {
        let mut doubts = Doubts::default();
        match act.shape {
            ActionKind::SetField(field, tree) => {
                self.set_field(act.site(), field, tree, list, workings, &mut doubts);
            }
            ActionKind::AddField(field, tree) => {
                let sums = workings.sums(&self.sight(list), field, tree, &mut doubts);
                self.store(act.site(), field, list, sums, (workings, &doubts));
            }
            ActionKind::SetWorld(world, tree) => {
                self.set_world(world, tree, list, workings, &mut doubts);
            }
            ActionKind::AddWorld(world, tree) => {
                let more = workings.numbers(&self.sight(list), tree, &mut doubts);
                if doubts.mask().is_none() {
                    let changes = self.block.outbox.changes.of(world);
                    changes.add_all(self.column, list, |number| more.get(number));
                } else {
                    self.change_world(world, list, &doubts, |changes, at, number| {
                        changes.add(at, more.get(number));
                    });
                }
                workings.give_numbers(more);
            }
            ActionKind::Request(request) => {
                let asked = list.iter().map(|lane| Asked {
                    tick: self.now,
                    slot: self.first_slot + u32::from(*lane),
                    request: request.clone(),
                });
                self.block.outbox.requests.extend(asked);
            }
        }
        self.fail(act.site(), list, &doubts);
        if *doubts.cause() == Cause::Several {
            let doubtful = list.iter().enumerate().filter(|(number, _)| doubts.is_about(*number));
            for (_, lane) in doubtful {
                let chart = self.chart;
                chart.perform(act, &mut self.agent(place(*lane)));
            }
        }
        doubts.end(&mut workings.truths);
    }

    /// Takes note of agents for whom a guard or action has no value, if the reason is known.
    pub(super) fn fail(&mut self, site: ErrorSite, list: &[u16], doubts: &Doubts) {
        let Cause::One(fault) = doubts.cause() else { return };
        let failed = (0..list.len()).filter(|number| doubts.is_about(*number));
        self.failed(site, fault.clone(), list, failed);
    }

    /// Takes note of some agents of a list for whom something failed.
    fn failed(
        &mut self,
        site: ErrorSite,
        fault: EvalError,
        list: &[u16],
        mut numbers: impl Iterator<Item = usize>,
    ) {
        let Some(first) = numbers.next().map(|number| list[number]) else { return };
        let failed = Failed {
            count: 1 + numbers.count() as u64,
            tick: self.now,
            slot: self.first_slot + u32::from(first),
            serial: self.block.serials[place(first)],
        };
        self.block.outbox.fail(site, fault, failed);
    }

    fn set_field(
        &mut self,
        site: ErrorSite,
        field: FieldId,
        tree: ExpressionTree<'_>,
        list: &[u16],
        workings: &mut Workings,
        doubts: &mut Doubts,
    ) {
        match &self.block.fields[field.index()] {
            Column::Numbers(_) => {
                let numbers = workings.numbers(&self.sight(list), tree, doubts);
                self.store(site, field, list, numbers, (workings, doubts));
            }
            Column::Flags(_) => {
                let truths = workings.truths(&self.sight(list), tree, doubts);
                if let Column::Flags(flags) = &mut self.block.fields[field.index()] {
                    store_flags(flags, list, &truths, doubts);
                }
                workings.give_truths(truths);
            }
            Column::Texts(_) => self.set_texts(field, tree, list, workings, doubts),
        }
    }

    fn set_texts(
        &mut self,
        field: FieldId,
        tree: ExpressionTree<'_>,
        list: &[u16],
        workings: &mut Workings,
        doubts: &mut Doubts,
    ) {
        let sight = self.sight(list);
        let texts = match sight.texts(tree, tree.root) {
            Some(Source::Same(text)) => Texts::Same(text.clone()),
            Some(Source::Each(texts)) => {
                Texts::Each(list.iter().map(|lane| texts.get(place(*lane)).clone()).collect())
            }
            // Why there is none is found out for each.
            None => {
                doubts.add(&mut workings.truths, list.len(), |_| true, Cause::Several);
                return;
            }
        };
        if let Column::Texts(column) = &mut self.block.fields[field.index()] {
            match texts {
                Texts::Same(text) => {
                    let text = column.number(&text);
                    for lane in list {
                        column.numbers[place(*lane)] = text;
                    }
                }
                Texts::Each(texts) => {
                    for (lane, text) in list.iter().zip(&texts) {
                        column.numbers[place(*lane)] = column.number(text);
                    }
                }
            }
        }
    }

    /// Gives a field new numbers, where they are ones that it may have.
    fn store(
        &mut self,
        site: ErrorSite,
        field: FieldId,
        list: &[u16],
        numbers: Numbers,
        (workings, doubts): (&mut Workings, &Doubts),
    ) {
        let range = self.chart.fields()[field.index()].range();
        if let Column::Numbers(column) = &mut self.block.fields[field.index()]
            && let Some(column) = column.first_chunk_mut::<BLOCK>()
        {
            let may_be = match &numbers {
                Numbers::Same(same) => range.contains(same),
                Numbers::Each(each) => are_within(&each[..list.len()], &range),
            };
            if may_be && doubts.mask().is_none() {
                scatter(column, list, &numbers);
            } else {
                let mut refused = Vec::new();
                for (number, lane) in list.iter().enumerate() {
                    if doubts.is_about(number) {
                        continue;
                    }
                    // What is no number is not between two numbers.
                    let new = numbers.get(number);
                    if range.contains(&new) {
                        column[place(*lane)] = new;
                    } else {
                        refused.push(number);
                    }
                }
                self.failed(site, EvalError::OutOfRange(field), list, refused.into_iter());
            }
        }
        workings.give_numbers(numbers);
    }

    fn set_world(
        &mut self,
        world: WorldId,
        tree: ExpressionTree<'_>,
        list: &[u16],
        workings: &mut Workings,
        doubts: &mut Doubts,
    ) {
        let sight = self.sight(list);
        match sight.kind_of(tree) {
            Some(ScalarKind::Bool) => {
                let truths = workings.truths(&sight, tree, doubts);
                self.change_world(world, list, doubts, |changes, at, number| {
                    changes.set(at, ScalarValue::Bool(truths.get(number)));
                });
                workings.give_truths(truths);
            }
            Some(ScalarKind::Text) => {
                let texts: Vec<ScalarValue> = match sight.texts(tree, tree.root) {
                    Some(Source::Same(text)) => vec![ScalarValue::Text(text.clone()); list.len()],
                    Some(Source::Each(texts)) => {
                        let texts = list.iter().map(|lane| texts.get(place(*lane)));
                        texts.map(|text| ScalarValue::Text(text.clone())).collect()
                    }
                    None => return,
                };
                self.change_world(world, list, doubts, |changes, at, number| {
                    changes.set(at, texts[number].clone());
                });
            }
            // Numbers say what is missing, too.
            Some(ScalarKind::Number) | None => {
                let numbers = workings.numbers(&sight, tree, doubts);
                self.change_world(world, list, doubts, |changes, at, number| {
                    changes.set(at, ScalarValue::Number(numbers.get(number)));
                });
                workings.give_numbers(numbers);
            }
        }
    }

    fn change_world(
        &mut self,
        world: WorldId,
        list: &[u16],
        doubts: &Doubts,
        mut change: impl FnMut(&mut ValueChanges, At, usize),
    ) {
        let column = self.column;
        let changes = self.block.outbox.changes.of(world);
        for (number, lane) in list.iter().enumerate() {
            if !doubts.is_about(number) {
                change(changes, At::new(column, *lane), number);
            }
        }
    }
}

/// Gives the agents of a list their numbers.
fn scatter(column: &mut [f64; BLOCK], list: &[u16], numbers: &Numbers) {
    match numbers {
        Numbers::Same(same) => list.iter().for_each(|lane| column[place(*lane)] = *same),
        Numbers::Each(each) => {
            list.iter().zip(&**each).for_each(|(lane, number)| column[place(*lane)] = *number);
        }
    }
}

/// Texts to be given to agents of a list.
enum Texts {
    Same(Arc<str>),
    Each(Vec<Arc<str>>),
}

fn store_flags(flags: &mut [u8], list: &[u16], truths: &Truths, doubts: &Doubts) {
    for (number, lane) in list.iter().enumerate() {
        if !doubts.is_about(number) {
            flags[place(*lane)] = u8::from(truths.get(number)).wrapping_neg();
        }
    }
}
