//! What the daemon does about devices without being asked (the role of OpenZFS's `zed`): a device with too many errors is taken
//! out of use, one that went away is removed, a spare takes the place of either, and one that came back is used again.
//!
//! Deciding is a pure function of counters and time ([`Judge`]); acting goes through the pool as a command would. Each pool has a
//! thread of its own, so that one that is suspended keeps no other from its spares.

use crate::device::contents::is_blank;
use crate::device::devices::Devices;
use crate::device::inuse::check_contents;
use crate::pool::closing::Closer;
use crate::pool::{OpenPool, Pools};
use crate::report::pictures::leaf_state;
use crate::report::vdev_props;
use exec::Exec;
use metrics::Parameters;
use ondisk::Guid;
use pool::{Pool, PoolError, Spare, VdevProps};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Weak};
use vdev::{Leaf, LeafId, LeafKind, LeafState, VdevTree};
use zio::{FailMode, LeafCounts};

/// Nanoseconds between two looks at a pool's devices.
const STEP_NS: u64 = 250_000_000;
/// Number of looks between two whether devices are back, or grew.
const LOOKS: u64 = 8;
/// Number of times that a spare is tried for one device.
const TRIES: u32 = 5;
/// Number of errors … where the vdev properties `io_n` and `checksum_n` say nothing (OpenZFS: `zed`)
const ERRORS_MAX: u64 = 10;
/// … within so many seconds that are too many (`io_t`, `checksum_t`).
const WINDOW_SECONDS: u64 = 600;
/// Nanoseconds that a verdict waits whether the device goes: errors may be the first sign of one being pulled (OpenZFS: `zfs_remove_timeout`, 15 s).
const VERDICT_WAIT_NS: u64 = 2_000_000_000;
/// Number of errors that are remembered at most, whatever a property says.
const ERRORS_LIMIT: u64 = 100_000;

/// Number of errors that are too many within so many nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    errors: u64,
    window_ns: u64,
}

impl Limit {
    fn new(errors: u64, seconds: u64) -> Limit {
        Limit { errors: errors.min(ERRORS_LIMIT), window_ns: seconds.saturating_mul(1_000_000_000) }
    }
}

/// Limits of a leaf's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    io: Limit,
    checksum: Limit,
    /// Limit of slow I/Os: they count only where both `slow_io_n` and `slow_io_t` are set.
    slow: Option<Limit>,
}

impl Default for Limits {
    fn default() -> Self {
        let usual = Limit::new(ERRORS_MAX, WINDOW_SECONDS);
        Limits { io: usual, checksum: usual, slow: None }
    }
}

impl Limits {
    fn of(tree: &VdevTree, props: &VdevProps, leaf: LeafId) -> Limits {
        let number = |name: &str| vdev_props::number(tree, props, leaf, name);
        let limit =
            |errors: &str, seconds: &str| Limit::new(number(errors).unwrap_or(ERRORS_MAX), number(seconds).unwrap_or(WINDOW_SECONDS));
        let slow = number("slow_io_n").zip(number("slow_io_t")).map(|(errors, seconds)| Limit::new(errors, seconds));
        Limits { io: limit("io_n", "io_t"), checksum: limit("checksum_n", "checksum_t"), slow }
    }
}

/// Times of the last errors of one kind (OpenZFS: `zed`'s SERD engines).
#[derive(Clone, Debug, Default)]
struct Engine {
    seen: u64,
    times: VecDeque<u64>,
    /// True when there were errors of late, when somebody last looked.
    is_active: bool,
    /// True when there were too many of late, by the last look.
    has_fired: bool,
}

impl Engine {
    /// Takes the counter as it is at `now_ns`.
    fn take(&mut self, now_ns: u64, count: u64, limit: Limit) {
        let enough = limit.errors.max(1);
        let new = count.saturating_sub(self.seen).min(enough);
        self.has_fired = false;
        let is_recent = |at: &u64| now_ns.saturating_sub(*at) <= limit.window_ns;
        self.is_active = self.times.back().is_some_and(is_recent);
        if new == 0 && count == self.seen {
            return;
        }
        // Cleared counters begin anew.
        if count < self.seen {
            self.times.clear();
        }
        self.seen = count;
        self.times.extend((0..new).map(|_| now_ns));
        while self.times.len() as u64 > enough {
            self.times.pop_front();
        }
        self.is_active = self.times.back().is_some_and(is_recent);
        self.has_fired = self.times.len() as u64 == enough && self.times.front().is_some_and(is_recent);
    }

