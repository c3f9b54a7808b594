//! Runs templates within the budget of an evaluation.
//!
//! The template engine has no hook for the size of values. Its compiled instructions are public,
//! though: [`bound`] adds calls of the functions below around all that make values.

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{ObjectRepr, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, escape_formatter};

use crate::evaluation::budget::{self, BudgetError, NESTING_MAX, VALUE_BYTES};

/// Charges for the value of an operation. The colon keeps templates from calling it.
const CHARGE: &str = "op:charge";

/// Checks a value that is about to be converted to text.
const CHECK: &str = "op:check";

/// Checks a value that is about to be stored in a namespace.
const CHECK_MEMBER: &str = "op:check_member";

/// Applies a filter, whose name is the last argument.
const FILTER: &str = "op:filter";

/// The most bytes that one byte can become, escaped.
const ESCAPE_FACTOR: u64 = 6;

/// The memory of a piece of a text that is split, in bytes.
const PIECE_BYTES: u64 = 64;

/// The most items of a range, which the template engine allows.
const RANGE_ITEMS_MAX: usize = 100_000;

/// Filters that make a list of the characters of a text.
const CHARACTER_FILTERS: [&str; 9] =
    ["batch", "chain", "list", "map", "reverse", "slice", "sort", "unique", "zip"];

/// Registers the functions that bounded instructions call.
pub(super) fn register(environment: &mut Environment<'_>) {
    environment.add_function(CHARGE, |value: Value| {
        charge_value(&value)?;
        Ok::<_, Error>(value)
    });
    environment.add_function(CHECK, |value: Value| {
        check_text(&value)?;
        Ok::<_, Error>(value)
    });
    environment.add_function(CHECK_MEMBER, |value: Value| {
        if ValueSize::of(&value).map_err(exceeded)?.has_namespace {
            let message = "a namespace cannot be stored in a namespace";
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        Ok(value)
    });
    environment.add_function(FILTER, |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
        let mut args = args.into_values();
        let name = args.pop().unwrap_or_default();
        apply_filter(state, name.as_str().unwrap_or_default(), &args)
    });
    environment.add_function("range", range);
    environment.set_formatter(|out: &mut Output<'_>, state, value| {
        let size = ValueSize::of(value).map_err(exceeded)?;
        let is_plain = value.kind() == ValueKind::String;
        let factor = if is_plain { 1 } else { ESCAPE_FACTOR };
        budget::charge(size.bytes * factor).map_err(exceeded)?;
        escape_formatter(out, state, value)
    });
}

/// The range of the template engine, with an error that counts its items.
fn range(lower: isize, upper: Option<isize>, step: Option<isize>) -> Result<Value, Error> {
    let (first, end) = upper.map_or((0, lower), |upper| (lower, upper));
    let step = step.unwrap_or(1);
    let distance = if step < 0 { first.saturating_sub(end) } else { end.saturating_sub(first) };
    let items = distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs().max(1));
    if step != 0 && items > RANGE_ITEMS_MAX {
        budget::record_list(items);
        let message = format!("makes a range of {items} items, more than {RANGE_ITEMS_MAX}");
        return Err(Error::new(ErrorKind::WriteFailure, message));
    }
    minijinja::functions::range(lower, upper, Some(step))
}

/// Adds the charges to compiled instructions. Fails for what cannot be bounded.
pub(super) fn bound<'s>(original: &Instructions<'s>) -> Result<Instructions<'s>, Error> {
    bound_all(original, (0..).map_while(|index| original.get(index)).collect())
}

/// Like [`bound`], but leaves the value that the last instruction assigns.
pub(super) fn bound_value<'s>(original: &Instructions<'s>) -> Result<Instructions<'s>, Error> {
    let mut all: Vec<_> = (0..).map_while(|index| original.get(index)).collect();
    if let Some(Instruction::StoreLocal(_)) = all.last() {
        all.pop();
    }
    bound_all(original, all)
}

