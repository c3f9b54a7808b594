//! Errors of the HTTP transports.

use std::error::Error;

use rmcp::transport::streamable_http_client::StreamableHttpError;

/// An error of streamable HTTP.
pub(crate) type StreamableError = StreamableHttpError<reqwest::Error>;

/// Removes the URL, which may contain a key.
pub(crate) fn strip_url(error: StreamableError) -> StreamableError {
    match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    }
}

/// The error with all its causes; reqwest's own text omits the decisive one.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    // This variant does not expose its source.
    if let Some(StreamableHttpError::Client(cause)) = error.downcast_ref::<StreamableError>() {
        return error_chain(cause);
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
