//! The format of Gemini's `streamGenerateContent`.

use polity_engine::driver::{AskedArguments, TextSink};
use polity_model::message::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::error::ModelCallError;
use super::tool_names::wire_name;
use super::turns::PromptTurn;
use super::{
    AnswerToolCall, ArgumentsSchema, ModelAnswer, ModelPrompt, StreamDecoder, StreamState,
    append_text, check_arguments, parse_event,
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
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

#[derive(Default)]
pub(crate) struct GeminiDecoder {
    answer: ModelAnswer,
    finish_reason: Option<String>,
}

impl StreamDecoder for GeminiDecoder {
    fn push_event(&mut self, data: &[u8], progress: &dyn TextSink) -> Result<(), ModelCallError> {
        let chunk: GeminiChunk = parse_event(data)?;
        if let Some(error) = &chunk.error {
            return Err(ModelCallError::from_stream_event(error));
        }
        if let Some(reason) = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason) {
            return Err(ModelCallError::withheld(&reason));
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
        if self.finish_reason.is_some() { StreamState::Complete } else { StreamState::Incomplete }
    }

    fn finish(mut self: Box<Self>) -> Result<ModelAnswer, ModelCallError> {
        self.answer.is_cut = self.finish_reason.as_deref() == Some("MAX_TOKENS");
        let is_empty = self.answer.content.is_empty() && self.answer.calls.is_empty();
        match self.finish_reason.as_deref() {
            Some("STOP" | "MAX_TOKENS") | None => Ok(self.answer),
            Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "OTHER") if is_empty => {
                let reason = self.finish_reason.unwrap_or_default();
                Err(ModelCallError::transient(format!("the model broke its answer off: {reason}")))
            }
            Some(reason) if is_empty => Err(ModelCallError::withheld(reason)),
            Some(_) => Ok(self.answer),
        }
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
            self.answer.input_tokens = input;
        }
        if let Some(output) = sum([usage.candidates_token_count, usage.thoughts_token_count]) {
            self.answer.output_tokens = output;
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
    fn withheld_answers_are_errors() {
        let finished = |reason: &str| json!({"candidates": [{"finishReason": reason}]});
        let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}});
        for (event, category) in [
            (blocked, ErrorCategory::Permanent),
            (finished("PROHIBITED_CONTENT"), ErrorCategory::Permanent),
            (finished("MALFORMED_FUNCTION_CALL"), ErrorCategory::Transient),
        ] {
            assert_eq!(decode(&event).unwrap_err().category, category, "{event}");
        }
        assert_eq!(decode(&finished("STOP")), Ok(ModelAnswer::default()));
        let cut = ModelAnswer { is_cut: true, ..ModelAnswer::default() };
        assert_eq!(decode(&finished("MAX_TOKENS")), Ok(cut));
    }

    #[test]
    fn keeps_text_before_a_withheld_answer() {
        let event = json!({"candidates": [{"finishReason": "SAFETY",
            "content": {"parts": [{"text": "hidden", "thought": true}, {"text": "said"}]}}]});
        assert_eq!(decode(&event).unwrap().content, "said");
    }
}