fn bound_all<'s>(
    original: &Instructions<'s>,
    all: Vec<&Instruction<'s>>,
) -> Result<Instructions<'s>, Error> {
    let mut places = Vec::with_capacity(all.len() + 1);
    let mut replaced = Vec::with_capacity(all.len());
    let mut place = 0;
    for instruction in all {
        let parts = bound_one(instruction)?;
        places.push(place);
        place += u32::try_from(parts.len()).unwrap_or(u32::MAX);
        replaced.push(parts);
    }
    places.push(place);
    let moved = |target: u32| places.get(target as usize).copied().unwrap_or(place);
    let mut bounded = Instructions::new(original.name(), original.source());
    for (index, parts) in (0..).zip(replaced) {
        for part in parts {
            let part = match part {
                Instruction::Jump(target) => Instruction::Jump(moved(target)),
                Instruction::JumpIfFalse(target) => Instruction::JumpIfFalse(moved(target)),
                Instruction::JumpIfFalseOrPop(target) => {
                    Instruction::JumpIfFalseOrPop(moved(target))
                }
                Instruction::JumpIfTrueOrPop(target) => Instruction::JumpIfTrueOrPop(moved(target)),
                Instruction::Iterate(target) => Instruction::Iterate(moved(target)),
                other => other,
            };
            match original.get_span(index) {
                Some(span) => bounded.add_with_span(part, span),
                None => bounded.add(part),
            };
        }
    }
    Ok(bounded)
}

fn bound_one<'s>(instruction: &Instruction<'s>) -> Result<Vec<Instruction<'s>>, Error> {
    let call = |name, arguments| Instruction::CallFunction(name, Some(arguments));
    let own = instruction.clone();
    Ok(match instruction {
        // The formatter charges for what is emitted, also within a captured block.
        Instruction::EmitRaw(text) => {
            vec![Instruction::LoadConst(Value::from(*text)), Instruction::Emit]
        }
        Instruction::Add
        | Instruction::Mul
        | Instruction::Slice
        | Instruction::BuildList(_)
        | Instruction::BuildTuple(_)
        | Instruction::BuildMap(_)
        | Instruction::CallFunction(..)
        | Instruction::CallMethod(..)
        | Instruction::CallObject(_) => vec![own, call(CHARGE, 1)],
        Instruction::StringConcat => vec![
            call(CHECK, 1),
            Instruction::Swap,
            call(CHECK, 1),
            Instruction::Swap,
            own,
            call(CHARGE, 1),
        ],
        Instruction::SetAttr(_) => {
            vec![Instruction::Swap, call(CHECK_MEMBER, 1), Instruction::Swap, own]
        }
        Instruction::ApplyFilter(name, Some(arguments), _) => {
            vec![Instruction::LoadConst(Value::from(*name)), call(FILTER, arguments + 1)]
        }
        Instruction::ApplyFilter(_, None, _) => {
            let message = "a filter takes no * arguments here";
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        _ => vec![own],
    })
}

/// Applies a filter after its arguments were checked, and charges for its result.
fn apply_filter(state: &mut State<'_, '_>, name: &str, args: &[Value]) -> Result<Value, Error> {
    // The filter that `map` applies is bounded too.
    if let ("map", [items, filter, rest @ ..]) = (name, args)
        && let Some(filter) = filter.as_str()
        && let Ok(items) = items.try_iter()
    {
        let mut mapped = Vec::new();
        for item in items {
            budget::charge(VALUE_BYTES).map_err(exceeded)?;
            mapped.push(apply_filter(state, filter, &[&[item][..], rest].concat())?);
        }
        return Ok(Value::from(mapped));
    }
    check_filter(name, args).map_err(exceeded)?;
    let result = state.apply_filter(name, args)?;
    charge_value(&result)?;
    Ok(result)
}

