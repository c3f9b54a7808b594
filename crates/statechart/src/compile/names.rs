//! What guards and actions may speak of.

use super::Draft;
use crate::chart::{Field, WorldValue};
use crate::error::ChartError;
use crate::expression::Names;
use crate::ids::{ContextId, FieldId, WorldId};
use crate::source::{ChartSource, ThresholdSource};
use crate::value::{Kind, Value};

/// The names of a chart. Fields and values of the world are declared; names of the context are taken
/// up as they are used.
pub(super) struct Vocabulary {
    pub(super) fields: Vec<Field>,
    pub(super) worlds: Vec<WorldValue>,
    pub(super) contexts: Vec<String>,
}

impl Vocabulary {
    pub(super) fn new(source: &ChartSource) -> Self {
        let fields = source.fields.iter().map(|(name, field)| Field {
            name: name.clone(),
            default: Some(field.default.clone()),
            min: field.min,
            max: field.max,
            is_threshold: source.timeouts.iter().any(|timeout| match &timeout.threshold {
                ThresholdSource::Field(threshold) => threshold == name,
                ThresholdSource::Ticks(_) => false,
            }),
        });
        let worlds = source.world.iter();
        let worlds = worlds
            .map(|(name, value)| WorldValue { name: name.clone(), default: Some(value.clone()) });
        Self {
            fields: fields.collect(),
            worlds: worlds.collect(),
            contexts: source.context.clone(),
        }
    }
}

impl Names for Vocabulary {
    fn field(&mut self, name: &str) -> Result<(FieldId, Option<Kind>), ChartError> {
        let names = self.fields.iter().map(|field| field.name.as_str());
        let index = declared("field \"agent.", "fields", name, names)?;
        let kind = self.fields[index].default.as_ref().map(Value::kind);
        Ok((FieldId(number(index)?), kind))
    }

    fn context(&mut self, name: &str) -> Result<ContextId, ChartError> {
        let known = self.contexts.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.contexts.push(name.to_owned());
            self.contexts.len() - 1
        });
        Ok(ContextId(number(index)?))
    }

    fn world(&mut self, name: &str) -> Result<(WorldId, Option<Kind>), ChartError> {
        let names = self.worlds.iter().map(|world| world.name.as_str());
        let index = declared("value \"world.", "world", name, names)?;
        let kind = self.worlds[index].default.as_ref().map(Value::kind);
        Ok((WorldId(number(index)?), kind))
    }
}

/// The place of a name among those that stand under `section`.
fn declared<'a>(
    what: &str,
    section: &str,
    name: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<usize, ChartError> {
    let names: Vec<&str> = names.collect();
    names.iter().position(|known| *known == name).ok_or_else(|| {
        let unknown = format!("unknown {what}{name}\"");
        if names.is_empty() {
            return format!("{unknown}: declare it under \"{section}\"").into();
        }
        ChartError::from(unknown).one_of(name, names)
    })
}

fn number(index: usize) -> Result<u16, ChartError> {
    u16::try_from(index).map_err(|_| "the chart has too many names".to_owned().into())
}

impl Draft {
    pub(super) fn check_vocabulary(&mut self, source: &ChartSource) {
        for (name, field) in &source.fields {
            let place = format!("fields.{name}");
            self.check_name(&place, "field", name);
            let has_range = field.min.is_some() || field.max.is_some();
            let Value::Number(default) = field.default else {
                if has_range {
                    self.error(
                        &place,
                        format!(
                            "only a number can have min and max, and {name} is {}",
                            field.default.kind().in_words()
                        ),
                    );
                }
                continue;
            };
            let numbers = [Some(default), field.min, field.max];
            if numbers.into_iter().flatten().any(|number| !number.is_finite()) {
                self.error(
                    &place,
                    format!("{name} must be a finite number, and so its min and max"),
                );
                continue;
            }
            if let (Some(min), Some(max)) = (field.min, field.max)
                && min > max
            {
                self.error(&place, format!("min {min} is greater than max {max}"));
                continue;
            }
            if field.min.is_some_and(|min| default < min)
                || field.max.is_some_and(|max| default > max)
            {
                let place = format!("{place}.default");
                self.error(place, format!("default {default} is not between min and max"));
            }
        }
        for (name, value) in &source.world {
            let place = format!("world.{name}");
            self.check_name(&place, "world value", name);
            if matches!(value, Value::Number(number) if !number.is_finite()) {
                self.error(place, format!("{name} must be a finite number"));
            }
        }
    }
}
