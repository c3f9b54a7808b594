//! Actions: what happens with a transition, or when a state is entered or left.
//!
//! | action | what it does |
//! |---|---|
//! | `set agent.FIELD = EXPRESSION` | changes a field of the agent |
//! | `add agent.FIELD = EXPRESSION` | adds a number to a field of the agent |
//! | `set world.NAME = EXPRESSION` | changes a value of the world |
//! | `add world.NAME = EXPRESSION` | adds a number to a value of the world |
//! | `pause`, `pause 3` | the agent asks to be paused, for 3 turns |
//! | `pause "NAME"`, `pause "NAME" 3` | it asks for another one to be paused |
//! | `resume "NAME"` | it asks for another one to be resumed |
//! | `copy`, `copy "NAME"` | it asks for a copy of itself to be added, under that name |
//! | `remove`, `remove "NAME"` | it asks to be removed, or for another one to be |
//!
//! A change of the agent's own fields is seen by the next action. The world is seen as it was when
//! the tick began; what agents do to it takes effect in the order of the agents. Requests are for
//! whoever runs the population to judge.

use std::sync::Arc;

use crate::error::ChartError;
use crate::expression::{Code, Expression, Names, Namespace, Token, parse, tokens};
use crate::ids::{FieldId, WorldId};
use crate::value::{Kind, Value};

/// One action, compiled.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) text: String,
    pub(crate) body: EffectBody,
}

#[derive(Debug, Clone)]
pub(crate) enum EffectBody {
    SetField(FieldId, Code),
    AddField(FieldId, Code),
    SetWorld(WorldId, Code),
    AddWorld(WorldId, Code),
    Request(Request),
}

/// What an agent asks of whoever runs the population.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// To pause an agent, for some turns or until it is resumed.
    Pause {
        /// Which one.
        who: Who,
        /// How many turns it then misses.
        turns: Option<u32>,
    },
    /// To resume an agent that is paused.
    Resume {
        /// Its name.
        name: Arc<str>,
    },
    /// To add a copy of the agent that asks.
    Copy {
        /// The name of the copy; that of the agent itself unless given.
        name: Option<Arc<str>>,
    },
    /// To remove an agent.
    Remove {
        /// Which one.
        who: Who,
    },
}

/// An agent that something is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// The one that asks.
    Myself,
    /// The one of this name.
    Named(Arc<str>),
}

/// What an action does to the world.
#[derive(Debug, Clone, PartialEq)]
pub enum WorldChange {
    /// The value becomes this.
    Set(WorldId, Value),
    /// The number grows by this.
    Add(WorldId, f64),
}

const FORMS: &str = "set agent.FIELD = EXPRESSION, add agent.FIELD = EXPRESSION, \
    set world.NAME = EXPRESSION, add world.NAME = EXPRESSION, pause, pause TURNS, pause \"NAME\", \
    pause \"NAME\" TURNS, resume \"NAME\", copy, copy \"NAME\", remove, remove \"NAME\"";

const VERBS: [&str; 6] = ["set", "add", "pause", "resume", "copy", "remove"];

impl EffectBody {
    /// The expression that it works out, if there is one.
    pub(crate) fn code(&self) -> Option<&Code> {
        match self {
            Self::SetField(_, code)
            | Self::AddField(_, code)
            | Self::SetWorld(_, code)
            | Self::AddWorld(_, code) => Some(code),
            Self::Request(_) => None,
        }
    }

    /// The value of the world that it changes, if it does.
    pub(crate) fn changes(&self) -> Option<WorldId> {
        match self {
            Self::SetWorld(world, _) | Self::AddWorld(world, _) => Some(*world),
            Self::SetField(..) | Self::AddField(..) | Self::Request(_) => None,
        }
    }
}

impl Effect {
    pub(crate) fn draws(&self) -> u32 {
        self.body.code().map_or(0, |code| u32::from(code.draws()))
    }

