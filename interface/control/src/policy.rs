//! What the daemon does about devices without being asked (the role of OpenZFS's `zed`): a device with too many errors is taken
//! out of use, one that went away is removed, a spare takes the place of either, and one that came back is used again.
//!
//! Deciding is a pure function of counters and time ([`Judge`]); acting goes through the pool as a command would. Each pool has a
//! thread of its own, so that one that is suspended keeps no other from its spares.

use crate::{Control, OpenPool};
use exec::Exec;
use ondisk::Guid;
use pool::{Pool, PoolError, Spare};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Weak};
use vdev::{Leaf, LeafKind, LeafState, VdevTree};
use zio::{FailMode, IoKind, LeafCounts};

/// Between two looks at a pool's devices.
const STEP_NS: u64 = 250_000_000;
/// Between two looks whether devices are back, or grew.
const LOOKS: u64 = 8;
/// How often a spare is tried for one device.
const TRIES: u32 = 5;
/// More than so many errors … (OpenZFS: the vdev properties `io_n` and `checksum_n`, as `zed` has them by default)
const ERRORS_MAX: usize = 10;
/// … within this time are too many (`io_t`, `checksum_t`).
const WINDOW_NS: u64 = 600_000_000_000;

/// The last errors of one kind (OpenZFS: `zed`'s SERD engines).
#[derive(Clone, Debug, Default)]
struct Engine {
    seen: u64,
    times: VecDeque<u64>,
}

impl Engine {
    /// Takes the counter as it is now; true when there were too many of late.
    fn fires(&mut self, now_ns: u64, count: u64) -> bool {
        let new = count.saturating_sub(self.seen).min(ERRORS_MAX as u64 + 1);
        if new == 0 && count == self.seen {
            return false;
        }
        // Cleared counters begin anew.
        if count < self.seen {
            self.times.clear();
        }
        self.seen = count;
        self.times.extend((0..new).map(|_| now_ns));
        while self.times.len() > ERRORS_MAX + 1 {
            self.times.pop_front();
        }
        self.times.len() > ERRORS_MAX && self.times.front().is_some_and(|first| now_ns - first <= WINDOW_NS)
    }
}

/// What is known of a leaf's errors.
#[derive(Clone, Debug, Default)]
struct Record {
    io: Engine,
    checksum: Engine,
    gone: u64,
}

/// Judges leaves by their counters.
#[derive(Clone, Debug, Default)]
struct Judge(BTreeMap<Guid, Record>);

