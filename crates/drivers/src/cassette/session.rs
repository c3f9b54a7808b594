//! Stores each message of a conversation once.
//!
//! A turn holds only what is new since the previous one, so a cassette grows linearly with the
//! conversation. A request is reassembled from the turns before it.

use super::conversation::{CassetteMessage, ModelQuestion};
use super::document::{
    CassetteCall, CassetteReply, CassetteSession, CassetteTurn, ModelExchange, ModelOutcome,
    ToolListing, ToolOutcome,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExchangeIndex {
    pub(super) turn: usize,
    pub(super) exchange: usize,
}

#[derive(Debug, Default)]
struct ConversationPrefix {
    messages: Vec<CassetteMessage>,
    /// The newest answer. The next exchange may begin with a changed form of it.
    answer: Option<CassetteMessage>,
    tools: Option<Vec<String>>,
}

impl CassetteSession {
    /// The listing that applies to a turn.
    pub(super) fn listing(&self, turn: u32) -> Option<&ToolListing> {
        self.listings.iter().rfind(|listing| listing.turn <= turn)
    }

    pub(super) fn turn(&self, turn: u32) -> Option<(usize, &CassetteTurn)> {
        self.turns.iter().enumerate().find(|(_, known)| known.number == turn)
    }

    /// The index of a turn, which is inserted if needed.
    fn turn_index(&mut self, turn: u32) -> usize {
        self.turns.binary_search_by_key(&turn, |known| known.number).unwrap_or_else(|at| {
            let (exchanges, calls) = (Vec::new(), Vec::new());
            self.turns.insert(at, CassetteTurn { number: turn, exchanges, calls });
            at
        })
    }

    pub(super) fn request(&self, at: ExchangeIndex) -> Option<(Vec<String>, Vec<CassetteMessage>)> {
        let turn = self.turns.get(at.turn)?;
        let exchange = turn.exchanges.get(at.exchange)?;
        let prefix = self.conversation_before(at);
        let replies = self.calls_before(at.turn);
        let tools =
            exchange.tools.clone().unwrap_or_else(|| self.default_tools(&prefix, turn.number));
        Some((tools, prefix.sent_messages(exchange, replies)))
    }

    /// Records a model call. A repeated request keeps only its last outcome: a replay needs no
    /// failed attempts.
    pub(super) fn record_exchange(
        &mut self,
        turn: u32,
        question: ModelQuestion,
        outcome: ModelOutcome,
    ) {
        let number = turn;
        let turn = self.turn_index(number);
        // Later turns belonged to the earlier answer.
        self.turns.truncate(turn + 1);
        self.agent = Some(question.agent);
        let known = self.turns[turn].exchanges.len();
        let same = (0..known).find(|exchange| {
            let asked = self.request(ExchangeIndex { turn, exchange: *exchange });
            asked.is_some_and(|(tools, messages)| {
                tools == question.tools && messages == question.messages
            })
        });
        if let Some(exchange) = same {
            self.turns[turn].exchanges[exchange].outcome = outcome;
            return;
        }
        let prefix = self.conversation_before(ExchangeIndex { turn, exchange: known });
        let (left_out, mut messages) = prefix.new_messages(question.messages);
        let replies = self.calls_before(turn);
        for message in &mut messages {
            omit_reply(message, replies);
        }
        let is_default = self.default_tools(&prefix, number) == question.tools;
        let tools = (!is_default).then_some(question.tools);
        self.turns[turn].exchanges.push(ModelExchange { tools, left_out, messages, outcome });
    }

    /// Records a tool call, replacing an earlier attempt.
    pub(super) fn record_call(&mut self, turn: u32, call: CassetteCall) {
        let turn = self.turn_index(turn);
        let calls = &mut self.turns[turn].calls;
        let same = |known: &&mut CassetteCall| known.index == call.index && known.tool == call.tool;
        if let Some(known) = calls.iter_mut().find(same) {
            *known = call;
        } else {
            let at = calls.partition_point(|known| known.index <= call.index);
            calls.insert(at, call);
        }
    }

    /// Records the available tools if they changed.
    pub(super) fn record_listing(&mut self, listing: ToolListing) {
        self.listings.retain(|known| known.turn < listing.turn);
        let is_known = self.listings.last().is_some_and(|known| {
            known.clone() == ToolListing { turn: known.turn, ..listing.clone() }
        });
        if !is_known {
            self.listings.push(listing);
        }
    }

    fn conversation_before(&self, at: ExchangeIndex) -> ConversationPrefix {
        let mut prefix = ConversationPrefix::default();
        for (number, turn) in self.turns.iter().enumerate().take(at.turn + 1) {
            let end = if number == at.turn { at.exchange } else { turn.exchanges.len() };
            for exchange in turn.exchanges.iter().take(end) {
                let tools = exchange.tools.clone();
                prefix.tools =
                    Some(tools.unwrap_or_else(|| self.default_tools(&prefix, turn.number)));
                prefix.append(exchange, self.calls_before(number));
            }
        }
        prefix
    }

    fn default_tools(&self, prefix: &ConversationPrefix, turn: u32) -> Vec<String> {
        prefix.tools.clone().unwrap_or_else(|| {
            let offered = self.listing(turn).map_or(&[][..], |listing| &listing.offered);
            offered.iter().map(|reference| tool_name(reference).to_owned()).collect()
        })
    }

    /// The tool calls whose results a turn's messages contain.
    fn calls_before(&self, turn: usize) -> &[CassetteCall] {
        let before = turn.checked_sub(1).and_then(|before| self.turns.get(before));
        before.map_or(&[], |turn| &turn.calls)
    }
}

/// The tool name in a reference, which may have a number after it.
pub(super) fn tool_name(reference: &str) -> &str {
    reference.split_once('#').map_or(reference, |(name, _)| name)
}

impl ConversationPrefix {
    /// All messages before an exchange. If the exchange begins with an assistant message, that
    /// replaces the newest answer: the engine may have changed it.
    fn base(&self, next: &[CassetteMessage]) -> Vec<CassetteMessage> {
        let answer = self.answer.iter().filter(|_| !begins_with_answer(next));
        self.messages.iter().chain(answer).cloned().collect()
    }

    fn sent_messages(
        &self,
        exchange: &ModelExchange,
        replies: &[CassetteCall],
    ) -> Vec<CassetteMessage> {
        let base = self.base(&exchange.messages);
        let (opening, recent) = retained(&base, exchange.left_out);
        let new = exchange.messages.iter().map(|message| restore_reply(message, replies));
        opening.iter().chain(recent).cloned().chain(new).collect()
    }

    fn append(&mut self, exchange: &ModelExchange, replies: &[CassetteCall]) {
        let answer = self.answer.take().filter(|_| !begins_with_answer(&exchange.messages));
        self.messages.extend(answer);
        self.messages
            .extend(exchange.messages.iter().map(|message| restore_reply(message, replies)));
        self.answer = match &exchange.outcome {
            ModelOutcome::Answer(answer) => Some(CassetteMessage::from_answer(answer)),
            ModelOutcome::Failure(_) => None,
        };
    }

    /// The number of messages after the first that are no longer sent, and the new messages.
    fn new_messages(&self, sent: Vec<CassetteMessage>) -> (usize, Vec<CassetteMessage>) {
        let with_answer = self.base(&[]);
        for base in [&with_answer, &self.messages] {
            let left_out = (0..base.len().max(1)).find(|left_out| {
                let (opening, recent) = retained(base, *left_out);
                sent.strip_prefix(opening).is_some_and(|rest| rest.starts_with(recent))
            });
            let Some(left_out) = left_out else { continue };
            let (opening, recent) = retained(base, left_out);
            let new = &sent[opening.len() + recent.len()..];
            // Decoding must yield the same base.
            if self.base(new) == *base {
                return (left_out, new.to_vec());
            }
        }
        // An unrelated conversation.
        (with_answer.len(), sent)
    }
}

fn begins_with_answer(messages: &[CassetteMessage]) -> bool {
    messages.first().is_some_and(CassetteMessage::is_answer)
}

/// The messages that are still sent: the first and the recent ones.
fn retained(
    messages: &[CassetteMessage],
    left_out: usize,
) -> (&[CassetteMessage], &[CassetteMessage]) {
    match left_out {
        0 => (&[], messages),
        _ if left_out < messages.len() => (&messages[..1], &messages[1 + left_out..]),
        _ => (&[], &[]),
    }
}

/// The tool's reply to a call, if it succeeded.
fn find_reply(call: Option<usize>, replies: &[CassetteCall]) -> Option<&CassetteReply> {
    let answered = replies.iter().rfind(|reply| Some(reply.index) == call)?;
    match &answered.outcome {
        ToolOutcome::Reply(reply) => Some(reply),
        ToolOutcome::Failure(_) => None,
    }
}

fn omit_reply(message: &mut CassetteMessage, replies: &[CassetteCall]) {
    if let CassetteMessage::Tool { call, content, is_error } = message
        && let Some(reply) = find_reply(*call, replies)
        && Some(&reply.content) == content.as_ref()
        && reply.is_error == *is_error
    {
        (*content, *is_error) = (None, false);
    }
}

fn restore_reply(message: &CassetteMessage, replies: &[CassetteCall]) -> CassetteMessage {
    let CassetteMessage::Tool { call, content: None, is_error } = message else {
        return message.clone();
    };
    let reply = find_reply(*call, replies);
    CassetteMessage::Tool {
        call: *call,
        content: Some(reply.map(|reply| reply.content.clone()).unwrap_or_default()),
        is_error: reply.map_or(*is_error, |reply| reply.is_error),
    }
}
