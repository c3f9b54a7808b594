//! Scripted turns of the fake model server, independent of the wire format.

use std::time::Duration;

/// One reply of the server.
#[derive(Debug, Clone, Default)]
pub struct ModelTurn {
    pub(super) text: String,
    pub(super) calls: Vec<ModelCall>,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) usage_form: UsageForm,
    pub(super) ending: ModelEnding,
    pub(super) fault: Option<ModelFault>,
    pub(super) first_byte_after: Duration,
    pub(super) between_chunks: Duration,
    pub(super) in_one_piece: bool,
}

/// The end of a reply, in the provider's own words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModelEnding {
    /// The reply is whole.
    #[default]
    Complete,
    /// The output limit cut the reply.
    Truncated,
    /// The model refused to reply.
    Refused,
    /// A content filter cut the reply.
    Filtered,
}

/// The form in which a reply reports its usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsageForm {
    /// Integers, as the providers document.
    #[default]
    Integers,
    /// Numbers with a fraction, such as `100.0`.
    Floats,
    /// No usage at all.
    Missing,
}

/// A tool call in a reply.
#[derive(Debug, Clone)]
pub struct ModelCall {
    /// The tool's name on the wire, such as `files__read`.
    pub name: String,
    /// The arguments as the model wrote them, which need not be JSON.
    pub arguments: String,
    /// Opaque data that the model expects back: a signature for Gemini, a thought for Anthropic.
    pub signature: Option<String>,
}

impl ModelCall {
    /// A call of a tool by its wire name.
    pub fn new(name: &str, arguments: &str) -> Self {
        Self { name: name.to_owned(), arguments: arguments.to_owned(), signature: None }
    }

    /// Adds opaque data that the model expects back.
    pub fn signed(self, signature: &str) -> Self {
        Self { signature: Some(signature.to_owned()), ..self }
    }
}

/// A fault of a reply.
#[derive(Debug, Clone)]
pub enum ModelFault {
    /// An error with this status, in the provider's form.
    Status {
        /// The status.
        status: u16,
        /// The provider's message.
        message: String,
        /// Additional headers.
        headers: Vec<(&'static str, String)>,
    },
    /// The provider's error for a conversation that exceeds the context.
    ContextFull,
    /// A rejection by a content filter, with Azure's status and code.
    Filtered,
    /// A rejection of the key that repeats the key.
    EchoKey,
    /// A rejection of any temperature, as by reasoning models. Requests without one succeed.
    NoTemperature,
    /// The connection closes in the middle of the reply.
    Cut,
    /// The HTTP reply is complete, but its final event is missing.
    Unfinished,
    /// The final event comes without a reason for the end, as from a server that gives up a
    /// running reply for another request. Gemini has no final event apart from its reason.
    EndWithoutReason,
    /// A stream with status 200 and without a single event, as from a server that fails after its
    /// headers are sent.
    NoEvents,
    /// An event in the middle of the reply is not JSON.
    InvalidJson,
    /// The provider reports overload in the middle of the reply.
    ErrorInStream,
    /// An HTML page with status 200.
    Page,
    /// An unlimited number of bytes.
    Endless,
}

impl ModelTurn {
    /// Replies with text.
    pub fn text(text: &str) -> Self {
        Self { text: text.to_owned(), input_tokens: 10, output_tokens: 5, ..Self::default() }
    }

    /// Requests tools.
    pub fn calls(calls: impl IntoIterator<Item = ModelCall>) -> Self {
        Self { calls: calls.into_iter().collect(), ..Self::text("") }
    }

    /// Replies with neither text nor calls.
    pub fn empty() -> Self {
        Self::text("")
    }

    /// Fails. Faults in the middle of a reply follow a piece of text.
    pub fn fault(fault: ModelFault) -> Self {
        Self { fault: Some(fault), ..Self::text("half an answer") }
    }

    /// Fails with a status.
    pub fn status(status: u16, message: &str) -> Self {
        let message = message.to_owned();
        Self::fault(ModelFault::Status { status, message, headers: Vec::new() })
    }

    /// Fails with a status and a `retry-after` header.
    pub fn retry_after(status: u16, retry_after: &str) -> Self {
        let headers = vec![("retry-after", retry_after.to_owned())];
        Self::fault(ModelFault::Status { status, message: "slow down".to_owned(), headers })
    }

    /// Sets the text.
    pub fn saying(self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self }
    }

    /// Sets the token usage.
    pub fn usage(self, input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, ..self }
    }

    /// Sets the form of the usage report.
    pub fn usage_form(self, usage_form: UsageForm) -> Self {
        Self { usage_form, ..self }
    }

    /// Sets the end of the reply.
    pub fn ending(self, ending: ModelEnding) -> Self {
        Self { ending, ..self }
    }

    /// Delays the first byte, and each piece after it.
    pub fn slow(self, first_byte_after: Duration, between_chunks: Duration) -> Self {
        Self { first_byte_after, between_chunks, ..self }
    }

    /// Sends the reply at once, for benches in which the server should cost little.
    pub fn in_one_piece(self) -> Self {
        Self { in_one_piece: true, ..self }
    }
}