impl Judge {
    /// The state that a leaf in use deserves; None when it may stay as it is.
    fn judge(&mut self, now_ns: u64, guid: Guid, state: LeafState, counts: &LeafCounts) -> Option<LeafState> {
        let record = self.0.entry(guid).or_default();
        let failed = [IoKind::Read, IoKind::Write, IoKind::Flush].iter().map(|kind| counts.errors[*kind as usize]).sum();
        let (io, checksum) = (record.io.fires(now_ns, failed), record.checksum.fires(now_ns, counts.checksum_errors));
        let is_gone = counts.gone > std::mem::replace(&mut record.gone, counts.gone);
        if !state.is_usable() {
            // Judged, or out of use for another reason: what it did before counts no more when it comes back.
            (record.io.times, record.checksum.times) = Default::default();
        }
        match state {
            LeafState::Online | LeafState::Degraded if is_gone => Some(LeafState::Removed),
            LeafState::Online | LeafState::Degraded if io => Some(LeafState::Faulted),
            LeafState::Online if checksum => Some(LeafState::Degraded),
            _ => None,
        }
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

/// Looks after one pool until it is closed.
struct Keeper {
    control: Weak<Control>,
    open: Weak<OpenPool>,
    judge: Judge,
    /// How often a spare was tried for a leaf since it went bad.
    served: BTreeMap<Guid, u32>,
}

impl Control {
    /// Begins to look after a pool.
    pub(crate) fn keep(self: &Arc<Self>, open: &Arc<OpenPool>) {
        if open.is_read_only() {
            return;
        }
        let mut keeper =
            Keeper { control: Arc::downgrade(self), open: Arc::downgrade(open), judge: Judge::default(), served: BTreeMap::new() };
        let exec: Exec = self.exec.clone();
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
}

impl Keeper {
    /// One look; false when there is nobody to look after any more.
    fn turn(&mut self, turn: u64) -> bool {
        let (Some(control), Some(open)) = (self.control.upgrade(), self.open.upgrade()) else { return false };
        let pool = open.pool();
        if control.is_stopping() {
            return false;
        }
        if pool.zio().is_suspended() {
            if pool.zio().view().facts.fail_mode == FailMode::Panic {
                eprintln!(
                    "pool '{}' has encountered an uncorrectable I/O failure and its failmode is set to panic: it is closed",
                    open.name()
                );
                let name = open.name();
                drop(open);
                control.give_up(&name);
                return false;
            }
            return true;
        }
        self.judge_leaves(pool);
        self.serve(&control, &open, turn);
        if turn.is_multiple_of(LOOKS)
            && let Err(error) = self.look_again(&control, &open)
        {
            eprintln!("{}: cannot use what is there again: {error}", open.name());
        }
        true
    }

    fn judge_leaves(&mut self, pool: &Pool) {
        let now_ns = pool.exec().now_ns();
        for leaf in &pool.tree().leaves {
            let counts = pool.zio().leaf_stats_of(leaf.guid).counts();
            if let Some(state) = self.judge.judge(now_ns, leaf.guid, leaf.state, &counts) {
                let _ = pool.judge(leaf.guid, state);
            }
        }
    }

    /// Puts a spare in the place of every leaf that went bad. One that cannot come now is tried again a few times.
    fn serve(&mut self, control: &Control, open: &OpenPool, turn: u64) {
        let tree = open.pool().tree();
        let wanting: Vec<&Leaf> = tree.leaves.iter().filter(|leaf| wants_spare(&tree, leaf)).collect();
        self.served.retain(|guid, _| wanting.iter().any(|leaf| leaf.guid == *guid));
        for leaf in wanting {
            let tried = self.served.entry(leaf.guid).or_default();
            if *tried >= TRIES || (*tried > 0 && !turn.is_multiple_of(LOOKS)) {
                continue;
            }
            *tried += 1;
            let spares = open.pool().spares();
            let mut free = spares.iter().filter(|spare| !spare.in_use && control.pool_using(spare.guid).is_none()).peekable();
            if free.peek().is_none() {
                // Spares that are added later are for what fails later.
                *tried = TRIES;
            }
            for spare in free {
                match bring_spare(control, open.pool(), leaf.guid, spare) {
                    Ok(()) => break,
                    Err(error) => eprintln!("{}: spare {} cannot stand in for {}: {error}", open.name(), spare.path, leaf.path),
                }
            }
        }
    }

    /// Uses devices again that came back, and the room of those that grew.
    fn look_again(&mut self, control: &Control, open: &OpenPool) -> Result<(), PoolError> {
        open.pool().autoexpand()?;
        let tree = open.pool().tree();
        let gone = |leaf: &&Leaf| matches!(leaf.state, LeafState::Missing | LeafState::Removed) && leaf.kind != LeafKind::DraidSpare;
        let there = |leaf: &&Leaf| Path::new(&leaf.path).exists() && !open.pool().zio().is_injected_gone(leaf.guid);
        for leaf in tree.leaves.iter().filter(gone).filter(there) {
            let Ok(device) = control.open_device(&leaf.path, false, "") else { continue };
            if pool::label_guid(open.pool().exec(), &device) == Some(leaf.guid) {
                open.pool().online(leaf.guid, Some(device))?;
            } else if open.pool().has_switch("autoreplace")? && control.is_blank(&device) {
                let kind = if device.facts().whole_disk { LeafKind::Disk } else { LeafKind::File };
                let new = pool::LeafSpec { path: leaf.path.clone(), kind, device };
                // Nobody can be asked whether what others put there may go.
                if control.check_contents(std::slice::from_ref(&new), None, false).is_err() {
                    continue;
                }
                open.pool().attach(leaf.guid, &new, vdev::Pairing::Replacing, false)?;
            }
        }
        Ok(())
    }
}

/// Opens a spare's device and lets it stand in for the leaf.
fn bring_spare(control: &Control, pool: &Pool, leaf: Guid, spare: &Spare) -> Result<(), PoolError> {
    if spare.is_distributed() {
        return pool.spare_in(leaf, spare.guid, None, true);
    }
    let device = control.open_device(&spare.path, false, "").map_err(|_| PoolError::NoSuchDevice)?;
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
        LeafCounts { errors: [0, io, 0, 0], checksum_errors: checksum, gone, ..LeafCounts::default() }
    }

    fn judge(judge: &mut Judge, seconds: u64, counts: &LeafCounts) -> Option<LeafState> {
        judge.judge(seconds * SECOND, Guid(1), LeafState::Online, counts)
    }

    /// If this fails, a dying disk stays in use, or one bad hour costs a good one.
    #[test]
    fn errors_count_when_many_come_in_a_short_time() {
        let mut at_once = Judge::default();
        assert_eq!(judge(&mut at_once, 0, &counts(10, 0, 0)), None, "ten are not too many");
        assert_eq!(judge(&mut at_once, 1, &counts(11, 0, 0)), Some(LeafState::Faulted));
        let mut slow = Judge::default();
        for error in 0..100 {
            assert_eq!(judge(&mut slow, error * 61, &counts(error, 0, 0)), None, "one a minute");
        }
        let mut sums = Judge::default();
        assert_eq!(judge(&mut sums, 0, &counts(0, 11, 0)), Some(LeafState::Degraded), "wrong bytes are read around, not refused");
        assert_eq!(sums.judge(SECOND, Guid(1), LeafState::Degraded, &counts(0, 12, 0)), None, "once");
        let mut mixed = Judge::default();
        assert_eq!(judge(&mut mixed, 0, &counts(6, 6, 0)), None, "they are counted apart");
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
        assert_eq!(back.judge(SECOND, Guid(1), LeafState::Faulted, &counts(11, 0, 0)), None);
        assert_eq!(judge(&mut back, 2, &counts(11, 0, 0)), None, "its counters are not cleared yet");
        assert_eq!(judge(&mut back, 3, &counts(12, 0, 0)), None, "one more");
        assert_eq!(judge(&mut back, 4, &counts(23, 0, 0)), Some(LeafState::Faulted), "it has learnt nothing");
    }

    /// If this fails, a disk that was pulled out is asked again and again.
    #[test]
    fn a_device_that_is_not_there_any_more_is_removed() {
        let mut pulled = Judge::default();
        assert_eq!(judge(&mut pulled, 0, &counts(0, 0, 1)), Some(LeafState::Removed));
        assert_eq!(judge(&mut pulled, 1, &counts(0, 0, 1)), None, "nothing new");
        assert_eq!(pulled.judge(0, Guid(1), LeafState::Offline, &counts(50, 50, 9)), None, "what is out of use stays so");
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
