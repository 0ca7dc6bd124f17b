//! Two hosts that reach the same devices, in virtual time: whoever has a pool with `multihost=on` shows it all the time, whoever wants it looks first, and
//! who can't show it stops writing. What the user loses when these fail: the pool, as two hosts write it at once.

use crate::common::{BLOCKS, check, create_under, dataset, devices, guids, host, leaf, new_object, opened, write};
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Inline, Mutex};
use ondisk::label::{LABELS, RING_OFFSET, label_offset, ring_slot_bytes, ring_slots};
use ondisk::{ByteOrder, ObjectId, Uberblock};
use pool::{Host, ImportOptions, MultihostTunables, Pool, PoolError, PoolSpec, Runtime, TopSpec, find_pools};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use vdev::TopKind;
use zio::{Fault, LeafFault};

const SECOND_NS: u64 = 1_000_000_000;
const ASHIFT: u32 = 9;

fn inline(seed: u64) -> Exec {
    Arc::new(Inline::new(seed))
}

/// Options of a second host that imports by force.
fn elsewhere() -> ImportOptions {
    ImportOptions { host: Host { id: 2, name: "other".to_string() }, force: true, ..ImportOptions::default() }
}

/// Uberblocks of a device with the numbers of their slots.
fn slots(device: &MemDevice) -> Vec<(usize, Uberblock)> {
    let bytes = device.contents();
    let slot_bytes = ring_slot_bytes(ASHIFT);
    let at = |label: usize, slot: usize| label_offset(bytes.len() as u64, label) as usize + RING_OFFSET + slot * slot_bytes;
    let all = (0..LABELS).flat_map(|label| (0..ring_slots(ASHIFT)).map(move |slot| (label, slot)));
    let read = |(label, slot): (usize, usize)| match Uberblock::decode_slot(&bytes[at(label, slot)..][..slot_bytes]) {
        Ok(Some((ub, ByteOrder::Little))) => Some((slot, ub)),
        _ => None,
    };
    all.filter_map(read).collect()
}

/// If this fails, a heartbeat is written over the newest uberblock, or nobody sees it.
#[test]
fn heartbeats_and_txgs_have_slots_of_their_own() {
    let (exec, disks) = (inline(3), devices(2));
    let pool = create_under(&exec, &disks, TopKind::Mirror);
    pool.sync().expect("synced");
    assert!(disks.iter().flat_map(|disk| slots(disk)).all(|(_, ub)| ub.mmp_valid() && ub.ub_mmp_delay == 0 && ub.ub_mmp_config == 0));
    assert!(pool.beat() > 0, "nothing is to be written yet");
    pool.set_prop("multihost", "on").expect("set");
    pool.tune_multihost(MultihostTunables { history: 500, ..MultihostTunables::default() });
    let last = ring_slots(ASHIFT) - 1;
    for _ in 0..ring_slots(ASHIFT) + 3 {
        pool.sync_forced().expect("synced");
        exec.sleep_ns(pool.beat());
    }
    for disk in &disks {
        let (beats, txgs): (Vec<_>, Vec<_>) = slots(disk).into_iter().partition(|(slot, _)| *slot == last);
        assert_eq!(beats.len(), LABELS, "each label had one");
        for (_, ub) in &beats {
            assert!(ub.mmp_sequence() > Some(0) && ub.ub_mmp_delay > 0, "{ub:?}");
            assert_eq!((ub.mmp_interval_ms(), ub.mmp_fail_intervals()), (Some(1000), Some(10)));
        }
        // Those from before the property was set had the whole ring.
        let newest = pool.txg().0 - last as u64;
        let with_property = txgs.iter().filter(|(_, ub)| ub.ub_txg > newest);
        with_property.for_each(|(slot, ub)| assert_eq!((*slot as u64, ub.mmp_sequence()), (ub.ub_txg % last as u64, Some(0))));
    }
    let beats = kstat::Listing::lines(&**pool.heartbeats(), 0, usize::MAX).expect("all are there").0;
    assert_eq!(beats.lines().count(), ring_slots(ASHIFT) + 3);
    let found = find_pools(&inline(4), opened(&disks));
    assert_eq!(found[0].damaged_uberblocks(), 0);
    // Turned off, nobody has to wait for anything.
    pool.set_prop("multihost", "off").expect("set");
    drop(pool);
    let other = inline(5);
    let pool = Pool::import(&other, opened(&disks), &elsewhere(), &Runtime::new()).expect("imported");
    assert!(other.now_ns() < SECOND_NS);
    pool.export().expect("exported");
}

