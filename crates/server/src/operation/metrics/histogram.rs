//! Histograms in the text format of Prometheus.

use std::fmt::Write as _;
use std::time::Duration;

/// The numbers of measured times within some bounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Histogram<const N: usize> {
    /// The number of times within each bound.
    pub(crate) within: [u64; N],
    /// The number of all times.
    pub(crate) count: u64,
    /// The sum of all times.
    pub(crate) total: Duration,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { within: [0; N], count: 0, total: Duration::ZERO }
    }
}

impl<const N: usize> Histogram<N> {
    /// Counts a time. The bounds are in seconds.
    pub(crate) fn record(&mut self, took: Duration, bounds: [f64; N]) {
        for (within, bound) in self.within.iter_mut().zip(bounds) {
            *within += u64::from(took.as_secs_f64() <= bound);
        }
        self.total = self.total.saturating_add(took);
        self.count += 1;
    }

    /// Writes the series of the histogram with these labels, which may be empty.
    pub(crate) fn write(
        &self,
        out: &mut String,
        name: &str,
        labels: &str,
        bounds: [f64; N],
    ) -> std::fmt::Result {
        let comma = if labels.is_empty() { "" } else { "," };
        for (number, bound) in self.within.iter().zip(bounds) {
            writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {number}")?;
        }
        writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", self.count)?;
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        writeln!(out, "{name}_sum{braces} {}", self.total.as_secs_f64())?;
        writeln!(out, "{name}_count{braces} {}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_have_their_labels() {
        let bounds = [0.1, 1.0];
        let mut histogram = Histogram::default();
        for ms in [50, 500, 5000] {
            histogram.record(Duration::from_millis(ms), bounds);
        }
        let mut out = String::new();
        histogram.write(&mut out, "t", "a=\"b\"", bounds).unwrap();
        let expected = "t_bucket{a=\"b\",le=\"0.1\"} 1\nt_bucket{a=\"b\",le=\"1\"} 2\n\
                        t_bucket{a=\"b\",le=\"+Inf\"} 3\nt_sum{a=\"b\"} 5.55\nt_count{a=\"b\"} 3\n";
        assert_eq!(out, expected);
        let mut bare = String::new();
        histogram.write(&mut bare, "t", "", bounds).unwrap();
        assert!(bare.contains("t_bucket{le=\"1\"} 2\n") && bare.contains("t_sum 5.55\n"), "{bare}");
    }
}
