//! The fields of agents, column by column.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_statechart::{Chart, FieldId, ScalarKind, ScalarRef, ScalarValue};

use super::LANES;
use super::masks::Numbers;

/// One field of some agents.
#[derive(Debug, Clone)]
pub(super) enum Column {
    /// A field that the chart declares to be a number.
    Numbers(Vec<f64>),
    /// A field that the chart declares to be true or false: all bits or none.
    Flags(Vec<u8>),
    /// A field that the chart declares to be a text.
    Texts(Texts),
}

/// Texts as small numbers. Agents have few different ones, and they are compared often.
#[derive(Debug, Clone)]
pub(super) struct Texts {
    /// Which text each agent has.
    pub(super) numbers: Vec<u32>,
    all: Vec<Arc<str>>,
    by_text: BTreeMap<Arc<str>, u32>,
}

impl Texts {
    fn new(length: usize) -> Self {
        let mut texts =
            Self { numbers: vec![0; length], all: Vec::new(), by_text: BTreeMap::new() };
        texts.number(&Arc::from(""));
        texts
    }

    /// An agent's text.
    #[inline]
    pub(super) fn get(&self, index: usize) -> &Arc<str> {
        &self.all[self.numbers[index] as usize]
    }

    /// The number of a text, if an agent may have it.
    pub(super) fn known(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// The number of a text, which may be new.
    pub(super) fn number(&mut self, text: &Arc<str>) -> u32 {
        if let Some(number) = self.known(text) {
            return number;
        }
        // Texts that no agent has any more are forgotten before they are many.
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

impl Column {
    /// The columns of a chart's fields, for so many agents.
    pub(super) fn all(chart: &Chart, length: usize) -> Vec<Self> {
        let columns = chart.fields().iter().map(|field| {
            match field.default.as_ref().map(ScalarValue::kind) {
                Some(ScalarKind::Number) => Self::Numbers(vec![0.0; length]),
                Some(ScalarKind::Bool) => Self::Flags(vec![0; length]),
                Some(ScalarKind::Text) | None => Self::Texts(Texts::new(length)),
            }
        });
        columns.collect()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> ScalarRef<'_> {
        match self {
            Self::Numbers(numbers) => ScalarRef::Number(numbers[index]),
            Self::Flags(flags) => ScalarRef::Bool(flags[index] != 0),
            Self::Texts(texts) => ScalarRef::Text(texts.get(index)),
        }
    }

    #[inline]
    pub(super) fn set(&mut self, index: usize, value: Option<ScalarValue>) {
        match (self, value) {
            (Self::Numbers(numbers), Some(ScalarValue::Number(number))) => numbers[index] = number,
            (Self::Flags(flags), Some(ScalarValue::Bool(flag))) => {
                flags[index] = u8::from(flag).wrapping_neg();
            }
            (Self::Texts(texts), Some(ScalarValue::Text(text))) => {
                texts.numbers[index] = texts.number(&text);
            }
            // The chart has checked that a field which is declared stays what it is.
            (Self::Numbers(_) | Self::Flags(_) | Self::Texts(_), _) => {}
        }
    }
}

/// The fields of a new agent: what it is given, and the chart's defaults for the rest.
pub(super) fn complete(
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

/// The numbers of a group of agents. Where fields are looked at so, they are numbers.
#[inline(always)]
pub(super) fn numbers(fields: &[Column], field: usize, base: usize) -> &Numbers {
    const NONE: &Numbers = &[0.0; LANES];
    match &fields[field] {
        Column::Numbers(numbers) => numbers[base..].first_chunk::<LANES>().unwrap_or(NONE),
        Column::Flags(_) | Column::Texts(_) => NONE,
    }
}
