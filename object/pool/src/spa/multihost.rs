//! Heartbeats of a pool with the property `multihost`: when the last one succeeded, what the next one says, and whether one is overdue (OpenZFS:
//! `mmp.c`). Nothing here does I/O: who writes them is above.

use exec::Mutex;
use kstat::Records;
use ondisk::{Guid, Uberblock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const MS_NS: u64 = 1_000_000;
/// Least time between two heartbeats of a leaf, in milliseconds (OpenZFS: `MMP_MIN_INTERVAL`).
const INTERVAL_MS_MIN: u64 = 100;
/// Weight of the past in the average time between two heartbeats (OpenZFS: `mmp_delay_update`).
const PAST: u64 = 127;
/// Weight of the past where the time without heartbeats is to become shorter (OpenZFS: `mmp_thread`).
const PAST_OF_LIMIT: u64 = 31;
/// Bits of the error of a record of heartbeats that were left out, since no leaf could take one: some are not there or cannot be written to
/// (OpenZFS: `MMP_FAIL_NOT_WRITABLE`), some still have one under way (`MMP_FAIL_WRITE_PENDING`).
const NOT_WRITABLE: i32 = 1;
const WRITE_PENDING: i32 = 2;

/// Tunables of the protection against a second host, by OpenZFS's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultihostTunables {
    /// Milliseconds between two heartbeats of one leaf, 100 at least (`zfs_multihost_interval`).
    pub interval_ms: u64,
    /// Number of intervals without a heartbeat after which the pool is suspended; 0 for never, 1 counts as 2 (`zfs_multihost_fail_intervals`).
    pub fail_intervals: u64,
    /// Number of intervals that an import looks for another host's heartbeats, where these do not say (`zfs_multihost_import_intervals`).
    pub import_intervals: u64,
    /// Number of heartbeats that are remembered (`zfs_multihost_history`).
    pub history: usize,
}

impl Default for MultihostTunables {
    fn default() -> Self {
        MultihostTunables { interval_ms: 1000, fail_intervals: 10, import_intervals: 20, history: 0 }
    }
}

impl MultihostTunables {
    fn interval_ms(&self) -> u64 {
        self.interval_ms.max(INTERVAL_MS_MIN)
    }
    /// Nanoseconds between two heartbeats of one leaf.
    pub(crate) fn interval_ns(&self) -> u64 {
        self.interval_ms().saturating_mul(MS_NS)
    }
    /// Number of intervals after which the pool is suspended.
    fn fails(&self) -> u64 {
        if self.fail_intervals == 1 { 2 } else { self.fail_intervals.min(u64::from(u16::MAX)) }
    }
    /// Nanoseconds without a heartbeat after which the pool is suspended; 0 for never.
    fn fail_ns(&self) -> u64 {
        self.fails().saturating_mul(self.interval_ns())
    }
    /// The word that tells other hosts of it.
    fn word(&self, sequence: u16) -> u64 {
        Uberblock::mmp_config_of(self.interval_ms(), sequence, self.fails() as u16)
    }
}

/// A heartbeat, or several in a row that were left out for one reason, as the statistic shows them (OpenZFS: `spa_mmp_history_t`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeatRecord {
    id: u64,
    txg: u64,
    /// Seconds since the epoch, of the first one.
    timestamp: u64,
    /// Number of the error of a write; of those left out, bits that say why.
    error: i32,
    /// Time that the write took, or since the first one was left out.
    duration_ns: u64,
    delay_ns: u64,
    /// Guid of the leaf, or the number of heartbeats that were left out.
    leaf: Guid,
    label: usize,
    path: String,
    /// Time at which the first one was left out; None for a heartbeat that was written.
    left_out_ns: Option<u64>,
}

impl BeatRecord {
    fn show(&self) -> String {
        let error = if self.left_out_ns.is_some() { format!("{:#x}", self.error) } else { self.error.to_string() };
        format!(
            "{:<10} {:<10} {:>10} {error:>6} {:>10} {:>12} {:<24} {:<10} {}\n",
            self.id, self.txg, self.timestamp, self.duration_ns, self.delay_ns, self.leaf.0, self.label, self.path
        )
    }
}

