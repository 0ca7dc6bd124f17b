//! Who has to give way when memory is short: metadata or data, recently or frequently used.
//!
//! The theory is OpenZFS's (`arc.c`: `arc_evict`, `arc_evict_adj`). Three fractions say what the cache should look like: the
//! share of metadata in all (`meta`), of recently used blocks in data (`pd`) and in metadata (`pm`). A ghost hit is a block
//! that a larger list would have kept, so the bytes of ghost hits since the last look move the fractions; hits of data on the
//! share of metadata count less by `zfs_arc_meta_balance`, because a miss of metadata costs more than its own read. Lists are
//! then cut in a fixed order, each only down to its share, so a reader of much data that never comes back pushes out data only.
//!
//! Invariants: sizes are added up from rows of (nearly) this thread's own, so a hit or an insert shares no cache line; they are
//! exact when nobody changes them and otherwise near enough for a choice. The fractions lie between 0 and 1.

use crate::shard::{Kind, State};
use exec::Mutex;
use kstat::Sheet;
use std::sync::atomic::{AtomicU64, Ordering};

/// One, as a fraction.
pub(crate) const ONE: u64 = 1 << 32;
/// Weight in percent of metadata against data (OpenZFS: `zfs_arc_meta_balance`).
pub(crate) const META_BALANCE_DEFAULT: u64 = 500;

/// Lists that keep bytes or remember them.
const LISTS: usize = 10;
/// Cells of the bytes of ghost hits, behind those of the lists.
const GHOST_HITS: usize = LISTS;
/// The ghost lists, in the order of their cells.
const GHOSTS: [(State, Kind); 4] =
    [(State::MruGhost, Kind::Data), (State::MruGhost, Kind::Metadata), (State::MfuGhost, Kind::Data), (State::MfuGhost, Kind::Metadata)];

fn cell(state: State, kind: Kind) -> usize {
    state as usize * 2 + kind as usize
}

/// Bytes to take from one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) state: State,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
}

/// Fractions of metadata, of recently used data, of recently used metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fractions {
    pub(crate) meta: u64,
    pub(crate) pd: u64,
    pub(crate) pm: u64,
}

impl Default for Fractions {
    /// A quarter is metadata, half of each kind recently used.
    fn default() -> Fractions {
        Fractions { meta: ONE / 4, pd: ONE / 2, pm: ONE / 2 }
    }
}

/// Sizes of the lists of all shards, and the fractions.
#[derive(Debug)]
pub(crate) struct Balance {
    sheet: Sheet,
    meta_balance: AtomicU64,
    shown: [AtomicU64; 3],
    /// Bytes of ghost hits seen so far, by [`GHOSTS`].
    seen: Mutex<[u64; 4]>,
}

impl Default for Balance {
    fn default() -> Balance {
        let Fractions { meta, pd, pm } = Fractions::default();
        Balance {
            sheet: Sheet::new(LISTS + GHOSTS.len()),
            meta_balance: AtomicU64::new(META_BALANCE_DEFAULT),
            shown: [meta, pd, pm].map(AtomicU64::new),
            seen: Mutex::default(),
        }
    }
}

impl Balance {
    /// Bytes came onto a list.
    pub(crate) fn add(&self, state: State, kind: Kind, bytes: u64) {
        self.sheet.row().add(cell(state, kind), bytes);
    }
    /// Bytes left a list.
    pub(crate) fn sub(&self, state: State, kind: Kind, bytes: u64) {
        self.sheet.row().sub(cell(state, kind), bytes);
    }
    /// A block was wanted that a ghost remembers.
    pub(crate) fn ghost_hit(&self, state: State, kind: Kind, bytes: u64) {
        self.sheet.row().add(GHOST_HITS + cell(state, kind) - cell(State::MruGhost, Kind::Data), bytes);
    }
    /// Bytes on a list.
    pub(crate) fn size(&self, state: State, kind: Kind) -> u64 {
        self.count(cell(state, kind))
    }
    /// A sum that additions and subtractions of other threads may have left below zero for a moment.
    fn count(&self, cell: usize) -> u64 {
        (self.sheet.get(cell) as i64).max(0) as u64
    }
    /// Sets the weight of metadata in percent, at least one (OpenZFS: `zfs_arc_meta_balance`).
    pub(crate) fn set_meta_balance(&self, percent: u64) {
        self.meta_balance.store(percent.max(1), Ordering::Relaxed);
    }
    /// Fractions of the lists, now.
    pub(crate) fn fractions(&self) -> Fractions {
        let [meta, pd, pm] = [0, 1, 2].map(|index: usize| self.shown[index].load(Ordering::Relaxed));
        Fractions { meta, pd, pm }
    }

