//! Groups a conversation into alternating turns, as all providers require. Tool results directly
//! follow the turn with their calls.

use polity_engine::driver::ConversationHistory;
use polity_model::message::{Message, ToolCall};

#[derive(Debug, PartialEq)]
pub(crate) enum PromptTurn<'a> {
    /// Input to the model.
    User {
        /// The results of the previous turn's calls.
        answers: Vec<PromptToolResult<'a>>,
        texts: Vec<PromptText<'a>>,
    },
    /// Output of the model.
    Assistant {
        /// The texts, none of them empty.
        texts: Vec<&'a str>,
        calls: Vec<&'a ToolCall>,
    },
}

/// The result of a tool call.
#[derive(Debug, PartialEq)]
pub(crate) struct PromptToolResult<'a> {
    pub(crate) call: &'a ToolCall,
    pub(crate) content: &'a str,
    /// True if the call failed.
    pub(crate) is_error: bool,
}

/// A text in the input to the model.
#[derive(Debug, PartialEq)]
pub(crate) enum PromptText<'a> {
    /// From a person or another agent.
    User(&'a str),
    /// From Polity or the agent's author.
    Instruction(&'a str),
}

impl PromptText<'_> {
    /// The text for providers without instructions in the middle of a conversation.
    pub(crate) fn for_user(&self) -> String {
        match self {
            Self::User(text) => (*text).to_owned(),
            Self::Instruction(text) => {
                format!("[Instruction from the system that runs you]\n{text}")
            }
        }
    }
}

/// Groups messages into turns; two consecutive turns are never of the same kind.
pub(crate) fn group_turns(history: ConversationHistory<'_>) -> Vec<PromptTurn<'_>> {
    let mut turns = Vec::new();
    for message in history.iter() {
        match message {
            Message::User { content, .. } => add_user_text(&mut turns, PromptText::User(content)),
            Message::System { content, .. } => {
                add_user_text(&mut turns, PromptText::Instruction(content));
            }
            Message::Assistant { content, tool_calls, .. } => {
                add_assistant_message(&mut turns, content, tool_calls);
            }
            Message::Tool { tool_call_id, content, is_error, .. } => {
                // Providers reject a result without its call.
                let call = turns.iter().rev().find_map(|turn| match turn {
                    PromptTurn::Assistant { calls, .. } => {
                        calls.iter().find(|call| call.id == *tool_call_id)
                    }
                    PromptTurn::User { .. } => None,
                });
                if let Some(call) = call.copied() {
                    add_to_user_turn(&mut turns, |answers, _| {
                        answers.push(PromptToolResult { call, content, is_error: *is_error });
                    });
                }
            }
        }
    }
    turns
}

fn add_user_text<'a>(turns: &mut Vec<PromptTurn<'a>>, text: PromptText<'a>) {
    let (PromptText::User(content) | PromptText::Instruction(content)) = &text;
    if !content.trim().is_empty() {
        add_to_user_turn(turns, |_, texts| texts.push(text));
    }
}

fn add_assistant_message<'a>(
    turns: &mut Vec<PromptTurn<'a>>,
    content: &'a str,
    tool_calls: &'a [ToolCall],
) {
    let has_text = !content.trim().is_empty();
    // Providers reject empty messages.
    if !has_text && tool_calls.is_empty() {
        return;
    }
    if !matches!(turns.last(), Some(PromptTurn::Assistant { .. })) {
        turns.push(PromptTurn::Assistant { texts: Vec::new(), calls: Vec::new() });
    }
    if let Some(PromptTurn::Assistant { texts, calls }) = turns.last_mut() {
        texts.extend(has_text.then_some(content));
        calls.extend(tool_calls);
    }
}

/// Adds to the last turn if it is input, else to a new one.
fn add_to_user_turn<'a>(
    turns: &mut Vec<PromptTurn<'a>>,
    add: impl FnOnce(&mut Vec<PromptToolResult<'a>>, &mut Vec<PromptText<'a>>),
) {
    if let Some(PromptTurn::User { answers, texts }) = turns.last_mut() {
        return add(answers, texts);
    }
    let (mut answers, mut texts) = (Vec::new(), Vec::new());
    add(&mut answers, &mut texts);
    turns.push(PromptTurn::User { answers, texts });
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
    fn tool_results_lead_the_turn_after_their_calls() {
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
            PromptTurn::User { answers: vec![], texts: vec![PromptText::User("read both")] },
            PromptTurn::Assistant { texts: vec![], calls: vec![&one, &two] },
            PromptTurn::User {
                answers: vec![
                    PromptToolResult { call: &one, content: "1", is_error: false },
                    PromptToolResult { call: &two, content: "", is_error: false },
                ],
                texts: vec![PromptText::Instruction("hurry")],
            },
            PromptTurn::Assistant { texts: vec!["done"], calls: vec![] },
        ];
        assert_eq!(group_turns(ConversationHistory::whole(&messages)), expected);
    }

    #[test]
    fn drops_empty_messages_and_results_without_call() {
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
            PromptTurn::User {
                answers: vec![],
                texts: vec![PromptText::User("a"), PromptText::User("b")],
            },
            PromptTurn::Assistant { texts: vec!["c", "d"], calls: vec![] },
        ];
        assert_eq!(group_turns(ConversationHistory::whole(&messages)), expected);
    }
}
