//! Sitting out: for how long reads pass over a leaf (OpenZFS: `vdev_read_sit_out_expire`), and how often that was so.

use std::sync::atomic::{AtomicU64, Ordering};

/// Time for which a leaf sits out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spell {
    /// Time as the parameter `vdev_read_sit_out_secs` says: it was found to be slow.
    Usual,
    /// Until somebody ends it.
    Endless,
}

/// State of a leaf that may sit out. Looked at by every read, changed rarely.
#[derive(Debug, Default)]
pub(crate) struct Sitting {
    /// Time in ns until which reads pass over the leaf; 0: they do not, `u64::MAX`: without an end.
    until_ns: AtomicU64,
    /// Number of times that it began to sit out.
    times: AtomicU64,
}

impl Sitting {
    pub(crate) fn begin(&self, until_ns: u64) {
        if self.until_ns.swap(until_ns, Ordering::Relaxed) == 0 {
            self.times.fetch_add(1, Ordering::Relaxed);
        }
    }
    pub(crate) fn end(&self) {
        self.until_ns.store(0, Ordering::Relaxed);
    }
    pub(crate) fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }
    /// True while it lasts; forgets it when that is over. Costs one look at a word that nobody writes where the leaf does not sit out.
    pub(crate) fn lasts(&self, now_ns: impl Fn() -> u64) -> bool {
        let until_ns = self.until_ns.load(Ordering::Relaxed);
        if until_ns == 0 || now_ns() < until_ns {
            return until_ns != 0;
        }
        // Unless somebody began it anew meanwhile.
        let _ = self.until_ns.compare_exchange(until_ns, 0, Ordering::Relaxed, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a drive that was slow for a moment is never read again, or one that is taken out by hand is after a while.
    #[test]
    fn a_spell_ends_by_itself_and_an_endless_one_by_hand() {
        let sitting = Sitting::default();
        assert!(!sitting.lasts(|| unreachable!("no look at the clock")));
        sitting.begin(1000);
        assert!(sitting.lasts(|| 999) && !sitting.lasts(|| 1000) && !sitting.lasts(|| 0), "over for good");
        sitting.begin(2000);
        sitting.begin(u64::MAX);
        assert!(sitting.lasts(|| u64::MAX - 1));
        sitting.end();
        assert!(!sitting.lasts(|| 0));
        assert_eq!(sitting.times(), 2, "a longer one is not another one");
    }
}
