//! Intent logs as they are written here: volumes are written to, some writes are committed, and the power goes off at every write and flush of
//! the devices. What users lose when these fail: what a database was told is safe; or the pool's space, to logs that nobody finds again.

use crate::common::{host, leaf};
use dmu::{DmuError, Dnode};
use dsl::{CreateDataset, DatasetHandle, TxSpace};
use exec::{Exec, Inline};
use ondisk::zil::{LrCloneRange, LrCommon, LrWrite, TxType};
use ondisk::{Field, ObjectId, ObjsetType, Txg, ZilHeader};
use pool::{AddSpec, ImportOptions, Pool, PoolSpec, Runtime, SharedSpace, TopSpec};
use sim::{Event, Fault, FaultKind, Image, OpKind, Recording, Sim, SimDevice, cuts_every};
use std::sync::{Arc, Weak};
use vdev::TopKind;
use zil::{Filled, Itx, Log, LogSource, Payload, Range};

const DEVICE_BYTES: usize = 64 << 20;
const BLOCK_BYTES: u64 = 16 << 10;
const VOLUME_BYTES: u64 = 8 << 20;
const VOLUME: &str = "tank/vol";
const DATA: ObjectId = ObjectId(1);
/// Block that is written directly, with the seventh write.
const DIRECT_BLOCK: u64 = 100;

fn exec() -> Exec {
    Arc::new(Inline::new(11))
}

fn root() -> CreateDataset {
    CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) }
}

fn volume_dataset() -> CreateDataset {
    let properties = vec![("volsize", VOLUME_BYTES), ("volblocksize", BLOCK_BYTES)];
    let mut properties: Vec<_> = properties.into_iter().map(|(name, bytes)| (name.to_string(), bytes.to_string())).collect();
    properties.push(("compression".to_string(), "off".to_string()));
    let init = Box::new(|objset: &Arc<dmu::Objset>, tx: &dmu::Tx| dsl::volume::create(objset, VOLUME_BYTES, BLOCK_BYTES, tx));
    CreateDataset { kind: ObjsetType::ZVOL, properties, init }
}

/// Reader of the volume's bytes for its log.
struct Bytes(Arc<Dnode>);

impl Bytes {
    fn bytes(&self, range: &Range) -> Result<Filled, DmuError> {
        let mut bytes = vec![0; range.length as usize];
        self.0.read(range.offset, &mut bytes)?;
        Ok(Filled::Bytes(bytes))
    }
}

impl LogSource for Bytes {
    fn fill(&self, payload: &Payload, _: Txg) -> Result<Filled, DmuError> {
        match payload {
            Payload::None => Ok(Filled::Nothing),
            Payload::Copied(range) => self.bytes(range),
            Payload::Block(range) => match self.0.written_block(range.offset / BLOCK_BYTES) {
                Some(bp) => Ok(Filled::Block(bp)),
                None => self.bytes(range),
            },
        }
    }
}

/// A volume with its log.
struct Volume {
    handle: DatasetHandle,
    data: Arc<Dnode>,
    log: Arc<dyn Log>,
    _bytes: Arc<Bytes>,
}

impl Volume {
    fn open(pool: &Pool) -> Volume {
        Volume::open_as(pool, VOLUME)
    }

    fn open_as(pool: &Pool, name: &str) -> Volume {
        let handle = pool.dsl().hold(name).expect("held");
        let data = handle.objset().expect("opened").hold(DATA).expect("held");
        let bytes = Arc::new(Bytes(data.clone()));
        let source: Weak<Bytes> = Arc::downgrade(&bytes);
        let log = handle.intent_log(source).expect("a log");
        Volume { handle, data, log, _bytes: bytes }
    }

    /// Writes a pattern, and notes it.
    fn write(&self, Write { offset, length, age }: Write) {
        let tx = self.handle.assign(TxSpace::Writes(length)).expect("assigned");
        self.data.write(offset, &vec![age; length as usize], &tx).expect("written");
        let range = Range { object: DATA, generation: 0, offset, length };
        self.note(Payload::Copied(range), &tx);
    }

