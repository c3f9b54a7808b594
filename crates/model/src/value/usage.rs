//! Usage: tokens and money.

use std::fmt;
use std::ops::{Add, AddAssign, SubAssign};

use serde::{Deserialize, Deserializer, Serialize};

const PICO_USD_PER_USD: f64 = 1e12;

/// An amount of money in millionths of a millionth of a US dollar.
///
/// Prices are given per million tokens and sums must not drift, so money is an integer; one token
/// at a tenth of a dollar per million is 100,000 of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Cost {
    pico_usd: u64,
}

impl Cost {
    /// No money.
    pub const ZERO: Self = Self { pico_usd: 0 };

    /// The largest amount, at which sums saturate: 4.6 million dollars. A store can add two of them.
    pub const MAX: Self = Self { pico_usd: i64::MAX as u64 / 2 };

    /// The cost of `tokens` at a price per million. A negative price or NaN counts as zero:
    /// definitions refuse such prices.
    pub fn of_tokens(tokens: u64, usd_per_million: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and a price beyond 18 dollars per token is none"
        )]
        let pico_usd_per_token = (usd_per_million * 1e6).round() as u64;
        Self { pico_usd: tokens.saturating_mul(pico_usd_per_token) }.min(Self::MAX)
    }

    /// An amount in US dollars. Negative amounts and NaN count as zero.
    pub fn of_usd(usd: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and negative amounts count as zero"
        )]
        let pico_usd = (usd * PICO_USD_PER_USD).round() as u64;
        Self { pico_usd }.min(Self::MAX)
    }

    /// The amount that a store or a file holds, at most [`Cost::MAX`].
    pub fn from_pico_usd(pico_usd: u64) -> Self {
        Self { pico_usd }.min(Self::MAX)
    }

    /// The amount as stores keep it.
    pub fn pico_usd(self) -> u64 {
        self.pico_usd
    }

    /// The amount in US dollars, for reports.
    #[expect(clippy::cast_precision_loss, reason = "reports round to far fewer digits")]
    pub fn usd(self) -> f64 {
        self.pico_usd as f64 / PICO_USD_PER_USD
    }
}

impl From<u64> for Cost {
    fn from(pico_usd: u64) -> Self {
        Self::from_pico_usd(pico_usd)
    }
}

impl From<Cost> for u64 {
    fn from(cost: Cost) -> Self {
        cost.pico_usd
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = Self { pico_usd: self.pico_usd.saturating_add(other.pico_usd) }.min(Self::MAX);
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.4}", self.usd())
    }
}

/// Tokens and money, of one model call or summed over many. The counts are those that were
/// reported; two flags say if they are all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent to models.
    #[serde(deserialize_with = "limited_tokens")]
    pub input_tokens: u64,
    /// Tokens that models answered with.
    #[serde(deserialize_with = "limited_tokens")]
    pub output_tokens: u64,
    /// The cost.
    #[serde(rename = "cost_pico_usd", default)]
    pub cost: Cost,
    /// True if the tokens of a call were not reported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tokens_unknown: bool,
    /// True if the cost of a call is unknown: its tokens or its price are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cost_unknown: bool,
    /// The estimate of the usage that was not reported, which budgets count.
    #[serde(default, skip_serializing_if = "UsageEstimate::is_empty")]
    pub estimate: UsageEstimate,
}

/// The estimate of unreported usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageEstimate {
    /// Tokens.
    #[serde(deserialize_with = "limited_tokens")]
    pub tokens: u64,
    /// Their cost.
    #[serde(rename = "cost_pico_usd", default)]
    pub cost: Cost,
}

impl UsageEstimate {
    /// True if nothing is estimated.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Usage {
    /// The usage of work that reported nothing.
    pub const UNKNOWN: Self = Self {
        input_tokens: 0,
        output_tokens: 0,
        cost: Cost::ZERO,
        tokens_unknown: true,
        cost_unknown: true,
        estimate: UsageEstimate { tokens: 0, cost: Cost::ZERO },
    };

    /// The usage that a program or server reported; what is missing is unknown.
    pub fn reported(
        input_tokens: Option<u64>,
        output_tokens: Option<u64>,
        cost: Option<Cost>,
    ) -> Self {
        Self {
            input_tokens: input_tokens.unwrap_or(0).min(TOKENS_MAX),
            output_tokens: output_tokens.unwrap_or(0).min(TOKENS_MAX),
            cost: cost.unwrap_or(Cost::ZERO),
            tokens_unknown: input_tokens.is_none() || output_tokens.is_none(),
            cost_unknown: cost.is_none(),
            estimate: UsageEstimate::default(),
        }
    }

    /// True if nothing was used, and that is known.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// All reported tokens together.
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// The form in which people and other programs read it.
    pub fn report(&self) -> UsageReport {
        let tokens = |count: u64| Some(count).filter(|count| *count > 0 || !self.tokens_unknown);
        let cost = Some(self.cost).filter(|cost| *cost > Cost::ZERO || !self.cost_unknown);
        UsageReport {
            input_tokens: tokens(self.input_tokens),
            output_tokens: tokens(self.output_tokens),
            cost_usd: cost.map(Cost::usd),
            tokens_incomplete: self.tokens_unknown,
            cost_incomplete: self.cost_unknown,
            estimated_tokens: Some(self.estimate.tokens).filter(|tokens| *tokens > 0),
        }
    }
}

/// The usual size of a token. Texts in languages with other scripts have shorter ones.
const TOKEN_BYTES: usize = 4;

/// Estimates the tokens of a text of this size.
pub fn estimate_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(TOKEN_BYTES)).unwrap_or(TOKENS_MAX).min(TOKENS_MAX)
}

