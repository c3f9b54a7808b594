//! What a model server says, whatever the wire format.

use std::time::Duration;

/// One answer of a model server.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) fault: Option<Fault>,
    pub(super) first_byte_after: Duration,
    pub(super) between_chunks: Duration,
    pub(super) in_one_piece: bool,
}

/// A tool that a model asks for.
#[derive(Debug, Clone)]
pub struct Call {
    /// The tool's name on the wire, such as `files__read`.
    pub name: String,
    /// The arguments as the model wrote them, which need not be JSON.
    pub arguments: String,
    /// What the model wants to be told again: a signature for Gemini, a thought for Anthropic.
    pub signature: Option<String>,
}

impl Call {
    /// A call of a tool by its name on the wire.
    pub fn new(name: &str, arguments: &str) -> Self {
        Self { name: name.to_owned(), arguments: arguments.to_owned(), signature: None }
    }

    /// The same, with something that the model wants to be told again.
    pub fn signed(self, signature: &str) -> Self {
        Self { signature: Some(signature.to_owned()), ..self }
    }
}

/// What goes wrong with an answer.
#[derive(Debug, Clone)]
pub enum Fault {
    /// An error with this status, in the provider's form.
    Status {
        /// The status.
        status: u16,
        /// What the provider says.
        message: String,
        /// More headers.
        headers: Vec<(&'static str, String)>,
    },
    /// An error as it comes when the conversation is longer than the model can read.
    ContextFull,
    /// A refusal of the key that repeats the key.
    EchoKey,
    /// A refusal of any temperature, as reasoning models have it. Requests without one are
    /// answered.
    NoTemperature,
    /// The connection ends in the middle of the answer.
    Cut,
    /// The answer ends well as far as HTTP goes, without the event that should end it.
    Unfinished,
    /// An event in the middle of the answer is no JSON.
    InvalidJson,
    /// The provider reports that it is overloaded in the middle of the answer.
    ErrorInStream,
    /// A page for people, with status 200.
    Page,
    /// More bytes than anyone should read.
    Endless,
}

impl Turn {
    /// Says something.
    pub fn text(text: &str) -> Self {
        Self { text: text.to_owned(), input_tokens: 10, output_tokens: 5, ..Self::default() }
    }

    /// Asks for tools.
    pub fn calls(calls: impl IntoIterator<Item = Call>) -> Self {
        Self { calls: calls.into_iter().collect(), ..Self::text("") }
    }

    /// Says nothing and asks for nothing.
    pub fn empty() -> Self {
        Self::text("")
    }

    /// Fails. Faults in the middle of an answer come after a piece of text.
    pub fn fault(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::text("half an answer") }
    }

    /// Fails with a status.
    pub fn status(status: u16, message: &str) -> Self {
        let message = message.to_owned();
        Self::fault(Fault::Status { status, message, headers: Vec::new() })
    }

    /// Fails with a status and says when to try again.
    pub fn retry_after(status: u16, retry_after: &str) -> Self {
        let headers = vec![("retry-after", retry_after.to_owned())];
        Self::fault(Fault::Status { status, message: "slow down".to_owned(), headers })
    }

    /// The same, with this text.
    pub fn saying(self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self }
    }

    /// The same, with these tokens.
    pub fn usage(self, input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, ..self }
    }

    /// The same, with a wait before the first byte and between the pieces.
    pub fn slow(self, first_byte_after: Duration, between_chunks: Duration) -> Self {
        Self { first_byte_after, between_chunks, ..self }
    }

    /// The same, sent at once: for measurements, in which the server should cost little.
    pub fn in_one_piece(self) -> Self {
        Self { in_one_piece: true, ..self }
    }
}
