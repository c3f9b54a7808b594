//! Finds the State fields that a parsed expression reads, and checks that they exist.

use cel::common::ast::operators::INDEX;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::{Env, ParseErrors};
use polity_model::value::excerpt;

use crate::evaluation::scope::{NODE_OUTPUT, ScopeField, ScopeReads, check_node_field};
use crate::{did_you_mean, nearest};

/// The most loops (`all`, `exists`, `filter`, `map`) inside each other. Each one multiplies the
/// work by the length of its list.
const LOOPS_NESTED_MAX: usize = 2;

/// The functions that the environment has.
pub(super) const FUNCTIONS: [&str; 27] = [
    "accepts",
    "bool",
    "bytes",
    "charAt",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "format",
    "indexOf",
    "int",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "replace",
    "reverse",
    "size",
    "split",
    "startsWith",
    "steps",
    "string",
    "substring",
    "trim",
    "type",
    "uint",
    "upperAscii",
];

/// The macros, which the parser expands if their arguments fit.
const MACROS: [&str; 6] = ["all", "exists", "exists_one", "filter", "has", "map"];

/// Returns the State fields that an expression reads, or an error for the first unknown name.
pub(super) fn read(program: &IdedExpr, environment: &Env) -> Result<ScopeReads, String> {
    let mut reader =
        ExpressionReader { environment, reading: ScopeReads::default(), bound: Vec::new() };
    reader.expression(&program.expr, 0)?;
    Ok(reader.reading)
}

struct ExpressionReader<'a> {
    environment: &'a Env,
    reading: ScopeReads,
    /// The loop variables in scope.
    bound: Vec<&'a str>,
}

impl<'a> ExpressionReader<'a> {
    fn expression(&mut self, expr: &'a Expr, loops: usize) -> Result<(), String> {
        if let Some((operand, member)) = member(expr) {
            if let Some(node) = self.node(&operand.expr) {
                check_node_field(node, member)?;
                self.read_node(node, member != NODE_OUTPUT);
                return Ok(());
            }
            if let Some(node) = self.node(expr) {
                self.read_node(node, true);
                return Ok(());
            }
        }
        match expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => {
                self.identifier(name);
                Ok(())
            }
            Expr::Select(select) => self.expression(&select.operand.expr, loops),
            Expr::Call(call) => self.call(call, loops),
            Expr::List(list) => self.all(&list.elements, loops),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.expression(&entry.key.expr, loops)?;
                    self.expression(&entry.value.expr, loops)
                }
                EntryExpr::StructField(field) => self.expression(&field.value.expr, loops),
            }),
            Expr::Struct(value) => Err(format!("there is no type \"{}\"", value.type_name)),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, loops + 1),
        }
    }

    fn all(&mut self, exprs: &'a [IdedExpr], loops: usize) -> Result<(), String> {
        exprs.iter().try_for_each(|expr| self.expression(&expr.expr, loops))
    }

    fn call(&mut self, call: &'a CallExpr, loops: usize) -> Result<(), String> {
        if let Some(target) = &call.target {
            self.expression(&target.expr, loops)?;
        }
        let name = call.func_name.as_str();
        // Operators have names such as `_+_` and `@in`.
        let is_function = name.starts_with(|c: char| c.is_ascii_alphabetic());
        if is_function && !FUNCTIONS.contains(&name) {
            return Err(unknown_function(name));
        }
        self.all(&call.args, loops)
    }

    fn comprehension(&mut self, of: &'a ComprehensionExpr, loops: usize) -> Result<(), String> {
        if loops > LOOPS_NESTED_MAX {
            return Err(format!("has more than {LOOPS_NESTED_MAX} loops inside each other"));
        }
        // The range of a loop is read once, outside the loop.
        self.expression(&of.iter_range.expr, loops - 1)?;
        self.expression(&of.accu_init.expr, loops)?;
        let outside = self.bound.len();
        self.bound.push(&of.accu_var);
        self.expression(&of.result.expr, loops)?;
        self.bound.push(&of.iter_var);
        self.bound.extend(of.iter_var2.as_deref());
        self.expression(&of.loop_cond.expr, loops)?;
        self.expression(&of.loop_step.expr, loops)?;
        self.bound.truncate(outside);
        Ok(())
    }

    fn identifier(&mut self, name: &str) {
        let name = name.strip_prefix('.').unwrap_or(name);
        if self.bound.contains(&name) || self.environment.types().find_type(name).is_some() {
            return;
        }
        if self.reading.read(name) == Some(ScopeField::Nodes) {
            // All nodes, or one that is known only at evaluation.
            (self.reading.any_node, self.reading.json) = (true, true);
        }
    }

    /// The node that `nodes.NAME` or `nodes["NAME"]` names.
    fn node<'e>(&self, expr: &'e Expr) -> Option<&'e str> {
        let (operand, node) = member(expr)?;
        let Expr::Ident(name) = &operand.expr else { return None };
        let is_nodes = name == ScopeField::Nodes.as_str() && !self.bound.contains(&name.as_str());
        is_nodes.then_some(node)
    }

    fn read_node(&mut self, node: &str, json: bool) {
        self.reading.fields.insert(ScopeField::Nodes);
        self.reading.nodes.insert(node.to_owned());
        self.reading.json |= json;
    }
}

/// The operand and member of `operand.name` or `operand["name"]`.
fn member(expr: &Expr) -> Option<(&IdedExpr, &str)> {
    match expr {
        Expr::Select(select) => Some((&select.operand, &select.field)),
        Expr::Call(call) if call.func_name == INDEX => match call.args.as_slice() {
            [operand, IdedExpr { expr: Expr::Literal(LiteralValue::String(name)), .. }] => {
                Some((operand, name.inner()))
            }
            _ => None,
        },
        _ => None,
    }
}

fn unknown_function(name: &str) -> String {
    if MACROS.contains(&name) {
        return format!("\"{name}\" does not take these arguments");
    }
    match nearest(name, FUNCTIONS.into_iter().chain(MACROS)) {
        Some(near) => format!("there is no function \"{name}\"{}", did_you_mean(near)),
        None => format!("there is no function \"{name}\"; there are {}", FUNCTIONS.join(", ")),
    }
}

/// The first syntax error in plain words; others mostly follow from it.
pub(super) fn syntax(text: &str, errors: &ParseErrors) -> String {
    let Some(error) = errors.errors.first() else { return "not an expression".to_owned() };
    let (line, column) = error.pos;
    let place = match line {
        ..=0 => String::new(),
        1 if !text.trim_end().contains('\n') => format!(" at character {column}"),
        line => format!(" at line {line}, character {column}"),
    };
    format!("not an expression: {}{place}", reason(&error.msg))
}

/// A message of the parser, without the names of its rules.
fn reason(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    let message = message.trim_start_matches("Syntax error: ");
    let message = message.split(" expecting ").next().unwrap_or(message);
    for (start, meaning) in [
        ("mismatched input ", "unexpected"),
        ("extraneous input ", "unexpected"),
        ("no viable alternative at input ", "unexpected"),
        ("token recognition error at: ", "cannot read"),
    ] {
        if let Some(found) = message.strip_prefix(start) {
            let found = found.trim_matches('\'');
            return match found {
                "<EOF>" => "unexpected end".to_owned(),
                found if found.trim() == "=" => {
                    "cannot read \"=\", write == to compare,".to_owned()
                }
                found => format!("{meaning} \"{}\"", excerpt(found)),
            };
        }
    }
    excerpt(&message.replace(" at '<EOF>'", ""))
}
