//! The value of the property `background_latency_target`: what the pool's background work leaves to others.

use zio::LatencyTarget;

/// A target from its text: `auto` (also nothing), `none`, or `p99=` with a time in `us`, `ms` or `s`. None for anything else.
pub(crate) fn target_of(text: &str) -> Option<LatencyTarget> {
    match text {
        "" | "auto" => return Some(LatencyTarget::Auto),
        "none" => return Some(LatencyTarget::Off),
        _ => {}
    }
    let time = text.strip_prefix("p99=")?;
    let digits = time.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = time.split_at(digits);
    let unit_ns: u64 = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let ns = number.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    (ns > 0).then_some(LatencyTarget::P99(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read wrongly, a target of milliseconds would hold scrubs back for seconds, or not at all.
    #[test]
    fn targets_are_read_as_written() {
        let targets = [
            ("none", Some(LatencyTarget::Off)),
            ("auto", Some(LatencyTarget::Auto)),
            ("p99=2ms", Some(LatencyTarget::P99(2_000_000))),
            ("p99=750us", Some(LatencyTarget::P99(750_000))),
            ("p99=1s", Some(LatencyTarget::P99(1_000_000_000))),
            ("p99=0ms", None),
            ("p99=2", None),
            ("p99=2 ms", None),
            ("p95=2ms", None),
            ("p99=99999999999999999999s", None),
            ("2ms", None),
        ];
        for (text, target) in targets {
            assert_eq!(target_of(text), target, "{text}");
        }
    }
}
