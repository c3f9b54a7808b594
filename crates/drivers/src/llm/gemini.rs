//! The wire format of Gemini's `streamGenerateContent`.

use polity_engine::driver::{AskedArguments, Progress};
use polity_model::message::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::failure::Fault;
use super::names::wire_name;
use super::turns::Turn;
use super::wire::{
    Answer, AnsweredCall, ArgumentsSchema, Heard, Listener, Piece, Prompt, add_text,
    arguments_from_value, parse,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    system_instruction: Content<'a>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'a>>,
    generation_config: GenerationConfig,
}

#[derive(Serialize)]
struct GenerationConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", untagged)]
enum Part<'a> {
    Text {
        text: String,
    },
    Call {
        function_call: FunctionCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
    Response {
        function_response: FunctionResponse<'a>,
    },
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    id: String,
    name: String,
    args: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    id: String,
    name: String,
    response: Output<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Output<'a> {
    Output(&'a str),
    Error(&'a str),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    /// The field that takes JSON Schema; `parameters` takes a dialect of its own.
    parameters_json_schema: ArgumentsSchema<'a>,
}

/// The body of a request. The model is in its address.
pub(super) fn body(prompt: &Prompt<'_>) -> serde_json::Result<Vec<u8>> {
    let declarations = prompt.tools.iter().map(|(name, tool)| Declaration {
        name,
        description: &tool.description,
        parameters_json_schema: ArgumentsSchema(&tool.input_schema),
    });
    let declarations: Vec<_> = declarations.collect();
    let system = Part::Text { text: prompt.system.to_owned() };
    serde_json::to_vec(&Body {
        system_instruction: Content { role: None, parts: vec![system] },
        contents: prompt.turns.iter().map(content).collect(),
        tools: if declarations.is_empty() {
            Vec::new()
        } else {
            vec![Tools { function_declarations: declarations }]
        },
        generation_config: GenerationConfig { temperature: prompt.temperature },
    })
}

fn content<'a>(turn: &'a Turn<'a>) -> Content<'a> {
    let name = |call: &ToolCall| wire_name(&call.server, &call.tool);
    match turn {
        Turn::Told { answers, texts } => {
            let responses = answers.iter().map(|answer| Part::Response {
                function_response: FunctionResponse {
                    id: answer.call.id.to_string(),
                    name: name(answer.call),
                    response: if answer.is_error {
                        Output::Error(answer.content)
                    } else {
                        Output::Output(answer.content)
                    },
                },
            });
            let texts = texts.iter().map(|text| Part::Text { text: text.for_user() });
            Content { role: Some("user"), parts: responses.chain(texts).collect() }
        }
        Turn::Said { texts, calls } => {
            let calls = calls.iter().map(|call| Part::Call {
                function_call: FunctionCall {
                    id: call.id.to_string(),
                    name: name(call),
                    args: &call.arguments,
                },
                thought_signature: call.signature.as_deref(),
            });
            let texts = texts.iter().map(|text| Part::Text { text: (*text).to_owned() });
            Content { role: Some("model"), parts: texts.chain(calls).collect() }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow)]
    prompt_feedback: Option<PromptFeedback<'a>>,
    usage_metadata: Option<UsageMetadata>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<CandidateContent<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Piece<'a>>,
}

#[derive(Deserialize)]
struct CandidateContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<CandidatePart<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CandidatePart<'a> {
    #[serde(borrow)]
    text: Option<Piece<'a>>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    function_call: Option<AskedFunction>,
}

#[derive(Deserialize)]
struct AskedFunction {
    name: String,
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback<'a> {
    #[serde(borrow)]
    block_reason: Option<Piece<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names are the provider's")]
struct UsageMetadata {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

/// Puts an answer together.
#[derive(Default)]
pub(super) struct GeminiListener {
    answer: Answer,
    finish_reason: Option<String>,
}

impl Listener for GeminiListener {
    fn hear(&mut self, data: &[u8], progress: &dyn Progress) -> Result<(), Fault> {
        let chunk: Chunk<'_> = parse(data)?;
        if let Some(error) = &chunk.error {
            return Err(Fault::in_stream(error));
        }
        if let Some(reason) = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason) {
            return Err(Fault::withheld(&reason.0));
        }
        if let Some(usage) = chunk.usage_metadata {
            self.count(&usage);
        }
        // Only one answer was asked for.
        let Some(candidate) = chunk.candidates.into_iter().flatten().next() else { return Ok(()) };
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            self.add_part(part, progress);
        }
        if let Some(reason) = candidate.finish_reason {
            self.finish_reason = Some(reason.0.into_owned());
        }
        Ok(())
    }

    fn heard(&self) -> Heard {
        if self.finish_reason.is_some() { Heard::Enough } else { Heard::Part }
    }

    fn answer(mut self: Box<Self>) -> Result<Answer, Fault> {
        self.answer.is_cut = self.finish_reason.as_deref() == Some("MAX_TOKENS");
        let is_empty = self.answer.content.is_empty() && self.answer.calls.is_empty();
        match self.finish_reason.as_deref() {
            Some("STOP" | "MAX_TOKENS") | None => Ok(self.answer),
            Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "OTHER") if is_empty => {
                let reason = self.finish_reason.unwrap_or_default();
                Err(Fault::passing(format!("the model broke its answer off: {reason}")))
            }
            Some(reason) if is_empty => Err(Fault::withheld(reason)),
            Some(_) => Ok(self.answer),
        }
    }
}

