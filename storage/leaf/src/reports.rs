//! Which errors of a leaf are told as events: not more than so many a second, and none again that was told a while ago (OpenZFS:
//! `zfs_is_ratelimiting_event`, `zfs_ereport_is_duplicate`).
//!
//! What is told is counted: a device is judged by that, not by how often somebody asks for the same bad block (OpenZFS: `zed`).

use device::DeviceError;
use exec::Mutex;
use kstat::Counter;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vdev_queue::{Class, IoKind};

/// Places that are remembered unless told otherwise (OpenZFS: `zfs_zevent_retain_max`).
const RETAIN_MAX: u32 = 2000;
/// Seconds for which they are remembered (OpenZFS: `zfs_zevent_retain_expire_secs`).
const RETAIN_SECONDS: u32 = 900;

/// Number of errors and time in seconds for which they are remembered, so that they are not told again.
#[derive(Debug)]
pub(crate) struct Retention {
    pub(crate) most: AtomicU32,
    pub(crate) seconds: AtomicU32,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { most: AtomicU32::new(RETAIN_MAX), seconds: AtomicU32::new(RETAIN_SECONDS) }
    }
}

/// Errors of this process that were not told.
static UNTOLD: LazyLock<[Counter; 2]> = LazyLock::new(Default::default);

/// Errors of this process that were not told as events: because there were too many of their kind, and because the same was told a while
/// ago (OpenZFS: kstat `fm`).
pub fn untold_errors() -> [u64; 2] {
    [0, 1].map(|at| UNTOLD[at].get())
}

/// Limit of events in a second.
#[derive(Debug, Default)]
pub(crate) struct RateLimit(Mutex<(u64, u32)>);

impl RateLimit {
    /// True when one more may be posted.
    pub(crate) fn allows(&self, now_ns: u64, per_second: u32) -> bool {
        let second = now_ns / 1_000_000_000;
        let mut seen = self.0.lock();
        if seen.0 != second {
            *seen = (second, 0);
        }
        seen.1 = seen.1.saturating_add(1);
        let allows = seen.1 <= per_second;
        UNTOLD[0].add(u64::from(!allows));
        allows
    }
}

/// Identity of an error: what makes it the same as another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// A device reported an error: kind, urgency, offset and bytes on the device.
    Io(IoKind, Class, u64, u64),
    /// Wrong bytes from a device.
    Checksum(WrongBytes),
}

/// An I/O of a leaf that failed for good.
#[derive(Clone, Copy, Debug)]
pub struct FailedIo {
    /// Kind of operation that was to be done.
    pub kind: IoKind,
    /// Urgency of the I/O.
    pub class: Class,
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Bytes that a leaf returned and that were not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrongBytes {
    /// Urgency of the read.
    pub class: Class,
    /// Offset of what was read, as its reader counts.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Name of what was read, in its reader's words: the same words are the same thing.
    pub what: [u64; 4],
}

#[derive(Debug, Default)]
struct Recent {
    /// The turn and the time at which each was last seen.
    by_place: BTreeMap<Trouble, (u64, u64)>,
    by_turn: BTreeMap<u64, Trouble>,
    turn: u64,
}

impl Recent {
    /// True when the error was not seen of late; remembers it.
    fn is_news(&mut self, place: Trouble, now_ns: u64, most: usize, keep_ns: u64) -> bool {
        if most == 0 {
            (self.by_place, self.by_turn) = Default::default();
            return true;
        }
        while let Some((&turn, &oldest)) = self.by_turn.first_key_value() {
            let is_over = self.by_place.get(&oldest).is_none_or(|(_, at)| now_ns.saturating_sub(*at) > keep_ns);
            if !is_over && (self.by_place.len() < most || self.by_place.contains_key(&place)) {
                break;
            }
            self.by_turn.remove(&turn);
            self.by_place.remove(&oldest);
        }
        self.turn += 1;
        let before = self.by_place.insert(place, (self.turn, now_ns));
        if let Some((turn, _)) = before {
            self.by_turn.remove(&turn);
        }
        self.by_turn.insert(self.turn, place);
        before.is_none()
    }
}

/// Counts of what was told of a leaf.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    delays: RateLimit,
    pub(crate) deadmen: RateLimit,
    corrupt: RateLimit,
    io: AtomicU64,
    checksum: AtomicU64,
    slow: AtomicU64,
    recent: Mutex<Recent>,
}

