//! What a stream lacks is missing from a backup, and nobody notices before it is needed: streams are applied to a model, which must then be
//! what the snapshot is, object by object.

mod redacted;

use crate::{Base, Identity, SendError, SendOptions, Sending};
use abd::Abd;
use device::MemDevice;
use dmu::NewObject;
use dsl::{CreateDataset, DatasetHandle, DslError, TxSpace};
use exec::{Exec, Inline, SplitMix};
use ondisk::{Compression, ObjectId, ObjectType, ObjsetType};
use pool::{LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use stream::{Reader, Record, Writer, object_flags};
use vdev::{LeafKind, TopKind};

const DEVICE_BYTES: usize = 128 << 20;
const SPILL_BYTES: usize = 512;

/// An object as a receiver has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Received {
    kind: u32,
    bonus: Vec<u8>,
    slots: u8,
    /// Contents without the zeros at their end.
    data: Vec<u8>,
    spill: Option<Vec<u8>>,
}

type Model = BTreeMap<u64, Received>;

fn pool() -> Pool {
    let device = Arc::new(MemDevice::new("d0", DEVICE_BYTES));
    let leaf = LeafSpec { path: "d0".to_string(), kind: LeafKind::File, device };
    let properties = vec![("compression".to_string(), "lz4".to_string())];
    let root = CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) };
    let exec: Exec = Arc::new(Inline::new(7));
    let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
    Pool::create(&exec, PoolSpec::new("tank", tops, root), &Runtime::new()).expect("created")
}

fn change<R>(pool: &Pool, change: impl FnOnce(&dmu::Objset, &dmu::Tx) -> R) -> R {
    let handle = pool.dsl().hold("tank").expect("held");
    let objset = handle.objset().expect("objset");
    let tx = handle.assign(TxSpace::Writes(16 << 20)).expect("assigned");
    change(&objset, &tx)
}

fn snapshot(pool: &Pool, name: &str) -> DatasetHandle {
    pool.dsl().snapshot(&[format!("tank@{name}")], Vec::new()).expect("taken");
    pool.dsl().hold(&format!("tank@{name}")).expect("held")
}

fn object(pool: &Pool, new: NewObject) -> ObjectId {
    change(pool, |objset, tx| objset.allocate_object(new, tx).expect("allocated").object())
}

fn write(pool: &Pool, object: ObjectId, offset: u64, data: &[u8]) {
    change(pool, |objset, tx| objset.hold(object).expect("there").write(offset, data, tx).expect("written"));
}

/// Bytes that no algorithm compresses.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    SplitMix::new(seed).bytes(length)
}

fn text(length: usize) -> Vec<u8> {
    b"the same words again and again ".iter().copied().cycle().take(length).collect()
}

fn stream_of(sending: &Sending) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    sending.run(&mut writer).expect("the snapshot is readable");
    writer.into_sink()
}

fn sent(to: &DatasetHandle, from: Option<Base>, options: &SendOptions) -> Vec<u8> {
    stream_of(&Sending::new(to.clone(), from, options.clone()).expect("it can be sent"))
}

fn put(data: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if data.len() < end {
        data.resize(end, 0);
    }
    data[start..end].copy_from_slice(bytes);
}

fn unpacked(kind: u8, packed: &[u8], length: u64) -> Vec<u8> {
    let mut out = vec![0; length as usize];
    kernels::decompress(Compression(kind), packed, &mut out).expect("what was compressed");
    out
}