    /// Writes a block past the memory, and notes it.
    fn write_direct(&self, block: u64, age: u8) {
        let tx = self.handle.assign(TxSpace::Writes(BLOCK_BYTES)).expect("assigned");
        // The recording of the devices keeps what it is given.
        let bytes = abd::Abd::from_slice(&vec![age; BLOCK_BYTES as usize]);
        self.data.write_direct_abd(block * BLOCK_BYTES, bytes, &tx).expect("written");
        let range = Range { object: DATA, generation: 0, offset: block * BLOCK_BYTES, length: BLOCK_BYTES };
        self.note(Payload::Block(range), &tx);
    }

    fn note(&self, payload: Payload, tx: &dmu::Tx) {
        let (Payload::Copied(range) | Payload::Block(range)) = &payload else { return };
        let common = LrCommon { lrc_txtype: TxType::WRITE.0, lrc_reclen: LrWrite::SIZE as u64, ..LrCommon::ZERO };
        let fixed = LrWrite { lr_common: common, lr_foid: DATA.0, lr_offset: range.offset, lr_length: range.length, ..LrWrite::ZERO };
        assert!(self.log.is_wanted());
        self.log.note(Itx { record: fixed.encode().to_vec(), only_with: None, payload }, tx);
    }

    fn commit(&self) {
        self.log.commit(None).expect("committed");
    }

    /// Has the log on disk begin: the first commits wait for txgs.
    fn begin(&self) {
        for round in 0..3 {
            self.write(Write { offset: 0, length: 4096, age: round });
            self.commit();
        }
    }

    fn header(&self) -> ZilHeader {
        self.handle.objset().expect("opened").zil_header()
    }
}

#[derive(Clone, Copy, Debug)]
struct Write {
    offset: u64,
    length: u64,
    age: u8,
}

/// A pool with a volume, and a log device if wished for.
struct Bench {
    exec: Exec,
    sim: Sim,
    devices: Vec<Arc<SimDevice>>,
    pool: Pool,
}

impl Bench {
    fn new(kind: TopKind, count: usize, has_log: bool) -> Bench {
        let exec = exec();
        let sim = Sim::new(&exec, 5);
        let mut devices: Vec<Arc<SimDevice>> = (0..count).map(|index| sim.device(&format!("d{index}"), DEVICE_BYTES)).collect();
        let tops = vec![TopSpec { kind, leaves: devices.iter().map(leaf).collect() }];
        let spec = PoolSpec { ashift: Some(9), host: host(), ..PoolSpec::new("tank", tops, root()) };
        let pool = Pool::create(&exec, spec, &Runtime::new()).expect("made");
        if has_log {
            let device = sim.device("log", DEVICE_BYTES);
            let logs = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf(&device)] }];
            pool.add(AddSpec { logs, ..AddSpec::default() }).expect("added");
            devices.push(device);
        }
        pool.dsl().create_dataset(VOLUME, volume_dataset()).expect("made");
        Bench { exec, sim, devices, pool }
    }
}

/// Writes of the program with their numbers: of ever larger pieces in places that lie over each other; after some of them a txg is synced.
fn program() -> Vec<Write> {
    let lengths = [4096u64, 100, 9000, 40_000, 512, 200_000, 4096, 70_000, 4096, 130_000, 8192, 4096];
    let place = |index: u64| (index * 52_000) % (VOLUME_BYTES / 8);
    lengths.iter().enumerate().map(|(index, &length)| Write { offset: place(index as u64), length, age: index as u8 + 10 }).collect()
}

/// Runs the program: all is committed, each mark is the number of writes that are safe.
fn record(bench: Bench) -> Recording {
    let Bench { sim, pool, .. } = bench;
    let volume = Volume::open(&pool);
    volume.begin();
    sim.start_recording();
    sim.mark(0);
    for (index, write) in program().into_iter().enumerate() {
        if index == 6 {
            volume.write_direct(DIRECT_BLOCK, 200);
        }
        volume.write(write);
        if index % 3 != 1 {
            volume.commit();
            sim.mark(index as u64 + 1);
        }
        if index % 4 == 3 {
            pool.sync().expect("synced");
            sim.mark(index as u64 + 1);
        }
    }
    volume.commit();
    sim.mark(program().len() as u64);
    drop(volume);
    pool.export().expect("exported");
    sim.take_recording()
}

