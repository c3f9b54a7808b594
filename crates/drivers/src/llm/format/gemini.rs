//! The format of Gemini's `streamGenerateContent`.

use polity_engine::driver::{AnswerEnding, AskedArguments, TextSink};
use polity_model::failure::WithheldReason;
use polity_model::message::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::error::ModelCallError;
use super::tool_names::wire_name;
use super::turns::PromptTurn;
use super::{
    AnswerToolCall, ArgumentsSchema, ModelAnswer, ModelPrompt, StreamDecoder, StreamState,
    append_text, check_arguments, parse_event, token_count,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiBody<'a> {
    system_instruction: GeminiContent<'a>,
    contents: Vec<GeminiContent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[GeminiTools<'a>; 1]>,
    generation_config: GeminiGenerationConfig,
}

#[derive(Serialize)]
struct GeminiGenerationConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

#[derive(Serialize)]
struct GeminiContent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<GeminiPart<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", untagged)]
enum GeminiPart<'a> {
    Text {
        text: String,
    },
    Call {
        function_call: GeminiFunctionCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
    Response {
        function_response: GeminiFunctionResponse<'a>,
    },
}

#[derive(Serialize)]
struct GeminiFunctionCall<'a> {
    id: String,
    name: String,
    args: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct GeminiFunctionResponse<'a> {
    id: String,
    name: String,
    response: GeminiFunctionOutput<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum GeminiFunctionOutput<'a> {
    Output(&'a str),
    Error(&'a str),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiTools<'a> {
    function_declarations: Vec<GeminiDeclaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiDeclaration<'a> {
    name: &'a str,
    description: &'a str,
    /// Takes JSON Schema; `parameters` takes a dialect of its own.
    parameters_json_schema: ArgumentsSchema<'a>,
}

/// Encodes the body of a request. The model is part of the URL.
pub(crate) fn encode_body(prompt: &ModelPrompt<'_>) -> serde_json::Result<Vec<u8>> {
    let declarations = prompt.tools.iter().map(|(name, tool)| GeminiDeclaration {
        name,
        description: &tool.description,
        parameters_json_schema: ArgumentsSchema(&tool.input_schema),
    });
    let tools = GeminiTools { function_declarations: declarations.collect() };
    let system = GeminiPart::Text { text: prompt.system.to_owned() };
    serde_json::to_vec(&GeminiBody {
        system_instruction: GeminiContent { role: None, parts: vec![system] },
        contents: prompt.turns.iter().map(content).collect(),
        tools: Some([tools]).filter(|[tools]| !tools.function_declarations.is_empty()),
        generation_config: GeminiGenerationConfig { temperature: prompt.temperature },
    })
}

fn content<'a>(turn: &'a PromptTurn<'a>) -> GeminiContent<'a> {
    let name = |call: &ToolCall| wire_name(&call.server, &call.tool);
    match turn {
        PromptTurn::User { answers, texts } => {
            let responses = answers.iter().map(|answer| GeminiPart::Response {
                function_response: GeminiFunctionResponse {
                    id: answer.call.id.to_string(),
                    name: name(answer.call),
                    response: if answer.is_error {
                        GeminiFunctionOutput::Error(answer.content)
                    } else {
                        GeminiFunctionOutput::Output(answer.content)
                    },
                },
            });
            let texts = texts.iter().map(|text| GeminiPart::Text { text: text.for_user() });
            GeminiContent { role: Some("user"), parts: responses.chain(texts).collect() }
        }
        PromptTurn::Assistant { texts, calls } => {
            let calls = calls.iter().map(|call| GeminiPart::Call {
                function_call: GeminiFunctionCall {
                    id: call.id.to_string(),
                    name: name(call),
                    args: &call.arguments,
                },
                thought_signature: call.signature.as_deref(),
            });
            let texts = texts.iter().map(|text| GeminiPart::Text { text: (*text).to_owned() });
            GeminiContent { role: Some("model"), parts: texts.chain(calls).collect() }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiChunk {
    candidates: Option<Vec<GeminiCandidate>>,
    prompt_feedback: Option<GeminiPromptFeedback>,
    usage_metadata: Option<GeminiUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiCandidate {
    content: Option<GeminiCandidateContent>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct GeminiCandidateContent {
    parts: Option<Vec<GeminiCandidatePart>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiCandidatePart {
    text: Option<String>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    function_call: Option<GeminiCandidateCall>,
}

#[derive(Deserialize)]
struct GeminiCandidateCall {
    name: String,
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPromptFeedback {
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names are the provider's")]
struct GeminiUsage {
    #[serde(default, deserialize_with = "token_count")]
    prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    candidates_token_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    thoughts_token_count: Option<u64>,
}

#[derive(Default)]
pub(crate) struct GeminiDecoder {
    answer: ModelAnswer,
    finish_reason: Option<String>,
    /// The reason why the filter stopped the request, which has no answer then.
    block_reason: Option<String>,
}

impl StreamDecoder for GeminiDecoder {
    fn push_event(&mut self, data: &[u8], progress: &dyn TextSink) -> Result<(), ModelCallError> {
        let chunk: GeminiChunk = parse_event(data)?;
        if let Some(error) = &chunk.error {
            return Err(ModelCallError::from_stream_event(error));
        }
        if let Some(reason) = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason) {
            self.block_reason = Some(reason);
        }
        if let Some(usage) = chunk.usage_metadata {
            self.count(&usage);
        }
        // The request asks for one candidate.
        let Some(candidate) = chunk.candidates.into_iter().flatten().next() else { return Ok(()) };
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            self.add_part(part, progress);
        }
        self.finish_reason = candidate.finish_reason.or(self.finish_reason.take());
        Ok(())
    }

    fn state(&self) -> StreamState {
        match (&self.finish_reason, &self.block_reason) {
            (None, None) => StreamState::Incomplete,
            (Some(_), _) | (_, Some(_)) => StreamState::Complete,
        }
    }

    fn tokens(&self) -> (Option<u64>, Option<u64>) {
        (self.answer.input_tokens, self.answer.output_tokens)
    }

    fn finish(self: Box<Self>) -> Result<ModelAnswer, ModelCallError> {
        let mut answer = self.answer;
        answer.ending = match (&self.block_reason, self.finish_reason.as_deref()) {
            (Some(_), _) => AnswerEnding::Withheld(WithheldReason::Filtered),
            (None, Some(reason)) => ending_of(reason)?,
            (None, None) => AnswerEnding::Complete,
        };
        answer.stop_reason = self.block_reason.or(self.finish_reason);
        Ok(answer)
    }
}

/// The ending that a `finishReason` stands for. All but the first few name a content filter.
fn ending_of(finish_reason: &str) -> Result<AnswerEnding, ModelCallError> {
    match finish_reason {
        "STOP" => Ok(AnswerEnding::Complete),
        "MAX_TOKENS" => Ok(AnswerEnding::Truncated),
        "FINISH_REASON_UNSPECIFIED"
        | "OTHER"
        | "MALFORMED_FUNCTION_CALL"
        | "MALFORMED_RESPONSE"
        | "MISSING_THOUGHT_SIGNATURE"
        | "TOO_MANY_TOOL_CALLS"
        | "UNEXPECTED_TOOL_CALL" => Err(ModelCallError::broken_off(finish_reason)),
        _ => Ok(AnswerEnding::Withheld(WithheldReason::Filtered)),
    }
}

impl GeminiDecoder {
    fn add_part(&mut self, part: GeminiCandidatePart, progress: &dyn TextSink) {
        if let Some(function) = part.function_call {
            let arguments = match function.args {
                None => AskedArguments::Object(Map::new()),
                Some(Value::String(text)) => check_arguments(Value::String(String::new()), || text),
                Some(Value::Object(object)) => AskedArguments::Object(object),
                Some(other) => {
                    let text = other.to_string();
                    check_arguments(other, || text)
                }
            };
            let (name, signature) = (function.name, part.thought_signature);
            self.answer.calls.push(AnswerToolCall { name, arguments, signature });
        } else if let Some(text) = part.text.filter(|_| part.thought != Some(true)) {
            append_text(&mut self.answer.content, &text, progress);
        }
    }

    /// Takes the newest counts: every chunk has totals.
    fn count(&mut self, usage: &GeminiUsage) {
        let sum = |counts: [Option<u64>; 2]| {
            let known = counts.iter().flatten();
            known.copied().reduce(u64::saturating_add)
        };
        if let Some(input) = sum([usage.prompt_token_count, usage.tool_use_prompt_token_count]) {
            self.answer.input_tokens = Some(input);
        }
        if let Some(output) = sum([usage.candidates_token_count, usage.thoughts_token_count]) {
            self.answer.output_tokens = Some(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use polity_engine::driver::NullTextSink;
    use polity_model::failure::ErrorCategory;
    use serde_json::json;

    use super::*;

    fn decode(event: &Value) -> Result<ModelAnswer, ModelCallError> {
        let mut decoder = Box::<GeminiDecoder>::default();
        decoder.push_event(event.to_string().as_bytes(), &NullTextSink)?;
        decoder.finish()
    }

    #[test]
    fn finish_reason_decides_the_ending() {
        let finished = |reason: &str| json!({"candidates": [{"finishReason": reason}]});
        let filtered = AnswerEnding::Withheld(WithheldReason::Filtered);
        for (event, ending) in [
            (json!({"promptFeedback": {"blockReason": "OTHER"}}), filtered),
            (finished("PROHIBITED_CONTENT"), filtered),
            (finished("A_NEW_FILTER"), filtered),
            (finished("STOP"), AnswerEnding::Complete),
            (finished("MAX_TOKENS"), AnswerEnding::Truncated),
        ] {
            assert_eq!(decode(&event).unwrap().ending, ending, "{event}");
        }
    }

    #[test]
    fn keeps_text_before_a_withheld_answer() {
        let event = json!({"candidates": [{"finishReason": "SAFETY",
            "content": {"parts": [{"text": "hidden", "thought": true}, {"text": "said"}]}}]});
        let answer = decode(&event).unwrap();
        assert_eq!(answer.content, "said");
        assert_eq!(answer.stop_reason.as_deref(), Some("SAFETY"));
    }

    #[test]
    fn half_an_answer_before_a_malformed_call_is_transient() {
        let event = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL",
            "content": {"parts": [{"text": "Let me"}]}}]});
        assert_eq!(decode(&event).unwrap_err().category, ErrorCategory::Transient);
    }
}
