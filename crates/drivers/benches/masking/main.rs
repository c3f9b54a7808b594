//! Masking throughput on one core.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]

mod texts;

use std::hint::black_box;
use std::time::{Duration, Instant};

use polity_masking::{RedactionSettings, SecretMask};
use polity_testkit::bench::figure;

/// The target, in megabytes per second.
const LEAST_MB: f64 = 300.0;

/// The usual size of a pipe read.
const CHUNK_BYTES: usize = 64 * 1024;

/// Secret values as in a definition.
const VALUES: [&str; 4] = [
    "a-password-of-the-database",
    "0f8e2c5d7b6a49381726354433221100",
    "postgres-user-secret+/=",
    "line one of it\nline two of it",
];

fn main() {
    let quick = std::env::var_os("POLITY_BENCH_QUICK").is_some();
    let bytes = if quick { 1 << 20 } else { 64 << 20 };
    let rounds = if quick { 1 } else { 5 };
    let mask = SecretMask::new(VALUES, &RedactionSettings::default()).unwrap();
    for (what, text) in [
        ("plain log lines", texts::log_lines(bytes)),
        ("lines of JSON", texts::json_lines(bytes)),
        ("a secret in every 1 kB", texts::with_secrets(bytes)),
        ("one line without an end", texts::endless_line(bytes)),
        ("random bytes", texts::random_bytes(bytes)),
    ] {
        let best = (0..rounds).map(|_| time(&mask, &text)).min().unwrap();
        #[expect(clippy::cast_precision_loss, reason = "shown without digits")]
        let rate = text.len() as f64 / 1e6 / best.as_secs_f64();
        let target = format!("≥ {LEAST_MB:.0} MB/s on one core");
        let measured = format!("{rate:.0} MB/s");
        figure(&format!("masking, {what}"), &measured, &target, rate >= LEAST_MB);
    }
}

/// Masks a text like a pipe reader: chunk by chunk, with a reused buffer.
fn time(mask: &SecretMask, text: &[u8]) -> Duration {
    let mut out = Vec::with_capacity(2 * CHUNK_BYTES);
    let mut stream = mask.stream();
    let began = Instant::now();
    for chunk in text.chunks(CHUNK_BYTES) {
        stream.push(chunk, &mut out);
        black_box(&out);
        out.clear();
    }
    stream.finish(&mut out);
    black_box(&out);
    began.elapsed()
}