    /// Forgets what was counted: it means nothing any more.
    fn forget(&mut self) {
        self.times.clear();
        (self.is_active, self.has_fired) = (false, false);
    }
}

/// Index of a kind of errors in a record's engines.
const IO: usize = 0;
const CHECKSUM: usize = 1;
const SLOW: usize = 2;

/// Record of a leaf's errors.
#[derive(Clone, Debug, Default)]
struct Record {
    /// Guid of the vdev above: the leaves below the same one are peers.
    parent: Guid,
    engines: [Engine; 3],
    /// Number of times that the device was gone; the flag: whether that was since the last look.
    gone: u64,
    is_gone: bool,
    /// Time in nanoseconds at which it is given up for too many errors of I/O, unless it goes.
    due_ns: Option<u64>,
}

/// Leaf to be judged, and what it did.
struct Suspect {
    guid: Guid,
    parent: Guid,
    state: LeafState,
    counts: LeafCounts,
    limits: Limits,
}

/// Judge of leaves, by their counters.
#[derive(Clone, Debug, Default)]
struct Judge {
    leaves: BTreeMap<Guid, Record>,
    /// Nanoseconds that a verdict waits.
    wait_ns: u64,
}

impl Judge {
    /// Judges leaves: the states that those in use deserve; nothing of those that may stay as they are.
    ///
    /// Where several devices of a vdev have errors of one kind at once, it may not be they that are bad: only the last of them is given up, and
    /// the others when they go on (OpenZFS: `zfs_fm_serd_record`, which retires a case that has peers).
    fn judge(&mut self, now_ns: u64, suspects: &[Suspect]) -> Vec<(Guid, LeafState)> {
        self.leaves.retain(|guid, _| suspects.iter().any(|suspect| suspect.guid == *guid));
        suspects.iter().for_each(|suspect| self.take(now_ns, suspect));
        let verdict = |suspect: &Suspect| Some((suspect.guid, self.verdict(now_ns, suspect)?));
        suspects.iter().filter_map(verdict).collect()
    }

    /// Takes what a leaf did since the last look.
    fn take(&mut self, now_ns: u64, suspect: &Suspect) {
        let Suspect { counts, limits, .. } = suspect;
        let record = self.leaves.entry(suspect.guid).or_default();
        record.parent = suspect.parent;
        record.is_gone = counts.gone > std::mem::replace(&mut record.gone, counts.gone);
        if counts.io_reports < record.engines[IO].seen {
            // Somebody cleared the errors: what they would have led to is off.
            record.due_ns = None;
        }
        let [io, checksum, slow] = &mut record.engines;
        io.take(now_ns, counts.io_reports, limits.io);
        checksum.take(now_ns, counts.checksum_reports, limits.checksum);
        match limits.slow {
            Some(limit) => slow.take(now_ns, counts.slow_reports, limit),
            None => *slow = Engine { seen: counts.slow_reports, ..Engine::default() },
        }
        if !suspect.state.is_usable() {
            // Judged, or out of use for another reason: what it did before counts no more when it comes back.
            record.engines.iter_mut().for_each(Engine::forget);
            record.due_ns = None;
        }
    }

    fn verdict(&mut self, now_ns: u64, suspect: &Suspect) -> Option<LeafState> {
        let fired = [IO, CHECKSUM, SLOW].map(|kind| self.is_alone_with(suspect.guid, kind));
        let due_ns = now_ns.saturating_add(self.wait_ns);
        let record = self.leaves.get_mut(&suspect.guid)?;
        if fired[IO] {
            record.due_ns.get_or_insert(due_ns);
        }
        let is_due = record.due_ns.take_if(|due_ns| *due_ns <= now_ns).is_some();
        match suspect.state {
            LeafState::Online | LeafState::Degraded if record.is_gone => Some(LeafState::Removed),
            LeafState::Online | LeafState::Degraded if is_due => Some(LeafState::Faulted),
            LeafState::Online if fired[CHECKSUM] || fired[SLOW] => Some(LeafState::Degraded),
            _ => None,
        }
    }