/// A device that another host has, too: whenever this one reads, the other one goes on for a while.
struct Shared {
    disk: Arc<MemDevice>,
    other: Weak<Pool>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl BlockDevice for Shared {
    fn submit(&self, io: DeviceIo) {
        if let (DeviceOp::Read(_), Some(other)) = (&io.op, self.other.upgrade()) {
            other.exec().sleep_ns(other.beat());
        }
        self.disk.submit(io);
    }
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

/// If this fails, `zpool import -f` destroys a pool that another host has open, or a dead host's pool can't be had.
#[test]
fn an_import_looks_whether_another_host_lives() {
    let disks = devices(2);
    let pool = Arc::new(create_under(&inline(3), &disks, TopKind::Mirror));
    let object = new_object(&pool);
    pool.set_prop("multihost", "on").expect("set");
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    let shared = |disk: &Arc<MemDevice>| Arc::new(Shared { disk: disk.clone(), other: Arc::downgrade(&pool) }) as Arc<dyn BlockDevice>;
    for (force, read_only) in [(true, false), (false, false), (true, true)] {
        let options = ImportOptions { force, read_only, ..elsewhere() };
        let refused = Pool::import(&inline(5), disks.iter().map(shared).collect(), &options, &Runtime::new()).err();
        let expected = PoolError::Active { hostid: host().id, hostname: host().name };
        assert_eq!(refused, Some(expected), "force {force}, read-only {read_only}");
    }
    let nobody = ImportOptions { host: Host::default(), ..elsewhere() };
    let refused = Pool::import(&inline(5), opened(&disks), &nobody, &Runtime::new()).err();
    assert_eq!(refused, Some(PoolError::NoHostid), "whoever has no id can't be told from others");
    // For those who only look.
    let options = ImportOptions { read_only: true, skip_activity: true, ..elsewhere() };
    drop(Pool::import(&inline(5), disks.iter().map(shared).collect(), &options, &Runtime::new()).expect("looked at"));
    check(&pool, object, &[1; BLOCKS as usize], "the one who has it goes on");
    pool.sync_forced().expect("synced");
    drop(pool);

    // It is dead now.
    let without = ImportOptions { force: false, ..elsewhere() };
    let refused = Pool::import(&inline(6), opened(&disks), &without, &Runtime::new()).err();
    assert!(matches!(refused, Some(PoolError::InUse { hostid: 1, .. })), "{refused:?}");
    let other = inline(6);
    let pool = Pool::import(&other, opened(&disks), &elsewhere(), &Runtime::new()).expect("imported");
    // The look, and three claims.
    assert!((23 * SECOND_NS..29 * SECOND_NS).contains(&other.now_ns()), "{} ns", other.now_ns());
    check(&pool, object, &[1; BLOCKS as usize], "nothing is lost");
    pool.sync().expect("synced");
    drop(pool);
    // And so is the second one; it knows its own pool.
    let again = inline(7);
    let own = ImportOptions { force: false, ..elsewhere() };
    let pool = Pool::import(&again, opened(&disks), &own, &Runtime::new()).expect("its own");
    assert!(again.now_ns() < SECOND_NS);
    assert_eq!(pool.has_switch("multihost"), Ok(true));
    pool.export().expect("exported");
    // What was exported is nobody's: whoever had it last has it at once, and others claim it.
    for (seed, options, seconds) in [(8, elsewhere(), 0), (9, ImportOptions { host: host(), ..elsewhere() }, 3)] {
        let next = inline(seed);
        let pool = Pool::import(&next, opened(&disks), &ImportOptions { force: false, ..options }, &Runtime::new()).expect("imported");
        pool.export().expect("exported");
        assert_eq!(next.now_ns() / SECOND_NS, seconds);
    }
}

/// Something that is done once.
type Once = Box<dyn FnOnce() + Send>;

/// A device on which another host does something of its own as soon as this one has written.
struct Raced {
    disk: Arc<MemDevice>,
    other: Mutex<Option<Once>>,
}

impl std::fmt::Debug for Raced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raced").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl BlockDevice for Raced {
    fn submit(&self, io: DeviceIo) {
        let is_write = matches!(io.op, DeviceOp::Write(_));
        self.disk.submit(io);
        let other = self.other.lock().take_if(|_| is_write);
        if let Some(other) = other {
            other();
        }
    }
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

/// A pool whose host died, or exported it, and an object in it.
fn left_behind(is_exported: bool) -> (Vec<Arc<MemDevice>>, ObjectId) {
    let disks = devices(2);
    let pool = create_under(&inline(3), &disks, TopKind::Mirror);
    let object = new_object(&pool);
    pool.set_prop("multihost", "on").expect("set");
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    match is_exported {
        true => pool.export().expect("exported"),
        false => drop(pool),
    }
    (disks, object)
}

/// Has a third host import a pool, which sees nobody else.
fn third_host(disks: &[Arc<MemDevice>]) -> Pool {
    let options = ImportOptions { host: Host { id: 3, name: "third".to_string() }, ..elsewhere() };
    Pool::import(&inline(7), opened(disks), &options, &Runtime::new()).expect("nobody else is seen")
}

/// Checks that another host was refused the pool that the third one has, and that it goes on.
fn check_third(refused: Option<PoolError>, third: Pool, object: ObjectId, what: &str) {
    assert_eq!(refused, Some(PoolError::Active { hostid: 3, hostname: "third".to_string() }), "{what}");
    check(&third, object, &[1; BLOCKS as usize], what);
    third.sync_forced().expect("synced");
    third.export().expect("exported");
}

/// If this fails, two hosts that import a pool at the same moment both have it, after their host before died or exported it.
#[test]
fn of_two_hosts_that_begin_together_one_has_the_pool() {
    for is_exported in [false, true] {
        let (disks, object) = left_behind(is_exported);
        // The third host looks, claims and imports while the second one is at its first claim: nothing of it was to be seen before.
        let (winner, of_third) = (Arc::new(Mutex::new(None)), disks.clone());
        let won = winner.clone();
        let third: Once = Box::new(move || *won.lock() = Some(third_host(&of_third)));
        let raced: Arc<dyn BlockDevice> = Arc::new(Raced { disk: disks[0].clone(), other: Mutex::new(Some(third)) });
        let devices = opened(&disks[1..]).into_iter().chain([raced]).collect();
        let refused = Pool::import(&inline(6), devices, &elsewhere(), &Runtime::new()).err();
        let third = winner.lock().take().expect("it got that far");
        check_third(refused, third, object, &format!("exported: {is_exported}"));
    }
}

/// If this fails, a host that comes back to its own pool writes to it although another one took it a moment ago.
#[test]
fn a_host_that_comes_back_sees_who_took_its_pool_meanwhile() {
    for is_exported in [false, true] {
        let (disks, object) = left_behind(is_exported);
        let first = inline(6);
        let found = find_pools(&first, opened(&disks));
        let third = third_host(&disks);
        let own = ImportOptions { host: host(), ..ImportOptions::default() };
        let refused = Pool::open(&first, &found[0], &own, &Runtime::new()).err();
        check_third(refused, third, object, &format!("exported: {is_exported}"));
    }
}

/// If this fails, a host takes a pool whose devices it cannot write to, and where others cannot see it.
#[test]
fn what_cannot_be_claimed_is_not_imported() {
    let disks = devices(2);
    let pool = create_under(&inline(3), &disks, TopKind::Mirror);
    pool.set_prop("multihost", "on").expect("set");
    pool.export().expect("exported");
    let handles = cuttable(&disks);
    handles[0].is_cut.store(true, Ordering::Release);
    let refused = Pool::import(&inline(6), opened(&handles), &elsewhere(), &Runtime::new()).err();
    assert_eq!(refused, Some(PoolError::Unclaimed), "another host may see this device only");
    Pool::import(&inline(7), opened(&disks[1..]), &elsewhere(), &Runtime::new())
        .expect("a pool that lost a device can be had")
        .export()
        .expect("exported");
}

/// A device of which nothing can be written while it is away.
#[derive(Debug)]
struct Cut {
    disk: Arc<MemDevice>,
    is_cut: AtomicBool,
}

impl BlockDevice for Cut {
    fn submit(&self, io: DeviceIo) {
        let is_write = matches!(io.op, DeviceOp::Write(_));
        if is_write && self.is_cut.load(Ordering::Acquire) { io.fail(DeviceError::Io) } else { self.disk.submit(io) }
    }
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

fn cuttable(disks: &[Arc<MemDevice>]) -> Vec<Arc<Cut>> {
    disks.iter().map(|disk| Arc::new(Cut { disk: disk.clone(), is_cut: AtomicBool::new(false) })).collect()
}

/// Makes a mirror with `multihost=on`.
fn protected(exec: &Exec, handles: &[Arc<Cut>], tunables: MultihostTunables) -> Pool {
    let tops = vec![TopSpec { kind: TopKind::Mirror, leaves: handles.iter().map(leaf).collect() }];
    let runtime = Runtime { multihost: tunables, ..Runtime::new() };
    let pool = Pool::create(exec, PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset()) }, &runtime).expect("created");
    pool.set_prop("multihost", "on").expect("set");
    pool
}

/// Writes heartbeats for so long.
fn live(pool: &Pool, time_ns: u64) {
    let until = pool.exec().now_ns() + time_ns;
    while pool.exec().now_ns() < until {
        pool.exec().sleep_ns(pool.beat());
    }
}

/// If this fails, a host that lost its devices goes on with a pool that another host has taken over.
#[test]
fn a_pool_without_heartbeats_is_suspended_and_stays_so_when_another_host_took_it() {
    let disks = devices(2);
    let (exec, handles) = (inline(3), cuttable(&disks));
    let pool = protected(&exec, &handles, MultihostTunables::default());
    live(&pool, 30 * SECOND_NS);
    handles[0].is_cut.store(true, Ordering::Release);
    live(&pool, 30 * SECOND_NS);
    assert!(!pool.zio().is_suspended(), "the other one has them");
    handles[1].is_cut.store(true, Ordering::Release);
    live(&pool, 8 * SECOND_NS);
    assert!(!pool.zio().is_suspended());
    live(&pool, 4 * SECOND_NS);
    assert!(pool.zio().is_suspended() && pool.status().has_missed_heartbeats);
    // The devices are back; nobody else was there.
    handles.iter().for_each(|handle| handle.is_cut.store(false, Ordering::Release));
    let begun = exec.now_ns();
    pool.make_sure_of_devices().expect("nobody else wrote");
    assert!((20 * SECOND_NS..26 * SECOND_NS).contains(&(exec.now_ns() - begun)));
    assert!(!pool.zio().is_suspended() && !pool.status().has_missed_heartbeats);
    pool.clear(None).expect("cleared");
    pool.sync_forced().expect("synced");
    live(&pool, 15 * SECOND_NS);
    assert!(!pool.zio().is_suspended());

    handles.iter().for_each(|handle| handle.is_cut.store(true, Ordering::Release));
    live(&pool, 12 * SECOND_NS);
    assert!(pool.zio().is_suspended());
    let second = Pool::import(&inline(6), opened(&disks), &elsewhere(), &Runtime::new()).expect("taken over");
    second.sync_forced().expect("synced");
    handles.iter().for_each(|handle| handle.is_cut.store(false, Ordering::Release));
    let before: Vec<_> = disks.iter().map(|disk| disk.contents()).collect();
    assert_eq!(pool.make_sure_of_devices(), Err(PoolError::ActiveElsewhere));
    live(&pool, 5 * SECOND_NS);
    pool.zio().resume();
    assert!(pool.zio().is_suspended());
    drop(pool);
    assert!(disks.iter().map(|disk| disk.contents()).eq(before), "the first host wrote to it");
    second.export().expect("exported");
}

/// If this fails, nobody can try out what slow devices do to heartbeats, or sees that some were left out.
#[test]
fn heartbeats_that_are_kept_back_leave_out_others() {
    let (clock, disks) = (Arc::new(Inline::new(3)), devices(2));
    let exec: Exec = clock.clone();
    let pool = create_under(&exec, &disks, TopKind::Mirror);
    pool.tune_multihost(MultihostTunables { history: 500, ..MultihostTunables::default() });
    pool.set_prop("multihost", "on").expect("set");
    for (id, leaf) in guids(&pool).into_iter().enumerate() {
        let delay = LeafFault::Delay { leaf, delay_ns: 2 * SECOND_NS, lanes: 10, kind: None };
        pool.zio().inject(id as u64, Fault::Leaf(delay), 0);
    }
    for _ in 0..12 {
        exec.sleep_ns(pool.beat());
        clock.run_ready();
    }
    let beats = kstat::Listing::lines(&**pool.heartbeats(), 0, usize::MAX).expect("all are there").0;
    let left_out = beats.lines().filter(|line| line.ends_with(" -")).count();
    assert!(left_out >= 2 && beats.lines().count() > left_out + 2, "{beats}");
    assert!(!pool.zio().is_suspended(), "they come late, and not too late");
}

/// If this fails, what waits for a pool that was suspended for want of heartbeats never ends, or is lost.
#[test]
fn what_waited_goes_on_when_it_is_sure_that_nobody_else_was_there() {
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let disks = devices(2);
    let handles = cuttable(&disks);
    let tunables = MultihostTunables { interval_ms: 200, fail_intervals: 10, ..MultihostTunables::default() };
    let pool = Arc::new(protected(&exec, &handles, tunables));
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    handles.iter().for_each(|handle| handle.is_cut.store(true, Ordering::Release));
    write(&pool, object, 0..BLOCKS, 2);
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let is_in_time = (0..60_000).any(|_| {
            exec.sleep_ns(1_000_000);
            is_so()
        });
        assert!(is_in_time, "{what} does not come");
    };
    until("the fence", &|| pool.zio().is_fenced());
    let waiter = pool.clone();
    let synced = exec.spawn_operation("sync", Box::new(move || waiter.sync().expect("synced in the end")));
    handles.iter().for_each(|handle| handle.is_cut.store(false, Ordering::Release));
    // Nobody resumes it without a look.
    pool.clear(None).expect("tried");
    assert!(pool.zio().is_suspended());
    pool.make_sure_of_devices().expect("nobody else wrote");
    pool.clear(None).expect("cleared");
    synced.join();
    check(&pool, object, &[2; BLOCKS as usize], "after the wait");
    assert!(!pool.zio().is_suspended());
    Arc::into_inner(pool).expect("nobody else has it").export().expect("exported");
}