fn head() -> String {
    format!(
        "{:<10} {:<10} {:<10} {:<6} {:<10} {:<12} {:<24} {:<10} {}\n",
        "id", "txg", "timestamp", "error", "duration", "mmp_delay", "vdev_guid", "vdev_label", "vdev_path"
    )
}

/// A heartbeat that is to be written.
pub(crate) struct Due {
    /// Number of the heartbeat, for its record.
    pub id: u64,
    /// Place of the leaf in the list that was given.
    pub turn: usize,
    /// Uberblock to write.
    pub uberblock: Uberblock,
}

/// Heartbeats until now.
#[derive(Debug, Default)]
struct Beats {
    /// True once somebody writes them.
    has_begun: bool,
    /// Average time between two that succeeded, and at least the time since the last one when one failed, in nanoseconds; 0 while there are none.
    delay_ns: u64,
    /// Time at which one succeeded, or was begun with, in nanoseconds.
    last_ns: u64,
    /// Time without one after which the pool is suspended, in nanoseconds; follows the tunables slowly when it becomes shorter.
    limit_ns: u64,
    timestamp: u64,
    sequence: u16,
    turn: usize,
    /// Leaves whose last heartbeat is still under way.
    pending: BTreeSet<Guid>,
    /// Newest txg and newest timestamp of the uberblocks that were handed to devices.
    handed: (u64, u64),
    count: u64,
    /// Number and error of the record of those that are being left out.
    left_out: Option<(u64, i32)>,
}

impl Beats {
    fn hand(&mut self, ub: &Uberblock) {
        self.handed = (self.handed.0.max(ub.ub_txg), self.handed.1.max(ub.ub_timestamp));
    }

    /// Follows the tunables; a time that becomes shorter does so slowly, so that what is behind it by then suspends nothing.
    fn smooth(&mut self, wanted_ns: u64) {
        let is_shorter = wanted_ns > 0 && wanted_ns < self.limit_ns;
        let slowly = self.limit_ns / (PAST_OF_LIMIT + 1) * PAST_OF_LIMIT + wanted_ns / (PAST_OF_LIMIT + 1);
        self.limit_ns = if is_shorter { slowly.max(wanted_ns) } else { wanted_ns };
    }

    /// Makes timestamp and number those of a heartbeat that is newer than `synced` and than all before, also when the clock was set back.
    fn advance(&mut self, synced: &Uberblock, second: u64) {
        let second = second.max(synced.ub_timestamp).max(self.timestamp);
        let known = if second == synced.ub_timestamp { synced.mmp_sequence().unwrap_or(0) as u16 } else { 0 };
        // Numbers begin anew with each second: one that has wrapped would not be taken for newer.
        let last = if second == self.timestamp { self.sequence } else { 0 };
        (self.timestamp, self.sequence) = (second, last.max(known).saturating_add(1));
    }
}

/// See the module's header.
pub(crate) struct Multihost {
    tunables: Mutex<MultihostTunables>,
    is_on: AtomicBool,
    /// True when the pool is suspended because of its heartbeats.
    has_missed: AtomicBool,
    beats: Mutex<Beats>,
    /// Time in nanoseconds until which others believe that this host has the pool; 0 where they are not told.
    limit_ns: Arc<AtomicU64>,
    history: Arc<Records<BeatRecord>>,
}

impl Multihost {
    /// Makes the state of a pool whose property says whether it is `on`; `limit_ns` gets the time until which others believe that this host has the
    /// pool, and 0 where they are not told.
    pub fn new(tunables: MultihostTunables, on: bool, now_ns: u64, limit_ns: Arc<AtomicU64>) -> Multihost {
        let multihost = Multihost {
            tunables: Mutex::new(tunables),
            is_on: AtomicBool::new(false),
            has_missed: AtomicBool::new(false),
            beats: Mutex::default(),
            limit_ns,
            history: Arc::new(Records::new(head(), BeatRecord::show, |_| 1, tunables.history)),
        };
        multihost.set_on(on, now_ns);
        multihost
    }