/// Bytes of the volume after so many writes.
fn contents(done: usize) -> Vec<u8> {
    let mut bytes = vec![0; (VOLUME_BYTES / 4) as usize];
    bytes[..4096].fill(2);
    if done > 6 {
        let start = (DIRECT_BLOCK * BLOCK_BYTES) as usize;
        bytes[start..start + BLOCK_BYTES as usize].fill(200);
    }
    for write in &program()[..done] {
        bytes[write.offset as usize..(write.offset + write.length) as usize].fill(write.age);
    }
    bytes
}

fn check(images: Vec<Image>, least: u64, what: &str) {
    let exec = exec();
    let sim = Sim::new(&exec, 6);
    sim.stop_tracing();
    let devices: Vec<Arc<dyn device::BlockDevice>> = images
        .into_iter()
        .enumerate()
        .map(|(index, image)| sim.device_from(&format!("d{index}"), image) as Arc<dyn device::BlockDevice>)
        .collect();
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let read_only = ImportOptions { read_only: true, ..options.clone() };
    let pool = Pool::import(&exec, devices.clone(), &read_only, &Runtime::new()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}, as it is: {report:?}");
    drop(pool);
    let pool = Pool::import(&exec, devices, &options, &Runtime::new()).unwrap_or_else(|error| panic!("{what}, writable: {error}"));
    let data = pool.dsl().hold(VOLUME).expect("held").objset().expect("opened").hold(DATA).expect("held");
    let mut bytes = vec![0; (VOLUME_BYTES / 4) as usize];
    data.read(0, &mut bytes).expect("read");
    // A write that was not committed may be there in part: its record was divided.
    let is_state = |done: u64| {
        let (now, next) = (contents(done as usize), contents((done as usize + 1).min(program().len())));
        bytes.iter().zip(now.iter().zip(&next)).all(|(byte, (now, next))| byte == now || byte == next)
    };
    assert!((least..=program().len() as u64).any(is_state), "{what}: what was committed ({least} writes) is not there");
    drop(data);
    assert!(pool.replayed().iter().all(|log| log.failure.is_none()), "{what}: {:?}", pool.replayed());
    let volume = Volume::open(&pool);
    volume.begin();
    volume.write(Write { offset: 4 << 20, length: 5000, age: 99 });
    volume.commit();
    drop(volume);
    pool.sync().expect("synced");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}, after more work: {report:?}");
    pool.export().expect("exported");
}

fn cut(bench: Bench, what: &str, every: usize) {
    let recording = record(bench);
    recording.each_cut((cuts_every(every), 0), &mut |cut| {
        let least = cut.mark.unwrap_or(0);
        cut.each_image(0, &mut |choice, images| check(images, least, &format!("{what} cut {} {choice:?}", cut.events)));
    });
}

#[test]
fn what_was_committed_survives_power_cuts() {
    cut(Bench::new(TopKind::Leaf, 1, false), "one disk", 7);
}

#[test]
fn what_was_committed_to_a_log_device_survives_power_cuts() {
    cut(Bench::new(TopKind::Leaf, 1, true), "log device", 7);
}

/// If this fails, a disk that is written and flushed in one step keeps less of a log than one that is flushed on its own.
#[test]
fn what_was_committed_in_one_step_survives_power_cuts() {
    for (has_log, what) in [(false, "one disk in one step"), (true, "log device in one step")] {
        let bench = Bench::new(TopKind::Leaf, 1, has_log);
        bench.sim.set_writes_durably();
        cut(bench, what, 13);
    }
}

#[test]
fn what_was_committed_to_raidz_survives_power_cuts() {
    cut(Bench::new(TopKind::Raidz(1), 3, false), "raidz", 29);
}

/// Number of writes and flushes of each device that an action costs.
fn cost(bench: &Bench, action: impl FnOnce()) -> Vec<(usize, usize)> {
    bench.sim.start_recording();
    action();
    let recording = bench.sim.take_recording();
    let count = |index: usize| {
        let of = |event: &&Event| matches!(event, Event::Write { device, .. } if *device == index);
        let flushes = |event: &&Event| matches!(event, Event::Flushed { device, .. } if *device == index);
        (recording.events().iter().filter(of).count(), recording.events().iter().filter(flushes).count())
    };
    (0..bench.devices.len()).map(count).collect()
}