fn check_filter(name: &str, args: &[Value]) -> Result<(), BudgetError> {
    let (mut size, mut options) = (ValueSize::default(), ValueSize::default());
    for (index, arg) in args.iter().enumerate() {
        size.add(arg, usize::from(index > 0))?;
        if index > 0 {
            options.add(arg, 1)?;
        }
    }
    budget::check(size.bytes.saturating_mul(ESCAPE_FACTOR))?;
    let text = |index: usize| args.get(index).and_then(Value::as_str).unwrap_or_default();
    let length = |text: &str| text.len() as u64;
    let matches = |text: &str, part: &str| text.matches(part).count() as u64 + 1;
    // The number of repetitions, by position or by name.
    let times =
        args.get(1).and_then(Value::as_i64).map_or(options.largest_number, i64::unsigned_abs);
    let lines = matches(text(0), "\n");
    let made = match name {
        "batch" | "indent" | "slice" | "tojson" => (lines + size.values).saturating_mul(times),
        "replace" => matches(text(0), text(1)).saturating_mul(length(text(2))),
        "join" => (size.values + length(text(0))).saturating_mul(length(text(1))),
        "lines" => lines * PIECE_BYTES,
        "split" if !text(1).is_empty() => matches(text(0), text(1)) * PIECE_BYTES,
        "split" => length(text(0)) * PIECE_BYTES / 2,
        "format" => {
            let widths = if text(0).contains('*') { options.largest_number } else { 0 };
            let widths = widths.saturating_add(numbers_in(text(0)));
            widths.saturating_add(matches(text(0), "%").saturating_mul(size.bytes))
        }
        _ => 0,
    };
    // These make a list of the characters of a text.
    if CHARACTER_FILTERS.contains(&name) {
        budget::check(length(text(0)) * PIECE_BYTES)?;
    }
    budget::check(made)
}

/// The sum of the numbers in a format, which may be widths.
fn numbers_in(text: &str) -> u64 {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
}

/// Charges for a new value: a text by its length, a collection by the number of its values, which
/// share their texts with others.
fn charge_value(value: &Value) -> Result<(), Error> {
    let bytes = match value.as_str() {
        Some(text) => {
            budget::record_list(0);
            text.len() as u64
        }
        None => ValueSize::of(value).map_err(exceeded)?.values * VALUE_BYTES,
    };
    budget::charge(bytes).map_err(exceeded)
}

/// Fails if the text of a value does not fit into the budget.
pub(super) fn check_text(value: &Value) -> Result<(), Error> {
    let bytes = match value.as_str() {
        Some(text) => {
            budget::record_list(0);
            text.len() as u64
        }
        None => ValueSize::of(value).map_err(exceeded)?.bytes * ESCAPE_FACTOR,
    };
    budget::check(bytes).map_err(exceeded)
}

fn exceeded(error: BudgetError) -> Error {
    Error::new(ErrorKind::WriteFailure, error.to_string())
}

/// The size of a value with all that it contains, shared values counted each time.
#[derive(Debug, Default)]
pub(super) struct ValueSize {
    values: u64,
    pub(super) bytes: u64,
    largest_number: u64,
    has_namespace: bool,
}

impl ValueSize {
    pub(super) fn of(value: &Value) -> Result<Self, BudgetError> {
        let mut size = Self::default();
        size.add(value, 0)?;
        Ok(size)
    }

    fn add(&mut self, value: &Value, depth: usize) -> Result<(), BudgetError> {
        self.values += 1;
        self.bytes += VALUE_BYTES;
        if depth == 0 {
            budget::record_list(0);
        }
        if let Some(text) = value.as_str() {
            self.bytes += text.len() as u64;
        }
        if let Some(number) = value.as_i64() {
            self.largest_number = self.largest_number.max(number.unsigned_abs());
        }
        budget::check(self.values * VALUE_BYTES)?;
        let Some(object) = value.as_object() else { return Ok(()) };
        if depth >= NESTING_MAX {
            return Err(BudgetError::Nesting);
        }
        self.has_namespace |= object.type_name().ends_with("::Namespace");
        let is_map = match object.repr() {
            ObjectRepr::Plain => return Ok(()),
            ObjectRepr::Map => true,
            ObjectRepr::Seq | ObjectRepr::Iterable => false,
            _ => return Ok(()),
        };
        if depth == 0 && !is_map {
            budget::record_list(object.enumerator_len().unwrap_or(0));
        }
        let Some(items) = object.try_iter() else { return Ok(()) };
        for item in items {
            if is_map {
                let member = object.get_value(&item).unwrap_or_default();
                self.add(&member, depth + 1)?;
            }
            self.add(&item, depth + 1)?;
        }
        Ok(())
    }
}
