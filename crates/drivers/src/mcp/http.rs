//! What goes wrong with servers that are reached over the network.

use std::error::Error;

use rmcp::transport::streamable_http_client::StreamableHttpError;

/// What may go wrong with streamable HTTP.
pub(super) type HttpError = StreamableHttpError<reqwest::Error>;

/// The error without the address, which may hold a key.
pub(super) fn without_url(error: HttpError) -> HttpError {
    match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    }
}

/// An error with all its causes; reqwest's own text leaves out what matters.
pub(super) fn with_causes(error: &(dyn Error + 'static)) -> String {
    // This one does not say what caused it.
    if let Some(StreamableHttpError::Client(cause)) = error.downcast_ref::<HttpError>() {
        return with_causes(cause);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
