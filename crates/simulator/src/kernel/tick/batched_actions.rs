//! Actions of the batched path.
//!
//! Agents do not see each other within a tick. So all of them may perform the first action of a
//! path before any performs the second.

use std::sync::Arc;

use polity_statechart::{
    ActionKind, ErrorSite, EvalError, ExprTree, FieldId, ScalarKind, ScalarValue, TransitionAction,
    WorldId,
};

use crate::kernel::BLOCK;
use crate::kernel::columns::fields::FieldColumn;
use crate::kernel::columns::lanes::lane_index;
use crate::kernel::effects::block_effects::{ErrorTally, PendingRequest};
use crate::kernel::effects::world::{ChangeOrder, ValueChanges};
use crate::kernel::expressions::arithmetic::are_within;
use crate::kernel::expressions::eval_errors::{ErrorCause, EvalErrors};
use crate::kernel::expressions::eval_input::TextSource;
use crate::kernel::expressions::evaluator::{BoolResults, EvalScratch, NumberResults};
use crate::kernel::tick::batched::BlockTick;

impl BlockTick<'_> {
    /// Performs an action for a list of agents.
    pub(crate) fn act(&mut self, act: &TransitionAction<'_>, list: &[u16], eval: &mut EvalScratch) {
        let mut errors = EvalErrors::default();
        match act.shape {
            ActionKind::SetField(field, tree) => {
                self.set_field(act.site(), field, tree, list, eval, &mut errors);
            }
            ActionKind::AddField(field, tree) => {
                let sums = eval.sums(&self.eval_input(list), field, tree, &mut errors);
                self.store(act.site(), field, list, sums, (eval, &errors));
            }
            ActionKind::SetWorld(world, tree) => {
                self.set_world(world, tree, list, eval, &mut errors);
            }
            ActionKind::AddWorld(world, tree) => {
                let more = eval.numbers(&self.eval_input(list), tree, &mut errors);
                if errors.mask().is_none() {
                    let changes = self.block.effects.changes.of(world);
                    changes.add_all(self.column, list, |number| more.get(number));
                } else {
                    self.change_world(world, list, &errors, |changes, at, number| {
                        changes.add(at, more.get(number));
                    });
                }
                eval.release_numbers(more);
            }
            ActionKind::Request(request) => {
                let requested = list.iter().map(|lane| PendingRequest {
                    tick: self.now,
                    slot: self.first_slot + u32::from(*lane),
                    request: request.clone(),
                });
                self.block.effects.requests.extend(requested);
            }
        }
        self.add_error(act.site(), list, &errors);
        if *errors.cause() == ErrorCause::Several {
            let failed = list.iter().enumerate().filter(|(number, _)| errors.has_error(*number));
            for (_, lane) in failed {
                let chart = self.chart;
                chart.perform(act, &mut self.agent(lane_index(*lane)));
            }
        }
        errors.end(&mut eval.bools);
    }

    /// Records agents without a value, if they share the reason.
    pub(crate) fn add_error(&mut self, site: ErrorSite, list: &[u16], errors: &EvalErrors) {
        let ErrorCause::One(fault) = errors.cause() else { return };
        let failed = (0..list.len()).filter(|number| errors.has_error(*number));
        self.report_errors(site, fault.clone(), list, failed);
    }

    /// Records an error for some agents of a list.
    fn report_errors(
        &mut self,
        site: ErrorSite,
        fault: EvalError,
        list: &[u16],
        mut numbers: impl Iterator<Item = usize>,
    ) {
        let Some(first) = numbers.next().map(|number| list[number]) else { return };
        let tally = ErrorTally {
            count: 1 + numbers.count() as u64,
            tick: self.now,
            slot: self.first_slot + u32::from(first),
            serial: self.block.serials[lane_index(first)],
        };
        self.block.effects.add_error(site, fault, tally);
    }

    fn set_field(
        &mut self,
        site: ErrorSite,
        field: FieldId,
        tree: ExprTree<'_>,
        list: &[u16],
        eval: &mut EvalScratch,
        errors: &mut EvalErrors,
    ) {
        match &self.block.fields[field.index()] {
            FieldColumn::Numbers(_) => {
                let numbers = eval.numbers(&self.eval_input(list), tree, errors);
                self.store(site, field, list, numbers, (eval, errors));
            }
            FieldColumn::Flags(_) => {
                let bools = eval.bools(&self.eval_input(list), tree, errors);
                if let FieldColumn::Flags(flags) = &mut self.block.fields[field.index()] {
                    store_flags(flags, list, &bools, errors);
                }
                eval.release_bools(bools);
            }
            FieldColumn::Texts(_) => self.set_texts(field, tree, list, eval, errors),
        }
    }

    fn set_texts(
        &mut self,
        field: FieldId,
        tree: ExprTree<'_>,
        list: &[u16],
        eval: &mut EvalScratch,
        errors: &mut EvalErrors,
    ) {
        let eval_input = self.eval_input(list);
        let texts = match eval_input.texts(tree, tree.root) {
            Some(TextSource::Same(text)) => TextUpdate::Same(text.clone()),
            Some(TextSource::Each(texts)) => TextUpdate::Each(
                list.iter().map(|lane| texts.get(lane_index(*lane)).clone()).collect(),
            ),
            // The scalar path determines the error of each agent.
            None => {
                errors.add(&mut eval.bools, list.len(), |_| true, ErrorCause::Several);
                return;
            }
        };
        if let FieldColumn::Texts(column) = &mut self.block.fields[field.index()] {
            match texts {
                TextUpdate::Same(text) => {
                    let text = column.number(&text);
                    for lane in list {
                        column.numbers[lane_index(*lane)] = text;
                    }
                }
                TextUpdate::Each(texts) => {
                    for (lane, text) in list.iter().zip(&texts) {
                        column.numbers[lane_index(*lane)] = column.number(text);
                    }
                }
            }
        }
    }

    /// Stores numbers in a field and rejects those out of range.
    fn store(
        &mut self,
        site: ErrorSite,
        field: FieldId,
        list: &[u16],
        numbers: NumberResults,
        (eval, errors): (&mut EvalScratch, &EvalErrors),
    ) {
        let range = self.chart.fields()[field.index()].range();
        if let FieldColumn::Numbers(column) = &mut self.block.fields[field.index()]
            && let Some(column) = column.first_chunk_mut::<BLOCK>()
        {
            let may_be = match &numbers {
                NumberResults::Same(same) => range.contains(same),
                NumberResults::Each(numbers) => are_within(&numbers[..list.len()], &range),
            };
            if may_be && errors.mask().is_none() {
                scatter(column, list, &numbers);
            } else {
                let mut refused = Vec::new();
                for (number, lane) in list.iter().enumerate() {
                    if errors.has_error(number) {
                        continue;
                    }
                    // NaN is in no range.
                    let new = numbers.get(number);
                    if range.contains(&new) {
                        column[lane_index(*lane)] = new;
                    } else {
                        refused.push(number);
                    }
                }
                self.report_errors(site, EvalError::OutOfRange(field), list, refused.into_iter());
            }
        }
        eval.release_numbers(numbers);
    }

    fn set_world(
        &mut self,
        world: WorldId,
        tree: ExprTree<'_>,
        list: &[u16],
        eval: &mut EvalScratch,
        errors: &mut EvalErrors,
    ) {
        let eval_input = self.eval_input(list);
        match eval_input.root_kind(tree) {
            Some(ScalarKind::Bool) => {
                let bools = eval.bools(&eval_input, tree, errors);
                self.change_world(world, list, errors, |changes, at, number| {
                    changes.set(at, ScalarValue::Bool(bools.get(number)));
                });
                eval.release_bools(bools);
            }
            Some(ScalarKind::Text) => {
                let texts: Vec<ScalarValue> = match eval_input.texts(tree, tree.root) {
                    Some(TextSource::Same(text)) => {
                        vec![ScalarValue::Text(text.clone()); list.len()]
                    }
                    Some(TextSource::Each(texts)) => {
                        let texts = list.iter().map(|lane| texts.get(lane_index(*lane)));
                        texts.map(|text| ScalarValue::Text(text.clone())).collect()
                    }
                    None => return,
                };
                self.change_world(world, list, errors, |changes, at, number| {
                    changes.set(at, texts[number].clone());
                });
            }
            // Evaluating numbers also reports missing values.
            Some(ScalarKind::Number) | None => {
                let numbers = eval.numbers(&eval_input, tree, errors);
                self.change_world(world, list, errors, |changes, at, number| {
                    changes.set(at, ScalarValue::Number(numbers.get(number)));
                });
                eval.release_numbers(numbers);
            }
        }
    }

    fn change_world(
        &mut self,
        world: WorldId,
        list: &[u16],
        errors: &EvalErrors,
        mut change: impl FnMut(&mut ValueChanges, ChangeOrder, usize),
    ) {
        let column = self.column;
        let changes = self.block.effects.changes.of(world);
        for (number, lane) in list.iter().enumerate() {
            if !errors.has_error(number) {
                change(changes, ChangeOrder::new(column, *lane), number);
            }
        }
    }
}

fn scatter(column: &mut [f64; BLOCK], list: &[u16], numbers: &NumberResults) {
    match numbers {
        NumberResults::Same(same) => list.iter().for_each(|lane| column[lane_index(*lane)] = *same),
        NumberResults::Each(numbers) => {
            let lanes = list.iter().zip(&**numbers);
            lanes.for_each(|(lane, number)| column[lane_index(*lane)] = *number);
        }
    }
}

/// The texts to store for a list of agents.
enum TextUpdate {
    Same(Arc<str>),
    Each(Vec<Arc<str>>),
}

fn store_flags(flags: &mut [u8], list: &[u16], bools: &BoolResults, errors: &EvalErrors) {
    for (number, lane) in list.iter().enumerate() {
        if !errors.has_error(number) {
            flags[lane_index(*lane)] = u8::from(bools.get(number)).wrapping_neg();
        }
    }
}
