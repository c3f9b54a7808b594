//! Usage: tokens and money.

use std::fmt;
use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

const PICO_USD_PER_USD: f64 = 1e12;

/// An amount of money in millionths of a millionth of a US dollar.
///
/// Prices are given per million tokens and sums must not drift, so money is an integer; one token
/// at a tenth of a dollar per million is 100,000 of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost {
    pico_usd: u64,
}

impl Cost {
    /// No money.
    pub const ZERO: Self = Self { pico_usd: 0 };

    /// The largest amount, at which sums saturate: the limit of stores.
    pub const MAX: Self = Self { pico_usd: i64::MAX as u64 };

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

    /// The amount that a store wrote.
    pub fn from_pico_usd(pico_usd: u64) -> Self {
        Self { pico_usd }
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

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = Self { pico_usd: self.pico_usd.saturating_add(other.pico_usd) }.min(Self::MAX);
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.4}", self.usd())
    }
}

/// Tokens and money, of one model call or summed over many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent to models.
    pub input_tokens: u64,
    /// Tokens that models answered with.
    pub output_tokens: u64,
    /// The cost.
    #[serde(rename = "cost_pico_usd", default)]
    pub cost: Cost,
}

impl Usage {
    /// All tokens together.
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// The form in which people and other programs read it.
    pub fn report(&self) -> UsageReport {
        UsageReport {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cost_usd: self.cost.usd(),
        }
    }
}

/// The usual size of a token. Texts in languages with other scripts have shorter ones.
const TOKEN_BYTES: usize = 4;

/// Estimates the tokens of a text of this size.
pub fn estimate_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(TOKEN_BYTES)).unwrap_or(TOKENS_MAX)
}

/// The largest token count: the limit of stores.
pub const TOKENS_MAX: u64 = i64::MAX as u64;

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let sum = |a: u64, b: u64| a.saturating_add(b).min(TOKENS_MAX);
        self.input_tokens = sum(self.input_tokens, other.input_tokens);
        self.output_tokens = sum(self.output_tokens, other.output_tokens);
        self.cost += other.cost;
    }
}

impl SubAssign for Usage {
    fn sub_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_sub(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_sub(other.output_tokens);
        self.cost.pico_usd = self.cost.pico_usd.saturating_sub(other.cost.pico_usd);
    }
}

/// [`Usage`] as reports show it, with the cost in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UsageReport {
    /// Tokens sent to models.
    pub input_tokens: u64,
    /// Tokens that models answered with.
    pub output_tokens: u64,
    /// The cost, in US dollars.
    pub cost_usd: f64,
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
            sum += Usage { input_tokens: u64::MAX, output_tokens: 1, cost: Cost::MAX };
        }
        assert_eq!(sum, Usage { input_tokens: TOKENS_MAX, output_tokens: 3, cost: Cost::MAX });
    }

    #[test]
    fn invalid_prices_cost_nothing_and_huge_ones_saturate() {
        assert_eq!(Cost::of_tokens(5, f64::NAN), Cost::ZERO);
        assert_eq!(Cost::of_tokens(5, -1.0), Cost::ZERO);
        assert_eq!(Cost::of_tokens(u64::MAX, 1e300), Cost::MAX);
    }
}