/// Applies a record as a receiver does.
fn apply(model: &mut Model, record: &Record, payload: &[u8]) {
    match record {
        Record::Object(object) => {
            let known = model.entry(object.object).or_default();
            known.kind = object.kind;
            known.slots = object.dn_slots;
            known.bonus = payload[..object.bonuslen as usize].to_vec();
            if object.flags & object_flags::SPILL == 0 {
                known.spill = None;
            }
        }
        Record::FreeObjects(objects) => {
            model.retain(|object, _| *object < objects.firstobj || *object - objects.firstobj >= objects.numobjs)
        }
        Record::Write(write) => {
            let plain = match write.compressiontype {
                0 => payload.to_vec(),
                kind => unpacked(kind, payload, write.logical_size),
            };
            put(&mut model.get_mut(&write.object).expect("an OBJECT before").data, write.offset, &plain);
        }
        Record::WriteEmbedded(write) => {
            let plain = unpacked(write.compression, &payload[..write.psize as usize], u64::from(write.lsize));
            put(&mut model.get_mut(&write.object).expect("an OBJECT before").data, write.offset, &plain);
        }
        Record::Free(free) => {
            let data = &mut model.get_mut(&free.object).expect("an OBJECT before").data;
            let start = (free.offset as usize).min(data.len());
            let end = usize::try_from(free.offset.saturating_add(free.length)).unwrap_or(usize::MAX).min(data.len());
            data[start..end].fill(0);
        }
        // What a receiver lacks is nothing here.
        Record::Redact(redact) => {
            let data = &mut model.get_mut(&redact.object).expect("an OBJECT before").data;
            let start = (redact.offset as usize).min(data.len());
            let end = (redact.offset.saturating_add(redact.length) as usize).min(data.len());
            data[start..end].fill(0);
        }
        Record::Spill(spill) => model.get_mut(&spill.object).expect("an OBJECT before").spill = Some(payload.to_vec()),
        Record::Begin(_) | Record::End(_) => {}
        other => panic!("no receiver is told this: {other:?}"),
    }
}

/// Records of a stream, which must be whole.
fn records(stream: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let (mut reader, mut payload, mut found) = (Reader::new(stream), Vec::new(), Vec::new());
    while let Some(record) = reader.read_record(&mut payload).expect("a sound stream") {
        found.push((record, payload.clone()));
    }
    found
}

fn received(mut model: Model, stream: &[u8]) -> Model {
    records(stream).iter().for_each(|(record, payload)| apply(&mut model, record, payload));
    for object in model.values_mut() {
        trim(&mut object.data);
    }
    model
}

fn trim(data: &mut Vec<u8>) {
    let used = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    data.truncate(used);
}

/// Model of a snapshot, read from itself.
fn model_of(snapshot: &DatasetHandle) -> Model {
    let objset = snapshot.objset().expect("objset");
    let (mut model, mut at) = (Model::new(), ObjectId(0));
    while let Some(object) = objset.next_object(at).expect("readable") {
        let dnode = objset.hold(object).expect("there");
        let info = dnode.info().expect("there");
        let mut data = vec![0; info.block_size * (info.max_block.0 as usize + 1)];
        dnode.read(0, &mut data).expect("readable");
        trim(&mut data);
        let spill = dnode.spill().expect("readable").map(|spill| spill.to_vec());
        let bonus = dnode.bonus().expect("there").to_vec();
        model.insert(object.0, Received { kind: u32::from(info.kind.0), bonus, slots: info.slots, data, spill });
        at = object;
    }
    model
}

fn every_form() -> Vec<SendOptions> {
    let bits = 0..8u8;
    bits.map(|bits| SendOptions {
        large_blocks: bits & 1 != 0,
        embedded: bits & 2 != 0,
        compressed: bits & 4 != 0,
        ..SendOptions::default()
    })
    .collect()
}