impl Reports {
    /// An I/O failed for good: whether that counts, and whether it is to be told, which are the same but for flushes, which have no place
    /// that could be the same, and for devices that are gone, which is a state.
    pub(crate) fn failed(&self, io: &FailedIo, error: DeviceError, now_ns: u64, retention: &Retention) -> (bool, bool) {
        if error == DeviceError::Gone {
            return (true, false);
        }
        let is_flush = io.kind == IoKind::Flush;
        let is_news = is_flush || self.is_news(Trouble::Io(io.kind, io.class, io.offset, io.bytes), now_ns, retention);
        self.io.fetch_add(u64::from(is_news), Ordering::Relaxed);
        (is_news, is_news && !is_flush)
    }

    /// Wrong bytes were found: whether that is to be told. It is `counted` against the device unless a scrub or a resilver found it.
    pub(crate) fn wrong_bytes(&self, place: WrongBytes, counted: bool, (now_ns, rate): (u64, u32), retention: &Retention) -> bool {
        let is_told = self.is_news(Trouble::Checksum(place), now_ns, retention) && self.corrupt.allows(now_ns, rate);
        self.checksum.fetch_add(u64::from(is_told && counted), Ordering::Relaxed);
        is_told
    }

    /// An I/O was slow: whether that is to be told.
    pub(crate) fn slow(&self, now_ns: u64, rate: u32) -> bool {
        let is_told = self.delays.allows(now_ns, rate);
        self.slow.fetch_add(u64::from(is_told), Ordering::Relaxed);
        is_told
    }

    /// Counts of what was told and counted: errors of I/Os, wrong bytes, slow I/Os.
    pub(crate) fn told(&self) -> [u64; 3] {
        [&self.io, &self.checksum, &self.slow].map(|count| count.load(Ordering::Relaxed))
    }

    /// True when the error was not told of late.
    fn is_news(&self, place: Trouble, now_ns: u64, retention: &Retention) -> bool {
        let keep_ns = u64::from(retention.seconds.load(Ordering::Relaxed)) * 1_000_000_000;
        let is_news = self.recent.lock().is_news(place, now_ns, retention.most.load(Ordering::Relaxed) as usize, keep_ns);
        UNTOLD[1].add(u64::from(!is_news));
        is_news
    }

    /// Forgets everything (`zpool clear`): what happens again is news.
    pub(crate) fn clear(&self) {
        *self.recent.lock() = Recent::default();
        [&self.io, &self.checksum, &self.slow].into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64) -> Trouble {
        Trouble::Io(IoKind::Read, Class::SyncRead, offset, 512)
    }

    /// If this fails, a disk with one bad block that is read over and over is given up, or events of new errors are swallowed.
    #[test]
    fn an_error_is_news_once_in_a_while() {
        let mut recent = Recent::default();
        let mut ask = |offset, now_ns| recent.is_news(place(offset), now_ns, 3, 100);
        assert!(ask(1, 0) && !ask(1, 50) && !ask(1, 150), "each time counts anew");
        assert!(ask(1, 251), "long ago");
        assert!(ask(2, 252) && ask(3, 253) && !ask(1, 254));
        assert!(ask(4, 255), "the fourth takes the place of the one that was not seen for longest");
        assert!(!ask(1, 256) && !ask(3, 256) && ask(2, 257));
        assert!(recent.by_place.len() == 3 && recent.by_turn.len() == 3);
        assert!(recent.is_news(place(2), 258, 0, 100) && recent.by_place.is_empty(), "switched off");
    }
}