/// If this fails, every fsync of a database waits for more than it must.
#[test]
fn a_commit_costs_one_write_and_one_flush() {
    for (has_log, in_one_step) in [(false, false), (true, false), (false, true), (true, true)] {
        let bench = Bench::new(TopKind::Leaf, 1, has_log);
        if in_one_step {
            bench.sim.set_writes_durably();
        }
        let volume = Volume::open(&bench.pool);
        volume.begin();
        volume.write(Write { offset: 4096, length: 4096, age: 1 });
        volume.commit();
        let (before, flushes) = (bench.pool.txg(), usize::from(!in_one_step));
        for age in 0..5 {
            volume.write(Write { offset: 8192, length: 4096, age });
            let costs = cost(&bench, || volume.commit());
            let expected = if has_log { vec![(0, 0), (1, flushes)] } else { vec![(1, flushes)] };
            assert_eq!(costs, expected, "commit {age}");
        }
        volume.write_direct(20, 9);
        assert_eq!(cost(&bench, || volume.commit())[0].1, 1, "the device of the data is flushed");
        assert!(cost(&bench, || volume.commit()).iter().all(|cost| *cost == (0, 0)), "nothing is new");
        assert_eq!(bench.pool.txg(), before, "no txg was waited for");
        let _ = &bench.exec;
    }
}

/// If this fails, whoever wants log devices kept for others (`logbias=throughput`) shares them.
#[test]
fn a_log_spares_log_devices_where_it_is_told_to() {
    let bench = Bench::new(TopKind::Leaf, 1, true);
    let volume = Volume::open(&bench.pool);
    volume.begin();
    for (value, used) in [("throughput", [1, 0]), ("latency", [0, 1])] {
        volume.handle.set_props(&[("logbias".to_string(), value.to_string())]).expect("set");
        // The block that waits was allocated before.
        for age in 0..2 {
            volume.write(Write { offset: 8192, length: 4096, age });
            volume.commit();
        }
        let before = bench.pool.txg();
        volume.write(Write { offset: 8192, length: 4096, age: 3 });
        let costs = cost(&bench, || volume.commit());
        assert_eq!([costs[0].0, costs[1].0], used, "{value}");
        assert_eq!(bench.pool.txg(), before, "{value}: no txg was waited for");
    }
}

/// If this fails, an exported pool still has a log, or one of its datasets that is gone.
#[test]
fn logs_end_with_their_dataset_and_with_the_pool() {
    let bench = Bench::new(TopKind::Leaf, 1, true);
    let volume = Volume::open(&bench.pool);
    volume.begin();
    volume.write(Write { offset: 8192, length: 300_000, age: 1 });
    volume.commit();
    assert_ne!(volume.header(), ZilHeader::default());
    assert!(bench.pool.dsl().destroy_dataset(VOLUME).is_err(), "it is in use");
    drop(volume);
    bench.pool.dsl().destroy_dataset(VOLUME).expect("destroyed");
    while bench.pool.dsl().has_frees() {
        bench.pool.sync().expect("synced");
    }
    assert!(bench.pool.verify_space().expect("readable").is_clean(), "after a destroy");
    bench.pool.dsl().create_dataset(VOLUME, volume_dataset()).expect("made");
    let volume = Volume::open(&bench.pool);
    volume.begin();
    let log = bench.pool.tree().tops[1].guid;
    bench.pool.remove_top(log).expect("a log device can be removed while logs are in use");
    volume.begin();
    volume.write(Write { offset: 8192, length: 300_000, age: 1 });
    volume.commit();
    assert!(!volume.header().zh_log.is_hole(), "a log began on the data device");
    drop(volume);
    let Bench { exec, devices, pool, .. } = bench;
    pool.export().expect("exported");
    let devices: Vec<Arc<dyn device::BlockDevice>> = devices.into_iter().map(|device| device as Arc<dyn device::BlockDevice>).collect();
    let options = ImportOptions { host: host(), read_only: true, ..ImportOptions::default() };
    let pool = Pool::import(&exec, devices, &options, &Runtime::new()).expect("imported");
    let header = pool.dsl().hold(VOLUME).expect("held").objset().expect("opened").zil_header();
    assert_eq!(header, ZilHeader::default());
    assert!(pool.verify_space().expect("readable").is_clean(), "after an export");
}