/// Objects of every shape: deep trees, holes, large blocks, contents in pointers, bonuses, spill blocks, dnodes of several slots.
fn furnish(pool: &Pool) -> Vec<ObjectId> {
    let file = |block_size| NewObject { block_size, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let deep = object(pool, NewObject { indirect_shift: 12, ..file(512) });
    write(pool, deep, 0, &noise(1, 40 * 512));
    write(pool, deep, 70_000 * 512, &noise(2, 1024));
    let plain = object(pool, file(128 << 10));
    write(pool, plain, 0, &noise(3, 300_000));
    let packed = object(pool, file(64 << 10));
    write(pool, packed, 0, &text(200_000));
    let large = object(pool, file(256 << 10));
    write(pool, large, 0, &noise(4, 600_000));
    let tiny = object(pool, file(512));
    write(pool, tiny, 0, &text(512));
    let attributes = NewObject { bonus_type: ObjectType::SA, bonus_len: 100, slots: 2, ..file(4096) };
    let described = object(pool, attributes);
    change(pool, |objset, tx| {
        let dnode = objset.hold(described).expect("there");
        dnode.set_bonus(&noise(5, 100), tx).expect("set");
        dnode.set_spill(Abd::from_slice(&noise(6, SPILL_BYTES)), tx).expect("set");
    });
    let table = object(pool, NewObject { block_size: 16 << 10, ..NewObject::new(ObjectType::ZAP_OTHER) });
    write(pool, table, 0, &text(16 << 10));
    vec![deep, plain, packed, large, tiny, described, table]
}

#[test]
fn a_snapshot_arrives_as_it_is_in_every_form() {
    let pool = pool();
    furnish(&pool);
    let to = snapshot(&pool, "a");
    let whole = model_of(&to);
    let mut sizes = Vec::new();
    for options in every_form() {
        let stream = sent(&to, None, &options);
        assert_eq!(received(Model::new(), &stream), whole, "{options:?}");
        sizes.push(stream.len());
        let found = records(&stream);
        let largest = found.iter().map(|(record, _)| if let Record::Write(write) = record { write.logical_size } else { 0 }).max();
        assert_eq!(largest, Some(if options.large_blocks { 256 << 10 } else { 128 << 10 }), "{options:?}");
        assert_eq!(found.iter().any(|(record, _)| matches!(record, Record::WriteEmbedded(_))), options.embedded, "{options:?}");
    }
    assert!(sizes[4] < sizes[0], "compressed blocks are smaller: {sizes:?}");
}

#[test]
fn changes_arrive_and_nothing_else_does() {
    let pool = pool();
    let objects = furnish(&pool);
    let mut random = SplitMix::new(11);
    let mut before = snapshot(&pool, "0");
    let mut model = received(Model::new(), &sent(&before, None, &SendOptions::default()));
    for step in 1..12u64 {
        let victim = objects[random.below(objects.len() - 2)];
        let offset = 512 * random.below(600) as u64;
        match step % 4 {
            0 => {
                object(&pool, NewObject { block_size: 4096, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) });
            }
            1 | 2 => write(&pool, victim, offset, &noise(step, 1 + random.below(3000))),
            _ => change(&pool, |objset, tx| objset.hold(victim).expect("there").free_range(offset, 200_000, tx).expect("freed")),
        }
        if step == 6 {
            change(&pool, |objset, tx| objset.free_object(objects[1], tx).expect("freed"));
            object(&pool, NewObject { block_size: 512, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) });
            break;
        }
        let after = snapshot(&pool, &step.to_string());
        let base = Base::snapshot(&after, before).expect("an earlier one");
        let stream = sent(&after, Some(base), &SendOptions { compressed: step % 2 == 0, ..SendOptions::default() });
        model = received(model, &stream);
        assert_eq!(model, model_of(&after), "step {step}");
        let data: u64 = records(&stream).iter().map(|(_, payload)| payload.len() as u64).sum();
        assert!(data < 1 << 20, "step {step}: {data} bytes for a few thousand");
        before = after;
    }
    let after = snapshot(&pool, "last");
    let base = Base::snapshot(&after, before).expect("an earlier one");
    let stream = sent(&after, Some(base), &SendOptions::default());
    assert_eq!(received(model, &stream), model_of(&after), "an object that went, and one of its number");
}

#[test]
fn a_bookmark_is_as_good_a_base_as_its_snapshot() {
    let pool = pool();
    let objects = furnish(&pool);
    let first = snapshot(&pool, "a");
    pool.dsl().create_bookmark("tank#a", "tank@a").expect("made");
    write(&pool, objects[0], 0, &noise(9, 5000));
    let second = snapshot(&pool, "b");
    let bookmark = pool.dsl().bookmarks("tank").expect("listed").remove(0);
    let options = SendOptions::default();
    let base = Base::snapshot(&second, first.clone()).expect("an earlier one");
    let by_name = Base::bookmark(&second, "tank", &bookmark).expect("an earlier one");
    assert_eq!(sent(&second, Some(base), &options), sent(&second, Some(by_name), &options));
    assert!(matches!(Base::snapshot(&first, second), Err(SendError::NotEarlier)), "time goes one way");
}

/// Whoever goes on where a stream broke off has, at the end, what the whole stream would have given.
#[test]
fn a_stream_goes_on_at_any_write() {
    let pool = pool();
    furnish(&pool);
    let to = snapshot(&pool, "a");
    let (whole, records) = (model_of(&to), records(&sent(&to, None, &SendOptions::default())));
    let (mut model, mut tried) = (Model::new(), 0);
    for (index, (record, payload)) in records.iter().enumerate() {
        apply(&mut model, record, payload);
        let Record::Write(write) = record else { continue };
        if index % 7 != 0 && tried > 3 {
            continue;
        }
        tried += 1;
        let options = SendOptions { resume: Some((write.object, write.offset)), ..SendOptions::default() };
        assert_eq!(received(model.clone(), &sent(&to, None, &options)), whole, "from {write:?}");
    }
    assert!(tried > 5, "{tried} places");
}