impl GeminiListener {
    fn add_part(&mut self, part: CandidatePart<'_>, progress: &dyn Progress) {
        if let Some(function) = part.function_call {
            let arguments = match function.args {
                None => AskedArguments::Object(Map::new()),
                Some(Value::String(text)) => {
                    arguments_from_value(Value::String(String::new()), || text)
                }
                Some(Value::Object(object)) => AskedArguments::Object(object),
                Some(other) => {
                    let text = other.to_string();
                    arguments_from_value(other, || text)
                }
            };
            let (name, signature) = (function.name, part.thought_signature);
            self.answer.calls.push(AnsweredCall { name, arguments, signature });
        } else if let Some(text) = part.text.filter(|_| part.thought != Some(true)) {
            add_text(&mut self.answer.content, &text.0, progress);
        }
    }

    /// Every chunk has the sums so far.
    fn count(&mut self, usage: &UsageMetadata) {
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
    use polity_engine::driver::Unheard;
    use polity_model::failure::ErrorCategory;
    use serde_json::json;

    use super::*;

    fn listen(event: &Value) -> Result<Answer, Fault> {
        let mut listener = Box::<GeminiListener>::default();
        listener.hear(event.to_string().as_bytes(), &Unheard)?;
        listener.answer()
    }

    #[test]
    fn answers_that_were_withheld_are_failures() {
        let finished = |reason: &str| json!({"candidates": [{"finishReason": reason}]});
        let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}});
        for (event, category) in [
            (blocked, ErrorCategory::Permanent),
            (finished("PROHIBITED_CONTENT"), ErrorCategory::Permanent),
            (finished("MALFORMED_FUNCTION_CALL"), ErrorCategory::Transient),
        ] {
            assert_eq!(listen(&event).unwrap_err().category, category, "{event}");
        }
        assert_eq!(listen(&finished("STOP")), Ok(Answer::default()));
        let cut = Answer { is_cut: true, ..Answer::default() };
        assert_eq!(listen(&finished("MAX_TOKENS")), Ok(cut));
    }

    #[test]
    fn what_was_said_before_an_answer_was_withheld_counts() {
        let event = json!({"candidates": [{"finishReason": "SAFETY",
            "content": {"parts": [{"text": "hidden", "thought": true}, {"text": "said"}]}}]});
        assert_eq!(listen(&event).unwrap().content, "said");
    }
}
