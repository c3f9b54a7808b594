//! Templates of exactly one `{{ expression }}`, which evaluate to a value and not to a text.

use minijinja::Environment;

use super::output_fields::with_json_fields;
use super::{ENVIRONMENT, NAME, constants, evaluate_value, filters, in_words, reader, view};
use crate::evaluation::scope::{EvaluationError, EvaluationScope, ScopeReads};
use crate::value::check_template;

/// One expression, whose value keeps its type.
pub(crate) struct ValueTemplate {
    text: Box<str>,
    /// Has one template, which assigns the value to a variable.
    environment: Box<Environment<'static>>,
    reading: ScopeReads,
}

impl ValueTemplate {
    /// None if the text is anything else than one expression in braces.
    pub(crate) fn compile(text: &str) -> Option<Result<Self, String>> {
        let source = with_json_fields(text);
        let inside = source.trim_end().strip_prefix("{{")?.strip_suffix("}}")?;
        let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside);
        let inside = inside.strip_suffix(['-', '+']).unwrap_or(inside);
        if let Err(reason) = check_template(text).and_then(|()| constants::check(text)) {
            return Some(Err(reason));
        }
        let mut environment = Box::new(ENVIRONMENT.clone());
        let names = environment.compile_expression(inside).ok()?.undeclared_variables(true);
        let assignment = format!("{{% set value = ({inside}) %}}");
        environment.add_template_owned(NAME, assignment).ok()?;
        let reading = reader::read(&source, &names).and_then(|reading| {
            filters::check(text, &environment)?;
            Ok(reading)
        });
        Some(reading.map(|reading| Self { text: text.into(), environment, reading }))
    }

    pub(crate) fn reading(&self) -> &ScopeReads {
        &self.reading
    }

    /// The value of the expression.
    pub(crate) fn evaluate(
        &self,
        scope: &EvaluationScope<'_>,
    ) -> Result<serde_json::Value, EvaluationError> {
        let wrong = |reason: String| EvaluationError::new(&self.text, reason);
        let value = evaluate_value(&self.environment, view(scope, &self.reading))
            .map_err(|(error, items)| wrong(in_words(&error)).with_items(items))?;
        if value.is_undefined() {
            return Err(wrong("reads something that is not there".to_owned()));
        }
        serde_json::to_value(&value).map_err(|error| wrong(format!("has no JSON form: {error}")))
    }
}
