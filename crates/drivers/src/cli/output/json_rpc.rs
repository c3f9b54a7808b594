//! Finds the response of an agent that speaks JSON-RPC 2.0 over stdin and stdout: one request, one
//! response. Lines that are not JSON are log output.

use serde_json::{Map, Value};

use super::parser::ANSWER_BYTES_MAX;
use crate::cli::invocation::RPC_ID;

/// The maximum length of a quoted line, in characters.
const QUOTED_CHARS_MAX: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RpcResponse {
    Answer(String),
    Error(String),
    /// A line over the size limit of answers.
    TooLong,
    /// A line that is not valid JSON-RPC, with the reason.
    Invalid(String),
}

#[derive(Debug, Default)]
pub(crate) struct RpcResponseScanner {
    line: Vec<u8>,
    response: Option<RpcResponse>,
}

impl RpcResponseScanner {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.response.is_some() {
                return;
            }
            self.line.extend_from_slice(piece);
            if self.line.len() > ANSWER_BYTES_MAX {
                self.response = Some(RpcResponse::TooLong);
            } else if self.line.ends_with(b"\n") {
                self.parse_line();
            }
        }
    }

    /// The response, if it has arrived.
    pub(crate) fn response(&self) -> Option<&RpcResponse> {
        self.response.as_ref()
    }

    /// The response, at the end of the stream.
    pub(crate) fn finish(mut self) -> Option<RpcResponse> {
        if self.response.is_none() {
            self.parse_line();
        }
        self.response
    }

    fn parse_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        if !text.starts_with(b"{") {
            return;
        }
        self.response = match serde_json::from_slice(text) {
            Ok(Value::Object(message)) => {
                parse_message(&message).map_err(|why| invalid(why, text)).unwrap_or_else(Some)
            }
            Ok(_) => None,
            Err(error) => Some(invalid(&error.to_string(), text)),
        };
    }
}

/// The response to our request; `None` for notifications and other ids.
fn parse_message(message: &Map<String, Value>) -> Result<Option<RpcResponse>, &'static str> {
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err("\"jsonrpc\" must be \"2.0\"");
    }
    if message.contains_key("method") {
        return Ok(None);
    }
    if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
        return Ok(Some(RpcResponse::Error(error_text(error))));
    }
    let result = message.get("result").ok_or("it has neither a method, a result nor an error")?;
    let is_ours = message.get("id").and_then(Value::as_u64) == Some(RPC_ID);
    let text = result.as_str().or_else(|| result.get("output")?.as_str());
    let answer = text.map_or_else(|| result.to_string(), str::to_owned);
    Ok(is_ours.then_some(RpcResponse::Answer(answer)))
}

fn error_text(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str);
    match (message, error.get("code").and_then(Value::as_i64)) {
        (Some(message), Some(code)) => format!("{message} (code {code})"),
        (Some(message), None) => message.to_owned(),
        (None, _) => error.to_string(),
    }
}

fn invalid(why: &str, line: &[u8]) -> RpcResponse {
    let line = String::from_utf8_lossy(line);
    let shown: String = line.trim().chars().take(QUOTED_CHARS_MAX).collect();
    RpcResponse::Invalid(format!("{why}: {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(lines: &[&str]) -> Option<RpcResponse> {
        let mut responses = RpcResponseScanner::default();
        for line in lines {
            responses.push(line.as_bytes());
        }
        responses.finish()
    }

    #[test]
    fn finds_the_response_among_other_lines() {
        let answer = |text: &str| Some(RpcResponse::Answer(text.to_owned()));
        for (lines, expected) in [
            (vec![r#"{"jsonrpc":"2.0","id":1,"result":"yes"}"#], answer("yes")),
            (
                vec![r#"{"jsonrpc":"2.0","id":1,"#, "\"result\":{\"output\":\"yes\"}}\n"],
                answer("yes"),
            ),
            (vec!["{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[1]}\n", "more"], answer("[1]")),
            (
                vec![
                    "starting\n\n[info] x\n",
                    "{\"jsonrpc\":\"2.0\",\"method\":\"progress\",\"params\":{}}\n",
                    "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"other\"}\r\n",
                    "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"yes\"}\r\n",
                ],
                answer("yes"),
            ),
            (vec!["nothing\n"], None),
            (
                vec![r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#],
                Some(RpcResponse::Error("no (code -32601)".to_owned())),
            ),
        ] {
            assert_eq!(scan(&lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn quotes_invalid_json_rpc() {
        for line in ["{oops}", r#"{"id":1,"result":"yes"}"#, r#"{"jsonrpc":"2.0","id":1}"#] {
            let Some(RpcResponse::Invalid(shown)) = scan(&[line, "\n"]) else {
                panic!("{line} was accepted");
            };
            assert!(shown.ends_with(line), "{shown}");
        }
    }
}