    /// True while the property is on.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Follows the property.
    pub fn set_on(&self, on: bool, now_ns: u64) {
        if on {
            self.begin_anew(now_ns);
        } else {
            // Tells other hosts that there is nothing to wait for.
            self.beats.lock().delay_ns = 0;
        }
        self.is_on.store(on, Ordering::Release);
        self.promise(&self.beats.lock());
    }

    /// Notes until when others believe that this host has the pool.
    fn promise(&self, beats: &Beats) {
        let is_told = self.is_on() && beats.has_begun && beats.limit_ns > 0;
        self.limit_ns.store(if is_told { beats.last_ns.saturating_add(beats.limit_ns) } else { 0 }, Ordering::Release);
    }

    /// Gives heartbeats the whole time again: none was written of late.
    pub fn begin_anew(&self, now_ns: u64) {
        let tunables = self.tunables();
        let mut beats = self.beats.lock();
        (beats.last_ns, beats.delay_ns, beats.limit_ns) = (now_ns, tunables.interval_ns(), tunables.fail_ns());
        self.has_missed.store(false, Ordering::Release);
        self.promise(&beats);
    }

    /// The tunables as of now.
    pub fn tunables(&self) -> MultihostTunables {
        *self.tunables.lock()
    }

    /// Changes the tunables.
    pub fn tune(&self, tunables: MultihostTunables) {
        *self.tunables.lock() = tunables;
        self.history.set_limit(tunables.history);
    }

    /// Records of the newest heartbeats.
    pub fn history(&self) -> &Arc<Records<BeatRecord>> {
        &self.history
    }

    /// True when the pool is suspended because of its heartbeats.
    pub fn has_missed(&self) -> bool {
        self.has_missed.load(Ordering::Acquire)
    }

    /// Notes that the pool is suspended because of its heartbeats.
    pub fn note_missed(&self) {
        self.has_missed.store(true, Ordering::Release);
    }

    /// Newest txg and newest timestamp of the uberblocks that were handed to devices.
    pub fn handed(&self) -> (u64, u64) {
        self.beats.lock().handed
    }

    /// Puts into the uberblock of a txg what other hosts are to know (OpenZFS: `uberblock_update`).
    pub fn stamp(&self, ub: &mut Uberblock) {
        let mut beats = self.beats.lock();
        ub.ub_mmp_magic = Uberblock::MMP_MAGIC;
        (ub.ub_mmp_delay, ub.ub_mmp_config) = if self.is_on() { (beats.delay_ns.max(1), self.tunables.lock().word(0)) } else { (0, 0) };
        beats.hand(ub);
    }

    /// Notes that the uberblock of a txg was written: it is as good as a heartbeat (OpenZFS: `mmp_update_uberblock`).
    pub fn note_synced(&self, ub: &Uberblock, now_ns: u64, leaves: usize) {
        let mut beats = self.beats.lock();
        (beats.timestamp, beats.sequence) = (ub.ub_timestamp, 0);
        self.update(&mut beats, true, now_ns, leaves);
    }

    /// The heartbeat that is due now, of the uberblock `synced`, on the next of the leaves that has none under way; None when each of them has. The pool
    /// may have leaves that cannot be written to besides: `are_all` is false then (OpenZFS: `mmp_next_leaf`).
    pub fn due(&self, synced: &Uberblock, (leaves, are_all): (&[Guid], bool), (now_ns, second): (u64, u64)) -> Option<Due> {
        let tunables = self.tunables();
        let mut beats = self.beats.lock();
        beats.has_begun = true;
        beats.smooth(tunables.fail_ns());
        self.promise(&beats);
        let (from, count) = (beats.turn, leaves.len());
        let free = (1..=count).map(|step| (from + step) % count).find(|turn| !beats.pending.contains(&leaves[*turn]));
        let Some(turn) = free else {
            self.update(&mut beats, false, now_ns, count);
            let pending = if leaves.is_empty() { 0 } else { WRITE_PENDING };
            self.leave_out(&mut beats, synced.ub_txg, pending | if are_all { 0 } else { NOT_WRITABLE }, (now_ns, second));
            return None;
        };
        beats.left_out = None;
        beats.advance(synced, second);
        beats.turn = turn;
        beats.pending.insert(leaves[turn]);
        beats.count += 1;
        let mut uberblock = synced.clone();
        (uberblock.ub_timestamp, uberblock.ub_mmp_magic) = (beats.timestamp, Uberblock::MMP_MAGIC);
        (uberblock.ub_mmp_delay, uberblock.ub_mmp_config) = (beats.delay_ns.max(1), tunables.word(beats.sequence));
        beats.hand(&uberblock);
        Some(Due { id: beats.count, turn, uberblock })
    }