    /// True when the leaf had too many errors of a kind, and no other one below the same vdev has any that counts. Its own count no more:
    /// those who fired at the same time have one peer less.
    fn is_alone_with(&mut self, guid: Guid, kind: usize) -> bool {
        let Some(own) = self.leaves.get(&guid).filter(|own| own.engines[kind].has_fired) else { return false };
        let is_peer = |(other, record): (&Guid, &Record)| *other != guid && record.parent == own.parent && record.engines[kind].is_active;
        let is_alone = !self.leaves.iter().any(is_peer);
        if let Some(own) = self.leaves.get_mut(&guid) {
            own.engines[kind].forget();
        }
        is_alone
    }
}

/// True when something should stand in for the leaf.
fn wants_spare(tree: &VdevTree, leaf: &Leaf) -> bool {
    let is_bad = match leaf.state {
        LeafState::Faulted | LeafState::Removed | LeafState::Missing => true,
        LeafState::Degraded => leaf.too_many_errors,
        LeafState::Online | LeafState::Offline => false,
    };
    let top = &tree.tops[leaf.top.0 as usize];
    is_bad && !top.is_log && !leaf.is_spare && tree.leaf_by_guid(leaf.guid).is_some_and(|id| tree.successor(id).is_none())
}

/// True while nothing may stand in for a leaf unasked: a person declared it faulted just now, and may be about to replace it.
fn is_held_back(now_ns: u64, by_hand_ns: Option<u64>, hold_ns: u64) -> bool {
    by_hand_ns.is_some_and(|at| now_ns.saturating_sub(at) < hold_ns)
}

/// Care for pools, with the parts of the daemon that it needs.
pub(crate) struct Care {
    pub exec: Exec,
    pub pools: Arc<Pools>,
    pub devices: Arc<Devices>,
    pub parameters: Arc<Parameters>,
    /// Closer of what cannot go on.
    pub closer: Arc<Closer>,
}

/// Keeper that looks after one pool until it is closed.
struct Keeper {
    care: Weak<Care>,
    open: Weak<OpenPool>,
    judge: Judge,
    /// Number of times that a spare was tried for a leaf since it went bad.
    served: BTreeMap<Guid, u32>,
}

/// Begins to look after a pool.
pub(crate) fn keep(care: &Arc<Care>, open: &Arc<OpenPool>) {
    if open.is_read_only() {
        return;
    }
    let mut keeper = Keeper {
        care: Arc::downgrade(care),
        open: Arc::downgrade(open),
        judge: Judge { wait_ns: VERDICT_WAIT_NS, ..Judge::default() },
        served: BTreeMap::new(),
    };
    let exec: Exec = care.exec.clone();
    let clock = exec.clone();
    let run = move || {
        for turn in 0u64.. {
            if !keeper.turn(turn) {
                return;
            }
            clock.sleep_ns(STEP_NS);
        }
    };
    // It ends with its pool; nobody waits for it.
    drop(exec.spawn_operation("z-policy", Box::new(run)));
}

impl Keeper {
    /// Looks once; false when there is nobody to look after any more.
    fn turn(&mut self, turn: u64) -> bool {
        let (Some(care), Some(open)) = (self.care.upgrade(), self.open.upgrade()) else { return false };
        let pool = open.pool();
        if care.pools.is_stopping() {
            return false;
        }
        if pool.zio().is_suspended() {
            if pool.zio().view().facts.fail_mode == FailMode::Panic {
                tracing::error!(
                    "pool '{}' has encountered an uncorrectable I/O failure and its failmode is set to panic: it is closed",
                    open.name()
                );
                let name = open.name();
                drop(open);
                care.closer.give_up(&name);
                return false;
            }
            return true;
        }
        self.judge_leaves(&open);
        self.serve(&care, &open, turn);
        if turn.is_multiple_of(LOOKS)
            && let Err(error) = self.look_again(&care, &open)
        {
            tracing::warn!("pool '{}': cannot use what is there again: {error}", open.name());
        }
        true
    }

