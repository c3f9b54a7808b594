//! Templates of exactly one `{{ expression }}`, which evaluate to a value and not to a text.

use minijinja::Expression;

use super::{ENVIRONMENT, filters, in_words, reader, view};
use crate::evaluation::scope::{EvaluationError, EvaluationScope, ScopeReads};
use crate::value::check_template;

/// One expression, whose value keeps its type.
pub(crate) struct ValueTemplate {
    text: Box<str>,
    expression: Expression<'static, 'static>,
    reading: ScopeReads,
}

impl ValueTemplate {
    /// None if the text is anything else than one expression in braces.
    pub(crate) fn compile(text: &str) -> Option<Result<Self, String>> {
        let inside = text.trim_end().strip_prefix("{{")?.strip_suffix("}}")?;
        let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside);
        let inside = inside.strip_suffix(['-', '+']).unwrap_or(inside);
        if let Err(reason) = check_template(text) {
            return Some(Err(reason));
        }
        let environment: &'static _ = &*ENVIRONMENT;
        let expression = environment.compile_expression_owned(inside.to_owned()).ok()?;
        let reading = reader::read(text, &expression.undeclared_variables(true));
        let reading = reading.and_then(|reading| {
            filters::check(text, environment)?;
            Ok(reading)
        });
        Some(reading.map(|reading| Self { text: text.into(), expression, reading }))
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
        let value = self
            .expression
            .eval(view(scope, &self.reading))
            .map_err(|error| wrong(in_words(&error)))?;
        if value.is_undefined() {
            return Err(wrong("reads something that is not there".to_owned()));
        }
        serde_json::to_value(&value).map_err(|error| wrong(format!("has no JSON form: {error}")))
    }
}
