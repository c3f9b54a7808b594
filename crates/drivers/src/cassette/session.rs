//! What a turn says anew. A cassette repeats nothing that an earlier turn of the same session holds,
//! so it grows with the conversation and not with its square. A question is put together again from
//! the turns before it.

use super::conversation::{Question, Said};
use super::document::{Call, Exchange, Listing, ModelOutcome, Session, ToolOutcome, Turn};

/// Where in a session an exchange is: which of the turns, and which of its exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) turn: usize,
    pub(super) exchange: usize,
}

/// What was said up to some exchange.
#[derive(Debug, Default)]
struct Story {
    said: Vec<Said>,
    /// The newest answer. The next exchange may begin with another form of it.
    answer: Option<Said>,
    tools: Option<Vec<String>>,
}

impl Session {
    /// The tools that there are in a turn.
    pub(super) fn listing(&self, turn: u32) -> Option<&Listing> {
        self.listings.iter().rfind(|listing| listing.turn <= turn)
    }

    pub(super) fn turn(&self, turn: u32) -> Option<(usize, &Turn)> {
        self.turns.iter().enumerate().find(|(_, known)| known.number == turn)
    }

    /// The turn of that number, which is made if need be.
    fn turn_mut(&mut self, turn: u32) -> usize {
        match self.turns.binary_search_by_key(&turn, |known| known.number) {
            Ok(at) => at,
            Err(at) => {
                self.turns
                    .insert(at, Turn { number: turn, exchanges: Vec::new(), calls: Vec::new() });
                at
            }
        }
    }

    /// The tools and the messages of an exchange.
    pub(super) fn asked(&self, at: At) -> Option<(Vec<String>, Vec<Said>)> {
        let turn = self.turns.get(at.turn)?;
        let exchange = turn.exchanges.get(at.exchange)?;
        let story = self.story_before(at);
        let replies = self.replies_before(at.turn);
        let tools = exchange.tools.clone().unwrap_or_else(|| self.usual_tools(&story, turn.number));
        Some((tools, story.sent(exchange, replies)))
    }

    /// Writes down what was asked in a turn and what came of it. The same question has one answer,
    /// which is the last: what failed before it was tried again, and a replay need not.
    pub(super) fn record(&mut self, turn: u32, question: Question, outcome: ModelOutcome) {
        let number = turn;
        let turn = self.turn_mut(number);
        // What followed on an earlier answer does not follow on this one.
        self.turns.truncate(turn + 1);
        self.agent = Some(question.agent);
        let known = self.turns[turn].exchanges.len();
        let same = (0..known).find(|exchange| {
            let asked = self.asked(At { turn, exchange: *exchange });
            asked.is_some_and(|(tools, messages)| {
                tools == question.tools && messages == question.messages
            })
        });
        if let Some(exchange) = same {
            self.turns[turn].exchanges[exchange].outcome = outcome;
            return;
        }
        let story = self.story_before(At { turn, exchange: known });
        let (left_out, mut messages) = story.new_in(question.messages);
        let replies = self.replies_before(turn);
        for said in &mut messages {
            leave_out_reply(said, replies);
        }
        let is_usual = self.usual_tools(&story, number) == question.tools;
        let tools = (!is_usual).then_some(question.tools);
        self.turns[turn].exchanges.push(Exchange { tools, left_out, messages, outcome });
    }

    /// Writes down a tool call, in place of an earlier attempt.
    pub(super) fn record_call(&mut self, turn: u32, call: Call) {
        let turn = self.turn_mut(turn);
        let calls = &mut self.turns[turn].calls;
        let same = |known: &&mut Call| known.index == call.index && known.tool == call.tool;
        if let Some(known) = calls.iter_mut().find(same) {
            *known = call;
        } else {
            let at = calls.partition_point(|known| known.index <= call.index);
            calls.insert(at, call);
        }
    }

    /// Writes down the tools that there are, if they changed.
    pub(super) fn record_listing(&mut self, listing: Listing) {
        self.listings.retain(|known| known.turn < listing.turn);
        let is_known = self
            .listings
            .last()
            .is_some_and(|known| known.clone() == Listing { turn: known.turn, ..listing.clone() });
        if !is_known {
            self.listings.push(listing);
        }
    }

    fn story_before(&self, at: At) -> Story {
        let mut story = Story::default();
        for (number, turn) in self.turns.iter().enumerate().take(at.turn + 1) {
            let end = if number == at.turn { at.exchange } else { turn.exchanges.len() };
            for exchange in turn.exchanges.iter().take(end) {
                let tools = exchange.tools.clone();
                story.tools = Some(tools.unwrap_or_else(|| self.usual_tools(&story, turn.number)));
                story.go_on(exchange, self.replies_before(number));
            }
        }
        story
    }

