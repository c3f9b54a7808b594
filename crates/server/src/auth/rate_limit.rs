//! Rate limits of tokens and agents, as token buckets.
//!
//! A bucket is one instant: the time at which it is full again. A full bucket needs no entry, so the
//! memory is bounded by the callers of the last minutes.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use polity_definition::{RateLimit, RateLimits};
use polity_model::name::Name;
use tokio::time::Instant;

use crate::http::Problem;

/// The number of buckets from which full ones are removed.
const BUCKETS_TIDY: usize = 1024;

/// The time over which the settings count requests.
const PERIOD: Duration = Duration::from_mins(1);

/// The rate limits of a server.
#[derive(Debug)]
pub(crate) struct CallerRates {
    tokens: RateLimiter,
    agents: RateLimiter,
}

impl CallerRates {
    pub(crate) fn new(settings: RateLimits) -> Self {
        Self {
            tokens: RateLimiter::new("server.rate_limits.per_token", settings.per_token),
            agents: RateLimiter::new("server.rate_limits.per_agent", settings.per_agent),
        }
    }

    /// Counts a request of a token. None if tokens are not limited.
    pub(crate) fn admit_request(&self, token: &Arc<str>) -> Option<RateQuota> {
        self.tokens.take(token, Instant::now())
    }

    /// Counts a start of work by an agent or workflow.
    pub(crate) fn admit_start(&self, agent: &Name) -> Result<(), Problem> {
        let quota = self.agents.take(&agent.as_str().into(), Instant::now());
        match quota.and_then(|quota| quota.refusal()) {
            Some(problem) => Err(problem.hint(format!("\"{agent}\" takes more work later"))),
            None => Ok(()),
        }
    }
}

/// The state of a bucket after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateQuota {
    /// The setting of the limit.
    setting: &'static str,
    /// The most requests at once.
    limit: u32,
    /// The requests that are left at once.
    remaining: u32,
    /// The time until the bucket is full.
    reset: Duration,
    /// The time until the next request is admitted, if this one is refused.
    wait: Option<Duration>,
}

impl RateQuota {
    /// The answer to a refused request.
    pub(crate) fn refusal(&self) -> Option<Problem> {
        Some(Problem::rate_limited(self.setting, self.wait?))
    }

    /// Adds the headers by which clients pace themselves.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let seconds = whole_seconds(self.reset);
        headers.insert("ratelimit-limit", HeaderValue::from(self.limit));
        headers.insert("ratelimit-remaining", HeaderValue::from(self.remaining));
        headers.insert("ratelimit-reset", HeaderValue::from(seconds));
    }
}

/// The seconds of a time, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// A limit with a bucket for each caller.
#[derive(Debug)]
struct RateLimiter {
    setting: &'static str,
    limit: Option<RateLimit>,
    /// The time at which each bucket is full again.
    buckets: Mutex<HashMap<Arc<str>, Instant>>,
}

impl RateLimiter {
    fn new(setting: &'static str, limit: Option<RateLimit>) -> Self {
        Self { setting, limit, buckets: Mutex::default() }
    }

    /// Takes a request out of a bucket, if the bucket has one.
    fn take(&self, caller: &Arc<str>, now: Instant) -> Option<RateQuota> {
        let limit = self.limit?;
        let burst = limit.burst.unwrap_or(limit.requests_per_minute);
        let interval = PERIOD / limit.requests_per_minute.get();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS_TIDY && !buckets.contains_key(caller) {
            buckets.retain(|_, full| *full > now);
        }
        let full = buckets.get(caller).copied().unwrap_or(now).max(now);
        let debt = full.duration_since(now);
        let wait = (debt + interval).checked_sub(interval * burst.get());
        let wait = wait.filter(|wait| !wait.is_zero());
        let debt = if wait.is_none() { debt + interval } else { debt };
        if wait.is_none() {
            buckets.insert(Arc::clone(caller), now + debt);
        }
        let remaining = remaining(burst, interval, debt);
        Some(RateQuota { setting: self.setting, limit: burst.get(), remaining, reset: debt, wait })
    }
}

/// The requests that a bucket still has.
fn remaining(burst: NonZeroU32, interval: Duration, debt: Duration) -> u32 {
    let rest = (interval * burst.get()).saturating_sub(debt);
    u32::try_from(rest.as_nanos() / interval.as_nanos().max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(requests_per_minute: u32, burst: u32) -> RateLimiter {
        let limit = RateLimit {
            requests_per_minute: NonZeroU32::new(requests_per_minute).unwrap(),
            burst: NonZeroU32::new(burst),
        };
        RateLimiter::new("test", Some(limit))
    }

    #[test]
    fn bucket_admits_its_burst_and_then_its_rate() {
        let (limiter, now) = (limiter(60, 3), Instant::now());
        let (one, other) = (Arc::from("one"), Arc::from("other"));
        for remaining in [2, 1, 0] {
            let quota = limiter.take(&one, now).unwrap();
            assert_eq!((quota.remaining, quota.wait), (remaining, None));
        }
        let refused = limiter.take(&one, now).unwrap();
        assert_eq!(refused.wait, Some(Duration::from_secs(1)));
        assert_eq!(refused.reset, Duration::from_secs(3));
        assert_eq!(limiter.take(&other, now).unwrap().wait, None);
        let later = now + Duration::from_secs(1);
        assert_eq!(limiter.take(&one, later).unwrap().wait, None);
        assert!(limiter.take(&one, later).unwrap().wait.is_some());
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let (limiter, now) = (limiter(60, 3), Instant::now());
        for number in 0..BUCKETS_TIDY {
            limiter.take(&number.to_string().into(), now);
        }
        limiter.take(&"late".into(), now + PERIOD);
        assert_eq!(limiter.buckets.lock().unwrap().len(), 1);
    }

    #[test]
    fn unset_limit_admits_everything() {
        let rates = CallerRates::new(RateLimits::default());
        assert_eq!(rates.admit_request(&"one".into()), None);
        assert!(rates.admit_start(&"greeter".parse().unwrap()).is_ok());
    }
}