/// The largest token count, at which counts and sums saturate. A store can add two of them, and
/// every JSON reader can represent it.
pub const TOKENS_MAX: u64 = 1 << 53;

/// Reads a token count, at most [`TOKENS_MAX`].
fn limited_tokens<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    u64::deserialize(from).map(|tokens| tokens.min(TOKENS_MAX))
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let sum = |a: u64, b: u64| a.saturating_add(b).min(TOKENS_MAX);
        self.input_tokens = sum(self.input_tokens, other.input_tokens);
        self.output_tokens = sum(self.output_tokens, other.output_tokens);
        self.cost += other.cost;
        self.tokens_unknown |= other.tokens_unknown;
        self.cost_unknown |= other.cost_unknown;
        self.estimate.tokens = sum(self.estimate.tokens, other.estimate.tokens);
        self.estimate.cost += other.estimate.cost;
    }
}

impl SubAssign for Usage {
    fn sub_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_sub(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_sub(other.output_tokens);
        self.cost.pico_usd = self.cost.pico_usd.saturating_sub(other.cost.pico_usd);
    }
}

/// [`Usage`] as reports show it, with the cost in dollars. Unknown numbers are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UsageReport {
    /// Tokens sent to models.
    pub input_tokens: Option<u64>,
    /// Tokens that models answered with.
    pub output_tokens: Option<u64>,
    /// The cost, in US dollars.
    pub cost_usd: Option<f64>,
    /// True if some tokens were not reported, so that the numbers are lower bounds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tokens_incomplete: bool,
    /// True if some of the cost is unknown, so that the number is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cost_incomplete: bool,
    /// The estimate of the unreported tokens, which budgets count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_tokens: Option<u64>,
}

impl UsageReport {
    /// The tokens for people, such as `12+4 tokens`.
    pub fn tokens_text(&self) -> String {
        let count = |tokens: Option<u64>| tokens.map_or("?".to_owned(), |count| count.to_string());
        let (input, output) = (count(self.input_tokens), count(self.output_tokens));
        match (self.input_tokens, self.output_tokens) {
            (None, None) => "unknown tokens".to_owned(),
            _ if self.tokens_incomplete => format!("at least {input}+{output} tokens"),
            _ => format!("{input}+{output} tokens"),
        }
    }

    /// The cost for people, such as `$0.0100`.
    pub fn cost_text(&self) -> String {
        match self.cost_usd {
            None => "unknown".to_owned(),
            Some(usd) if self.cost_incomplete => format!("at least ${usd:.4}"),
            Some(usd) => format!("${usd:.4}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_add_up_without_drift() {
        let mut sum = Cost::ZERO;
        for _ in 0..1_000_000 {
            sum += Cost::of_tokens(1, 0.15);
        }
        assert_eq!(sum, Cost::of_tokens(1_000_000, 0.15));
        assert_eq!(sum.usd().to_string(), "0.15");
        assert_eq!(sum.to_string(), "$0.1500");
    }

    #[test]
    fn sums_saturate_at_the_store_limit() {
        let mut sum = Usage::default();
        for _ in 0..3 {
            sum += Usage::reported(Some(u64::MAX), Some(1), Some(Cost::MAX));
        }
        assert_eq!(sum, Usage::reported(Some(TOKENS_MAX), Some(3), Some(Cost::MAX)));
    }

    #[test]
    fn recorded_count_beyond_the_limit_is_cut() {
        let huge = u64::MAX;
        let text = format!(r#"{{"input_tokens":{huge},"output_tokens":1,"cost_pico_usd":{huge}}}"#);
        let usage: Usage = serde_json::from_str(&text).unwrap();
        assert_eq!(usage, Usage::reported(Some(TOKENS_MAX), Some(1), Some(Cost::MAX)));
    }

    #[test]
    fn unreported_usage_is_unknown_and_never_zero() {
        let unknown = Usage::UNKNOWN.report();
        assert_eq!((unknown.input_tokens, unknown.cost_usd), (None, None));
        assert_eq!(unknown.tokens_text(), "unknown tokens");
        assert_eq!(unknown.cost_text(), "unknown");
        let mut sum = Usage::reported(Some(12), Some(4), Some(Cost::of_usd(0.01)));
        assert_eq!(
            (sum.report().tokens_text(), sum.report().cost_text()),
            ("12+4 tokens".into(), "$0.0100".into())
        );
        sum += Usage::UNKNOWN;
        assert_eq!(sum.report().tokens_text(), "at least 12+4 tokens");
        assert_eq!(sum.report().cost_text(), "at least $0.0100");
        let zero = Usage::default().report();
        assert_eq!((zero.tokens_text(), zero.cost_text()), ("0+0 tokens".into(), "$0.0000".into()));
    }

    #[test]
    fn old_usage_is_readable_and_known() {
        let old = r#"{"input_tokens":1,"output_tokens":2,"cost_pico_usd":3}"#;
        let usage: Usage = serde_json::from_str(old).unwrap();
        assert_eq!(usage, Usage::reported(Some(1), Some(2), Some(Cost::from_pico_usd(3))));
        assert_eq!(serde_json::to_string(&usage).unwrap(), old);
        let text = serde_json::to_string(&Usage::UNKNOWN).unwrap();
        assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), Usage::UNKNOWN);
    }

    #[test]
    fn invalid_prices_cost_nothing_and_huge_ones_saturate() {
        assert_eq!(Cost::of_tokens(5, f64::NAN), Cost::ZERO);
        assert_eq!(Cost::of_tokens(5, -1.0), Cost::ZERO);
        assert_eq!(Cost::of_tokens(u64::MAX, 1e300), Cost::MAX);
    }
}
