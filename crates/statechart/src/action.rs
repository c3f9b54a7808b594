//! The language of actions, which run with a transition or when a state is entered or left.
//!
//! | action | effect |
//! |---|---|
//! | `set agent.FIELD = EXPRESSION` | sets a field of the agent |
//! | `add agent.FIELD = EXPRESSION` | adds a number to a field of the agent |
//! | `set world.NAME = EXPRESSION` | sets a world value |
//! | `add world.NAME = EXPRESSION` | adds a number to a world value |
//! | `pause`, `pause 3` | requests a pause of this agent, for 3 turns |
//! | `pause "NAME"`, `pause "NAME" 3` | requests a pause of another agent |
//! | `resume "NAME"` | requests that another agent resumes |
//! | `copy`, `copy "NAME"` | requests a copy of this agent, under that name |
//! | `remove`, `remove "NAME"` | requests the removal of this or another agent |
//!
//! The next action sees changes of the agent's own fields. World values are read as of the start of
//! the tick; changes apply in agent order. The caller that runs the population decides on requests.

use std::sync::Arc;

use crate::error::ChartError;
use crate::expression::{
    CompiledExpression, ExpressionAst, ExpressionToken, NameResolver, VariableScope, parse, tokens,
};
use crate::ids::{FieldId, WorldId};
use crate::value::{ScalarKind, ScalarValue};

#[derive(Debug, Clone)]
pub(crate) struct CompiledAction {
    pub(crate) text: String,
    pub(crate) body: ActionBody,
}

#[derive(Debug, Clone)]
pub(crate) enum ActionBody {
    SetField(FieldId, CompiledExpression),
    AddField(FieldId, CompiledExpression),
    SetWorld(WorldId, CompiledExpression),
    AddWorld(WorldId, CompiledExpression),
    Request(AgentRequest),
}

/// A lifecycle request by an agent, for the caller that runs the population to decide.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AgentRequest {
    /// Pause an agent, for a number of turns or until it is resumed.
    Pause {
        /// The agent to pause.
        who: AgentRef,
        /// The number of turns that the agent misses.
        turns: Option<u32>,
    },
    /// Resume a paused agent.
    Resume {
        /// The agent's name.
        name: Arc<str>,
    },
    /// Add a copy of the requesting agent.
    Copy {
        /// The name of the copy; by default that of the requesting agent.
        name: Option<Arc<str>>,
    },
    /// Remove an agent.
    Remove {
        /// The agent to remove.
        who: AgentRef,
    },
}

/// The agent that a request is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AgentRef {
    /// The requesting agent.
    Requester,
    /// The agent with this name.
    Named(Arc<str>),
}

/// A change of a world value by an action.
#[derive(Debug, Clone, PartialEq)]
pub enum WorldChange {
    /// Sets the value.
    Set(WorldId, ScalarValue),
    /// Adds to the number.
    Add(WorldId, f64),
}

const FORMS: &str = "set agent.FIELD = EXPRESSION, add agent.FIELD = EXPRESSION, \
    set world.NAME = EXPRESSION, add world.NAME = EXPRESSION, pause, pause TURNS, pause \"NAME\", \
    pause \"NAME\" TURNS, resume \"NAME\", copy, copy \"NAME\", remove, remove \"NAME\"";

const VERBS: [&str; 6] = ["set", "add", "pause", "resume", "copy", "remove"];

impl ActionBody {
    /// Returns the expression of the action, if it has one.
    pub(crate) fn code(&self) -> Option<&CompiledExpression> {
        match self {
            Self::SetField(_, code)
            | Self::AddField(_, code)
            | Self::SetWorld(_, code)
            | Self::AddWorld(_, code) => Some(code),
            Self::Request(_) => None,
        }
    }

    /// Returns the world value that the action changes, if any.
    pub(crate) fn changes(&self) -> Option<WorldId> {
        match self {
            Self::SetWorld(world, _) | Self::AddWorld(world, _) => Some(*world),
            Self::SetField(..) | Self::AddField(..) | Self::Request(_) => None,
        }
    }
}

impl CompiledAction {
    pub(crate) fn draws(&self) -> u32 {
        self.body.code().map_or(0, |code| u32::from(code.draws()))
    }

    /// Compiles an action.
    pub(crate) fn compile(text: &str, names: &mut impl NameResolver) -> Result<Self, ChartError> {
        let words = tokens(text)?;
        let body = match words.as_slice() {
            [
                ExpressionToken::Name(verb),
                ExpressionToken::Name(target),
                ExpressionToken::Symbol("="),
                value @ ..,
            ] if verb == "set" || verb == "add" => {
                assignment(verb == "add", target, &parse(value)?, names)?
            }
            [ExpressionToken::Name(verb), rest @ ..] => request(verb, rest)?,
            [] => return Err("an action must not be empty".to_owned().into()),
            _ => {
                let message = format!("\"{}\" is not an action", text.trim());
                return Err(ChartError::from(message).allowed(FORMS));
            }
        };
        Ok(Self { text: text.trim().to_owned(), body })
    }
}

