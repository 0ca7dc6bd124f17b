//! Syncs that are made to fail, each at another of its reads and writes: whoever owns the pool is told which block of which dataset it was,
//! or which device, why, and what to do: by the status, the log and an event.

use crate::common::{BLOCK_BYTES, dataset, devices, exec, host, pattern};
use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use dmu::{DmuError, NewObject, ObjectOwner, Objset, ObjsetHook, OwnerDelta, Tx, USERUSED_OBJECT};
use dsl::{DatasetHandle, TxSpace};
use exec::Mutex;
use kstat::{Event, EventSink, FieldValue, Listing};
use ondisk::{ObjectId, ObjectType, VdevId};
use pool::{ImportOptions, Pool, PoolSpec, Runtime, SyncFailure, TopSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use vdev::{LABEL_START_BYTES, TopKind};
use zap::{CreateOptions, Zap};
use zio::{ErrorKind, ZioError};

/// Datasets besides the pool's own.
const DATASETS: u64 = 6;
/// Blocks of the object in each.
const OBJECT_BLOCKS: u64 = 6;

/// Harm that befalls a device from some I/O on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// Wrong bytes are read.
    Rot,
    /// Reads fail.
    Reads,
    /// Writes and flushes fail.
    Writes,
}

impl Harm {
    fn hits(self, op: &DeviceOp) -> bool {
        matches!(op, DeviceOp::Read(_)) != (self == Harm::Writes)
    }
}

/// Settings and counts of a [`Trap`].
#[derive(Debug, Default)]
struct Set {
    harm: Option<Harm>,
    /// I/Os that still go well.
    left: u64,
    /// I/Os of the kind since it was set.
    seen: u64,
    /// Offsets in bytes of what went wrong.
    hit: Vec<Range<u64>>,
}

/// A disk that goes bad at a given I/O.
#[derive(Debug)]
struct Trap {
    disk: Arc<MemDevice>,
    set: Mutex<Set>,
}

impl Trap {
    fn set(&self, harm: Harm, left: u64) {
        *self.set.lock() = Set { harm: Some(harm), left, ..Set::default() };
    }

    /// Returns the harm that befalls this I/O.
    fn springs(&self, io: &DeviceIo) -> Option<Harm> {
        let mut set = self.set.lock();
        let harm = set.harm.filter(|harm| harm.hits(&io.op))?;
        set.seen += 1;
        if set.left > 0 {
            set.left -= 1;
            return None;
        }
        set.hit.push(io.offset..io.offset + io.op.length_bytes());
        Some(harm)
    }
}