/// Sink that is full after so many bytes.
struct Full(usize);

impl io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_and_the_snapshot_can_go() {
    let pool = pool();
    furnish(&pool);
    let sending = Sending::new(snapshot(&pool, "a"), None, SendOptions::default()).expect("it can be sent");
    let names = ["tank@a".to_string()];
    assert_eq!(pool.dsl().destroy_snapshots(&names, false), Err(DslError::Busy), "what is being sent is not destroyed");
    for room in [0, 100, 1000, 500_000] {
        assert!(matches!(sending.run(&mut Writer::new(Full(room))), Err(SendError::Sink(_))), "{room} bytes");
    }
    drop(sending);
    assert_eq!(pool.dsl().destroy_snapshots(&names, false), Ok(()));
}

/// If this fails, whoever switches unneeded parts of streams off gets others, or streams that lack what is needed.
#[test]
fn numbers_that_never_were_objects_are_left_out_where_that_is_wanted() {
    let pool = pool();
    furnish(&pool);
    let file = || NewObject { block_size: 4096, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    change(&pool, |objset, tx| objset.claim_object(ObjectId(3000), file(), tx).map(drop).expect("made"));
    let first = snapshot(&pool, "a");
    let gone = object(&pool, file());
    change(&pool, |objset, tx| objset.free_object(gone, tx).expect("freed"));
    change(&pool, |objset, tx| objset.claim_object(ObjectId(4000), file(), tx).map(drop).expect("made"));
    let second = snapshot(&pool, "b");
    let since = |skips_unborn| {
        let base = Base::snapshot(&second, first.clone()).expect("earlier");
        sent(&second, Some(base), &SendOptions { skips_unborn, ..SendOptions::default() })
    };
    let numbers = |stream: &[u8]| -> u64 {
        records(stream).iter().map(|(record, _)| if let Record::FreeObjects(free) = record { free.numobjs } else { 0 }).sum()
    };
    let (all, some) = (since(false), since(true));
    assert!(numbers(&some) < numbers(&all), "{} of {}", numbers(&some), numbers(&all));
    let before = received(Model::new(), &sent(&first, None, &SendOptions::default()));
    assert_eq!(received(before.clone(), &some), received(before, &all));
}

/// Whoever receives what came of a receive asks for the rest by these names, and must not take it for all.
#[test]
fn a_stream_goes_by_other_names_and_without_an_end() {
    let pool = pool();
    furnish(&pool);
    let identity = |is_whole| Identity { name: "far/away@snap".to_string(), guid: 77, is_whole };
    let to = snapshot(&pool, "a");
    let named = |is_whole| {
        let sending = Sending::new(to.clone(), None, SendOptions::default()).expect("it can be sent");
        stream_of(&sending.known_as(identity(is_whole)))
    };
    let (whole, open) = (named(true), named(false));
    assert_eq!(whole[..open.len()], open[..]);
    let (mut reader, mut payload) = (Reader::new(&open[..]), Vec::new());
    let Ok(Some(Record::Begin(begin))) = reader.read_record(&mut payload) else { panic!("no head") };
    assert_eq!((begin.toname.to_string().as_str(), begin.toguid), ("far/away@snap", 77));
    let last = std::iter::repeat_with(|| reader.read_record(&mut payload)).find(|found| !matches!(found, Ok(Some(_))));
    assert!(matches!(last, Some(Err(stream::StreamError::Truncated { .. }))), "{last:?}");
}

#[test]
fn the_size_that_is_told_is_about_that_of_the_stream() {
    let pool = pool();
    furnish(&pool);
    let sending = Sending::new(snapshot(&pool, "a"), None, SendOptions::default()).expect("it can be sent");
    let (told, real) = (sending.estimate().expect("known"), stream_of(&sending).len() as u64);
    assert!(told > real / 2 && told < 2 * real, "{told} bytes told of {real}");
}
