//! Actions of a list of agents at once.
//!
//! Agents see nothing of each other in a tick, so it makes no difference that all of them perform
//! the first action of a way before any performs the second.

use std::hint::select_unpredictable;
use std::ops::RangeInclusive;
use std::sync::Arc;

use polity_statechart::{
    Act, ActShape, Fault, FieldId, Kind, Site, Tree, Value, WorldChange, WorldId,
};

use super::BLOCK;
use super::doubts::{Cause, Doubts};
use super::fields::Column;
use super::lists::Tick;
use super::masks::yes;
use super::outbox::{Asked, Failed};
use super::pool::place;
use super::tree::{Source, Truths, Workings};

impl Tick<'_> {
    /// Performs an action for some agents.
    pub(super) fn act(&mut self, act: &Act<'_>, list: &[u16], workings: &mut Workings) {
        let mut doubts = Doubts::default();
        match act.shape {
            ActShape::SetField(field, tree) => {
                self.set_field(act.site(), field, tree, list, workings, &mut doubts);
            }
            ActShape::AddField(field, tree) => {
                let more = workings.numbers(&self.sight(list), tree, &mut doubts);
                self.store(act.site(), field, list, (workings, &doubts), |number, now| {
                    now + more.get(number)
                });
                workings.give_numbers(more);
            }
            ActShape::SetWorld(world, tree) => {
                self.set_world(world, tree, list, workings, &mut doubts);
            }
            ActShape::AddWorld(world, tree) => {
                let more = workings.numbers(&self.sight(list), tree, &mut doubts);
                self.change_world(list, &doubts, |number| {
                    WorldChange::Add(world, more.get(number))
                });
                workings.give_numbers(more);
            }
            ActShape::Request(request) => {
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
    pub(super) fn fail(&mut self, site: Site, list: &[u16], doubts: &Doubts) {
        let Cause::One(fault) = doubts.cause() else { return };
        let failed = (0..list.len()).filter(|number| doubts.is_about(*number));
        self.failed(site, fault.clone(), list, failed);
    }

    /// Takes note of some agents of a list for whom something failed.
    fn failed(
        &mut self,
        site: Site,
        fault: Fault,
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
        site: Site,
        field: FieldId,
        tree: Tree<'_>,
        list: &[u16],
        workings: &mut Workings,
        doubts: &mut Doubts,
    ) {
        match &self.block.fields[field.index()] {
            Column::Numbers(_) => {
                let numbers = workings.numbers(&self.sight(list), tree, doubts);
                self.store(site, field, list, (workings, doubts), |number, _| numbers.get(number));
                workings.give_numbers(numbers);
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
        tree: Tree<'_>,
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
        site: Site,
        field: FieldId,
        list: &[u16],
        (workings, doubts): (&mut Workings, &Doubts),
        new: impl Fn(usize, f64) -> f64,
    ) {
        let range = self.chart.fields()[field.index()].range();
        let Column::Numbers(column) = &mut self.block.fields[field.index()] else { return };
        let Some(column) = column.first_chunk_mut::<BLOCK>() else { return };
        let mut refused = workings.truths.take();
        let is_refused = match doubts.mask() {
            None => store_numbers(column, list, range, new, |_| 0, &mut refused),
            Some(doubtful) => {
                store_numbers(column, list, range, new, |number| doubtful[number], &mut refused)
            }
        };
        if is_refused {
            let refused = (0..list.len()).filter(|number| refused[*number] != 0);
            self.failed(site, Fault::OutOfRange(field), list, refused);
        }
        workings.truths.give(refused);
    }

    fn set_world(
        &mut self,
        world: WorldId,
        tree: Tree<'_>,
        list: &[u16],
        workings: &mut Workings,
        doubts: &mut Doubts,
    ) {
        let sight = self.sight(list);
        match sight.kind_of(tree) {
            Some(Kind::Bool) => {
                let truths = workings.truths(&sight, tree, doubts);
                self.change_world(list, doubts, |number| {
                    WorldChange::Set(world, Value::Bool(truths.get(number)))
                });
                workings.give_truths(truths);
            }
            Some(Kind::Text) => {
                let texts: Vec<Value> = match sight.texts(tree, tree.root) {
                    Some(Source::Same(text)) => vec![Value::Text(text.clone()); list.len()],
                    Some(Source::Each(texts)) => {
                        let texts = list.iter().map(|lane| texts.get(place(*lane)));
                        texts.map(|text| Value::Text(text.clone())).collect()
                    }
                    None => return,
                };
                self.change_world(list, doubts, |number| {
                    WorldChange::Set(world, texts[number].clone())
                });
            }
            // Numbers say what is missing, too.
            Some(Kind::Number) | None => {
                let numbers = workings.numbers(&sight, tree, doubts);
                self.change_world(list, doubts, |number| {
                    WorldChange::Set(world, Value::Number(numbers.get(number)))
                });
                workings.give_numbers(numbers);
            }
        }
    }

    fn change_world(
        &mut self,
        list: &[u16],
        doubts: &Doubts,
        change: impl Fn(usize) -> WorldChange,
    ) {
        let agents = list.iter().enumerate();
        let change =
            |(number, lane): (usize, &u16)| (self.first_slot + u32::from(*lane), change(number));
        let changes = &mut self.block.outbox.changes;
        if doubts.mask().is_none() {
            changes.extend(agents.map(change));
        } else {
            changes.extend(agents.filter(|(number, _)| !doubts.is_about(*number)).map(change));
        }
    }
}

/// Stores numbers that are within a range, and marks those that are not. There is no branch that
/// depends on an agent. Says whether there was one that is not.
#[inline]
#[expect(clippy::needless_bitwise_bool, reason = "there is no branch with them")]
fn store_numbers(
    column: &mut [f64; BLOCK],
    list: &[u16],
    range: RangeInclusive<f64>,
    new: impl Fn(usize, f64) -> f64,
    doubtful: impl Fn(usize) -> u8,
    refused: &mut [u8; BLOCK],
) -> bool {
    let (min, max) = range.into_inner();
    let mut any = 0;
    for (number, (lane, refused)) in list.iter().zip(refused).enumerate() {
        let place = &mut column[place(*lane)];
        let (now, new) = (*place, new(number, *place));
        // What is no number is not between two numbers.
        let may_be = (min <= new) & (new <= max);
        *place = select_unpredictable(may_be & (doubtful(number) == 0), new, now);
        *refused = yes(!may_be) & !doubtful(number);
        any |= *refused;
    }
    any != 0
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