fn assignment(
    adds: bool,
    target: &str,
    value: &ExpressionAst,
    names: &mut impl NameResolver,
) -> Result<ActionBody, ChartError> {
    let verb = if adds { "add" } else { "set" };
    let (target_id, wanted) = assignment_target(target, names)?;
    let wanted = if adds { wanted.or(Some(ScalarKind::Number)) } else { wanted };
    if adds && wanted != Some(ScalarKind::Number) {
        return Err(format!("{target} is not a number, so nothing can be added to it").into());
    }
    let (code, kind) = CompiledExpression::compile(value, names)?;
    if let (Some(wanted), Some(kind)) = (wanted, kind)
        && wanted != kind
    {
        let (wanted, kind) = (wanted.describe(), kind.describe());
        return Err(format!("\"{verb} {target}\" needs {wanted} and is given {kind}").into());
    }
    Ok(match (target_id, adds) {
        (AssignmentTarget::Field(field), false) => ActionBody::SetField(field, code),
        (AssignmentTarget::Field(field), true) => ActionBody::AddField(field, code),
        (AssignmentTarget::World(world), false) => ActionBody::SetWorld(world, code),
        (AssignmentTarget::World(world), true) => ActionBody::AddWorld(world, code),
    })
}

/// The left side of an assignment.
enum AssignmentTarget {
    Field(FieldId),
    World(WorldId),
}

fn assignment_target(
    target: &str,
    names: &mut impl NameResolver,
) -> Result<(AssignmentTarget, Option<ScalarKind>), ChartError> {
    let (namespace, name) = target.split_once('.').unwrap_or(("", target));
    if namespace == VariableScope::Agent.as_str() {
        let (field, kind) = names.field(name)?;
        return Ok((AssignmentTarget::Field(field), kind));
    }
    if namespace == VariableScope::World.as_str() {
        let (world, kind) = names.world(name)?;
        return Ok((AssignmentTarget::World(world), kind));
    }
    let mut error = ChartError::from(format!("\"{target}\" cannot be changed"))
        .allowed("agent.FIELD, world.NAME");
    error.suggestion = namespace.is_empty().then(|| format!("agent.{target}"));
    Err(error)
}

fn request(verb: &str, rest: &[ExpressionToken]) -> Result<ActionBody, ChartError> {
    let request = match (verb, rest) {
        ("pause", []) => AgentRequest::Pause { who: AgentRef::Requester, turns: None },
        ("pause", [ExpressionToken::Number(number)]) => {
            AgentRequest::Pause { who: AgentRef::Requester, turns: Some(turns(*number)?) }
        }
        ("pause", [ExpressionToken::Text(name)]) => {
            AgentRequest::Pause { who: named(name)?, turns: None }
        }
        ("pause", [ExpressionToken::Text(name), ExpressionToken::Number(number)]) => {
            AgentRequest::Pause { who: named(name)?, turns: Some(turns(*number)?) }
        }
        ("resume", [ExpressionToken::Text(name)]) => {
            AgentRequest::Resume { name: agent_name(name)? }
        }
        ("copy", []) => AgentRequest::Copy { name: None },
        ("copy", [ExpressionToken::Text(name)]) => {
            AgentRequest::Copy { name: Some(agent_name(name)?) }
        }
        ("remove", []) => AgentRequest::Remove { who: AgentRef::Requester },
        ("remove", [ExpressionToken::Text(name)]) => AgentRequest::Remove { who: named(name)? },
        _ if VERBS.contains(&verb) => {
            let misused = ChartError::from(format!("\"{verb}\" is not used like this"));
            return Err(misused.allowed(FORMS));
        }
        _ => {
            let unknown = ChartError::from(format!("unknown action \"{verb}\""));
            return Err(unknown.suggest_from(verb, VERBS).allowed(FORMS));
        }
    };
    Ok(ActionBody::Request(request))
}

fn turns(number: f64) -> Result<u32, ChartError> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked first")]
    if number.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&number) {
        return Ok(number as u32);
    }
    Err(format!("turns must be a whole number from 1, found {number}").into())
}

fn agent_name(name: &str) -> Result<Arc<str>, ChartError> {
    if name.is_empty() {
        return Err("the name of an agent must not be empty".to_owned().into());
    }
    Ok(name.into())
}

fn named(name: &str) -> Result<AgentRef, ChartError> {
    agent_name(name).map(AgentRef::Named)
}
