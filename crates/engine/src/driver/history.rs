//! The part of a conversation that a model is sent.

use polity_model::message::Message;

/// A conversation, or its first and newest messages without the middle. It borrows them.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConversationHistory<'a> {
    opening: &'a [Message],
    recent: &'a [Message],
}

impl<'a> ConversationHistory<'a> {
    /// The whole conversation.
    pub fn whole(messages: &'a [Message]) -> Self {
        Self { opening: &[], recent: messages }
    }

    /// The first message, and the messages from `kept_from` on.
    pub fn shortened(messages: &'a [Message], kept_from: usize) -> Self {
        let kept_from = kept_from.min(messages.len());
        if kept_from <= 1 {
            return Self::whole(messages);
        }
        Self { opening: &messages[..1], recent: &messages[kept_from..] }
    }

    /// The messages, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a Message> + use<'a> {
        self.opening.iter().chain(self.recent)
    }

    /// The size of all texts, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.iter().map(|message| message.content().len()).sum()
    }

    /// The message that opened the conversation: the task.
    pub fn first(&self) -> Option<&'a Message> {
        self.iter().next()
    }

    /// The newest message.
    pub fn last(&self) -> Option<&'a Message> {
        self.iter().next_back()
    }
}