    fn usual_tools(&self, story: &Story, turn: u32) -> Vec<String> {
        story.tools.clone().unwrap_or_else(|| {
            self.listing(turn).map(|listing| names(&listing.offered)).unwrap_or_default()
        })
    }

    /// The tool calls that the messages of a turn answer.
    fn replies_before(&self, turn: usize) -> &[Call] {
        let before = turn.checked_sub(1).and_then(|before| self.turns.get(before));
        before.map_or(&[], |turn| &turn.calls)
    }
}

/// The names of tools that a listing refers to.
fn names(references: &[String]) -> Vec<String> {
    references.iter().map(|reference| name(reference).to_owned()).collect()
}

/// The name of the tool that a listing refers to: it may have a number behind it.
pub(super) fn name(reference: &str) -> &str {
    reference.split_once('#').map_or(reference, |(name, _)| name)
}

impl Story {
    /// All that was said before an exchange. Where that begins with what the model said, this is
    /// said in place of the newest answer: the engine may have changed it.
    fn base(&self, next: &[Said]) -> Vec<Said> {
        let answer = self.answer.iter().filter(|_| !begins_with_answer(next));
        self.said.iter().chain(answer).cloned().collect()
    }

    fn sent(&self, exchange: &Exchange, replies: &[Call]) -> Vec<Said> {
        let base = self.base(&exchange.messages);
        let (opening, recent) = kept(&base, exchange.left_out);
        let new = exchange.messages.iter().map(|said| with_reply(said, replies));
        opening.iter().chain(recent).cloned().chain(new).collect()
    }

    fn go_on(&mut self, exchange: &Exchange, replies: &[Call]) {
        let answer = self.answer.take().filter(|_| !begins_with_answer(&exchange.messages));
        self.said.extend(answer);
        self.said.extend(exchange.messages.iter().map(|said| with_reply(said, replies)));
        self.answer = match &exchange.outcome {
            ModelOutcome::Answer(answer) => Some(Said::of_answer(answer)),
            ModelOutcome::Failure(_) => None,
        };
    }

    /// How many of the messages behind the first are not sent any more, and what is new.
    fn new_in(&self, sent: Vec<Said>) -> (usize, Vec<Said>) {
        let with_answer = self.base(&[]);
        for base in [&with_answer, &self.said] {
            let left_out = (0..base.len().max(1)).find(|left_out| {
                let (opening, recent) = kept(base, *left_out);
                sent.strip_prefix(opening).is_some_and(|rest| rest.starts_with(recent))
            });
            let Some(left_out) = left_out else { continue };
            let (opening, recent) = kept(base, left_out);
            let new = &sent[opening.len() + recent.len()..];
            // It must be read as it is written.
            if self.base(new) == *base {
                return (left_out, new.to_vec());
            }
        }
        // A conversation that has nothing to do with the one before.
        (with_answer.len(), sent)
    }
}

fn begins_with_answer(said: &[Said]) -> bool {
    said.first().is_some_and(Said::is_answer)
}

/// The messages that are still sent: the first, and the recent ones.
fn kept(said: &[Said], left_out: usize) -> (&[Said], &[Said]) {
    match left_out {
        0 => (&[], said),
        _ if left_out < said.len() => (&said[..1], &said[1 + left_out..]),
        _ => (&[], &[]),
    }
}

/// What the tool replied, if it is told in the message as it is.
fn reply(call: Option<usize>, replies: &[Call]) -> Option<&super::document::Reply> {
    let answered = replies.iter().rfind(|reply| Some(reply.index) == call)?;
    match &answered.outcome {
        ToolOutcome::Reply(reply) => Some(reply),
        ToolOutcome::Failure(_) => None,
    }
}

fn leave_out_reply(said: &mut Said, replies: &[Call]) {
    match said {
        Said::Tool { call, content, is_error } => {
            let same = reply(*call, replies).is_some_and(|reply| {
                Some(&reply.content) == content.as_ref() && reply.is_error == *is_error
            });
            if same {
                (*content, *is_error) = (None, false);
            }
        }
        Said::User { .. } | Said::Assistant { .. } | Said::System { .. } => {}
    }
}

fn with_reply(said: &Said, replies: &[Call]) -> Said {
    match said {
        Said::Tool { call, content: None, is_error } => {
            let reply = reply(*call, replies);
            Said::Tool {
                call: *call,
                content: Some(reply.map(|reply| reply.content.clone()).unwrap_or_default()),
                is_error: reply.map_or(*is_error, |reply| reply.is_error),
            }
        }
        Said::Tool { content: Some(_), .. }
        | Said::User { .. }
        | Said::Assistant { .. }
        | Said::System { .. } => said.clone(),
    }
}
