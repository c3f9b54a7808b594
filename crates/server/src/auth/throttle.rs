//! Slows down and blocks addresses with many failed attempts to authenticate.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
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

/// The address under which failures are counted. A host of IPv6 usually owns a whole /64.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            Ipv6Addr::from(network).into()
        }
    }
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
        let Some(count) = addresses.get(&counted(address)) else { return Admission::Free };
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
        let address = counted(address);
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            addresses.retain(|_, count| count.last.elapsed() < WINDOW);
            // With too many, the one that failed longest ago makes room.
            let oldest = addresses.iter().min_by_key(|(_, count)| count.last);
            let oldest = oldest.map(|(address, _)| *address);
            if let Some(oldest) = oldest.filter(|_| addresses.len() >= ADDRESSES_MAX) {
                addresses.remove(&oldest);
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
    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_host_count_together() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (failing, other, is_blocked) in [
            ("2001:db8::1", "2001:db8::ffff", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
            ("::ffff:192.0.2.1", "192.0.2.2", false),
        ] {
            let throttle = FailureThrottle::default();
            for _ in 0..BLOCK_AFTER {
                throttle.record_failure(address(failing));
            }
            let found = matches!(throttle.admit(address(other)), Admission::Blocked(_));
            assert_eq!(found, is_blocked, "{failing} {other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_addresses_is_bounded_and_hides_nobody() {
        let throttle = FailureThrottle::default();
        let address = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        for number in 0..ADDRESSES_MAX {
            throttle.record_failure(address(number));
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        let late = address(ADDRESSES_MAX);
        for _ in 0..BLOCK_AFTER {
            throttle.record_failure(late);
        }
        assert!(matches!(throttle.admit(late), Admission::Blocked(_)));
        assert_eq!(throttle.addresses.lock().unwrap().len(), ADDRESSES_MAX);
    }
}
