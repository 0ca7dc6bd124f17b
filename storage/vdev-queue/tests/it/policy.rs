//! The scheduler's rules: limits, order, merging, credit, accounting; single rules first, then random programs against all of them.

use crate::world::{MS, Random, SECOND};
use std::collections::{BTreeMap, BTreeSet};
use vdev_queue::{
    Admitted, CLASSES, Class, Device, Dirty, Io, IoId, IoKind, Issue, IssueId, LatencyTarget, Reason, Roam, Scheduler, TunableError,
    Tunables, VdevQueue,
};

const KIB: u64 = 1 << 10;

fn plain() -> Tunables {
    Tunables { latency_target: LatencyTarget::Off, ..Tunables::default() }
}

fn queue(rotational: bool, tunables: Tunables) -> VdevQueue {
    VdevQueue::new(Device { rotational, width: 1 }, tunables)
}

fn kind_of(class: Class) -> IoKind {
    match class {
        Class::SyncWrite | Class::AsyncWrite | Class::Initializing => IoKind::Write,
        Class::Trim => IoKind::Trim,
        _ => IoKind::Read,
    }
}

/// An I/O far from all others.
fn lonely(class: Class, number: u64) -> Io {
    Io::new(class, kind_of(class), number << 30, 4 * KIB)
}

fn drain(queue: &mut VdevQueue, now: u64) -> Vec<Issue> {
    std::iter::from_fn(|| queue.next(now)).collect()
}

/// Users tune pools by these names and documents give these values.
#[test]
fn parameters_have_openzfs_names_and_defaults() {
    let mut tunables = Tunables::default();
    let limits = [("sync_read", 10, 10), ("sync_write", 10, 10), ("async_read", 1, 3), ("async_write", 2, 10), ("scrub", 1, 3)];
    let more = [("removal", 1, 2), ("initializing", 1, 1), ("trim", 1, 2), ("rebuild", 1, 3)];
    for (class, min, max) in limits.into_iter().chain(more) {
        assert_eq!(tunables.get(&format!("zfs_vdev_{class}_min_active")), Some(min), "{class}");
        assert_eq!(tunables.get(&format!("zfs_vdev_{class}_max_active")), Some(max), "{class}");
    }
    let rest = [
        ("zfs_vdev_max_active", 1000),
        ("zfs_vdev_async_write_active_min_dirty_percent", 30),
        ("zfs_vdev_async_write_active_max_dirty_percent", 60),
        ("zfs_vdev_nia_delay", 5),
        ("zfs_vdev_nia_credit", 5),
        ("zfs_vdev_aggregation_limit", 1 << 20),
        ("zfs_vdev_aggregation_limit_non_rotating", 128 << 10),
        ("zfs_vdev_read_gap_limit", 32 << 10),
        ("zfs_vdev_write_gap_limit", 4 << 10),
        ("zio_slow_io_ms", 30_000),
        ("zfs_deadman_enabled", 1),
        ("zfs_deadman_ziotime_ms", 300_000),
    ];
    for (name, value) in rest {
        assert_eq!(tunables.get(name), Some(value), "{name}");
        assert_eq!(tunables.set(name, 0), Ok(()), "{name}");
        assert_eq!(tunables.get(name), Some(0), "{name}");
    }
    assert_eq!(tunables.set("zfs_vdev_scrub_max_active", 7), Ok(()));
    assert_eq!(tunables.limits(Class::Scrub).max, 7);
    assert_eq!(tunables.set("zfs_vdev_scrub_max_active", 1 << 40), Err(TunableError::Invalid));
    assert_eq!(tunables.set("zfs_vdev_failfast_mask", 1), Err(TunableError::Unknown));
}

