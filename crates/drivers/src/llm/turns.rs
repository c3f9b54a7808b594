//! A conversation as all providers want it: the model and those who speak to it take turns, and
//! the answers to tools come right after the turn that asked for them.

use polity_engine::driver::History;
use polity_model::message::{Message, ToolCall};

/// One turn of a conversation.
#[derive(Debug, PartialEq)]
pub(super) enum Turn<'a> {
    /// What the model was told.
    Told {
        /// Answers to the calls of the turn before.
        answers: Vec<ToolAnswer<'a>>,
        /// What was said, in order.
        texts: Vec<Text<'a>>,
    },
    /// What the model said.
    Said {
        /// Its texts, none of them empty.
        texts: Vec<&'a str>,
        /// The tools it asked for.
        calls: Vec<&'a ToolCall>,
    },
}

/// What a tool answered.
#[derive(Debug, PartialEq)]
pub(super) struct ToolAnswer<'a> {
    /// The call.
    pub(super) call: &'a ToolCall,
    /// The answer.
    pub(super) content: &'a str,
    /// Whether it says what went wrong.
    pub(super) is_error: bool,
}

/// Something that the model was told.
#[derive(Debug, PartialEq)]
pub(super) enum Text<'a> {
    /// By a person or another agent.
    User(&'a str),
    /// By Polity or the agent's author.
    Instruction(&'a str),
}

impl Text<'_> {
    /// The text for providers that know no instructions in the middle of a conversation.
    pub(super) fn for_user(&self) -> String {
        match self {
            Self::User(text) => (*text).to_owned(),
            Self::Instruction(text) => {
                format!("[Instruction from the system that runs you]\n{text}")
            }
        }
    }
}

/// The conversation in turns, of which two in a row are never of the same kind.
pub(super) fn turns(history: History<'_>) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    for message in history.iter() {
        match message {
            Message::User { content, .. } => add_text(&mut turns, Text::User(content)),
            Message::System { content, .. } => add_text(&mut turns, Text::Instruction(content)),
            Message::Assistant { content, tool_calls, .. } => {
                add_said(&mut turns, content, tool_calls);
            }
            Message::Tool { tool_call_id, content, is_error, .. } => {
                // An answer whose call was left out of the history would be refused.
                let call = turns.iter().rev().find_map(|turn| match turn {
                    Turn::Said { calls, .. } => calls.iter().find(|call| call.id == *tool_call_id),
                    Turn::Told { .. } => None,
                });
                if let Some(call) = call.copied() {
                    tell(&mut turns, |answers, _| {
                        answers.push(ToolAnswer { call, content, is_error: *is_error });
                    });
                }
            }
        }
    }
    turns
}

fn add_text<'a>(turns: &mut Vec<Turn<'a>>, text: Text<'a>) {
    let (Text::User(content) | Text::Instruction(content)) = &text;
    if !content.trim().is_empty() {
        tell(turns, |_, texts| texts.push(text));
    }
}

fn add_said<'a>(turns: &mut Vec<Turn<'a>>, content: &'a str, tool_calls: &'a [ToolCall]) {
    let has_text = !content.trim().is_empty();
    // Providers refuse messages with nothing in them.
    if !has_text && tool_calls.is_empty() {
        return;
    }
    if !matches!(turns.last(), Some(Turn::Said { .. })) {
        turns.push(Turn::Said { texts: Vec::new(), calls: Vec::new() });
    }
    if let Some(Turn::Said { texts, calls }) = turns.last_mut() {
        texts.extend(has_text.then_some(content));
        calls.extend(tool_calls);
    }
}

/// Adds to the turn in which the model is told more; to a new one after what it said itself.
fn tell<'a>(
    turns: &mut Vec<Turn<'a>>,
    add: impl FnOnce(&mut Vec<ToolAnswer<'a>>, &mut Vec<Text<'a>>),
) {
    if let Some(Turn::Told { answers, texts }) = turns.last_mut() {
        return add(answers, texts);
    }
    let (mut answers, mut texts) = (Vec::new(), Vec::new());
    add(&mut answers, &mut texts);
    turns.push(Turn::Told { answers, texts });
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use polity_model::ids::ToolCallId;
    use serde_json::Map;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn call(number: u8) -> ToolCall {
        ToolCall {
            id: ToolCallId::from_random_bytes([number; 16]),
            server: "files".into(),
            tool: "read".into(),
            arguments: Map::new(),
            signature: None,
        }
    }

    fn user(content: &str) -> Message {
        Message::User { content: content.into(), timestamp: NOW }
    }

    fn system(content: &str) -> Message {
        Message::System { content: content.into(), timestamp: NOW }
    }

    fn assistant(content: &str, tool_calls: Vec<ToolCall>) -> Message {
        Message::Assistant { content: content.into(), tool_calls, timestamp: NOW }
    }

    fn tool(call: &ToolCall, content: &str) -> Message {
        Message::Tool {
            tool_call_id: call.id,
            content: content.into(),
            is_error: false,
            timestamp: NOW,
        }
    }

    #[test]
    fn answers_come_first_in_the_turn_after_their_calls() {
        let (one, two) = (call(1), call(2));
        let messages = [
            user("read both"),
            assistant("", vec![one.clone(), two.clone()]),
            tool(&one, "1"),
            system("hurry"),
            tool(&two, ""),
            assistant("done", vec![]),
        ];
        let expected = [
            Turn::Told { answers: vec![], texts: vec![Text::User("read both")] },
            Turn::Said { texts: vec![], calls: vec![&one, &two] },
            Turn::Told {
                answers: vec![
                    ToolAnswer { call: &one, content: "1", is_error: false },
                    ToolAnswer { call: &two, content: "", is_error: false },
                ],
                texts: vec![Text::Instruction("hurry")],
            },
            Turn::Said { texts: vec!["done"], calls: vec![] },
        ];
        assert_eq!(turns(History::whole(&messages)), expected);
    }

    #[test]
    fn empty_messages_and_answers_without_a_call_are_left_out() {
        let messages = [
            user("a"),
            tool(&call(1), "lost"),
            assistant(" ", vec![]),
            system(""),
            user("b"),
            assistant("c", vec![]),
            assistant("d", vec![]),
        ];
        let expected = [
            Turn::Told { answers: vec![], texts: vec![Text::User("a"), Text::User("b")] },
            Turn::Said { texts: vec!["c", "d"], calls: vec![] },
        ];
        assert_eq!(turns(History::whole(&messages)), expected);
    }
}