impl BlockDevice for Trap {
    fn submit(&self, io: DeviceIo) {
        match self.springs(&io) {
            None => self.disk.submit(io),
            Some(Harm::Rot) => {
                let DeviceIo { op, offset, then, .. } = io;
                self.disk.submit(DeviceIo::new(op, offset, move |mut reply| {
                    for part in &mut reply.parts {
                        part.iter_mut().step_by(64).for_each(|byte| *byte ^= 0x5A);
                    }
                    then(reply);
                }));
            }
            Some(_) => io.fail(DeviceError::Io),
        }
    }
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

/// Hears events; gives a pool up as soon as it is suspended, after a look at its status.
#[derive(Default)]
struct Ear {
    events: Mutex<Vec<Event>>,
    pool: OnceLock<Weak<Pool>>,
    /// Words that the status said of the suspended pool.
    waits_for: Mutex<Option<String>>,
}

impl EventSink for Ear {
    fn event(&self, event: Event) {
        let is_suspended = event.class == "ereport.fs.zfs.io_failure";
        self.events.lock().push(event);
        if let (true, Some(pool)) = (is_suspended, self.pool.get().and_then(Weak::upgrade)) {
            *self.waits_for.lock() = pool.status().suspended_for;
            pool.zio().abandon();
        }
    }
}

/// Counts the bytes of the one user that there is.
struct Accounts;

impl ObjsetHook for Accounts {
    fn owner(&self, _: ObjectType, _: &[u8], _: Option<&Abd>) -> Option<ObjectOwner> {
        Some(ObjectOwner { uid: 7, gid: 7, project: None })
    }
    fn apply(&self, objset: &Arc<Objset>, deltas: &[OwnerDelta], tx: &Tx) -> Result<(), DmuError> {
        let bytes = deltas.iter().map(|delta| delta.bytes).sum();
        if matches!(objset.hold(USERUSED_OBJECT), Err(DmuError::NoSuchObject)) {
            let options = CreateOptions { claim: Some(USERUSED_OBJECT), ..CreateOptions::new(ObjectType::USERGROUP_USED) };
            zap::create_with(objset, options, tx).map_err(|_| DmuError::Corrupt)?;
        }
        let table = Zap::open(objset.hold(USERUSED_OBJECT)?).map_err(|_| DmuError::Corrupt)?;
        table.increment("7", bytes, tx).map(drop).map_err(|error| match error {
            zap::ZapError::Dmu(error) => error,
            _ => DmuError::Corrupt,
        })
    }
}

fn names() -> Vec<String> {
    (0..DATASETS).map(|number| format!("tank/fs{number}")).collect()
}

fn hold(pool: &Pool, name: &str) -> DatasetHandle {
    let handle = pool.dsl().hold(name).expect("held");
    handle.objset().expect("object set").set_hook(Arc::new(Accounts));
    handle
}

/// Writes the first object of every dataset: some of its blocks, each with another content than before.
fn write(pool: &Pool, blocks: &Range<u64>, seed: u64) {
    for name in names() {
        let handle = hold(pool, &name);
        let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
        let dnode = handle.objset().expect("object set").hold(ObjectId(1)).expect("the first object");
        for block in blocks.clone() {
            dnode.write(block * BLOCK_BYTES as u64, &pattern(seed, block), &tx).expect("written");
        }
    }
}

fn at(snapshot: &str) -> Vec<String> {
    names().into_iter().map(|name| format!("{name}@{snapshot}")).collect()
}

/// A pool with a past on this disk, exported: datasets, snapshots with deadlists, a clone, a scrub that ended.
fn prepare(disk: &Arc<MemDevice>) {
    let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![crate::common::leaf(disk)] }];
    let pool =
        Pool::create(&exec(7), PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset()) }, &Runtime::new()).expect("created");
    for name in names() {
        pool.dsl().create_dataset(&name, dataset()).expect("created");
        let handle = hold(&pool, &name);
        let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
        let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::UINT64_OTHER) };
        assert_eq!(handle.objset().expect("object set").allocate_object(new, &tx).expect("allocated").object(), ObjectId(1));
    }
    for (age, snapshot) in ["a", "b", "c"].into_iter().enumerate() {
        write(&pool, &(0..OBJECT_BLOCKS), age as u64);
        pool.dsl().snapshot(&at(snapshot), Vec::new()).expect("taken");
    }
    pool.dsl().clone_snapshot("tank/clone", "tank/fs1@b", Vec::new()).expect("cloned");
    pool.scrub_start().expect("started");
    pool.sync().expect("synced");
    pool.export().expect("exported");
}

/// A change that a pool is asked for.
type Action = fn(&Pool);

const ACTIONS: [(&str, Action); 8] = [
    ("writes", |_| {}),
    ("snapshots", |pool| drop(pool.dsl().snapshot(&at("d"), Vec::new()))),
    ("snapshots destroyed", |pool| drop(pool.dsl().destroy_snapshots(&at("a"), false))),
    ("a dataset destroyed", |pool| drop(pool.dsl().destroy_dataset("tank/clone"))),
    ("a clone promoted", |pool| drop(pool.dsl().promote("tank/clone"))),
    ("a dataset made", |pool| drop(pool.dsl().create_dataset("tank/new", dataset()))),
    ("a scrub", |pool| drop(pool.scrub_start())),
    ("a property", |pool| drop(pool.set_prop("comment", "words"))),
];

