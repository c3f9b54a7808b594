//! The prices of model calls.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use polity_definition::{LlmConfig, LlmProvider, TokenPrice};
use polity_model::number::Usd;
use polity_model::usage::{Usage, UsageEstimate};

/// US dollars per million input and output tokens.
type UsdPerMillion = (f64, f64);

/// List prices of well-known models as of 2026-11-15, for requests of ordinary length and speed. A
/// model matches the longest entry that its name starts with.
const PRICES: [(LlmProvider, &str, UsdPerMillion); 36] = [
    (LlmProvider::OpenAi, "gpt-6.1-sol", (2.0, 10.0)),
    (LlmProvider::OpenAi, "gpt-6-sol", (2.0, 10.0)),
    (LlmProvider::OpenAi, "gpt-6-luna", (0.1, 0.5)),
    (LlmProvider::OpenAi, "gpt-5.6-terra", (2.0, 12.0)),
    (LlmProvider::OpenAi, "gpt-5.6-luna", (0.2, 1.2)),
    (LlmProvider::OpenAi, "gpt-5.5", (5.0, 30.0)),
    (LlmProvider::OpenAi, "gpt-5.4", (2.5, 15.0)),
    (LlmProvider::OpenAi, "gpt-5.4-mini", (0.75, 4.5)),
    (LlmProvider::OpenAi, "gpt-5.2", (1.75, 14.0)),
    (LlmProvider::OpenAi, "gpt-5.1", (1.25, 10.0)),
    (LlmProvider::OpenAi, "gpt-5", (1.25, 10.0)),
    (LlmProvider::OpenAi, "gpt-5-mini", (0.25, 2.0)),
    (LlmProvider::OpenAi, "gpt-5-nano", (0.05, 0.4)),
    (LlmProvider::OpenAi, "gpt-4.1", (2.0, 8.0)),
    (LlmProvider::OpenAi, "gpt-4.1-mini", (0.4, 1.6)),
    (LlmProvider::OpenAi, "gpt-4.1-nano", (0.1, 0.4)),
    (LlmProvider::OpenAi, "gpt-4o", (2.5, 10.0)),
    (LlmProvider::OpenAi, "gpt-4o-mini", (0.15, 0.6)),
    (LlmProvider::Anthropic, "claude-fable-5-1", (10.0, 50.0)),
    (LlmProvider::Anthropic, "claude-opus-5-5", (4.0, 20.0)),
    (LlmProvider::Anthropic, "claude-opus-5", (5.0, 25.0)),
    (LlmProvider::Anthropic, "claude-opus-4-8", (5.0, 25.0)),
    (LlmProvider::Anthropic, "claude-opus-4-7", (5.0, 25.0)),
    (LlmProvider::Anthropic, "claude-opus-4-6", (5.0, 25.0)),
    (LlmProvider::Anthropic, "claude-opus-4-5", (5.0, 25.0)),
    (LlmProvider::Anthropic, "claude-sonnet-5-5", (2.0, 10.0)),
    (LlmProvider::Anthropic, "claude-sonnet-4-6", (3.0, 15.0)),
    (LlmProvider::Anthropic, "claude-sonnet-4-5", (3.0, 15.0)),
    (LlmProvider::Anthropic, "claude-haiku-4-5", (1.0, 5.0)),
    (LlmProvider::Gemini, "gemini-3.8-flash", (0.75, 3.75)),
    (LlmProvider::Gemini, "gemini-3.5-flash", (1.5, 9.0)),
    (LlmProvider::Gemini, "gemini-3.5-flash-lite", (0.3, 2.5)),
    (LlmProvider::Gemini, "gemini-3.1-pro", (2.0, 12.0)),
    (LlmProvider::Gemini, "gemini-2.5-pro", (1.25, 10.0)),
    (LlmProvider::Gemini, "gemini-2.5-flash", (0.3, 2.5)),
    (LlmProvider::Gemini, "gemini-2.5-flash-lite", (0.1, 0.4)),
];

/// The estimated tokens of the counts that a call did not report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TokenEstimate {
    pub(super) input: u64,
    pub(super) output: u64,
}

impl TokenEstimate {
    /// The estimate of a usage whose price is not known yet.
    pub(super) fn without_cost(self) -> UsageEstimate {
        let tokens = self.input.saturating_add(self.output);
        UsageEstimate { tokens, ..UsageEstimate::default() }
    }
}

/// Computes costs and warns once per model without a price.
#[derive(Debug, Default)]
pub(super) struct PriceTable {
    unknown: Mutex<HashSet<String>>,
}

impl PriceTable {
    /// Sets the cost of a call's usage, and of the estimate of what it did not report. Cached tokens
    /// cost the same as others.
    pub(super) fn apply(&self, config: &LlmConfig, usage: &mut Usage, estimate: TokenEstimate) {
        let Some(price) = price_for(config) else {
            self.warn_once(config.provider, model_of(config));
            usage.cost_unknown = true;
            return;
        };
        usage.cost = price.of(usage.input_tokens, usage.output_tokens);
        usage.cost_unknown = usage.tokens_unknown && price != TokenPrice::FREE;
        usage.estimate.cost = price.of(estimate.input, estimate.output);
    }

    fn warn_once(&self, provider: LlmProvider, model: &str) {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if !unknown.contains(model) {
            unknown.insert(model.to_owned());
            tracing::warn!(
                provider = provider.as_str(),
                model,
                "the price of this model is not known, and so is the cost of its calls; \
                 set llm_config.price"
            );
        }
    }
}