    fn judge_leaves(&mut self, open: &OpenPool) {
        let (pool, props) = (open.pool(), open.vdev_props());
        let (now_ns, tree) = (pool.exec().now_ns(), pool.tree());
        let suspect = |(number, leaf): (u32, &Leaf)| Suspect {
            guid: leaf.guid,
            parent: tree.parent_guid(LeafId(number)),
            state: leaf.state,
            counts: pool.zio().leaf_stats_of(leaf.guid).counts(),
            limits: Limits::of(&tree, &props, LeafId(number)),
        };
        let suspects: Vec<Suspect> = (0..).zip(&tree.leaves).map(suspect).collect();
        for (leaf, state) in self.judge.judge(now_ns, &suspects) {
            let device = tree.leaves.iter().find(|own| own.guid == leaf).map_or("", |own| own.path.as_str());
            match pool.judge(leaf, state) {
                Ok(state) => tracing::warn!("pool '{}': device {device} (vdev {leaf}) is now {}", open.name(), leaf_state(state)),
                Err(error) => {
                    tracing::warn!("pool '{}': device {device} (vdev {leaf}) cannot be {}: {error}", open.name(), leaf_state(state));
                }
            }
        }
    }

    /// Puts a spare in the place of every leaf that went bad. One that cannot come now is tried again a few times.
    fn serve(&mut self, care: &Care, open: &OpenPool, turn: u64) {
        let tree = open.pool().tree();
        let wanting: Vec<&Leaf> = tree.leaves.iter().filter(|leaf| wants_spare(&tree, leaf)).collect();
        self.served.retain(|guid, _| wanting.iter().any(|leaf| leaf.guid == *guid));
        let guids: Vec<Guid> = wanting.iter().map(|leaf| leaf.guid).collect();
        let (by_hand, now_ns) = (open.by_hand(&guids, STEP_NS), open.pool().exec().now_ns());
        let hold_ns = care.parameters.get("zirconia_spare_hold_ms").unwrap_or(0).saturating_mul(1_000_000);
        for leaf in wanting {
            if is_held_back(now_ns, by_hand.get(&leaf.guid).copied(), hold_ns) {
                continue;
            }
            let tried = self.served.entry(leaf.guid).or_default();
            if *tried >= TRIES || (*tried > 0 && !turn.is_multiple_of(LOOKS)) {
                continue;
            }
            *tried += 1;
            let spares = open.pool().spares();
            let mut free = spares.iter().filter(|spare| !spare.in_use && care.pools.pool_using(spare.guid).is_none()).peekable();
            if free.peek().is_none() {
                // Spares that are added later are for what fails later.
                *tried = TRIES;
            }
            for spare in free {
                match bring_spare(care, open.pool(), leaf.guid, spare) {
                    Ok(()) => {
                        tracing::warn!("pool '{}': spare {} stands in for {}", open.name(), spare.path, leaf.path);
                        break;
                    }
                    Err(error) => tracing::warn!("pool '{}': spare {} cannot stand in for {}: {error}", open.name(), spare.path, leaf.path),
                }
            }
        }
    }

    /// Uses devices again that came back, and the room of those that grew.
    fn look_again(&mut self, care: &Care, open: &OpenPool) -> Result<(), PoolError> {
        open.pool().autoexpand()?;
        let tree = open.pool().tree();
        let gone = |leaf: &&Leaf| matches!(leaf.state, LeafState::Missing | LeafState::Removed) && leaf.kind != LeafKind::DraidSpare;
        let there = |leaf: &&Leaf| Path::new(&leaf.path).exists() && !open.pool().zio().is_injected_gone(leaf.guid);
        for leaf in tree.leaves.iter().filter(gone).filter(there) {
            let Ok(device) = care.devices.open_device(&leaf.path, false, "") else { continue };
            if pool::label_guid(open.pool().exec(), &device) == Some(leaf.guid) {
                open.pool().online(leaf.guid, Some(device))?;
                tracing::info!("pool '{}': device {} (vdev {}) is back", open.name(), leaf.path, leaf.guid);
            } else if open.pool().has_switch("autoreplace")? && is_blank(&care.exec, &device) {
                let kind = if device.facts().whole_disk { LeafKind::Disk } else { LeafKind::File };
                let new = pool::LeafSpec { path: leaf.path.clone(), kind, device };
                // Nobody can be asked whether what others put there may go.
                if check_contents(&care.pools, &care.exec, std::slice::from_ref(&new), None, false).is_err() {
                    continue;
                }
                open.pool().attach(leaf.guid, &new, vdev::Pairing::Replacing, false)?;
                tracing::warn!("pool '{}': {} is blank and replaces vdev {}, which was there", open.name(), leaf.path, leaf.guid);
            }
        }
        Ok(())
    }
}