    /// Remembers a heartbeat that is left out: one more of a record, when the one before was left out for the same reason.
    fn leave_out(&self, beats: &mut Beats, txg: u64, error: i32, (now_ns, second): (u64, u64)) {
        if let Some((id, _)) = beats.left_out.filter(|(_, last)| *last == error) {
            self.history.change(|record| {
                let is_it = record.id == id;
                if is_it {
                    record.duration_ns = now_ns.saturating_sub(record.left_out_ns.unwrap_or(now_ns));
                    record.leaf.0 += 1;
                }
                is_it
            });
            return;
        }
        beats.count += 1;
        beats.left_out = Some((beats.count, error));
        self.history.add(BeatRecord {
            id: beats.count,
            txg,
            timestamp: second,
            error,
            delay_ns: beats.delay_ns,
            leaf: Guid(1),
            path: "-".to_string(),
            left_out_ns: Some(now_ns),
            ..BeatRecord::default()
        });
    }

    /// Remembers a heartbeat that is being written to this label of a leaf.
    pub fn remember(&self, due: &Due, (leaf, path): (Guid, &str), label: usize) {
        let ub = &due.uberblock;
        self.history.add(BeatRecord {
            id: due.id,
            txg: ub.ub_txg,
            timestamp: ub.ub_timestamp,
            delay_ns: ub.ub_mmp_delay,
            leaf,
            label,
            path: path.to_string(),
            ..BeatRecord::default()
        });
    }

    /// Notes the outcome of a heartbeat of one of so many leaves: 0, or the number of its error (OpenZFS: `mmp_write_done`).
    pub fn note_done(&self, (id, leaf): (u64, Guid), error: i32, (begun_ns, now_ns): (u64, u64), leaves: usize) {
        self.history.change(|record| {
            let is_it = record.id == id;
            if is_it {
                (record.error, record.duration_ns) = (error, now_ns.saturating_sub(begun_ns));
            }
            is_it
        });
        let mut beats = self.beats.lock();
        beats.pending.remove(&leaf);
        self.update(&mut beats, error == 0, now_ns, leaves);
    }

    /// Time without a heartbeat in nanoseconds, when that is longer than another host waits for one.
    pub fn overdue_ns(&self, now_ns: u64) -> Option<u64> {
        let beats = self.beats.lock();
        let without = now_ns.saturating_sub(beats.last_ns);
        let limit = beats.limit_ns;
        (self.is_on() && beats.has_begun && limit > 0 && without > limit).then_some(without)
    }

    /// Nanoseconds until the next heartbeat of one of so many leaves.
    pub fn pause_ns(&self, leaves: usize) -> u64 {
        self.tunables().interval_ns() / leaves.max(1) as u64
    }