/// The price of an agent's calls, if it is known.
pub(super) fn price_for(config: &LlmConfig) -> Option<TokenPrice> {
    if config.price.is_some() {
        return config.price;
    }
    // These have no price per token.
    if matches!(config.provider, LlmProvider::Scripted | LlmProvider::Ollama) {
        return Some(TokenPrice::FREE);
    }
    let (input, output) = find_list_price(config.provider, model_of(config))?;
    Some(TokenPrice {
        input_per_million_usd: Usd::try_from(input).ok()?,
        output_per_million_usd: Usd::try_from(output).ok()?,
    })
}

fn model_of(config: &LlmConfig) -> &str {
    config.model.as_ref().map(AsRef::as_ref).unwrap_or_default()
}

/// The price of the longest entry that the model name starts with.
fn find_list_price(provider: LlmProvider, model: &str) -> Option<UsdPerMillion> {
    let model = model.strip_prefix("models/").unwrap_or(model);
    let is_match = |name: &str| model.strip_prefix(name).is_some_and(is_version);
    PRICES
        .iter()
        .filter(|(of, name, _)| *of == provider && is_match(name))
        .max_by_key(|(_, name, _)| name.len())
        .map(|(_, _, price)| *price)
}

/// True if the rest of a name is a version of the same model, such as the date in
/// `gpt-5-2025-08-07`. In `gpt-5.9` and `gpt-5-pro` it names another model.
fn is_version(rest: &str) -> bool {
    let Some(version) = rest.strip_prefix('-') else { return rest.is_empty() };
    let digits = version.bytes().take_while(u8::is_ascii_digit).count();
    digits >= 3 || version.starts_with("preview") || version == "latest"
}

#[cfg(test)]
mod tests {
    use polity_definition::{AgentDefinition, AgentKind};
    use polity_model::usage::Cost;
    use serde_json::{Value, json};

    use super::*;

    const NONE: TokenEstimate = TokenEstimate { input: 0, output: 0 };

    fn millions() -> Usage {
        Usage::reported(Some(1_000_000), Some(1_000_000), Some(Cost::ZERO))
    }

    fn config(config: &Value) -> LlmConfig {
        let agent = json!({"kind": "llm", "name": "a", "role": "r", "system_prompt": "s",
            "llm_config": config});
        let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
        let AgentKind::Llm(llm) = agent.kind else { panic!("{agent:?}") };
        llm.llm_config
    }

    #[test]
    fn longest_entry_wins_and_new_numbers_do_not_match() {
        for (provider, model, expected) in [
            (LlmProvider::OpenAi, "gpt-5", Some((1.25, 10.0))),
            (LlmProvider::OpenAi, "gpt-5-2025-08-07", Some((1.25, 10.0))),
            (LlmProvider::OpenAi, "gpt-5-mini-2025-08-07", Some((0.25, 2.0))),
            (LlmProvider::OpenAi, "gpt-5.9", None),
            (LlmProvider::OpenAi, "gpt-5-pro", None),
            (LlmProvider::Anthropic, "claude-haiku-4-5-20251001", Some((1.0, 5.0))),
            (LlmProvider::Anthropic, "claude-opus-5-9", None),
            (LlmProvider::Gemini, "gemini-3.1-pro-preview", Some((2.0, 12.0))),
            (LlmProvider::OpenAi, "claude-opus-5", None),
            (LlmProvider::Anthropic, "claude-opus-5-5", Some((4.0, 20.0))),
            (LlmProvider::Gemini, "models/gemini-3.5-flash-lite", Some((0.3, 2.5))),
            (LlmProvider::OpenAiCompatible, "gpt-5", None),
        ] {
            assert_eq!(find_list_price(provider, model), expected, "{model}");
        }
    }

    #[test]
    fn definition_price_overrides_list_price() {
        let price = json!({"input_per_million_usd": 3, "output_per_million_usd": 4});
        for (provider, expected) in [
            (json!({"provider": "openai", "model": "gpt-5"}), Some(11.25)),
            (json!({"provider": "openai", "model": "gpt-5", "price": price}), Some(7.0)),
            (json!({"provider": "openai", "model": "new"}), None),
            (json!({"provider": "ollama", "model": "qwen"}), Some(0.0)),
            (json!({"provider": "scripted", "script": "s"}), Some(0.0)),
            (json!({"provider": "scripted", "script": "s", "price": price}), Some(7.0)),
        ] {
            let mut usage = millions();
            PriceTable::default().apply(&config(&provider), &mut usage, NONE);
            assert_eq!(usage.report().cost_usd, expected, "{provider}");
        }
    }

    #[test]
    fn unreported_tokens_have_an_unknown_cost_unless_the_model_is_free() {
        let estimate = TokenEstimate { input: 1_000_000, output: 1_000_000 };
        for (provider, cost, estimated) in [
            (json!({"provider": "openai", "model": "gpt-5"}), None, 11.25),
            (json!({"provider": "ollama", "model": "qwen"}), Some(0.0), 0.0),
        ] {
            let mut usage = Usage::reported(None, None, None);
            PriceTable::default().apply(&config(&provider), &mut usage, estimate);
            assert_eq!(usage.report().cost_usd, cost, "{provider}");
            assert!((usage.estimate.cost.usd() - estimated).abs() < 1e-9, "{provider}");
        }
    }

    #[test]
    fn warns_once_per_model_without_price() {
        let prices = PriceTable::default();
        let config = config(&json!({"provider": "openai", "model": "new"}));
        for _ in 0..2 {
            prices.apply(&config, &mut millions(), NONE);
        }
        assert_eq!(prices.unknown.lock().unwrap().len(), 1);
    }
}
