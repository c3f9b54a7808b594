//! Resolves the names that guards and actions use.

use super::ChartDraft;
use crate::chart::{AgentField, WorldValue};
use crate::error::ChartError;
use crate::expression::NameResolver;
use crate::ids::{ContextId, FieldId, WorldId};
use crate::source::{ChartSource, ThresholdSource};
use crate::value::{ScalarKind, ScalarValue};

/// The names of a chart. Fields and world values must be declared; context names are added on first
/// use.
#[derive(Default)]
pub(super) struct DeclaredNames {
    pub(super) fields: Vec<AgentField>,
    pub(super) world_values: Vec<WorldValue>,
    pub(super) context_names: Vec<String>,
}

impl DeclaredNames {
    pub(super) fn new(source: &ChartSource) -> Self {
        let fields = source.fields.iter().map(|(name, field)| AgentField {
            name: name.clone(),
            default: Some(field.default.clone()),
            min: field.min,
            max: field.max,
            is_threshold: source.timeouts.iter().any(|timeout| match &timeout.threshold {
                ThresholdSource::Field(threshold) => threshold == name,
                ThresholdSource::Ticks(_) => false,
            }),
        });
        let world_values = source.world.iter();
        let world_values = world_values
            .map(|(name, value)| WorldValue { name: name.clone(), default: Some(value.clone()) });
        Self {
            fields: fields.collect(),
            world_values: world_values.collect(),
            context_names: source.context.clone(),
        }
    }
}

impl NameResolver for DeclaredNames {
    fn field(&mut self, name: &str) -> Result<(FieldId, Option<ScalarKind>), ChartError> {
        let names = self.fields.iter().map(|field| field.name.as_str());
        let index = declared("field \"agent.", "fields", name, names)?;
        let kind = self.fields[index].default.as_ref().map(ScalarValue::kind);
        Ok((FieldId(number(index)?), kind))
    }

    fn context(&mut self, name: &str) -> Result<ContextId, ChartError> {
        let known = self.context_names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.context_names.push(name.to_owned());
            self.context_names.len() - 1
        });
        Ok(ContextId(number(index)?))
    }

    fn world(&mut self, name: &str) -> Result<(WorldId, Option<ScalarKind>), ChartError> {
        let names = self.world_values.iter().map(|world| world.name.as_str());
        let index = declared("value \"world.", "world", name, names)?;
        let kind = self.world_values[index].default.as_ref().map(ScalarValue::kind);
        Ok((WorldId(number(index)?), kind))
    }
}

/// Returns the index of a name among those declared under `section`.
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
        ChartError::from(unknown).suggest_from(name, names)
    })
}

fn number(index: usize) -> Result<u16, ChartError> {
    u16::try_from(index).map_err(|_| "the chart has too many names".to_owned().into())
}

impl ChartDraft {
    pub(super) fn check_declarations(&mut self, source: &ChartSource) {
        for (name, field) in &source.fields {
            let location = format!("fields.{name}");
            self.check_name(&location, "field", name);
            let has_range = field.min.is_some() || field.max.is_some();
            let ScalarValue::Number(default) = field.default else {
                if has_range {
                    let kind = field.default.kind().describe();
                    let message =
                        format!("only a number can have min and max, and {name} is {kind}");
                    self.error(&location, message);
                }
                continue;
            };
            let numbers = [Some(default), field.min, field.max];
            if numbers.into_iter().flatten().any(|number| !number.is_finite()) {
                let message = format!("{name} must be a finite number, and so its min and max");
                self.error(&location, message);
                continue;
            }
            if let (Some(min), Some(max)) = (field.min, field.max)
                && min > max
            {
                self.error(&location, format!("min {min} is greater than max {max}"));
                continue;
            }
            if field.min.is_some_and(|min| default < min)
                || field.max.is_some_and(|max| default > max)
            {
                let location = format!("{location}.default");
                self.error(location, format!("default {default} is not between min and max"));
            }
        }
        for (name, value) in &source.world {
            let location = format!("world.{name}");
            self.check_name(&location, "world value", name);
            if matches!(value, ScalarValue::Number(number) if !number.is_finite()) {
                self.error(location, format!("{name} must be a finite number"));
            }
        }
    }
}