    /// Compiles an action.
    pub(crate) fn compile(text: &str, names: &mut impl Names) -> Result<Self, ChartError> {
        let words = tokens(text)?;
        let body = match words.as_slice() {
            [Token::Name(verb), Token::Name(target), Token::Symbol("="), value @ ..]
                if verb == "set" || verb == "add" =>
            {
                assignment(verb == "add", target, &parse(value)?, names)?
            }
            [Token::Name(verb), rest @ ..] => request(verb, rest)?,
            [] => return Err("an action must not be empty".to_owned().into()),
            [Token::Number(_) | Token::Text(_) | Token::Symbol(_), ..] => {
                return Err(no_action(text));
            }
        };
        Ok(Self { text: text.trim().to_owned(), body })
    }
}

fn no_action(text: &str) -> ChartError {
    ChartError::from(format!("\"{}\" is not an action", text.trim())).allowed(FORMS)
}

fn assignment(
    adds: bool,
    target: &str,
    value: &Expression,
    names: &mut impl Names,
) -> Result<EffectBody, ChartError> {
    let verb = if adds { "add" } else { "set" };
    let (place, wanted) = place(target, names)?;
    let wanted = if adds { wanted.or(Some(Kind::Number)) } else { wanted };
    if adds && wanted != Some(Kind::Number) {
        return Err(format!("{target} is not a number, so nothing can be added to it").into());
    }
    let (code, kind) = Code::compile(value, names)?;
    if let (Some(wanted), Some(kind)) = (wanted, kind)
        && wanted != kind
    {
        let (wanted, kind) = (wanted.in_words(), kind.in_words());
        return Err(format!("\"{verb} {target}\" needs {wanted} and is given {kind}").into());
    }
    Ok(match (place, adds) {
        (Place::Field(field), false) => EffectBody::SetField(field, code),
        (Place::Field(field), true) => EffectBody::AddField(field, code),
        (Place::World(world), false) => EffectBody::SetWorld(world, code),
        (Place::World(world), true) => EffectBody::AddWorld(world, code),
    })
}

/// What an action changes.
enum Place {
    Field(FieldId),
    World(WorldId),
}

fn place(target: &str, names: &mut impl Names) -> Result<(Place, Option<Kind>), ChartError> {
    let (namespace, name) = target.split_once('.').unwrap_or(("", target));
    if namespace == Namespace::Agent.as_str() {
        let (field, kind) = names.field(name)?;
        return Ok((Place::Field(field), kind));
    }
    if namespace == Namespace::World.as_str() {
        let (world, kind) = names.world(name)?;
        return Ok((Place::World(world), kind));
    }
    let mut error = ChartError::from(format!("\"{target}\" cannot be changed"))
        .allowed("agent.FIELD, world.NAME");
    error.suggestion = namespace.is_empty().then(|| format!("agent.{target}"));
    Err(error)
}

fn request(verb: &str, rest: &[Token]) -> Result<EffectBody, ChartError> {
    let request = match (verb, rest) {
        ("pause", []) => Request::Pause { who: Who::Myself, turns: None },
        ("pause", [Token::Number(number)]) => {
            Request::Pause { who: Who::Myself, turns: Some(turns(*number)?) }
        }
        ("pause", [Token::Text(name)]) => Request::Pause { who: named(name)?, turns: None },
        ("pause", [Token::Text(name), Token::Number(number)]) => {
            Request::Pause { who: named(name)?, turns: Some(turns(*number)?) }
        }
        ("resume", [Token::Text(name)]) => Request::Resume { name: agent_name(name)? },
        ("copy", []) => Request::Copy { name: None },
        ("copy", [Token::Text(name)]) => Request::Copy { name: Some(agent_name(name)?) },
        ("remove", []) => Request::Remove { who: Who::Myself },
        ("remove", [Token::Text(name)]) => Request::Remove { who: named(name)? },
        _ if VERBS.contains(&verb) => {
            return Err(
                ChartError::from(format!("\"{verb}\" is not used like this")).allowed(FORMS)
            );
        }
        _ => {
            let unknown = ChartError::from(format!("unknown action \"{verb}\""));
            return Err(unknown.one_of(verb, VERBS).allowed(FORMS));
        }
    };
    Ok(EffectBody::Request(request))
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

fn named(name: &str) -> Result<Who, ChartError> {
    agent_name(name).map(Who::Named)
}
