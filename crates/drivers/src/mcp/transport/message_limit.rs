//! The limits of one message from a server.

use rmcp::model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};

use super::super::MESSAGE_BYTES_MAX;
use crate::json_size::JSON_VALUES_MAX;

/// A limit that a message exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageLimit {
    /// The length of its text.
    #[error(
        "the server sent a message of more than {MESSAGE_BYTES_MAX} bytes, the most that an MCP \
         message may have"
    )]
    Bytes,
    /// The number of its JSON values.
    #[error(
        "the server sent a message of more than {JSON_VALUES_MAX} JSON values, the most that an MCP \
         message may have"
    )]
    Values,
}

impl MessageLimit {
    /// The code of [`Self::to_error`], from the range for errors of implementations.
    pub(crate) const ERROR_CODE: ErrorCode = ErrorCode(-32_077);

    /// The error response that stands for the message.
    pub(crate) fn to_error(self, id: RequestId) -> ServerJsonRpcMessage {
        let error = ErrorData::new(Self::ERROR_CODE, self.to_string(), None);
        ServerJsonRpcMessage::error(error, Some(id))
    }
}