/// Too many async writes make everybody wait; too few let dirty data pile up until writers stop.
#[test]
fn async_writes_scale_with_dirty_data() {
    let count = |dirty: Dirty| {
        let mut queue = queue(true, plain());
        queue.set_dirty(dirty);
        (0..40).for_each(|number| {
            queue.add(lonely(Class::AsyncWrite, number), 0);
        });
        drain(&mut queue, 0).len()
    };
    let percent = |percent: u64| Dirty { bytes: percent * 10, max_bytes: 1000, sync_task_waits: false };
    let active: Vec<usize> = (0..=100).map(|share| count(percent(share))).collect();
    assert!(active[..30].iter().all(|active| *active == 2), "{active:?}");
    assert!(active[61..].iter().all(|active| *active == 10), "{active:?}");
    assert!(active.windows(2).all(|pair| pair[0] <= pair[1]), "{active:?}");
    assert_eq!((active[30], active[45], active[60]), (2, 6, 10));
    assert_eq!(count(Dirty { sync_task_waits: true, ..percent(1) }), 10);
    assert_eq!(count(Dirty::default()), 10, "nothing is known of dirty data");
}

/// A resilver whose columns are small would leave an NVMe device idle with the three I/Os that OpenZFS gives it, and one that fills the device
/// would let whoever comes next wait.
#[test]
fn background_work_alone_has_what_makes_the_device_faster() {
    // In a millisecond the device answers `at_once` of its I/Os, the oldest first.
    let most = |rotational, tunables: Tunables, class, at_once: usize| {
        let mut queue = queue(rotational, tunables);
        (0..400).for_each(|number| {
            queue.add(Io::new(class, kind_of(class), number << 30, 96 * KIB), 0);
        });
        let mut active = drain(&mut queue, 0);
        for now in (1..=20).map(|step| step * MS) {
            let answered = at_once.min(active.len());
            for issue in active.drain(..answered) {
                queue.done(issue.id, now);
            }
            active.extend(drain(&mut queue, now));
        }
        active.len()
    };
    assert_eq!(most(false, Tunables::default(), Class::Scrub, usize::MAX), 9, "with each more it does more");
    assert_eq!(most(false, Tunables::default(), Class::Scrub, 1), 4, "one at a time is all that it can do");
    assert_eq!(most(true, Tunables::default(), Class::Scrub, usize::MAX), 3);
    assert_eq!(most(false, plain(), Class::Scrub, usize::MAX), 3, "nothing is promised, and OpenZFS's limits hold");
    assert_eq!(most(false, Tunables::default(), Class::Trim, usize::MAX), 2, "whether more trims are faster is not known");
}

fn spans(issues: &[Issue]) -> Vec<(u64, u64, usize)> {
    issues.iter().map(|issue| (issue.offset / KIB, issue.size_bytes / KIB, issue.parts.len())).collect()
}

/// Without merging, small sequential I/O costs an HDD a command each; with too much, one command holds up everybody.
#[test]
fn neighbours_are_merged_within_the_limits() {
    let read = |at, size| Io::new(Class::Scrub, IoKind::Read, at * KIB, size * KIB);
    let merged = |rotational, ios: &[Io]| {
        let mut queue = queue(rotational, plain());
        ios.iter().for_each(|io| {
            queue.add(*io, 0);
        });
        spans(&drain(&mut queue, 0))
    };
    let row: Vec<Io> = (0..16).map(|index| read(index * 128, 128)).collect();
    assert_eq!(merged(true, &row)[0], (0, 1024, 8));
    assert_eq!(merged(false, &row)[0], (0, 128, 1));
    assert_eq!(merged(true, &[read(36, 4), read(0, 4)])[0], (0, 40, 2), "a gap of 32 KiB");
    assert_eq!(merged(true, &[read(0, 4), read(37, 4)])[0], (0, 4, 1), "a gap of 33 KiB");
    assert_eq!(merged(true, &[read(0, 8), read(4, 8)])[0], (0, 8, 1), "overlapping");
    let apart = Io { merge: false, ..read(4, 4) };
    assert_eq!(merged(true, &[read(0, 4), apart])[0], (0, 4, 1));
    let other = Io { flavour: 1, ..read(4, 4) };
    assert_eq!(merged(true, &[read(0, 4), other])[0], (0, 4, 1));
    let write = |at, size| Io::new(Class::AsyncWrite, IoKind::Write, at * KIB, size * KIB);
    assert_eq!(merged(true, &[write(0, 4), write(4, 4)])[0], (0, 8, 2));
    assert_eq!(merged(true, &[write(0, 4), write(5, 4)])[0], (0, 4, 1), "writes have no gaps");
    let class = Io { class: Class::SyncRead, ..read(4, 4) };
    assert_eq!(merged(true, &[read(0, 4), class])[0].2, 1, "another class");
}