/// If this fails, what was made durable before a rollback is replayed into what it went back to, or the log's space is lost, or somebody else's.
#[test]
fn a_log_ends_with_what_a_rollback_gives_up() {
    let bench = Bench::new(TopKind::Leaf, 1, true);
    let (dsl, snapshot) = (bench.pool.dsl(), format!("{VOLUME}@s"));
    let volume = Volume::open(&bench.pool);
    volume.begin();
    // The object set that it goes back to names a log, too.
    dsl.snapshot(std::slice::from_ref(&snapshot), Vec::new()).expect("taken");
    volume.write(Write { offset: 8192, length: 300_000, age: 9 });
    volume.commit();
    assert_ne!(volume.header(), ZilHeader::default());
    assert!(dsl.rollback(&snapshot).is_err(), "it is in use");
    drop(volume);
    for round in 0..2 {
        dsl.rollback(&snapshot).expect("went back");
        while dsl.has_frees() {
            bench.pool.sync().expect("synced");
        }
        assert!(bench.pool.verify_space().expect("readable").is_clean(), "round {round}");
        let volume = Volume::open(&bench.pool);
        assert_eq!(volume.header(), ZilHeader::default(), "round {round}");
        let mut byte = [1];
        volume.data.read(8192, &mut byte).expect("read");
        assert_eq!(byte, [0], "round {round}");
        volume.begin();
        volume.write(Write { offset: 8192, length: 300_000, age: 10 });
        volume.commit();
    }
}

/// If this fails, a copy that shares blocks and that OpenZFS made durable is gone after a crash, or has what came there since, or the blocks are
/// nobody's for good.
#[test]
fn what_a_record_shares_is_there_after_a_crash() {
    let Bench { exec, sim: _sim, devices, pool } = Bench::new(TopKind::Leaf, 1, false);
    let (from, to, length) = (16 * BLOCK_BYTES, 64 * BLOCK_BYTES, 4 * BLOCK_BYTES);
    let volume = Volume::open(&pool);
    volume.begin();
    volume.write(Write { offset: from, length, age: 7 });
    pool.sync().expect("synced");
    let first = from / BLOCK_BYTES;
    let pointers = volume.data.settled_blocks(first..first + 4).expect("readable").expect("on disk");
    {
        // As OpenZFS notes it (`zvol_log_clone_range`); two records have the same blocks.
        let tx = volume.handle.assign(TxSpace::Writes(length)).expect("assigned");
        for offset in [to, to + length] {
            let reclen = (LrCloneRange::SIZE + pointers.len() * ondisk::BlockPtr::BYTES) as u64;
            let lr_common = LrCommon { lrc_txtype: TxType::CLONE_RANGE.0, lrc_reclen: reclen, ..LrCommon::ZERO };
            let range = LrCloneRange { lr_common, lr_foid: DATA.0, lr_offset: offset, lr_length: length, ..LrCloneRange::ZERO };
            let fixed = LrCloneRange { lr_blksz: BLOCK_BYTES, lr_nbps: pointers.len() as u64, ..range };
            let record = pointers.iter().fold(fixed.encode().to_vec(), |bytes, bp| [&bytes[..], &bp.encode()[..]].concat());
            volume.log.note(Itx { record, only_with: None, payload: Payload::None }, &tx);
        }
    }
    // What they were goes, and its place with it.
    volume.write(Write { offset: from, length, age: 9 });
    volume.commit();
    drop(volume);
    drop(pool);
    let devices: Vec<Arc<dyn device::BlockDevice>> = devices.into_iter().map(|device| device as Arc<dyn device::BlockDevice>).collect();
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    for round in 0..2 {
        let pool = Pool::import(&exec, devices.clone(), &options, &Runtime::new()).expect("imported");
        if round == 0 {
            let [log] = pool.replayed() else { panic!("one log is replayed: {:?}", pool.replayed()) };
            assert!(log.records >= 3 && log.failure.is_none(), "{log:?}");
        }
        let data = pool.dsl().hold(VOLUME).expect("held").objset().expect("opened").hold(DATA).expect("held");
        for (offset, age) in [(from, 9), (to, 7), (to + length, 7)] {
            let mut bytes = vec![0; length as usize];
            data.read(offset, &mut bytes).expect("read");
            assert!(bytes.iter().all(|byte| *byte == age), "round {round}, at {offset}");
        }
        drop(data);
        assert_eq!(pool.shared_space(), SharedSpace::default(), "round {round}: the log's references went with it");
        assert!(pool.verify_space().expect("readable").is_clean(), "round {round}");
        pool.export().expect("exported");
    }
}

