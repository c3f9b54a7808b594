//! Templates: texts with `{{ ... }}` over the State, compiled when their file is read.

mod bounded;
mod constants;
mod filters;
mod output_fields;
mod reader;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use polity_model::value::excerpt;

use minijinja::machinery::{Instructions, eval, get_compiled_template, make_string_output};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde::Serialize;

pub(crate) use self::value::ValueTemplate;
use crate::evaluation::budget::EvaluationBudget;
use crate::evaluation::scope::{EvaluationError, EvaluationScope, ScopeReads, accepts, steps};
use crate::value::{TEMPLATE_BYTES_MAX, check_template, compiled_text, scoped_text};

/// The instruction limit of one template. Charges for values are instructions too.
const FUEL: u64 = 2_000_000;

/// The longest output of a template, in bytes.
const RENDERED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The name of the one template of an environment. Without an ending, nothing is escaped.
const NAME: &str = "template";

/// A well-formed template over the State of a workflow.
#[derive(Clone, Serialize)]
#[serde(into = "String")]
pub struct Template(Arc<CompiledTemplate>);

struct CompiledTemplate {
    text: Box<str>,
    environment: Environment<'static>,
    reading: ScopeReads,
}

compiled_text!(
    Template,
    { "type": "string", "pattern": "\\S", "maxLength": TEMPLATE_BYTES_MAX }
);

/// The filters and functions that templates may use. None of them knows the time, draws a random
/// number or reads another template.
static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.remove_global("debug");
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_debug(true);
    environment.add_filter("steps", |text: &str| steps(text));
    environment.add_function("steps", |text: &str| steps(text));
    environment.add_function("accepts", |text: &str| accepts(text));
    bounded::register(&mut environment);
    environment
});

scoped_text!(Template);

fn compile(text: &str) -> Result<CompiledTemplate, String> {
    let compiled = compile_any(text)?;
    compiled.reading.check_names(&[])?;
    Ok(compiled)
}

fn compile_any(text: &str) -> Result<CompiledTemplate, String> {
    check_template(text)?;
    constants::check(text)?;
    let source = output_fields::with_json_fields(text);
    let mut environment = ENVIRONMENT.clone();
    environment
        .add_template_owned(NAME, source.to_string())
        .map_err(|error| format!("not a template: {}", syntax(text, &error)))?;
    let names = environment
        .get_template(NAME)
        .map(|template| template.undeclared_variables(true))
        .unwrap_or_default();
    let reading = reader::read(&source, &names)?;
    filters::check(text, &environment)?;
    Ok(CompiledTemplate { text: text.into(), environment, reading })
}

impl Template {
    /// Renders the template.
    pub fn render(&self, scope: &EvaluationScope<'_>) -> Result<String, EvaluationError> {
        let wrong = |reason| EvaluationError::new(self.as_str(), reason);
        let rendered = render(&self.0.environment, view(scope, &self.0.reading))
            .map_err(|error| wrong(in_words(&error)))?;
        if rendered.len() > RENDERED_BYTES_MAX {
            return Err(wrong(format!(
                "gives more than {RENDERED_BYTES_MAX} bytes, the most a template may give"
            )));
        }
        Ok(rendered)
    }

    pub(crate) fn reading(&self) -> &ScopeReads {
        &self.0.reading
    }

    /// The nodes that the template reads by name.
    pub fn nodes_named(&self) -> impl Iterator<Item = &str> {
        self.0.reading.nodes.iter().map(String::as_str)
    }
}

/// The variables of a template. A field without a value is undefined: `is defined` and `default`
/// work, and reading it is an error.
fn view(scope: &EvaluationScope<'_>, reading: &ScopeReads) -> Value {
    let mut view = scope.view(reading);
    view.retain(|_, value| !value.is_null());
    Value::from(Serde(view))
}

/// Renders the one template of an environment within a budget.
fn render(environment: &Environment<'static>, view: Value) -> Result<String, Error> {
    let _budget = EvaluationBudget::start();
    let template = environment.get_template(NAME)?;
    let instructions = bounded::bound(&get_compiled_template(&template).instructions)?;
    Ok(run(environment, &instructions, view)?.1)
}

/// The value that the one template of an environment assigns as its last statement, within a budget.
/// An error comes with the length of the list that exceeds the budget, if it is one.
fn evaluate_value(
    environment: &Environment<'static>,
    view: Value,
) -> Result<Value, (Error, usize)> {
    let budget = EvaluationBudget::start();
    let evaluate = || {
        let template = environment.get_template(NAME)?;
        let instructions = bounded::bound_value(&get_compiled_template(&template).instructions)?;
        let value = run(environment, &instructions, view)?.0.unwrap_or_default();
        // Its JSON form is made next.
        bounded::check_text(&value)?;
        Ok(value)
    };
    evaluate().map_err(|error: Error| match error.kind() {
        // Of the budget, and of ranges.
        ErrorKind::WriteFailure => (error, budget.list_length()),
        _ => (error, 0),
    })
}

fn run<'e>(
    environment: &'e Environment<'e>,
    instructions: &Instructions<'e>,
    view: Value,
) -> Result<(Option<Value>, String), Error> {
    let (mut output, blocks) = (String::new(), BTreeMap::new());
    let mut out = make_string_output(&mut output);
    let (value, _) = eval(environment, instructions, view, &blocks, &mut out, AutoEscape::None)?;
    drop(out);
    Ok((value, output))
}

/// The syntax error of a template, with its position.
fn syntax(text: &str, error: &Error) -> String {
    let reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let reason = excerpt(&reason);
    // The end of the input needs no position.
    if reason.starts_with("unexpected end of input") {
        return reason;
    }
    let Some(start) = error.range().map(|range| range.start) else { return reason };
    let Some(before) = text.get(..start) else { return reason };
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    if text.trim_end().contains('\n') {
        format!("{reason} at line {line}, character {column}")
    } else {
        format!("{reason} at character {column}")
    }
}

/// The reason of a rendering error.
fn in_words(error: &Error) -> String {
    let detail = error.detail().map(excerpt);
    match error.kind() {
        ErrorKind::UndefinedError => {
            let what = detail.map_or_else(String::new, |detail| format!(": {detail}"));
            format!("reads something that is not there{what}")
        }
        ErrorKind::OutOfFuel => "takes too many steps".to_owned(),
        // The detail names the limit that was reached.
        ErrorKind::WriteFailure => error.detail().unwrap_or_default().to_owned(),
        kind => detail.map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    }
}
