//! Streams made by hand, into pools in memory: what is received, and that nothing of what fails is seen by anybody.

mod both_ways;
mod heal;
mod kept;
mod numbers;
mod raw;
mod redacted;

use crate::{ReceiveError, Receiver, Target};
use device::{BlockDevice, MemDevice};
use dsl::{CreateDataset, DslError, TxSpace};
use exec::{Exec, Inline};
use nvlist::NvList;
use ondisk::{ObjectId, ObjectType, ObjsetType};
use pool::{Host, ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::sync::Arc;
use stream::{
    Begin, Features, Free, FreeObjects, HeaderType, Object, Reader, Record, StreamName, TO_END, Write, WriteEmbedded, Writer, begin_flags,
    begin_list,
};
use vdev::{LeafKind, TopKind};

const BLOCK: usize = 4096;
const KIND: u32 = 19;
const ODD: &str = "a stream that contradicts the format";

fn exec(seed: u64) -> Exec {
    Arc::new(Inline::new(seed))
}

fn host() -> Host {
    Host { id: 1, name: "testhost".to_string() }
}

fn pool_on(device: &Arc<MemDevice>) -> Pool {
    pool_with(device, false)
}

/// A pool of which everything is encrypted, or nothing.
fn pool_with(device: &Arc<MemDevice>, is_encrypted: bool) -> Pool {
    let leaf = LeafSpec { path: "d0".to_string(), kind: LeafKind::File, device: device.clone() };
    let properties = [("encryption", "on"), ("keyformat", "raw")].map(|(name, value)| (name.to_string(), value.to_string()));
    let properties = properties.into_iter().filter(|_| is_encrypted).collect();
    let root = CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) };
    let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
    let key = is_encrypted.then(|| dsl::Secret::copy_of(&[7; 32]));
    Pool::create(&exec(7), PoolSpec { host: host(), key, ..PoolSpec::new("tank", tops, root) }, &Runtime::new()).expect("created")
}

fn pool() -> Pool {
    pool_on(&Arc::new(MemDevice::new("d0", 80 << 20)))
}

type Records = Vec<(Record, Vec<u8>)>;

fn object(number: u64, blksz: usize, bonus: &[u8]) -> (Record, Vec<u8>) {
    let mut payload = bonus.to_vec();
    payload.resize(bonus.len().next_multiple_of(8), 0);
    let record = Object {
        object: number,
        kind: KIND,
        bonustype: u32::from(ObjectType::UINT64_OTHER.0),
        blksz: blksz as u32,
        bonuslen: bonus.len() as u32,
        dn_slots: 1,
        ..Object::default()
    };
    (Record::Object(record), payload)
}

fn write(number: u64, offset: u64, byte: u8) -> (Record, Vec<u8>) {
    let record = Write { object: number, kind: KIND, offset, logical_size: BLOCK as u64, ..Write::default() };
    (Record::Write(record), vec![byte; BLOCK])
}

fn free(number: u64, offset: u64, length: u64) -> (Record, Vec<u8>) {
    (Record::Free(Free { object: number, offset, length, ..Free::default() }), Vec::new())
}

fn free_objects(firstobj: u64, numobjs: u64) -> (Record, Vec<u8>) {
    (Record::FreeObjects(FreeObjects { firstobj, numobjs, ..FreeObjects::default() }), Vec::new())
}

fn head(from: u64, to: u64, features: Features) -> Begin {
    Begin {
        versioninfo: features.versioninfo(HeaderType::Substream),
        creation_time: 1_000,
        kind: ObjsetType::OTHER.0 as u32,
        flags: begin_flags::FREERECORDS | begin_flags::SPILL_BLOCK,
        toguid: to,
        fromguid: from,
        toname: StreamName::new("other/fs@s").expect("short"),
        ..Begin::default()
    }
}

fn stream_of(begin: Begin, list: Option<&NvList>, records: &[(Record, Vec<u8>)]) -> Vec<u8> {
    let to = begin.toguid;
    let mut writer = Writer::new(Vec::new());
    writer.begin(begin, list).expect("memory takes all");
    records.iter().for_each(|(record, payload)| writer.record(record, payload).expect("memory takes all"));
    writer.end(to).expect("memory takes all");
    writer.into_sink()
}

fn stream(from: u64, to: u64, records: &[(Record, Vec<u8>)]) -> Vec<u8> {
    stream_of(head(from, to, Features::default()), None, records)
}