/// If this fails, a log device that dies takes with it what was committed, or every fsync that comes after.
#[test]
fn a_log_device_that_fails_costs_time_and_nothing_else() {
    for (op, in_one_step) in [(OpKind::Write, false), (OpKind::Flush, false), (OpKind::Write, true)] {
        let bench = Bench::new(TopKind::Leaf, 1, true);
        if in_one_step {
            bench.sim.set_writes_durably();
        }
        let volume = Volume::open(&bench.pool);
        volume.begin();
        volume.write(Write { offset: 8192, length: 4096, age: 1 });
        volume.commit();
        bench.sim.arm(Fault::always(FaultKind::Error(device::DeviceError::Io)).only(op).on(1));
        let before = bench.pool.txg();
        volume.write(Write { offset: 8192, length: 4096, age: 2 });
        volume.commit();
        assert!(bench.pool.txg() > before, "{op:?}: the txg was waited for");
        let failed = dsl::FailedLog { dataset: VOLUME.to_string(), error: dmu::BlockError::Io };
        assert_eq!(bench.pool.status().failed_logs, [failed], "{op:?}: the owner of the pool is told which log, and why");
        for age in 3..20 {
            volume.write(Write { offset: 8192, length: 4096, age });
            volume.commit();
        }
        bench.sim.disarm();
        for age in 20..30 {
            volume.write(Write { offset: 8192, length: 4096, age });
            volume.commit();
        }
        let before = bench.pool.txg();
        volume.write(Write { offset: 8192, length: 4096, age: 40 });
        volume.commit();
        assert_eq!(bench.pool.txg(), before, "{op:?}: it is logged again");
        assert!(bench.pool.status().failed_logs.is_empty(), "{op:?}");
        let images: Vec<Image> = bench.devices.iter().map(|device| device.image()).collect();
        drop(volume);
        drop(bench);
        let exec = exec();
        let sim = Sim::new(&exec, 8);
        let devices = images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image) as _).collect();
        let options = ImportOptions { host: host(), ..ImportOptions::default() };
        let pool = Pool::import(&exec, devices, &options, &Runtime::new()).expect("imported");
        let mut bytes = [0; 4096];
        let data = pool.dsl().hold(VOLUME).expect("held").objset().expect("opened").hold(DATA).expect("held");
        data.read(8192, &mut bytes).expect("read");
        assert_eq!(bytes, [40; 4096], "{op:?}");
        pool.sync().expect("synced");
        assert!(pool.verify_space().expect("readable").is_clean(), "{op:?}");
    }
}

/// If this fails, what was written while `sync=disabled` is missing below what was made durable after it.
#[test]
fn nothing_is_logged_on_top_of_what_was_not() {
    let bench = Bench::new(TopKind::Leaf, 1, false);
    let volume = Volume::open(&bench.pool);
    volume.begin();
    let set = |value: &str| volume.handle.set_props(&[("sync".to_string(), value.to_string())]).expect("set");
    set("disabled");
    assert!(!volume.log.is_wanted());
    let tx = volume.handle.assign(TxSpace::Writes(4096)).expect("assigned");
    volume.data.write(0, &[7; 4096], &tx).expect("written");
    drop(tx);
    let before = bench.pool.txg();
    volume.commit();
    assert_eq!(bench.pool.txg(), before, "nobody waits");
    set("standard");
    let tx = volume.handle.assign(TxSpace::Writes(4096)).expect("assigned");
    assert!(volume.log.is_wanted());
    drop(tx);
    let before = bench.pool.txg();
    volume.write(Write { offset: 8192, length: 4096, age: 3 });
    volume.commit();
    assert!(bench.pool.txg() > before, "the txg is waited for once");
    volume.write(Write { offset: 8192, length: 4096, age: 4 });
    let before = bench.pool.txg();
    volume.commit();
    assert_eq!(bench.pool.txg(), before, "and then it is logged");
}