/// Outcome of a sync that was to fail.
struct Outcome {
    /// I/Os that the trap counted.
    seen: u64,
    hit: Vec<Range<u64>>,
    failure: Option<SyncFailure>,
    waits_for: Option<String>,
    events: Vec<Event>,
    log: String,
}

/// A pool that is to fail, and who listens.
struct Stage {
    pool: Arc<Pool>,
    trap: Arc<Trap>,
    ear: Arc<Ear>,
}

/// Messages of the process. One test at a time may look at them.
fn log() -> Arc<impl Listing> {
    logging::keep(Box::new(|| (0, 0))).messages()
}

impl Stage {
    /// The pool on this disk, imported, with changes that are not synced.
    fn open(disk: &Arc<MemDevice>) -> Stage {
        log().clear();
        let trap = Arc::new(Trap { disk: disk.clone(), set: Mutex::default() });
        let ear = Arc::new(Ear::default());
        let runtime = Runtime { events: ear.clone(), ..Runtime::new() };
        let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
        let pool = Arc::new(Pool::import(&exec(8), vec![trap.clone()], &options, &runtime).expect("imported"));
        assert!(ear.pool.set(Arc::downgrade(&pool)).is_ok());
        write(&pool, &(0..2), 100);
        pool.cache().clear();
        Stage { pool, trap, ear }
    }

    /// Asks for a change, syncs, and tells what came of it.
    fn end(self, action: Action) -> Outcome {
        action(&self.pool);
        let synced = self.pool.sync();
        let failure = self.pool.status().sync_failure;
        assert_eq!(failure.is_some(), synced.is_err(), "{failure:?}, {synced:?}");
        if let (Some(block), Err(error)) = (failure.as_ref().and_then(|failure| failure.block), &synced) {
            let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<ZioError>());
            assert_eq!(cause, Some(&block), "{error:?}");
            assert!(dmu::with_causes(error).contains(&block.to_string()), "{}", dmu::with_causes(error));
        }
        drop(self.pool);
        let set = std::mem::take(&mut *self.trap.set.lock());
        let events = std::mem::take(&mut *self.ear.events.lock());
        let waits_for = self.ear.waits_for.lock().take();
        let log = log().lines(0, usize::MAX).expect("kept").0;
        Outcome { seen: set.seen, hit: set.hit, failure, waits_for, events, log }
    }
}

/// The pool's datasets by the number of their object sets.
fn known(disk: &Arc<MemDevice>) -> BTreeMap<u64, String> {
    let stage = Stage::open(disk);
    let all = names().into_iter().chain(["tank".to_string(), "tank/clone".to_string()]);
    all.map(|name| (stage.pool.dsl().hold(&name).expect("held").object(), name)).collect()
}

/// The words for where an error is.
fn place(error: &ZioError) -> String {
    let at = &error.bookmark;
    format!("(objset {} object {} level {} block {}", at.objset, at.object, at.level, at.block)
}

/// The fields of an event that name the block of an error.
fn names_block(event: &Event, error: &ZioError, whose: &str) -> bool {
    let at = &error.bookmark;
    let number = |name: &str| match event.field(name) {
        Some(FieldValue::U64(number)) => i128::from(*number),
        Some(FieldValue::I64(number)) => i128::from(*number),
        _ => i128::MIN,
    };
    number("zio_objset") == i128::from(at.objset.0)
        && number("zio_object") == i128::from(at.object.0)
        && number("zio_level") == i128::from(at.level.0)
        && number("zio_blkid") == i128::from(at.block.0)
        && event.field("dataset") == Some(&FieldValue::Text(whose.to_string()))
}

/// Syncs that failed.
#[derive(Default)]
struct Tally {
    count: usize,
    /// Owners of the blocks that they failed for, in the status's words.
    whose: BTreeSet<String>,
    /// Parts of the sync that failed.
    steps: BTreeSet<&'static str>,
}

