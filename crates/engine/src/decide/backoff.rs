//! Backoff between retries.

use std::time::Duration;

use crate::entropy::Entropy;

/// The longest wait that a server can ask for.
pub const RETRY_WAIT_SECONDS_MAX: u64 = 300;

const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait that no server asked for.
const OWN_WAIT_MAX: Duration = Duration::from_mins(1);

/// The share of the own wait that passes at least, however short a wait a server asks for.
const ASKED_WAIT_DIVISOR: u32 = 8;

/// Doubles from one second to a minute and adds up to a quarter of jitter, so that failed tasks do
/// not return together. A server's own `retry_after` takes precedence; an eighth of the own wait
/// passes in any case, so that a server that always asks for none is not called without a pause.
pub(crate) fn delay(
    retries_so_far: u32,
    asked_for: Option<Duration>,
    entropy: &mut Entropy,
) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1u32.checked_shl(retries_so_far).unwrap_or(u32::MAX));
    match asked_for {
        Some(asked) => asked
            .max(doubled.min(OWN_WAIT_MAX) / ASKED_WAIT_DIVISOR)
            .min(Duration::from_secs(RETRY_WAIT_SECONDS_MAX)),
        None => doubled.mul_f64(1.0 + entropy.fraction() / 4.0).min(OWN_WAIT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_with_jitter_up_to_the_limit() {
        let mut entropy = Entropy::from_seed([3; 16]);
        for (retries, least) in [(0, 1), (1, 2), (2, 4), (3, 8)] {
            let wait = delay(retries, None, &mut entropy).as_secs_f64();
            let least = f64::from(least);
            assert!((least..least * 1.25).contains(&wait), "{retries}: {wait}");
        }
        for retries in [6, 40] {
            assert_eq!(delay(retries, None, &mut entropy), Duration::from_mins(1));
        }
    }

    #[test]
    fn asked_wait_counts_within_limits() {
        let mut entropy = Entropy::from_seed([3; 16]);
        let mut delay = |retries, asked| delay(retries, Some(asked), &mut entropy);
        let asked = Duration::from_secs(9);
        assert_eq!(delay(0, asked), asked);
        assert_eq!(delay(9, asked), asked);
        assert_eq!(delay(0, Duration::MAX), Duration::from_secs(RETRY_WAIT_SECONDS_MAX));
        // A server that always asks for no wait is called less and less often.
        let waits: Vec<u128> =
            (0..8).map(|retries| delay(retries, Duration::ZERO).as_millis()).collect();
        assert_eq!(waits, [125, 250, 500, 1000, 2000, 4000, 7500, 7500]);
    }
}