    /// Moves the fractions by the ghost hits since the last time. When another thread is at it, its result will do.
    fn adapt(&self, live: [u64; 4]) {
        let Some(mut seen) = self.seen.try_lock() else { return };
        let now = [0, 1, 2, 3].map(|index| self.sheet.get(GHOST_HITS + index));
        let [grd, grm, gfd, gfm] = [0, 1, 2, 3].map(|index: usize| now[index].saturating_sub(seen[index]));
        *seen = now;
        if grd + grm + gfd + gfm == 0 {
            return;
        }
        let [limit_rd, limit_rm, limit_fd, limit_fm] = ghost_limits(live);
        let Fractions { meta, pd, pm } = self.fractions();
        let weight = self.meta_balance.load(Ordering::Relaxed);
        let all = limit_rd + limit_rm + limit_fd + limit_fm;
        let moved = [
            adjusted(meta, all, (grm + gfm, grd + gfd), weight),
            adjusted(pd, limit_rd + limit_fd, (grd, gfd), 100),
            adjusted(pm, limit_rm + limit_fm, (grm, gfm), 100),
        ];
        for (shown, fraction) in self.shown.iter().zip(moved) {
            shown.store(fraction, Ordering::Relaxed);
        }
    }

    /// Bytes of live lists: recently used data, recently used metadata, frequently used data, frequently used metadata.
    fn live(&self) -> [u64; 4] {
        [
            self.size(State::Mru, Kind::Data),
            self.size(State::Mru, Kind::Metadata),
            self.size(State::Mfu, Kind::Data),
            self.size(State::Mfu, Kind::Metadata),
        ]
    }

    /// Plan for getting `want` bytes, in the order in which to take them.
    pub(crate) fn plan(&self, want: u64) -> [Cut; 4] {
        let live = self.live();
        self.adapt(live);
        cuts(live, self.fractions(), want)
    }

    /// Bytes that the ghost lists remember beyond half of what the other three live lists hold: a ghost says how far its list may
    /// grow at their cost, and who looks too far back sees hits that never come true.
    pub(crate) fn ghost_excess(&self) -> [Cut; 4] {
        let limits = ghost_limits(self.live());
        let mut index = 0;
        GHOSTS.map(|(state, kind)| {
            index += 1;
            Cut { state, kind, bytes: self.size(state, kind).saturating_sub(limits[index - 1]) }
        })
    }
}

/// The most that each ghost list may remember.
fn ghost_limits(live: [u64; 4]) -> [u64; 4] {
    let all: u64 = live.iter().sum();
    live.map(|own| (all - own) / 2)
}

/// A share of `total`.
fn share(total: u64, fraction: u64) -> u64 {
    ((u128::from(total) * u128::from(fraction)) >> 32) as u64
}

/// Cuts in OpenZFS's order: metadata down to its share, recently used first; then data likewise.
fn cuts([mrud, mrum, mfud, mfum]: [u64; 4], fractions: Fractions, want: u64) -> [Cut; 4] {
    let target = (mrud + mrum + mfud + mfum).saturating_sub(want);
    let mut left = want;
    let mut take = |bytes: u64| {
        let taken = bytes.min(left);
        left -= taken;
        taken
    };
    let metadata = share(target, fractions.meta);
    let mru_metadata = take(mrum.saturating_sub(share(metadata, fractions.pm)));
    let mfu_metadata = take((mrum - mru_metadata + mfum).saturating_sub(metadata));
    let data = target.saturating_sub(mrum - mru_metadata + mfum - mfu_metadata);
    let mru_data = take(mrud.saturating_sub(share(data, fractions.pd)));
    let mfu_data = take(u64::MAX);
    [
        Cut { state: State::Mru, kind: Kind::Metadata, bytes: mru_metadata },
        Cut { state: State::Mfu, kind: Kind::Metadata, bytes: mfu_metadata },
        Cut { state: State::Mru, kind: Kind::Data, bytes: mru_data },
        Cut { state: State::Mfu, kind: Kind::Data, bytes: mfu_data },
    ]
}