/// Padding that nothing follows would be written for nothing; padding between writes saves the device a turn.
#[test]
fn padding_is_written_only_where_it_joins_writes() {
    let write = |at, size| Io::new(Class::AsyncWrite, IoKind::Write, at * KIB, size * KIB);
    let padding = |at, size| Io { optional: true, ..write(at, size) };
    let go = |ios: &[Io]| {
        let mut queue = queue(true, plain());
        ios.iter().for_each(|io| {
            queue.add(*io, 0);
        });
        drain(&mut queue, 0)
    };
    assert_eq!(spans(&go(&[write(0, 4), padding(4, 4), write(8, 4)])), [(0, 12, 3)]);
    let behind = go(&[write(0, 4), padding(4, 4)]);
    assert_eq!(spans(&behind), [(0, 4, 1), (4, 4, 1)]);
    assert!(!behind[0].needless && behind[1].needless);
    assert_eq!(spans(&go(&[padding(0, 4), write(4, 4)]))[0], (4, 4, 1), "padding begins nothing");
    // The limit ends the first I/O inside the padding; what is left of it begins the second, which the device may join to the first.
    let stretched = go(&[write(0, 1020), write(1020, 4), padding(1024, 2), padding(1026, 2), write(1028, 4)]);
    assert_eq!(spans(&stretched), [(0, 1028, 4), (1028, 4, 1)]);
}

/// An HDD lets a random read wait for seconds beside a stream; the credit is what ends that stream.
#[test]
fn credit_bounds_background_beside_interactive_io() {
    let mut queue = queue(true, plain());
    (0..100).for_each(|number| {
        queue.add(lonely(Class::Scrub, number), 0);
    });
    let mut sync = Vec::new();
    for number in 0..2 {
        queue.add(lonely(Class::SyncRead, 200 + number), 0);
    }
    let scrubs = |queue: &mut VdevQueue, sync: &mut Vec<IssueId>| {
        let mut scrubbed = 0;
        loop {
            let issues = drain(queue, 0);
            if issues.is_empty() {
                return scrubbed;
            }
            for issue in issues {
                if issue.class == Class::Scrub {
                    scrubbed += 1;
                    queue.done(issue.id, 0);
                } else {
                    sync.push(issue.id);
                }
            }
        }
    };
    let first = scrubs(&mut queue, &mut sync);
    assert!(first <= 2, "{first} before any interactive I/O came back");
    queue.done(sync.pop().expect("a read"), 0);
    let second = scrubs(&mut queue, &mut sync);
    assert_eq!(second, 5, "after one came back");
    assert_eq!(queue.promise(0).reason, Reason::Credit);
    queue.done(sync.pop().expect("a read"), 0);
    let most = (0..6).map(|_| {
        let issues = drain(&mut queue, 0);
        let active = queue.active(Class::Scrub);
        if let Some(issue) = issues.first() {
            queue.done(issue.id, 0);
        }
        active
    });
    let most: Vec<u32> = most.collect();
    assert_eq!((most[0], most[5]), (1, 3), "one until five came back without interactive I/O, then the maximum");
}

/// Somebody began to wait for a block that was read ahead: it must not wait behind the other reads ahead.
#[test]
fn a_queued_io_changes_class() {
    let mut queue = queue(true, plain());
    let ids: Vec<IoId> = (0..10).map(|number| queue.add(lonely(Class::AsyncRead, number), 0)).collect();
    assert!(queue.change_class(ids[9], Class::SyncRead));
    let issues = drain(&mut queue, 0);
    assert!(issues.iter().any(|issue| issue.class == Class::SyncRead && issue.parts[0].id == ids[9]));
    assert!(!queue.change_class(ids[9], Class::AsyncRead), "the device has it");
    assert_eq!(Class::Scrub.for_kind(IoKind::Write), Class::AsyncWrite);
    assert_eq!(Class::SyncWrite.for_kind(IoKind::Read), Class::AsyncRead);
}