/// If this fails, a log device that somebody took out of use keeps the pool from being imported after a crash, or a lost one does so for ever.
#[test]
fn a_pool_goes_on_without_a_log_device_that_is_away() {
    let bench = Bench::new(TopKind::Leaf, 1, true);
    let volume = Volume::open(&bench.pool);
    volume.begin();
    volume.write(Write { offset: 8192, length: 4096, age: 1 });
    volume.commit();
    let images = |count: usize| bench.devices.iter().take(count).map(|device| device.image()).collect::<Vec<_>>();
    let import = |images: Vec<Image>, missing_log: bool| {
        let exec = exec();
        let sim = Sim::new(&exec, 8);
        let devices = images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image) as _).collect();
        Pool::import(&exec, devices, &ImportOptions { host: host(), missing_log, ..ImportOptions::default() }, &Runtime::new())
    };
    let lost = images(1);
    assert!(import(lost.clone(), false).is_err(), "what was committed may be on it");
    let idle = |images: Vec<Image>| {
        let exec = exec();
        let sim = Sim::new(&exec, 8);
        let devices = images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image) as _).collect();
        Pool::import(&exec, devices, &ImportOptions { host: host(), missing_idle_log: true, ..ImportOptions::default() }, &Runtime::new())
    };
    assert!(idle(lost.clone()).is_err(), "a daemon that comes back must not give up what was committed");
    let pool = import(lost, true).expect("without what was on it");
    pool.sync().expect("synced");
    assert_eq!(Volume::open(&pool).header(), ZilHeader::default());
    drop(pool);
    let leaf = bench.pool.tree().leaves[1].guid;
    bench.pool.offline(leaf, false).expect("out of use");
    let pool = import(images(2), false).expect("nothing is on it any more");
    let mut bytes = [0; 4096];
    Volume::open(&pool).data.read(8192, &mut bytes).expect("read");
    assert_eq!(bytes, [1; 4096]);
    drop(pool);
    for age in 2..6 {
        volume.write(Write { offset: 8192, length: 4096, age });
        volume.commit();
    }
    let pool = import(images(2), false).expect("the log is elsewhere");
    Volume::open(&pool).data.read(8192, &mut bytes).expect("read");
    assert_eq!(bytes, [5; 4096]);
}

/// If this fails, programs that make everything durable fill a pool with what its logs say, and the txg that they told of cannot be written: the
/// pool writes nothing any more.
#[test]
fn logs_leave_a_full_pool_the_room_that_its_data_need() {
    const PIECE: u64 = 128 << 10;
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Raidz(1), 3)] {
        let bench = Bench::new(kind, count, false);
        let names: Vec<String> = (0..24).map(|number| format!("tank/full{number}")).collect();
        names.iter().for_each(|name| bench.pool.dsl().create_dataset(name, volume_dataset()).expect("made"));
        let volumes: Vec<Volume> = names.iter().map(|name| Volume::open_as(&bench.pool, name)).collect();
        volumes.iter().for_each(Volume::begin);
        let mut pieces = (0..VOLUME_BYTES / PIECE).flat_map(|piece| volumes.iter().map(move |volume| (volume, piece * PIECE)));
        let is_full = pieces.any(|(volume, offset)| {
            let Ok(tx) = volume.handle.assign(TxSpace::Writes(PIECE)) else { return true };
            volume.data.write(offset, &vec![(offset / PIECE) as u8 + 1; PIECE as usize], &tx).expect("written");
            volume.note(Payload::Copied(Range { object: DATA, generation: 0, offset, length: PIECE }), &tx);
            drop(tx);
            volume.commit();
            false
        });
        assert!(is_full, "{kind:?}");
        assert!(!bench.pool.txgs().has_failed(), "{kind:?}: a txg could not be written");
        bench.pool.sync().expect("synced");
        volumes.iter().for_each(Volume::commit);
        assert!(bench.pool.verify_space().expect("readable").is_clean(), "{kind:?}");
    }
}