fn target(snapshot: &str) -> Target {
    Target { name: "tank/fs".to_string(), snapshot: snapshot.to_string(), ..Target::default() }
}

fn receive(pool: &Pool, bytes: &[u8], target: &Target) -> Result<(), ReceiveError> {
    let (mut reader, mut payload) = (Reader::new(bytes), Vec::new());
    let Some(Record::Begin(begin)) = reader.read_record(&mut payload)? else { panic!("no head") };
    let list = begin_list(&payload).expect("a list");
    Receiver::begin(pool.dsl(), &begin, &list, target, &|_| {})?.run(&mut reader)
}

/// Objects of a dataset: number, block size, bonus, and the first blocks.
fn contents(pool: &Pool, name: &str) -> Vec<(u64, usize, Vec<u8>, Vec<u8>)> {
    let objset = pool.dsl().hold(name).expect("held").objset().expect("an object set");
    let (mut found, mut after) = (Vec::new(), ObjectId(0));
    while let Some(object) = objset.next_object(after).expect("listed") {
        let dnode = objset.hold(object).expect("held");
        let mut data = vec![0; 4 * BLOCK];
        dnode.read(0, &mut data).expect("read");
        found.push((object.0, dnode.info().expect("known").block_size, dnode.bonus().expect("known").to_vec(), data));
        after = object;
    }
    found
}

fn snapshots(pool: &Pool) -> Vec<String> {
    pool.dsl().snapshots("tank/fs").expect("listed").into_iter().map(|snapshot| snapshot.name).collect()
}

fn full() -> Records {
    vec![
        free_objects(0, 5),
        object(5, BLOCK, &[1; 16]),
        free(5, 2 * BLOCK as u64, TO_END),
        write(5, 0, 0xA1),
        write(5, BLOCK as u64, 0xA2),
        free_objects(6, 1),
        object(7, 512, &[2; 8]),
        free(7, 512, TO_END),
        (
            Record::WriteEmbedded(WriteEmbedded {
                object: 7,
                length: 512,
                compression: 2,
                lsize: 64,
                psize: 64,
                ..WriteEmbedded::default()
            }),
            vec![0xB1; 64],
        ),
        free_objects(8, 24),
    ]
}

fn increment() -> Records {
    vec![object(5, BLOCK, &[3; 16]), write(5, BLOCK as u64, 0xA3), free_objects(6, 3), object(9, BLOCK, &[4; 8]), write(9, 0, 0xC1)]
}

/// A pool with tank/fs@a, which came as a full stream.
fn received() -> Pool {
    let pool = pool();
    receive(&pool, &stream(0, 0xA, &full()), &target("a")).expect("received");
    pool
}

fn check(pool: &Pool) {
    pool.sync().expect("synced");
    assert!(pool.verify_space().expect("readable").is_clean(), "space is what can be reached");
}

/// If this fails, what comes back from a backup is not what went into it.
#[test]
fn what_is_sent_is_there() {
    let pool = received();
    let first = contents(&pool, "tank/fs@a");
    assert_eq!(first, contents(&pool, "tank/fs"));
    assert_eq!(first.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [5, 7]);
    let blocks = |data: &[u8]| [data[0], data[BLOCK], data[2 * BLOCK]];
    assert_eq!((blocks(&first[0].3), &first[0].2[..]), ([0xA1, 0xA2, 0], &[1; 16][..]));
    assert_eq!((first[1].1, first[1].3[63], first[1].3[64]), (512, 0xB1, 0));
    let handle = pool.dsl().hold("tank/fs@a").expect("held");
    assert_eq!((handle.guid(), handle.creation_time(), handle.is_inconsistent()), (0xA, 1_000, false));
    drop(handle);

    receive(&pool, &stream(0xA, 0xB, &increment()), &target("b")).expect("received");
    assert_eq!(contents(&pool, "tank/fs@a"), first, "the older snapshot stays what it was");
    let second = contents(&pool, "tank/fs");
    assert_eq!(second, contents(&pool, "tank/fs@b"));
    assert_eq!(second.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [5, 9]);
    assert_eq!((blocks(&second[0].3), &second[0].2[..]), ([0xA1, 0xA3, 0], &[3; 16][..]));
    assert_eq!(snapshots(&pool), ["a", "b"]);
    assert!(pool.dsl().partial_receive("tank/fs").expect("looked").is_none(), "nothing hidden is left");
    check(&pool);
}