/// A queue in front of an idle NVMe device is pure cost.
#[test]
fn an_idle_device_that_does_not_rotate_bypasses_the_queue() {
    let go = |rotational, scheduler, beside: u64| {
        let mut queue = queue(rotational, Tunables { scheduler, ..plain() });
        (0..beside).for_each(|number| drop(queue.admit(lonely(Class::SyncRead, 10 + number), 0)));
        matches!(queue.admit(lonely(Class::SyncRead, 1), 0), Admitted::Issued(_))
    };
    assert!(go(false, Scheduler::Auto, 0));
    assert!(go(false, Scheduler::Auto, 5000), "only background work waits there");
    assert!(!go(true, Scheduler::Auto, 0));
    assert!(!go(false, Scheduler::On, 0));
    assert!(go(true, Scheduler::Off, 5000), "no scheduler, no limits");
}

/// Who writes and flushes on his own thread must not take what is another's turn, and what he does counts against the limits; as a flush goes with
/// it the promise would think of a slower device than there is.
#[test]
fn who_does_an_io_alone_gets_what_the_queue_would_give() {
    let alone = |queue: &mut VdevQueue, at: u64| queue.admit_alone(lonely(Class::SyncWrite, 1), at);
    let mut tunables = plain();
    for (name, value) in [("zfs_vdev_sync_write_min_active", 1), ("zfs_vdev_sync_write_max_active", 2)] {
        tunables.set(name, value).expect("a parameter");
    }
    let mut queue = queue(true, tunables);
    let first = alone(&mut queue, 0).expect("nothing is about");
    assert_eq!((first.parts.len(), queue.active(Class::SyncWrite)), (1, 1));
    let second = alone(&mut queue, 0).expect("the device has room for two");
    assert_eq!(alone(&mut queue, 0), None, "and for no more");
    queue.add(lonely(Class::SyncWrite, 2), 0);
    assert_eq!(queue.next(0), None, "nor for one that is queued");
    assert_eq!(queue.done(first.id, 20 * MS).map(|ended| ended.device_ns), Some(20 * MS));
    assert_eq!(queue.promise(20 * MS).alone_p99_ns, None, "the time of the flush says nothing of reads");
    assert_eq!(alone(&mut queue, 20 * MS), None, "somebody waits");
    let third = queue.next(20 * MS).expect("his turn");
    assert!([second, third].iter().all(|issue| queue.done(issue.id, 21 * MS).is_some()));
    queue.add(lonely(Class::Scrub, 3), 21 * MS);
    let scrub = queue.next(21 * MS).expect("nobody else is there");
    assert_eq!(alone(&mut queue, 21 * MS), None, "background work is about");
    queue.done(scrub.id, 30 * MS);
    assert!(alone(&mut queue, 30 * MS).is_some());
}

/// Hung and slow devices are found by these counts.
#[test]
fn slow_and_overdue_io_is_told() {
    let mut queue = queue(true, plain());
    (0..3).for_each(|number| {
        queue.add(lonely(Class::SyncRead, number), 0);
    });
    let early = drain(&mut queue, 5 * MS);
    queue.add(lonely(Class::SyncRead, 9), 10 * SECOND);
    let late = drain(&mut queue, 10 * SECOND);
    assert_eq!(queue.overdue(300 * SECOND).count(), 0);
    assert_eq!(queue.overdue(301 * SECOND).map(|io| io.id).collect::<Vec<_>>(), early.iter().map(|issue| issue.id).collect::<Vec<_>>());
    let fast = queue.done(late[0].id, 10 * SECOND + MS).expect("the device had it");
    let slow = queue.done(early[0].id, 31 * SECOND).expect("the device had it");
    assert_eq!((fast.slow, slow.slow, queue.slow_ios()), (false, true, 1));
    assert_eq!(slow.queued_ns, 5 * MS);
    assert_eq!(queue.done(early[0].id, 31 * SECOND), None, "twice");
    queue.set_tunables(Tunables { deadman_enabled: false, ..plain() });
    assert_eq!(queue.overdue(1000 * SECOND).count(), 0);
}