impl Tally {
    /// Counts a sync that failed of `kind`, after a look at what is said of it.
    fn count(&mut self, outcome: &Outcome, kind: ErrorKind, datasets: &BTreeMap<u64, String>, what: &str) {
        if let Some(failure) = &outcome.failure {
            self.count += 1;
            self.steps.insert(failure.step);
            self.whose.extend(check(outcome, failure, kind, datasets, what));
        }
    }
}

/// Looks at what status, log and event say of a sync that failed of `kind`; gives whose block it failed for.
fn check(outcome: &Outcome, failure: &SyncFailure, kind: ErrorKind, datasets: &BTreeMap<u64, String>, what: &str) -> Option<String> {
    let status = failure.status();
    let event =
        outcome.events.iter().find(|event| event.class == "ereport.fs.zfs.sync_failed").unwrap_or_else(|| panic!("{what}: no event"));
    let text = |name: &str| match event.field(name) {
        Some(FieldValue::Text(text)) => text.clone(),
        other => panic!("{what}: {name} is {other:?}"),
    };
    let plain = |text: &str| text.replace("\n\t", " ");
    for said in [plain(&status), plain(SyncFailure::ACTION)] {
        assert!(outcome.log.contains(&said), "{what}: the log lacks '{said}': {}", outcome.log);
    }
    assert!(SyncFailure::ACTION.contains("zpool export -f") && text("action") == plain(SyncFailure::ACTION), "{what}");
    assert!(status.contains(&text("why")) && text("why").starts_with(&format!("txg {} ", failure.txg)), "{what}: {status}");
    let devices: &[&str] = if kind == ErrorKind::NoSpace { &[] } else { &["d0"] };
    assert_eq!(failure.devices, devices, "{what}: {status}");
    assert!(devices.is_empty() || (status.contains("devices with errors: d0") && text("devices") == "d0"), "{what}: {status}");
    let Some(block) = failure.block else {
        assert!(matches!(failure.step, "flush" | "labels and uberblock") && status.contains(failure.step), "{what}: {status}");
        assert_eq!(kind, ErrorKind::Io, "{what}: {status}");
        return None;
    };
    let objset = block.bookmark.objset.0;
    let whose = match objset {
        0 => "the pool's own metadata".to_string(),
        objset => format!("'{}'", datasets.get(&objset).map_or("tank/new", String::as_str)),
    };
    assert!(status.contains(&format!("for want of a block of {whose}:")) && status.contains(&place(&block)), "{what}: {status}");
    assert!(block.kind == kind && status.contains(&kind.to_string()), "{what}: {status}");
    assert!(names_block(event, &block, &whose), "{what}: {event:?}");
    let start = block.dva.offset + LABEL_START_BYTES;
    let is_there = outcome.hit.is_empty() || block.dva.is_empty() || outcome.hit.iter().any(|range| range.contains(&start));
    assert!(is_there, "{what}: nothing went wrong at {start:#x}: {status}");
    // What was said while it waited is said of the same block.
    let waited = outcome.events.iter().find(|event| event.class == "ereport.fs.zfs.io_failure");
    if let Some(waited) = waited {
        let said = outcome.waits_for.as_ref().unwrap_or_else(|| panic!("{what}: the status does not say what it waits for"));
        assert!(said.contains(&place(&block)) && said.contains(&whose) && said.contains(&kind.to_string()), "{what}: {said}, {status}");
        assert!(names_block(waited, &block, &whose), "{what}: {waited:?}");
        assert!(matches!(waited.field("why"), Some(FieldValue::Text(why)) if *why == kind.to_string()), "{what}: {waited:?}");
        let todo = waited.field("action") == Some(&FieldValue::Text(zio::SUSPENDED_ACTION.to_string()));
        assert!(todo && outcome.log.contains(&format!("{said}. {}", zio::SUSPENDED_ACTION)), "{what}: {}", outcome.log);
    }
    Some(whose)
}