/// If this fails, a stream that broke off leaves a file system that is neither the old one nor the new one.
#[test]
fn what_ends_early_changes_nothing() {
    let pool = received();
    let before = contents(&pool, "tank/fs");
    let records = increment();
    let whole = stream(0xA, 0xB, &records);
    let mut ends: Vec<usize> = (1..=whole.len() / 312).map(|record| record * 312 - 1).collect();
    ends.extend([313, whole.len() - 1]);
    for end in ends {
        match receive(&pool, &whole[..end.min(whole.len() - 1)], &target("b")) {
            Err(ReceiveError::Stream(_)) => {}
            other => panic!("after {end} bytes: {other:?}"),
        }
        assert_eq!((contents(&pool, "tank/fs"), snapshots(&pool)), (before.clone(), vec!["a".to_string()]), "after {end} bytes");
        assert!(pool.dsl().partial_receive("tank/fs").expect("looked").is_none(), "after {end} bytes: something is left");
    }
    for at in (312..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert!(receive(&pool, &damaged, &target("b")).is_err(), "byte {at} was changed");
        assert_eq!((contents(&pool, "tank/fs"), snapshots(&pool)), (before.clone(), vec!["a".to_string()]), "byte {at} was changed");
    }
    receive(&pool, &whole, &target("b")).expect("received in the end");
    check(&pool);
}

/// If this fails, a stream of somebody else stops the pool, or the daemon.
#[test]
fn records_are_not_believed() {
    let pool = received();
    let before = contents(&pool, "tank/fs");
    let as_object = |change: &dyn Fn(&mut Object)| {
        let (Record::Object(mut record), payload) = object(9, BLOCK, &[0; 8]) else { panic!("an object") };
        change(&mut record);
        vec![(Record::Object(record), payload)]
    };
    let hostile: Vec<(&str, Records)> = vec![
        ("the meta-dnode", vec![object(0, BLOCK, &[0; 8])]),
        ("a number beyond all", vec![object(1 << 48, BLOCK, &[0; 8])]),
        ("the accounting objects", vec![object(u64::MAX, BLOCK, &[0; 8]), write(u64::MAX, 0, 1)]),
        ("a block of no sectors", as_object(&|object| object.blksz = 513)),
        ("a block of nothing", as_object(&|object| object.blksz = 0)),
        ("a large block", as_object(&|object| object.blksz = 1 << 20)),
        ("a type that nobody knows", as_object(&|object| object.kind = 99)),
        ("a type of no byte", as_object(&|object| object.kind = 0x1_0013)),
        ("no type", as_object(&|object| object.kind = 0)),
        ("dnodes of its own", as_object(&|object| object.kind = 10)),
        ("a spill block of dnodes", as_object(&|object| object.bonustype = 10)),
        ("a large dnode", as_object(&|object| object.dn_slots = 200)),
        ("an object that is not there", vec![write(77, 0, 1)]),
        ("a freed object", vec![free_objects(5, 1), write(5, 0, 1)]),
        ("an offset beyond all", vec![object(5, BLOCK, &[0; 16]), write(5, u64::MAX - 5, 1)]),
        ("going back", vec![object(5, BLOCK, &[0; 16]), write(5, BLOCK as u64, 1), write(5, 0, 1)]),
        ("beyond one odd block", vec![object(9, 1536, &[0; 8]), write(9, 1 << 20, 1)]),
        ("a free that overflows", vec![free(5, u64::MAX - 4, 100)]),
        ("free objects that overflow", vec![free_objects(u64::MAX - 4, 100)]),
        ("a free of nothing", vec![free(77, 0, TO_END)]),
        (
            "a compressed block that is none",
            vec![
                object(5, BLOCK, &[0; 16]),
                (
                    Record::Write(Write {
                        object: 5,
                        kind: KIND,
                        logical_size: BLOCK as u64,
                        compressiontype: 15,
                        compressed_size: 64,
                        ..Write::default()
                    }),
                    vec![0xFF; 64],
                ),
            ],
        ),
        ("a record of deduplicated streams", vec![(Record::WriteByRef(stream::WriteByRef::default()), Vec::new())]),
        ("a record of raw streams", vec![(Record::ObjectRange(stream::ObjectRange::default()), Vec::new())]),
        ("a record of redacted streams in another one", vec![(Record::Redact(stream::Redact::default()), Vec::new())]),
        ("an empty spill block", vec![(Record::Spill(stream::Spill { object: 5, ..stream::Spill::default() }), Vec::new())]),
    ];
    for (what, records) in hostile {
        match receive(&pool, &stream(0xA, 0xB, &records), &target("b")) {
            Err(ReceiveError::Invalid(_) | ReceiveError::Stream(_)) => {}
            other => panic!("{what}: {other:?}, not {ODD}"),
        }
        assert_eq!((contents(&pool, "tank/fs"), snapshots(&pool)), (before.clone(), vec!["a".to_string()]), "{what}");
    }
    // Large numbers that are possible are received.
    let far = vec![object((1 << 47) + 3, 512, &[0; 8]), free(5, 1 << 62, TO_END)];
    receive(&pool, &stream(0xA, 0xB, &far), &target("b")).expect("received");
    check(&pool);
}

