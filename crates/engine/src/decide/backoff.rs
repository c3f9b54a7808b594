//! Backoff between retries.

use std::time::Duration;

use crate::entropy::Entropy;

/// The longest wait between two attempts, whatever a server asks for.
pub const RETRY_WAIT_SECONDS_MAX: u64 = 300;

const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Doubles from one second and adds up to a quarter of jitter, so that failed tasks do not return
/// together. A server's own `retry_after` takes precedence.
pub(crate) fn delay(
    retries_so_far: u32,
    asked_for: Option<Duration>,
    entropy: &mut Entropy,
) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1u32.checked_shl(retries_so_far).unwrap_or(u32::MAX));
    let wait = asked_for.unwrap_or_else(|| doubled.mul_f64(1.0 + entropy.fraction() / 4.0));
    wait.min(Duration::from_secs(RETRY_WAIT_SECONDS_MAX))
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
        let limit = Duration::from_secs(RETRY_WAIT_SECONDS_MAX);
        assert_eq!(delay(40, None, &mut entropy), limit);
        let asked = Duration::from_millis(30);
        assert_eq!(delay(9, Some(asked), &mut entropy), asked);
        assert_eq!(delay(0, Some(Duration::MAX), &mut entropy), limit);
    }
}