/// Has syncs fail at every `step`th I/O of a kind.
fn fail_at_each(disk: &Arc<MemDevice>, (name, action): (&str, Action), (harm, step): (Harm, usize), tally: &mut Tally) {
    let datasets = known(disk);
    let image = disk.contents();
    let run = |left: u64| {
        let stage = Stage::open(disk);
        stage.trap.set(harm, left);
        stage.end(action)
    };
    let whole = run(u64::MAX);
    assert_eq!(whole.failure, None, "{name}");
    let kind = if harm == Harm::Rot { ErrorKind::Checksum } else { ErrorKind::Io };
    let (mut is_changed, mut first) = (true, None);
    for left in (0..whole.seen).step_by(step) {
        if is_changed {
            disk.tamper(|bytes| bytes.copy_from_slice(&image));
        }
        let outcome = run(left);
        let what = format!("{name}, {harm:?} after {left} I/Os");
        tally.count(&outcome, kind, &datasets, &what);
        // The first sync that failed before it came to the labels left the pool as it was.
        is_changed =
            outcome.failure.as_ref().is_none_or(|failure| failure.block.is_none() || failure.txg != *first.get_or_insert(failure.txg));
        assert!(harm != Harm::Writes || outcome.failure.is_some() || outcome.hit.is_empty(), "{what}: a sync whose writes fail succeeds");
    }
    disk.tamper(|bytes| bytes.copy_from_slice(&image));
}

/// Has syncs fail for want of space, each with a little more of it than the one before.
fn fail_without_space(disk: &Arc<MemDevice>, tally: &mut Tally) {
    const MORE_BYTES: u64 = 96 << 10;
    let datasets = known(disk);
    for pieces in 0.. {
        let stage = Stage::open(disk);
        let allocator = stage.pool.zio().view().allocator;
        let metaslabs = allocator.metaslab_count(VdevId(0));
        // All but so many bytes at the end of the largest piece.
        let whole: Vec<_> = (0..metaslabs).map(|metaslab| allocator.lend(VdevId(0), metaslab, &(0..u64::MAX), None)).collect();
        let largest =
            whole.iter().flat_map(|loan| loan.segments()).max_by_key(|segment| segment.end - segment.start).expect("some").clone();
        drop(whole);
        let end = largest.end - pieces * MORE_BYTES;
        let windows = [0..end, largest.end..u64::MAX];
        let lent = (0..metaslabs).flat_map(|metaslab| windows.iter().map(move |window| (metaslab, window)));
        let _loans: Vec<_> = lent.map(|(metaslab, window)| allocator.lend(VdevId(0), metaslab, window, None)).collect();
        let outcome = stage.end(|_| {});
        tally.count(&outcome, ErrorKind::NoSpace, &datasets, &format!("{pieces} pieces of space"));
        if outcome.failure.is_none() {
            return;
        }
    }
}

/// If this fails, whoever owns a pool that stopped is not told by everything that speaks of it which block of which dataset it stopped for,
/// or which device, why, and what to do.
#[test]
fn a_sync_that_fails_anywhere_says_where_and_what_to_do() {
    let disk = devices(1).remove(0);
    prepare(&disk);
    let mut all = Tally::default();
    for (name, action) in ACTIONS {
        for harm in [(Harm::Rot, 1), (Harm::Reads, 7), (Harm::Writes, 19)] {
            let before = all.count;
            fail_at_each(&disk, (name, action), harm, &mut all);
            println!("{name}, {:?}: {} syncs failed", harm.0, all.count - before);
        }
    }
    let before = all.count;
    fail_without_space(&disk, &mut all);
    println!(
        "{} syncs failed, {} of them for want of space; in {:?}; for blocks of {:?}",
        all.count,
        all.count - before,
        all.steps,
        all.whose
    );
    assert!(
        all.count >= 200 && all.count >= before + 5,
        "{} syncs failed, {before} of them with space: too few to say anything",
        all.count
    );
    for whose in names().iter().map(|name| format!("'{name}'")).chain(["the pool's own metadata".to_string()]) {
        assert!(all.whose.contains(&whose), "no sync failed for a block of {whose}");
    }
    for step in ["datasets", "sync tasks", "space maps", "the MOS", "labels and uberblock"] {
        assert!(all.steps.contains(step), "no sync failed in '{step}'");
    }
}