fn end_scrub(queue: &mut VdevQueue, issues: &[Issue], now: u64) {
    let scrub = issues.iter().find(|issue| issue.class == Class::Scrub).expect("a scrub read went out");
    assert!(queue.done(scrub.id, now).is_some());
}

/// "Why is my scrub so slow?" has an answer.
#[test]
fn the_reason_for_holding_background_work_back_is_readable() {
    let mut queue = queue(true, Tunables::default());
    let start = 10 * SECOND;
    (0..10).for_each(|number| {
        queue.add(lonely(Class::Scrub, number), start);
    });
    queue.add(lonely(Class::SyncRead, 100), start);
    let first = drain(&mut queue, start);
    assert_eq!(first.iter().map(|issue| issue.class).collect::<BTreeSet<_>>(), BTreeSet::from([Class::SyncRead, Class::Scrub]));
    let read = first.iter().find(|issue| issue.class == Class::SyncRead).expect("the read went out").id;
    end_scrub(&mut queue, &first, start + 10 * MS);
    assert!(queue.next(start + 10 * MS).is_none());
    assert_eq!(queue.promise(start + 10 * MS).reason, Reason::Yield);
    let starved = queue.wake_at(start + 10 * MS).expect("background work does not wait for ever");
    assert!(starved <= start + 510 * MS);
    let second = drain(&mut queue, start + 510 * MS);
    assert_eq!(second.len(), 1, "half a second without background work is enough");
    end_scrub(&mut queue, &second, start + 520 * MS);
    assert!(queue.next(start + 520 * MS).is_none());
    assert!(queue.done(read, start + 530 * MS).is_some());
    assert_eq!(drain(&mut queue, start + 530 * MS).len(), 1);
    let state = queue.promise(start + 530 * MS);
    assert_eq!((state.reason, state.bound, state.share_milli, state.late), (Reason::Share, true, 1000, 1));
    assert!(queue.next(start + 2 * SECOND).is_none(), "the scrub has its minimum until five came back");
    let state = queue.promise(start + 2 * SECOND);
    assert_eq!((state.reason, state.bound), (Reason::None, false));
}

/// The idle device is seen for a moment, and only for a moment.
#[test]
fn a_pause_for_the_idle_value_is_told_and_ends() {
    let mut queue = queue(false, Tunables::default());
    let start = 10 * SECOND;
    (0..10).for_each(|number| {
        queue.add(lonely(Class::Scrub, number), start);
    });
    assert!(matches!(queue.admit(lonely(Class::SyncRead, 100), start), Admitted::Issued(_)));
    let first = drain(&mut queue, start);
    assert_eq!(first.len(), 1);
    end_scrub(&mut queue, &first, start + MS);
    assert!(queue.next(start + MS).is_none());
    assert_eq!(queue.promise(start + MS).reason, Reason::Calibration);
    assert!(queue.wake_at(start + MS).is_some_and(|ends| ends <= start + 20 * MS), "the pause ends");
    assert!(!drain(&mut queue, start + 20 * MS).is_empty());
}

/// Work that never gets its turn never ends: a scrub, a resilver, the sync of a transaction group.
#[test]
fn no_class_starves_when_all_have_more_than_the_device_can_do() {
    for (rotational, target) in
        [(true, LatencyTarget::Off), (false, LatencyTarget::Off), (true, LatencyTarget::Auto), (false, LatencyTarget::Auto)]
    {
        let mut queue = queue(rotational, Tunables { latency_target: target, max_active: 30, ..Tunables::default() });
        let mut served = [0u32; CLASSES];
        let (mut number, mut now, mut device) = (0, 0, Vec::new());
        while now < 20 * SECOND {
            for class in Class::ALL {
                while queue.queued(class) < 20 {
                    number += 1;
                    queue.add(lonely(class, number), now);
                }
            }
            device.extend(drain(&mut queue, now));
            now += MS;
            let issue = device.remove(0);
            served[issue.class as usize] += 1;
            queue.done(issue.id, now);
        }
        // On an HDD that is never idle the promise leaves two I/Os a second to five background classes: eight each in 20 s.
        assert!(served.iter().all(|served| *served >= 7), "rotational {rotational}, {target:?}: {served:?}");
    }
}