/// Opens a spare's device and lets it stand in for the leaf.
fn bring_spare(care: &Care, pool: &Pool, leaf: Guid, spare: &Spare) -> Result<(), PoolError> {
    if spare.is_distributed() {
        return pool.spare_in(leaf, spare.guid, None, true);
    }
    let device = care.devices.open_device(&spare.path, false, "").map_err(|_| PoolError::NoSuchDevice)?;
    if pool::label_guid(pool.exec(), &device) != Some(spare.guid) {
        return Err(PoolError::NoSuchDevice);
    }
    pool.spare_in(leaf, spare.guid, Some(device), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn counts(io: u64, checksum: u64, gone: u64) -> LeafCounts {
        LeafCounts { io_reports: io, checksum_reports: checksum, gone, ..LeafCounts::default() }
    }

    fn suspect(guid: u64, state: LeafState, counts: &LeafCounts) -> Suspect {
        Suspect { guid: Guid(guid), parent: Guid(100), state, counts: *counts, limits: Limits::default() }
    }

    fn judge_one(judge: &mut Judge, now_ns: u64, suspect: Suspect) -> Option<LeafState> {
        judge.judge(now_ns, &[suspect]).first().map(|(_, state)| *state)
    }

    fn judge(judge: &mut Judge, seconds: u64, counts: &LeafCounts) -> Option<LeafState> {
        judge_one(judge, seconds * SECOND, suspect(1, LeafState::Online, counts))
    }

    /// If this fails, a dying disk stays in use, or one bad hour costs a good one.
    #[test]
    fn errors_count_when_many_come_in_a_short_time() {
        let mut at_once = Judge::default();
        assert_eq!(judge(&mut at_once, 0, &counts(9, 0, 0)), None, "nine are not too many");
        assert_eq!(judge(&mut at_once, 1, &counts(10, 0, 0)), Some(LeafState::Faulted), "ten are, as for zed");
        let mut slow = Judge::default();
        for error in 0..100 {
            assert_eq!(judge(&mut slow, error * 67, &counts(error, 0, 0)), None, "fewer than one a minute");
        }
        let mut sums = Judge::default();
        assert_eq!(judge(&mut sums, 0, &counts(0, 11, 0)), Some(LeafState::Degraded), "wrong bytes are read around, not refused");
        assert_eq!(judge_one(&mut sums, SECOND, suspect(1, LeafState::Degraded, &counts(0, 12, 0))), None, "once");
        let mut mixed = Judge::default();
        assert_eq!(judge(&mut mixed, 0, &counts(6, 6, 0)), None, "they are counted apart");
    }

    /// If this fails, a disk that is pulled is called faulty, because its last I/Os failed before the system said that it is gone.
    #[test]
    fn a_verdict_waits_whether_the_device_goes() {
        let mut patient = Judge { wait_ns: 2 * SECOND, ..Judge::default() };
        assert_eq!(judge(&mut patient, 0, &counts(10, 0, 0)), None);
        assert_eq!(judge(&mut patient, 1, &counts(10, 0, 0)), None);
        assert_eq!(judge(&mut patient.clone(), 2, &counts(10, 0, 0)), Some(LeafState::Faulted), "it stays, and is bad");
        assert_eq!(judge(&mut patient.clone(), 2, &counts(10, 0, 1)), Some(LeafState::Removed), "it went");
        assert_eq!(judge(&mut patient, 1, &counts(0, 0, 0)), None);
        assert_eq!(judge(&mut patient, 2, &counts(0, 0, 0)), None, "somebody cleared its errors meanwhile");
    }

    /// If this fails, a cable or a controller that hiccups costs a pool all of its devices at once, or two that died together get no spares.
    #[test]
    fn of_several_with_errors_one_is_given_up_at_a_time() {
        let both =
            |first: u64, second: u64| [(1, first), (2, second)].map(|(guid, io)| suspect(guid, LeafState::Online, &counts(io, 0, 0)));
        let mut shared = Judge::default();
        assert_eq!(shared.judge(0, &both(20, 20)), [(Guid(2), LeafState::Faulted)], "one of them");
        let one_left =
            |first: u64| [suspect(1, LeafState::Online, &counts(first, 0, 0)), suspect(2, LeafState::Faulted, &counts(20, 0, 0))];
        assert!(shared.judge(SECOND, &one_left(20)).is_empty(), "that was that");
        assert_eq!(shared.judge(2 * SECOND, &one_left(30)), [(Guid(1), LeafState::Faulted)], "it goes on");
        let mut one_each = Judge::default();
        assert!(one_each.judge(0, &both(9, 1)).is_empty());
        assert!(one_each.judge(SECOND, &both(10, 1)).is_empty(), "the other one had one of late");
        assert!(one_each.judge(700 * SECOND, &both(19, 1)).is_empty());
        assert_eq!(one_each.judge(701 * SECOND, &both(20, 1)), [(Guid(1), LeafState::Faulted)], "that is long ago");
        let mut apart = Judge::default();
        let elsewhere = Suspect { parent: Guid(101), ..suspect(2, LeafState::Online, &counts(5, 0, 0)) };
        assert_eq!(apart.judge(0, &[suspect(1, LeafState::Online, &counts(10, 0, 0)), elsewhere]).len(), 1, "another vdev is no peer");
        let other_kind = suspect(2, LeafState::Online, &counts(0, 5, 0));
        let mut kinds = Judge::default();
        assert_eq!(kinds.judge(0, &[suspect(1, LeafState::Online, &counts(10, 0, 0)), other_kind]).len(), 1, "nor is another trouble");
    }

    /// If this fails, the administrator's own limits are not kept to, or slow disks are given up where nobody asked for it.
    #[test]
    fn limits_are_those_that_are_set() {
        let mut judge = Judge::default();
        let own = Limits { io: Limit::new(2, 1), slow: Some(Limit::new(4, 60)), ..Limits::default() };
        let with = |counts: &LeafCounts| Suspect { limits: own, ..suspect(1, LeafState::Online, counts) };
        assert_eq!(judge_one(&mut judge, 0, with(&counts(1, 0, 0))), None);
        assert_eq!(judge_one(&mut judge, 2 * SECOND, with(&counts(2, 0, 0))), None, "not within a second");
        assert_eq!(judge_one(&mut judge, 3 * SECOND, with(&counts(3, 0, 0))), Some(LeafState::Faulted));
        let slow = |ios| LeafCounts { slow_reports: ios, ..LeafCounts::default() };
        let mut judge = Judge::default();
        assert_eq!(judge_one(&mut judge, 0, suspect(1, LeafState::Online, &slow(1000))), None, "slow I/Os cost nothing by default");
        assert_eq!(judge_one(&mut judge, SECOND, with(&slow(1003))), None, "those from before count no more");
        assert_eq!(judge_one(&mut judge, 2 * SECOND, with(&slow(1004))), Some(LeafState::Degraded));
    }

    /// A property of a whole pool or vdev counts for its disks, unless they have one of their own.
    #[test]
    fn limits_come_from_above() {
        let tree = VdevTree::simple(&[(vdev::TopKind::Mirror, 2)], 12, 1 << 30).expect("valid");
        let mut props = VdevProps::new();
        let mut set = |guid, name: &str, value: &str| {
            props.entry(guid).or_default().insert(name.to_string(), value.to_string());
        };
        set(tree.guid, "io_n", "7");
        set(tree.tops[0].guid, "checksum_t", "8");
        set(tree.leaves[1].guid, "io_n", "none");
        let limits = [0, 1].map(|leaf| Limits::of(&tree, &props, LeafId(leaf)));
        assert_eq!((limits[0].io, limits[0].checksum), (Limit::new(7, 600), Limit::new(10, 8)));
        assert_eq!((limits[1].io, limits[1].slow), (Limit::new(10, 600), None), "none is the default again");
    }

    /// If this fails, a disk that was cleared is thrown out by errors from before.
    #[test]
    fn cleared_errors_are_forgotten() {
        let mut cleared = Judge::default();
        assert_eq!(judge(&mut cleared, 0, &counts(9, 0, 0)), None);
        assert_eq!(judge(&mut cleared, 1, &counts(0, 0, 0)), None);
        assert_eq!(judge(&mut cleared, 2, &counts(5, 0, 0)), None);
        assert_eq!(judge(&mut cleared, 3, &counts(11, 0, 0)), Some(LeafState::Faulted));
    }

    /// If this fails, a disk that comes back is thrown out again because of what it did before.
    #[test]
    fn who_comes_back_begins_anew() {
        let mut back = Judge::default();
        assert_eq!(judge(&mut back, 0, &counts(11, 0, 0)), Some(LeafState::Faulted));
        assert_eq!(judge_one(&mut back, SECOND, suspect(1, LeafState::Faulted, &counts(11, 0, 0))), None);
        assert_eq!(judge(&mut back, 2, &counts(11, 0, 0)), None, "its counters are not cleared yet");
        assert_eq!(judge(&mut back, 3, &counts(12, 0, 0)), None, "one more");
        assert_eq!(judge(&mut back, 4, &counts(23, 0, 0)), Some(LeafState::Faulted), "it has learnt nothing");
    }

    /// If this fails, a disk that is cleared at once, before anybody looked again, is thrown out by the rest of the errors that it had.
    #[test]
    fn what_made_a_judgement_counts_no_more() {
        let mut judged = Judge::default();
        assert_eq!(judge(&mut judged, 0, &counts(12, 0, 0)), Some(LeafState::Faulted));
        assert_eq!(judge(&mut judged, 1, &counts(15, 0, 0)), None, "in use again, and three more");
        assert_eq!(judge(&mut judged, 2, &counts(22, 0, 0)), Some(LeafState::Faulted), "ten more");
    }

    /// If this fails, a disk that was pulled out is asked again and again.
    #[test]
    fn a_device_that_is_not_there_any_more_is_removed() {
        let mut pulled = Judge::default();
        assert_eq!(judge(&mut pulled, 0, &counts(0, 0, 1)), Some(LeafState::Removed));
        assert_eq!(judge(&mut pulled, 1, &counts(0, 0, 1)), None, "nothing new");
        assert_eq!(judge_one(&mut pulled, 0, suspect(1, LeafState::Offline, &counts(50, 50, 9))), None, "what is out of use stays so");
    }

    /// If this fails, a spare comes between a person who declares a device faulted and the replacement that they are about to name; or
    /// a device that fails by itself waits for its spare.
    #[test]
    fn who_declares_a_device_faulted_decides_first() {
        let hold = 10 * SECOND;
        assert!(!is_held_back(0, None, hold), "it failed by itself");
        assert!(is_held_back(7 * SECOND, Some(7 * SECOND), hold) && is_held_back(17 * SECOND - 1, Some(7 * SECOND), hold));
        assert!(!is_held_back(17 * SECOND, Some(7 * SECOND), hold), "nobody came");
        assert!(!is_held_back(7 * SECOND, Some(7 * SECOND), 0), "switched off");
    }

    /// If this fails, the administrator's own decisions bring spares in, or a device has two.
    #[test]
    fn spares_stand_in_for_what_failed_only() {
        let mut tree = VdevTree::simple(&[(vdev::TopKind::Mirror, 2)], 12, 1 << 30).expect("valid");
        let wants = |tree: &VdevTree| wants_spare(tree, &tree.leaves[0]);
        for (state, expected) in [
            (LeafState::Online, false),
            (LeafState::Offline, false),
            (LeafState::Degraded, false),
            (LeafState::Faulted, true),
            (LeafState::Removed, true),
            (LeafState::Missing, true),
        ] {
            tree.leaves[0].state = state;
            assert_eq!(wants(&tree), expected, "{state:?}");
        }
        tree.leaves[0].state = LeafState::Degraded;
        tree.leaves[0].too_many_errors = true;
        assert!(wants(&tree));
        let spare = Leaf { guid: Guid(7), is_spare: true, ..Leaf::default() };
        let spared = tree.attach(vdev::LeafId(0), spare, vdev::Pairing::Spare, Guid(8), ondisk::Txg(9)).expect("attached");
        assert!(!wants(&spared), "it has one");
    }
}
