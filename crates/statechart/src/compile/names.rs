//! What guards and actions may speak of.

use super::Draft;
use crate::chart::{Field, WorldValue};
use crate::error::ChartError;
use crate::expression::Names;
use crate::ids::{ContextId, FieldId, WorldId};
use crate::source::ChartSource;
use crate::value::{Kind, Value};

/// The names of a chart. Where it declares none, those that it uses are taken up one by one.
pub(super) struct Vocabulary {
    pub(super) fields: Vec<Field>,
    fields_are_declared: bool,
    pub(super) worlds: Vec<WorldValue>,
    worlds_are_declared: bool,
    pub(super) contexts: Vec<String>,
}

impl Vocabulary {
    pub(super) fn new(source: &ChartSource) -> Self {
        let fields = source.fields.iter().map(|(name, field)| Field {
            name: name.clone(),
            default: Some(field.default.clone()),
            min: field.min,
            max: field.max,
        });
        let worlds = source.world.iter();
        let worlds = worlds
            .map(|(name, value)| WorldValue { name: name.clone(), default: Some(value.clone()) });
        Self {
            fields: fields.collect(),
            fields_are_declared: !source.fields.is_empty(),
            worlds: worlds.collect(),
            worlds_are_declared: !source.world.is_empty(),
            contexts: source.context.clone(),
        }
    }
}

impl Names for Vocabulary {
    fn field(&mut self, name: &str) -> Result<(FieldId, Option<Kind>), ChartError> {
        let known = self.fields.iter().position(|field| field.name == name);
        let index = match known {
            Some(index) => index,
            None if self.fields_are_declared => {
                let error = ChartError::from(format!("unknown field \"agent.{name}\""));
                return Err(error.one_of(name, self.fields.iter().map(|field| field.name.as_str())));
            }
            None => {
                let name = name.to_owned();
                self.fields.push(Field { name, default: None, min: None, max: None });
                self.fields.len() - 1
            }
        };
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
        let known = self.worlds.iter().position(|world| world.name == name);
        let index = match known {
            Some(index) => index,
            None if self.worlds_are_declared => {
                let error = ChartError::from(format!("unknown value \"world.{name}\""));
                return Err(error.one_of(name, self.worlds.iter().map(|world| world.name.as_str())));
            }
            None => {
                self.worlds.push(WorldValue { name: name.to_owned(), default: None });
                self.worlds.len() - 1
            }
        };
        let kind = self.worlds[index].default.as_ref().map(Value::kind);
        Ok((WorldId(number(index)?), kind))
    }
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
        for name in source.world.keys() {
            self.check_name(&format!("world.{name}"), "world value", name);
        }
    }
}
