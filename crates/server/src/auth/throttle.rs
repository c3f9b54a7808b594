//! Slows down and blocks addresses with many failed attempts to authenticate.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The failures after which each answer is delayed.
const SLOW_AFTER: u32 = 5;

/// The failures after which an address is blocked.
const BLOCK_AFTER: u32 = 20;

/// The delay of an answer to a slowed address.
const DELAY: Duration = Duration::from_secs(1);

/// The time for which an address is blocked, and after which failures are forgotten.
const WINDOW: Duration = Duration::from_mins(1);

/// The most addresses that are remembered.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct FailureCount {
    failures: u32,
    last: Instant,
}

/// The treatment of a request by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is handled at once.
    Free,
    /// Its answer is delayed.
    Delayed(Duration),
    /// It is refused for this time.
    Blocked(Duration),
}

/// The failed attempts of each address.
#[derive(Debug, Default)]
pub(crate) struct FailureThrottle {
    addresses: Mutex<HashMap<IpAddr, FailureCount>>,
}

impl FailureThrottle {
    /// The treatment of an address.
    pub(crate) fn admit(&self, address: IpAddr) -> Admission {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = addresses.get(&address) else { return Admission::Free };
        let age = count.last.elapsed();
        if age >= WINDOW || count.failures < SLOW_AFTER {
            Admission::Free
        } else if count.failures < BLOCK_AFTER {
            Admission::Delayed(DELAY)
        } else {
            Admission::Blocked(WINDOW.saturating_sub(age))
        }
    }

    /// Counts a failed attempt.
    pub(crate) fn record_failure(&self, address: IpAddr) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            addresses.retain(|_, count| count.last.elapsed() < WINDOW);
            if addresses.len() >= ADDRESSES_MAX {
                return;
            }
        }
        let now = Instant::now();
        let count = addresses.entry(address).or_insert(FailureCount { failures: 0, last: now });
        if count.last.elapsed() >= WINDOW {
            count.failures = 0;
        }
        *count = FailureCount { failures: count.failures.saturating_add(1), last: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_slow_then_block_then_are_forgotten() {
        let throttle = FailureThrottle::default();
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        for _ in 0..SLOW_AFTER {
            assert_eq!(throttle.admit(one), Admission::Free);
            throttle.record_failure(one);
        }
        assert_eq!(throttle.admit(one), Admission::Delayed(DELAY));
        for _ in SLOW_AFTER..BLOCK_AFTER {
            throttle.record_failure(one);
        }
        assert!(matches!(throttle.admit(one), Admission::Blocked(_)));
        assert_eq!(throttle.admit(other), Admission::Free);
        tokio::time::advance(WINDOW).await;
        assert_eq!(throttle.admit(one), Admission::Free);
    }
}