/// Knowledge of a random program about its I/Os.
struct Shadow {
    queue: VdevQueue,
    waiting: BTreeMap<IoId, Io>,
    device: BTreeMap<IssueId, Issue>,
    log: Vec<(u64, u64)>,
}

impl Shadow {
    fn check_limits(&self, rotational: bool) {
        let tunables = self.queue.tunables();
        let alone = if rotational || tunables.latency_target == LatencyTarget::Off { 1 } else { 3 };
        assert!(self.device.len() <= tunables.max_active as usize);
        for class in Class::ALL {
            let active = self.device.values().filter(|issue| issue.class == class).count();
            assert_eq!(active, self.queue.active(class) as usize);
            let times = if class.is_background() && class != Class::Trim { alone } else { 1 };
            assert!(active <= tunables.limits(class).max as usize * times, "{class:?}: {active}");
        }
    }

    /// A class at or above its minimum goes only when no class for which somebody waits is below its own, but for I/Os that wait for
    /// each other on a disk.
    fn check_minimum(&self, issue: &Issue, rotational: bool) {
        let tunables = self.queue.tunables();
        let gathers = rotational && tunables.latency_target != LatencyTarget::Off;
        let below = |class: Class| self.queue.active(class) < tunables.limits(class).min;
        let had = self.queue.active(issue.class) - u32::from(!issue.needless);
        if had >= tunables.limits(issue.class).min {
            let passed = Class::ALL
                .into_iter()
                .filter(|class| class.is_interactive() && *class != Class::Trim && !(gathers && class.is_promised()))
                .find(|class| below(*class) && self.queue.queued(*class) > 0);
            assert_eq!(passed, None, "passed over for {issue:?}");
        }
    }

    fn check_merge(&mut self, issue: &Issue, rotational: bool) {
        let tunables = self.queue.tunables().clone();
        let limit = if rotational { tunables.aggregation_limit } else { tunables.aggregation_limit_non_rotating };
        let mandatory = issue.parts.iter().filter(|part| !part.optional).map(|part| part.offset + part.size_bytes).max();
        let span = mandatory.map_or(0, |end| end - issue.offset);
        assert!(issue.parts.len() == 1 || span <= limit, "{span} bytes in {issue:?}");
        let mut end = issue.offset;
        let flavour = self.waiting[&issue.parts[0].id].flavour;
        for part in &issue.parts {
            let io = self.waiting.remove(&part.id).expect("issued once, and never without being queued");
            assert_eq!((io.kind, io.offset, io.size_bytes, io.flavour), (issue.kind, part.offset, part.size_bytes, flavour));
            assert_eq!(io.class.for_kind(io.kind), issue.class);
            assert!(io.merge || issue.parts.len() == 1);
            let gap = part.offset.checked_sub(end).expect("parts do not overlap");
            assert!(gap == 0 || issue.kind == IoKind::Read && gap <= tunables.read_gap_limit, "a gap of {gap} bytes");
            end = part.offset + part.size_bytes;
        }
        assert_eq!(end, issue.offset + issue.size_bytes);
    }

    fn issue_all(&mut self, now: u64, rotational: bool) {
        while let Some(issue) = self.queue.next(now) {
            self.check_minimum(&issue, rotational);
            self.check_merge(&issue, rotational);
            self.log.push((issue.offset, issue.size_bytes));
            if !issue.needless {
                self.device.insert(issue.id, issue);
            }
            self.check_limits(rotational);
        }
    }
}

