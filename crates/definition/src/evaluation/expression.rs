//! Conditions: CEL expressions over the State, compiled when their file is read.

mod bounded;
mod guard;
mod outcome;
mod reader;
mod routing_keys;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use cel::common::ast::IdedExpr;
use cel::common::types::{CelBool, CelList, CelString, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::parser::Parser;
use cel::{Context, Env, ExecutionError};
use serde::Serialize;

use crate::evaluation::budget::EvaluationBudget;
use crate::evaluation::scope::{
    EvaluationError, EvaluationScope, ScopeField, ScopeReads, accepts, steps,
};
use crate::value::{TEMPLATE_BYTES_MAX, check_template, compiled_text, scoped_text};

/// A condition over the State of a workflow: a well-formed CEL expression.
#[derive(Clone, Serialize)]
#[serde(into = "String")]
pub struct ConditionExpression(Arc<CompiledCondition>);

struct CompiledCondition {
    text: Box<str>,
    /// The expression as written.
    program: IdedExpr,
    /// The expression within the budget of an evaluation.
    bounded: IdedExpr,
    reading: ScopeReads,
}

compiled_text!(
    ConditionExpression,
    { "type": "string", "pattern": "\\S", "maxLength": TEMPLATE_BYTES_MAX }
);

/// The functions that expressions may use. None of them knows the time or draws a random number.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    // These names are declared nowhere else, so none of this can fail.
    let _ = environment.add_extension(cel::extensions::strings);
    let _ = environment.add_overload("steps", "steps_string", vec![STRING_TYPE], steps_of);
    let _ = environment.add_overload("accepts", "accepts_string", vec![STRING_TYPE], accepts_of);
    bounded::register(&mut environment);
    Arc::new(environment)
});

type CelArguments<'b, 'v> = Vec<CowVal<'b, 'v>>;

#[expect(clippy::needless_pass_by_value, reason = "the form that cel asks for")]
fn steps_of<'b, 'v>(arguments: CelArguments<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let steps = steps(text_of(&arguments)?).into_iter();
    let steps = steps.map(|step| Box::new(CelString::from(step)) as Box<dyn Val>);
    Ok(CowVal::owned(CelList::from(steps.collect::<Vec<_>>())))
}

#[expect(clippy::needless_pass_by_value, reason = "the form that cel asks for")]
fn accepts_of<'b, 'v>(arguments: CelArguments<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    Ok(CowVal::owned(CelBool::from(accepts(text_of(&arguments)?))))
}

/// The text argument of a function.
fn text_of<'a>(arguments: &'a [CowVal<'_, '_>]) -> Result<&'a str, ExecutionError> {
    let text = arguments.first().and_then(|text| text.downcast_ref::<CelString<'_>>());
    text.map(CelString::inner).ok_or_else(ExecutionError::missing_argument_or_target)
}

scoped_text!(ConditionExpression);

fn compile(text: &str) -> Result<CompiledCondition, String> {
    let compiled = compile_any(text)?;
    compiled.reading.check_names(&[])?;
    Ok(compiled)
}

fn compile_any(text: &str) -> Result<CompiledCondition, String> {
    check_template(text)?;
    guard::check(text)?;
    let program = Parser::new().parse(text).map_err(|errors| reader::syntax(text, &errors))?;
    let reading = reader::read(&program, &ENVIRONMENT)?;
    let bounded = bounded::bound(&program);
    Ok(CompiledCondition { text: text.into(), program, bounded, reading })
}

impl ConditionExpression {
    /// The value of the expression.
    pub fn evaluate(
        &self,
        scope: &EvaluationScope<'_>,
    ) -> Result<serde_json::Value, EvaluationError> {
        let _budget = EvaluationBudget::start();
        let view = scope.view(&self.0.reading);
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for (name, value) in &view {
            context.add_variable_as_val(name.as_str(), values::from_json(value));
        }
        cel::Value::resolve(&self.0.bounded, &context)
            .map_err(|error| values::in_words(&error))
            .and_then(|value| values::to_json(&value))
            .map_err(|reason| EvaluationError::new(self.as_str(), reason))
    }

    /// Evaluates a condition. Any value but true and false is an error.
    pub fn holds(&self, scope: &EvaluationScope<'_>) -> Result<bool, EvaluationError> {
        match self.evaluate(scope)? {
            serde_json::Value::Bool(holds) => Ok(holds),
            other => {
                let reason =
                    format!("gives {}, but true or false is needed", values::kind_of(&other));
                Err(EvaluationError::new(self.as_str(), reason))
            }
        }
    }

    /// The type of the expression, if it can never be a boolean.
    pub fn never_boolean(&self) -> Option<&'static str> {
        outcome::never_boolean(&self.0.program.expr)
    }

    /// True if the expression reads a field of the State, such as `routing_key`.
    pub fn mentions(&self, field: &str) -> bool {
        ScopeField::named(field).is_some_and(|field| self.0.reading.fields.contains(&field))
    }

    /// The routing keys that the expression can give; none if that depends on the State.
    pub(crate) fn routing_keys(&self) -> Option<BTreeSet<String>> {
        routing_keys::outcomes(&self.0.program.expr)
    }

    /// The routing keys that the expression compares with by `==`.
    pub(crate) fn compared_routing_keys(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        routing_keys::compared(&self.0.program.expr, &mut found);
        found
    }

    pub(crate) fn reading(&self) -> &ScopeReads {
        &self.0.reading
    }

    /// The nodes that the expression reads by name.
    pub fn nodes_named(&self) -> impl Iterator<Item = &str> {
        self.0.reading.nodes.iter().map(String::as_str)
    }
}
