//! The fields of agents, stored by column.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_statechart::{Chart, FieldId, ScalarKind, ScalarRef, ScalarValue};

use crate::kernel::LANES;
use crate::kernel::columns::masks::LaneNumbers;

/// One field of the agents of a block.
#[derive(Debug, Clone)]
pub(crate) enum FieldColumn {
    /// A numeric field.
    Numbers(Vec<f64>),
    /// A boolean field: all bits or none.
    Flags(Vec<u8>),
    /// A text field.
    Texts(TextColumn),
}

/// Texts as small numbers. Agents share few different texts and compare them often.
#[derive(Debug, Clone)]
pub(crate) struct TextColumn {
    /// The text of each agent, by its number.
    pub(crate) numbers: Vec<u32>,
    all: Vec<Arc<str>>,
    by_text: BTreeMap<Arc<str>, u32>,
}

impl TextColumn {
    fn new(length: usize) -> Self {
        let mut texts =
            Self { numbers: vec![0; length], all: Vec::new(), by_text: BTreeMap::new() };
        texts.number(&Arc::from(""));
        texts
    }

    /// Returns an agent's text.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &Arc<str> {
        &self.all[self.numbers[index] as usize]
    }

    /// Returns the number of a text, if it has one.
    pub(crate) fn known(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// Returns the number of a text, adding it if it is new.
    pub(crate) fn number(&mut self, text: &Arc<str>) -> u32 {
        if let Some(number) = self.known(text) {
            return number;
        }
        // Unused texts are dropped before they pile up.
        if self.all.len() > 2 * self.numbers.len() {
            let texts: Vec<Arc<str>> =
                (0..self.numbers.len()).map(|index| Arc::clone(self.get(index))).collect();
            self.all.clear();
            self.by_text.clear();
            for (index, text) in texts.iter().enumerate() {
                self.numbers[index] = self.number(text);
            }
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(Arc::clone(text));
        self.by_text.insert(Arc::clone(text), number);
        number
    }
}

impl FieldColumn {
    /// Creates the columns of a chart's fields.
    pub(crate) fn all(chart: &Chart, length: usize) -> Vec<Self> {
        let columns = chart.fields().iter().map(|field| {
            match field.default.as_ref().map(ScalarValue::kind) {
                Some(ScalarKind::Number) => Self::Numbers(vec![0.0; length]),
                Some(ScalarKind::Bool) => Self::Flags(vec![0; length]),
                Some(ScalarKind::Text) | None => Self::Texts(TextColumn::new(length)),
            }
        });
        columns.collect()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> ScalarRef<'_> {
        match self {
            Self::Numbers(numbers) => ScalarRef::Number(numbers[index]),
            Self::Flags(flags) => ScalarRef::Bool(flags[index] != 0),
            Self::Texts(texts) => ScalarRef::Text(texts.get(index)),
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, index: usize, value: Option<ScalarValue>) {
        match (self, value) {
            (Self::Numbers(numbers), Some(ScalarValue::Number(number))) => numbers[index] = number,
            (Self::Flags(flags), Some(ScalarValue::Bool(flag))) => {
                flags[index] = u8::from(flag).wrapping_neg();
            }
            (Self::Texts(texts), Some(ScalarValue::Text(text))) => {
                texts.numbers[index] = texts.number(&text);
            }
            // The chart has checked that a field keeps its kind.
            (Self::Numbers(_) | Self::Flags(_) | Self::Texts(_), _) => {}
        }
    }
}

/// Returns the fields of a new agent: the given ones, and the chart's defaults for the rest.
pub(crate) fn complete(
    chart: &Chart,
    given: &[(FieldId, ScalarValue)],
) -> Result<Vec<Option<ScalarValue>>, String> {
    let mut fields: Vec<Option<ScalarValue>> =
        chart.fields().iter().map(|field| field.default.clone()).collect();
    for (field, value) in given {
        chart.check_field(*field, value)?;
        fields[field.index()] = Some(value.clone());
    }
    Ok(fields)
}

/// Returns the numbers of a group of agents. Callers pass numeric fields only.
#[inline(always)]
pub(crate) fn numbers(fields: &[FieldColumn], field: usize, base: usize) -> &LaneNumbers {
    const NONE: &LaneNumbers = &[0.0; LANES];
    match &fields[field] {
        FieldColumn::Numbers(numbers) => numbers[base..].first_chunk::<LANES>().unwrap_or(NONE),
        FieldColumn::Flags(_) | FieldColumn::Texts(_) => NONE,
    }
}
