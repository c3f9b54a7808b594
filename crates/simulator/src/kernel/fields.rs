//! The fields of agents, column by column.

use polity_statechart::{Chart, FieldId, Kind, Scalar, Value};

/// One field of some agents.
#[derive(Debug, Clone)]
pub(super) enum Column {
    /// A field that the chart declares to be a number.
    Numbers(Vec<f64>),
    /// A field that the chart declares to be true or false: all bits or none.
    Flags(Vec<u8>),
    /// Any other field.
    Values(Vec<Option<Value>>),
}

impl Column {
    /// The columns of a chart's fields, for so many agents.
    pub(super) fn all(chart: &Chart, length: usize) -> Vec<Self> {
        let columns =
            chart.fields().iter().map(|field| match field.default.as_ref().map(Value::kind) {
                Some(Kind::Number) => Self::Numbers(vec![0.0; length]),
                Some(Kind::Bool) => Self::Flags(vec![0; length]),
                Some(Kind::Text) | None => Self::Values(vec![None; length]),
            });
        columns.collect()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Scalar<'_>> {
        match self {
            Self::Numbers(numbers) => Some(Scalar::Number(numbers[index])),
            Self::Flags(flags) => Some(Scalar::Bool(flags[index] != 0)),
            Self::Values(values) => values[index].as_ref().map(Value::as_scalar),
        }
    }

    #[inline]
    pub(super) fn set(&mut self, index: usize, value: Option<Value>) {
        match (self, value) {
            (Self::Numbers(numbers), Some(Value::Number(number))) => numbers[index] = number,
            (Self::Flags(flags), Some(Value::Bool(flag))) => {
                flags[index] = u8::from(flag).wrapping_neg();
            }
            // The chart has checked that a field which is declared stays what it is.
            (Self::Numbers(_) | Self::Flags(_), _) => {}
            (Self::Values(values), value) => values[index] = value,
        }
    }
}

/// The fields of a new agent: what it is given, and the chart's defaults for the rest.
pub(super) fn complete(
    chart: &Chart,
    given: &[(FieldId, Value)],
) -> Result<Vec<Option<Value>>, String> {
    let mut fields: Vec<Option<Value>> =
        chart.fields().iter().map(|field| field.default.clone()).collect();
    for (field, value) in given {
        chart.check_field(*field, value)?;
        fields[field.index()] = Some(value.clone());
    }
    Ok(fields)
}