/// If this fails, a stream that ends after its head leaves a file system that nobody can mount.
#[test]
fn a_file_system_without_a_master_node_is_refused() {
    let pool = pool();
    let bytes = |records: &[(Record, Vec<u8>)]| {
        let begin = Begin { kind: ObjsetType::ZFS.0 as u32, ..head(0, 0xA, Features::default()) };
        stream_of(begin, None, records)
    };
    for resumable in [false, true] {
        for records in [Vec::new(), full(), vec![object(1, BLOCK, &[0; 8])]] {
            match receive(&pool, &bytes(&records), &Target { resumable, ..target("a") }) {
                Err(ReceiveError::Invalid(what)) => assert!(what.contains("master node"), "{what}"),
                other => panic!("{other:?}, not {ODD}"),
            }
            assert_eq!(pool.dsl().hold("tank/fs").err(), Some(DslError::NotFound), "something is left");
        }
    }
    let (Record::Object(mut master), payload) = object(1, BLOCK, &[0; 8]) else { panic!("an object") };
    master.kind = u32::from(ObjectType::MASTER_NODE.0);
    receive(&pool, &bytes(&[(Record::Object(master), payload)]), &target("a")).expect("received");
    check(&pool);
}

/// If this fails, a stream goes on from what it was not made from, or over what somebody wrote.
#[test]
fn what_does_not_fit_is_refused() {
    let pool = received();
    let refused = |bytes: &[u8], target: &Target| match receive(&pool, bytes, target) {
        Err(ReceiveError::Dsl(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&stream(0xE, 0xB, &increment()), &target("b")), DslError::NotIncremental);
    assert_eq!(refused(&stream(0xA, 0xB, &increment()), &target("a")), DslError::Exists);
    assert_eq!(refused(&stream(0, 0xB, &full()), &target("b")), DslError::Exists);
    assert_eq!(refused(&stream(0, 0xB, &full()), &Target { force: true, ..target("b") }), DslError::HasSnapshots);
    let elsewhere = Target { name: "tank/none".to_string(), ..target("b") };
    assert_eq!(refused(&stream(0xA, 0xB, &increment()), &elsewhere), DslError::NotFound);
    for (feature, kind) in [(Features::DEDUP, "deduplicated"), (Features(1 << 40), "newer")] {
        match receive(&pool, &stream_of(head(0xA, 0xB, feature), None, &[]), &target("b")) {
            Err(ReceiveError::Unsupported(what)) => assert!(what.contains(kind), "{what}"),
            other => panic!("{kind}: {other:?}"),
        }
    }

    let handle = pool.dsl().hold("tank/fs").expect("held");
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    handle.objset().expect("an object set").hold(ObjectId(5)).expect("held").write(0, &[9; 100], &tx).expect("written");
    drop((tx, handle));
    pool.sync().expect("synced");
    assert_eq!(refused(&stream(0xA, 0xB, &increment()), &target("b")), DslError::Modified);
    pool.dsl().snapshot(&["tank/fs@mine".to_string()], Vec::new()).expect("taken");
    assert_eq!(refused(&stream(0xA, 0xB, &increment()), &target("b")), DslError::Modified);
    receive(&pool, &stream(0xA, 0xB, &increment()), &Target { force: true, ..target("b") }).expect("received by force");
    assert_eq!(snapshots(&pool), ["a", "b"], "what was newer is gone");
    assert_eq!(contents(&pool, "tank/fs")[0].3[0], 0xA1, "and so is what was written");
    check(&pool);
}

/// If this fails, a full stream that replaces a file system loses it, or leaves its blocks allocated for good.
#[test]
fn a_full_stream_replaces_what_has_no_snapshots() {
    let pool = pool();
    let new = CreateDataset { kind: ObjsetType::OTHER, properties: Vec::new(), init: Box::new(|_, _| Ok(())) };
    pool.dsl().create_dataset("tank/fs", new).expect("created");
    let force = Target { force: true, ..target("a") };
    let whole = stream(0, 0xA, &full());
    assert!(receive(&pool, &whole[..whole.len() - 400], &force).is_err());
    assert!(contents(&pool, "tank/fs").is_empty());
    receive(&pool, &whole, &force).expect("received");
    assert_eq!(contents(&pool, "tank/fs"), contents(&pool, "tank/fs@a"));
    assert_eq!(snapshots(&pool), ["a"]);
    check(&pool);
}

/// If this fails, a transfer of days that broke off begins again, or goes on where something is missing.
#[test]
fn what_was_interrupted_goes_on() {
    let pool = received();
    let records = increment();
    let whole = stream(0xA, 0xB, &records);
    let keep = Target { resumable: true, ..target("b") };
    assert!(receive(&pool, &whole[..whole.len() - 312], &keep).is_err(), "its end is missing, and with it the checksum of the last write");
    assert_eq!(snapshots(&pool), ["a"]);
    let state = pool.dsl().resume_state("tank/fs").expect("looked").expect("kept");
    assert_eq!((state.from_guid, state.to_guid, state.to_name.as_str()), (0xA, 0xB, "other/fs@s"));
    assert_eq!((state.point.object, state.point.offset), (5, BLOCK as u64), "the last write that is known to be whole");
    match receive(&pool, &whole, &target("b")) {
        Err(ReceiveError::Dsl(DslError::Busy)) => {}
        other => panic!("another stream went into it: {other:?}"),
    }
    let resumed = |object: u64| {
        let list = NvList::new().with("resume_object", object).with("resume_offset", BLOCK as u64);
        stream_of(head(0xA, 0xB, Features::RESUMING), Some(&list), &records[1..])
    };
    assert!(matches!(receive(&pool, &resumed(9), &keep), Err(ReceiveError::NotResumed(_))));
    receive(&pool, &resumed(5), &keep).expect("received");
    assert_eq!(contents(&pool, "tank/fs").iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [5, 9]);
    assert_eq!(snapshots(&pool), ["a", "b"]);
    assert!(pool.dsl().resume_state("tank/fs").expect("looked").is_none());
    check(&pool);
}

/// If this fails, what a crash left of a receive takes space for ever, or is taken for a file system.
#[test]
fn what_a_crash_leaves_goes_with_the_import() {
    let device = Arc::new(MemDevice::new("d0", 80 << 20));
    let pool = pool_on(&device);
    receive(&pool, &stream(0, 0xA, &full()), &target("a")).expect("received");
    let begun = |from: u64, target: &Target| {
        let mut receiver =
            Receiver::begin(pool.dsl(), &head(from, 0xB, Features::default()), &NvList::new(), target, &|_| {}).expect("begun");
        for (record, payload) in if from == 0 { full() } else { increment() } {
            receiver.apply(&record, &payload, ondisk::ByteOrder::Little, 0).expect("applied");
        }
        pool.sync().expect("synced");
    };
    begun(0xA, &target("b"));
    begun(0, &Target { name: "tank/new".to_string(), ..target("b") });
    begun(0, &Target { name: "tank/kept".to_string(), resumable: true, ..target("b") });
    drop(pool);
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device];
    let pool = Pool::import(&exec(8), devices, &options, &Runtime::new()).expect("imported");
    assert_eq!(pool.dsl().children("tank").expect("listed"), ["fs", "kept"]);
    assert!(pool.dsl().partial_receive("tank/fs").expect("looked").is_none());
    assert!(pool.dsl().resume_state("tank/kept").expect("looked").is_some(), "what can be resumed stays");
    assert_eq!(contents(&pool, "tank/fs"), contents(&pool, "tank/fs@a"));
    check(&pool);
}
