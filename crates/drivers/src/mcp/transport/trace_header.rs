//! The trace context of a message as an HTTP header. The transports send messages from tasks of their
//! own, so the header comes from the message.

use reqwest::header::HeaderValue;
use rmcp::model::{ClientJsonRpcMessage, GetMeta};

/// The `traceparent` in the metadata of a request.
pub(crate) fn traceparent_header(message: &ClientJsonRpcMessage) -> Option<HeaderValue> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    let traceparent = request.request.get_meta().get_traceparent()?;
    HeaderValue::try_from(traceparent).ok()
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, RequestId};

    use super::*;

    #[test]
    fn trace_context_is_in_the_metadata_and_in_the_header() {
        let message = |traceparent: Option<&str>| {
            let call = CallToolRequest::new(CallToolRequestParams::new("echo"));
            let mut request = ClientRequest::CallToolRequest(call);
            if let Some(traceparent) = traceparent {
                request.get_meta_mut().set_traceparent(traceparent);
            }
            ClientJsonRpcMessage::request(request, RequestId::Number(1))
        };
        let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let traced = message(Some(traceparent));
        assert_eq!(traceparent_header(&traced).unwrap(), traceparent);
        let json = serde_json::to_value(&traced).unwrap();
        assert_eq!(json["params"]["_meta"]["traceparent"], traceparent);
        assert_eq!(traceparent_header(&message(None)), None);
    }
}