/// A fraction after ghost hits that want it larger (`up` bytes) and smaller (`down` bytes); `total` is what ghosts can
/// remember, `balance` divides the second in percent. Each step is at most an eighth or so, and shrinks near the ends.
fn adjusted(fraction: u64, total: u64, (up, down): (u64, u64), balance: u64) -> u64 {
    if total < 8 || up + down == 0 {
        return fraction;
    }
    let scale = if up + down >= total / 4 { ((up + down) / (total / 8)).max(1) } else { 1 };
    let rest = ONE - fraction;
    let damping = |from: u64, to: u64| if from >= 4 * to { (from / (2 * to + 1)).max(1) } else { 1 };
    let part = |bytes: u64, damping: u64| (u128::from(bytes / scale / damping) << 32) / u128::from(total);
    let up = part(up, damping(fraction, rest));
    let down = part(down, damping(rest, fraction)) * 100 / u128::from(balance);
    let moved = (u128::from(fraction) + up).saturating_sub(down);
    moved.min(u128::from(ONE)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(cuts: [Cut; 4]) -> [u64; 4] {
        cuts.map(|cut| cut.bytes)
    }

    /// If this fails, memory is taken from the wrong list: what users need most is read again and again.
    #[test]
    fn lists_are_cut_to_their_shares_in_order() {
        let even = Fractions::default();
        // Metadata is below its quarter: only data gives way, the recently used down to its half first.
        assert_eq!(bytes(cuts([600, 50, 300, 50], even, 100)), [0, 0, 100, 0]);
        assert_eq!(bytes(cuts([400, 50, 500, 50], even, 100)), [0, 0, 0, 100]);
        // Metadata is beyond its share: it goes first, recently used, then frequently used.
        assert_eq!(bytes(cuts([100, 500, 100, 300], even, 100)), [100, 0, 0, 0]);
        assert_eq!(bytes(cuts([100, 100, 100, 700], even, 100)), [0, 100, 0, 0]);
        // Everything is asked for.
        assert_eq!(bytes(cuts([10, 20, 30, 40], even, 100)), [20, 40, 10, 30]);
        // Nothing but metadata.
        assert_eq!(bytes(cuts([0, 100, 0, 0], even, 40)), [40, 0, 0, 0]);
    }

    /// If a cut could be larger than its list or the sum smaller than what is wanted, the cache would stop caching.
    #[test]
    fn cuts_take_what_is_wanted_and_no_list_twice() {
        let mut random = 7u64;
        let mut next = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        for _ in 0..20_000 {
            let live = [next(1000), next(1000), next(1000), next(1000)];
            let all: u64 = live.iter().sum();
            let want = next(all + 1);
            let fractions = Fractions { meta: next(ONE), pd: next(ONE), pm: next(ONE) };
            let [rm, fm, rd, fd] = bytes(cuts(live, fractions, want));
            assert_eq!(rm + fm + rd + fd, want, "{live:?} {fractions:?}");
            assert!(rm <= live[1] && fm <= live[3] && rd <= live[0] && fd <= live[2], "{live:?} {fractions:?} {want}");
        }
    }

    /// If a fraction left its range, or the balance did not weigh, the cache would fill with one kind of block for good.
    #[test]
    fn ghost_hits_move_the_fractions_within_bounds() {
        for hits in [(1u64 << 20, 0), (0, 1 << 20), (1 << 30, 1 << 10), (7, 1 << 34)] {
            let mut fraction = ONE / 4;
            for _ in 0..1000 {
                let moved = adjusted(fraction, 256 << 20, hits, 100);
                assert!(moved <= ONE && moved.abs_diff(fraction) <= ONE / 4, "{fraction} {moved}");
                fraction = moved;
            }
            assert!(if hits.0 > hits.1 { fraction > ONE / 2 } else { fraction < ONE / 4 }, "{hits:?} {fraction}");
        }
        let moved = |balance| adjusted(ONE / 2, 256 << 20, (1 << 20, 5 << 20), balance);
        assert!(moved(100) < ONE / 2 && moved(500).abs_diff(ONE / 2) < 16 && moved(1000) > ONE / 2);
        assert_eq!(adjusted(ONE / 3, 0, (5, 5), 500), ONE / 3);
    }
}