    fn update(&self, beats: &mut Beats, succeeded: bool, now_ns: u64, leaves: usize) {
        if !self.is_on() {
            beats.delay_ns = 0;
            return;
        }
        let delay = now_ns.saturating_sub(beats.last_ns);
        // A spike is not averaged away: whoever imports has to wait for it.
        beats.delay_ns = beats.delay_ns.max(delay);
        // One that comes too late is no more: another host may have the pool by now.
        let is_too_late = beats.has_begun && beats.limit_ns > 0 && delay > beats.limit_ns;
        if !succeeded || is_too_late {
            return;
        }
        beats.last_ns = now_ns;
        self.promise(beats);
        if delay < beats.delay_ns {
            let average = beats.delay_ns / (PAST + 1) * PAST + delay / (PAST + 1);
            beats.delay_ns = average.max(self.pause_ns(leaves));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn synced() -> Uberblock {
        Uberblock { ub_magic: Uberblock::MAGIC, ub_txg: 7, ub_timestamp: 100, ..Uberblock::default() }
    }

    /// If this fails, another host sees no change where this one lives, or waits too short a time.
    #[test]
    fn each_heartbeat_is_newer_than_the_one_before() {
        let multihost = Multihost::new(MultihostTunables { history: 3, ..MultihostTunables::default() }, true, 0, Arc::default());
        let leaves = [Guid(5), Guid(6)];
        let mut last = synced().preference();
        for (step, second) in [100, 100, 101, 101, 102].into_iter().enumerate() {
            let due = multihost.due(&synced(), (&leaves, true), (step as u64 * SECOND_NS / 2, second)).expect("a leaf is free");
            assert_eq!(due.turn, (step + 1) % 2, "one after the other");
            let ub = &due.uberblock;
            assert!(ub.preference() > last, "{last:?} {:?}", ub.preference());
            assert_eq!((ub.ub_txg, ub.mmp_interval_ms(), ub.mmp_fail_intervals()), (7, Some(1000), Some(10)));
            assert!(ub.ub_mmp_delay >= SECOND_NS / 2, "nobody is told of less: {}", ub.ub_mmp_delay);
            last = ub.preference();
            multihost.remember(&due, (leaves[due.turn], "/a"), 1);
            let now_ns = step as u64 * SECOND_NS / 2 + 5;
            multihost.note_done((due.id, leaves[due.turn]), i32::from(step == 3) * 5, (now_ns - 5, now_ns), 2);
        }
        assert_eq!(multihost.handed(), (7, 102));
        let text = kstat::Listing::lines(&**multihost.history(), 0, usize::MAX).expect("nobody read them before").0;
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((rows.len(), rows[1][0], rows[1][3], rows[1][8]), (3, "4", "5", "/a"), "{text}");
    }

    /// If this fails, a host whose clock was set back looks dead to others.
    #[test]
    fn a_clock_that_was_set_back_makes_no_heartbeat_older() {
        let multihost = Multihost::new(MultihostTunables::default(), true, 0, Arc::default());
        let mut last = synced().preference();
        for second in [90, 101, 95, 96] {
            let due = multihost.due(&synced(), (&[Guid(5)], true), (1, second)).expect("it is free");
            assert!(due.uberblock.preference() > last, "{second}");
            last = due.uberblock.preference();
            multihost.note_done((due.id, Guid(5)), 0, (1, 2), 1);
        }
    }

    /// If this fails, one disk that hangs keeps all others from being written to, or one heartbeat is written over another.
    #[test]
    fn a_leaf_that_hangs_is_passed_over() {
        let multihost = Multihost::new(MultihostTunables::default(), true, 0, Arc::default());
        let leaves = [Guid(5), Guid(6)];
        let first = multihost.due(&synced(), (&leaves, true), (1, 100)).expect("both are free");
        let second = multihost.due(&synced(), (&leaves, true), (2, 100)).expect("one is free");
        assert_ne!(first.turn, second.turn);
        assert!(multihost.due(&synced(), (&leaves, true), (3, 100)).is_none(), "none is");
        multihost.note_done((second.id, leaves[second.turn]), 0, (2, 4), 2);
        assert_eq!(multihost.due(&synced(), (&leaves, true), (5, 100)).map(|due| due.turn), Some(second.turn));
    }

    /// If this fails, whoever looks why a pool was suspended sees a long list of one reason, or none.
    #[test]
    fn heartbeats_that_are_left_out_are_told_in_one_record_for_each_reason() {
        let multihost = Multihost::new(MultihostTunables { history: 9, ..MultihostTunables::default() }, true, 0, Arc::default());
        let leaves = [Guid(5)];
        let due = multihost.due(&synced(), (&leaves, true), (SECOND_NS, 100)).expect("it is free");
        multihost.remember(&due, (leaves[0], "/a"), 3);
        for second in 2..5 {
            assert!(multihost.due(&synced(), (&leaves, true), (second * SECOND_NS, 100 + second)).is_none(), "it hangs");
        }
        assert!(multihost.due(&synced(), (&leaves, false), (5 * SECOND_NS, 105)).is_none(), "another one went");
        assert!(multihost.due(&synced(), (&[], false), (6 * SECOND_NS, 106)).is_none(), "and so did this");
        multihost.note_done((due.id, leaves[0]), 5, (SECOND_NS, 7 * SECOND_NS), 1);
        let due = multihost.due(&synced(), (&leaves, false), (8 * SECOND_NS, 108)).expect("it is back");
        multihost.remember(&due, (leaves[0], "/a"), 0);
        assert!(multihost.due(&synced(), (&[], false), (9 * SECOND_NS, 109)).is_none(), "it went again");
        let text = kstat::Listing::lines(&**multihost.history(), 0, usize::MAX).expect("nobody read them before").0;
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        // Number, error, how long, guid or how many, path.
        let told: Vec<[&str; 5]> = rows.iter().map(|row| [row[0], row[3], row[4], row[6], row[8]]).collect();
        let expected = [
            ["1", "5", "6000000000", "5", "/a"],
            ["2", "0x2", "2000000000", "3", "-"],
            ["3", "0x3", "0", "1", "-"],
            ["4", "0x1", "0", "1", "-"],
            ["5", "0", "0", "5", "/a"],
            ["6", "0x1", "0", "1", "-"],
        ];
        assert_eq!(told, expected, "{text}");
    }

    /// If this fails, a pool goes on without heartbeats for longer than another host waits, or stops although it has them.
    #[test]
    fn it_is_overdue_after_the_intervals_that_were_promised() {
        let limit_ns = Arc::new(AtomicU64::new(7));
        let multihost = Multihost::new(MultihostTunables::default(), true, 0, limit_ns.clone());
        assert_eq!(limit_ns.load(Ordering::Acquire), 0, "nobody was told yet");
        assert_eq!(multihost.overdue_ns(60 * SECOND_NS), None, "nobody writes them yet");
        let due = multihost.due(&synced(), (&[Guid(5)], true), (SECOND_NS, 101)).expect("it is free");
        multihost.note_done((due.id, Guid(5)), 5, (SECOND_NS, SECOND_NS), 1);
        assert_eq!(multihost.overdue_ns(10 * SECOND_NS), None);
        assert_eq!(multihost.overdue_ns(10 * SECOND_NS + 1), Some(10 * SECOND_NS + 1), "what failed does not count");
        multihost.note_synced(&synced(), 11 * SECOND_NS, 1);
        assert_eq!(multihost.overdue_ns(11 * SECOND_NS), Some(11 * SECOND_NS), "what comes too late does not count");
        multihost.note_synced(&synced(), 9 * SECOND_NS, 1);
        assert_eq!(multihost.overdue_ns(19 * SECOND_NS), None, "a txg counts");
        assert_eq!(limit_ns.load(Ordering::Acquire), 19 * SECOND_NS, "and is the limit of what is written");
        multihost.tune(MultihostTunables { fail_intervals: 1, ..MultihostTunables::default() });
        let _ = multihost.due(&synced(), (&[Guid(5)], true), (10 * SECOND_NS, 110));
        assert_eq!(multihost.overdue_ns(18 * SECOND_NS), None, "it becomes shorter slowly");
        multihost.tune(MultihostTunables { fail_intervals: 0, ..MultihostTunables::default() });
        multihost.note_done((2, Guid(5)), 5, (0, 0), 1);
        let _ = multihost.due(&synced(), (&[Guid(5)], true), (11 * SECOND_NS, 111));
        assert_eq!(multihost.overdue_ns(1000 * SECOND_NS), None, "never");
        assert_eq!(limit_ns.load(Ordering::Acquire), 0, "never");
        let mut ub = synced();
        multihost.set_on(false, 0);
        multihost.stamp(&mut ub);
        assert_eq!((ub.ub_mmp_magic, ub.ub_mmp_delay, ub.ub_mmp_config), (Uberblock::MMP_MAGIC, 0, 0), "off");
    }
}
