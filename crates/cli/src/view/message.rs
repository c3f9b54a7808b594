//! Messages as text.

use polity_model::message::Message;
use polity_model::trace::shorten;
use serde_json::Value;

use super::style;

/// A message with its role, optionally shortened to one line.
pub(crate) fn message_text(message: &Message, characters_max: Option<usize>) -> String {
    let calls: Vec<_> = message
        .tool_calls()
        .iter()
        .map(|call| format!("[{} {}]", call.name(), Value::Object(call.arguments.clone())))
        .collect();
    let text = [message.content().to_owned(), calls.join(" ")].join(" ");
    let text = match characters_max {
        Some(most) => shorten(text.trim(), most),
        None => text.trim().to_owned(),
    };
    let role = style::dim(&format!("{:10}", message.role().label()));
    format!("{role} {}", text.replace('\n', "\n           "))
}