fn program(seed: u64) -> Vec<(u64, u64)> {
    let mut random = Random(seed);
    let rotational = random.below(2) == 0;
    let latency_target = [LatencyTarget::Off, LatencyTarget::Auto, LatencyTarget::P99(2 * MS)][random.below(3) as usize];
    let tunables = Tunables { latency_target, max_active: 1 + random.below(60) as u32, ..Tunables::default() };
    let queue = queue(rotational, tunables);
    let mut shadow = Shadow { queue, waiting: BTreeMap::new(), device: BTreeMap::new(), log: Vec::new() };
    let mut now = 0;
    for _ in 0..600 {
        now += random.below(3 * MS);
        for _ in 0..random.below(8) {
            let class = Class::ALL[random.below(CLASSES as u64) as usize];
            let kind = if class == Class::Rebuild && random.below(2) == 0 { IoKind::Write } else { kind_of(class) };
            let mut io = Io::new(class, kind, random.below(400) * 4 * KIB, (1 + random.below(8)) * 4 * KIB);
            io.merge = random.below(10) > 0;
            io.optional = kind == IoKind::Write && random.below(6) == 0;
            io.flavour = u32::from(random.below(8) == 0);
            let id = shadow.queue.add(io, now);
            assert!(shadow.waiting.insert(id, io).is_none());
        }
        shadow.queue.set_roaming(random.below(4) > 0);
        match random.below(8) {
            0 => shadow.queue.give_way(),
            1..4 => drop(shadow.queue.roam(random.below(64 << 20), now)),
            _ => {}
        }
        shadow.queue.set_dirty(Dirty { bytes: random.below(100), max_bytes: 100, sync_task_waits: false });
        shadow.issue_all(now, rotational);
        for _ in 0..random.below(6) {
            let ids: Vec<IssueId> = shadow.device.keys().copied().collect();
            if ids.is_empty() {
                break;
            }
            let id = ids[random.below(ids.len() as u64) as usize];
            shadow.device.remove(&id);
            assert!(shadow.queue.done(id, now).is_some());
        }
    }
    for _ in 0..100_000 {
        shadow.issue_all(now, rotational);
        match shadow.device.pop_first() {
            Some((id, _)) => assert!(shadow.queue.done(id, now).is_some()),
            None if shadow.waiting.is_empty() => break,
            None => now = shadow.queue.wake_at(now).expect("something waits, so there is a time at which it goes on"),
        }
    }
    assert!(shadow.waiting.is_empty(), "seed {seed}: {} I/Os were never issued", shadow.waiting.len());
    shadow.log
}

/// A scan that is told the wrong place seeks across the disk for nothing; one that is never called stands still.
#[test]
fn a_scan_goes_on_where_the_head_is_and_queues_little_ahead() {
    let mut queue = queue(true, Tunables::default());
    queue.set_roaming(true);
    assert_eq!(queue.roam(64 << 20, 0), Roam::Anywhere(None), "nobody uses the device");
    queue.add(lonely(Class::SyncRead, 5), MS);
    let served = drain(&mut queue, MS);
    assert_eq!(served.len(), 1, "nothing else is to be done");
    assert_eq!(queue.roam(64 << 20, MS), Roam::Wait);
    assert!(!queue.wants_roamer(MS));
    assert!(queue.done(served[0].id, 13 * MS).is_some());
    assert!(queue.wants_roamer(13 * MS));
    let head = (5 << 30) + 4 * KIB;
    assert_eq!(queue.roam(64 << 20, 13 * MS), Roam::Anywhere(Some(head)));
    let mut count = 0;
    while queue.roam(64 << 20, 13 * MS) != Roam::Wait {
        queue.add(Io::new(Class::Scrub, IoKind::Read, (6 << 30) + count * 128 * KIB, 128 * KIB), 13 * MS);
        count += 1;
    }
    assert_eq!(count, 16, "two large I/Os");
    let run = drain(&mut queue, 13 * MS);
    assert_eq!(run.len(), 1, "the device has one at a time");
    queue.add(lonely(Class::SyncRead, 7), 14 * MS);
    assert!(queue.done(run[0].id, 20 * MS).is_some());
    assert_eq!(queue.roam(64 << 20, 20 * MS), Roam::Wait, "somebody waits who is due");
    queue.set_roaming(false);
    assert!(!queue.wants_roamer(20 * MS));
}

/// A lost I/O hangs a program for ever; one issued twice, or merged wrongly, corrupts data.
#[test]
fn random_programs_keep_every_rule_and_lose_nothing() {
    let logs: BTreeSet<Vec<(u64, u64)>> = (0..60).map(program).collect();
    assert_eq!(logs.len(), 60);
    let again = program(7);
    assert!(logs.contains(&again), "equal calls give equal answers");
}
