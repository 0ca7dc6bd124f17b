//! The pool's part in the scheduling of its I/O: how much is dirty, and what `background_latency_target` says.

use crate::sync::Syncer;
use crate::{PoolError, props};
use dmu::TxgManager;
use std::sync::Arc;
use zio::{Dirty, LatencyTarget};

/// Lets the leaves' schedulers look at the pool's dirty data, and follow its property.
pub(crate) fn attach(syncer: &Syncer, txgs: &Arc<TxgManager>) -> Result<(), PoolError> {
    let target = props::latency_target(&syncer.mos)?;
    syncer.io.cache().zio().tune_queues(|tunables| tunables.latency_target = target);
    let txgs = Arc::downgrade(txgs);
    let source = move || {
        txgs.upgrade().map_or_else(Dirty::default, |txgs| Dirty {
            bytes: txgs.dirty_bytes(),
            max_bytes: txgs.config().dirty_data_max,
            sync_task_waits: false,
        })
    };
    syncer.io.cache().zio().set_dirty_source(Box::new(source));
    Ok(())
}

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
