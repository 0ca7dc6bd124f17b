//! What is sent of random objects and received again, whole, since snapshots, and where a stream broke off: every object is what it was.

use super::{pool_with, receive};
use crate::{ReceiveError, Target};
use device::MemDevice;
use dmu::{NewObject, Objset, Tx};
use dsl::{CreateDataset, DatasetHandle, TxSpace};
use exec::SplitMix;
use ondisk::{ObjectId, ObjectType, ObjsetType, bonus_bytes_max};
use pool::Pool;
use send::{Base, SendOptions, Sending};
use std::collections::BTreeMap;
use std::sync::Arc;
use stream::{StreamError, Writer};

pub(super) const SOURCE: &str = "tank/source";
pub(super) const COPY: &str = "tank/fs";
const ROUNDS: u64 = 6;

/// Facts of an object that arrive: type, bonus, spill block, and contents without the zeros at their end.
pub(super) type Facts = (ObjectType, Vec<u8>, Option<Vec<u8>>, Vec<u8>);

pub(super) fn facts(pool: &Pool, name: &str) -> BTreeMap<u64, Facts> {
    let objset = pool.dsl().hold(name).expect("held").objset().expect("an object set");
    let (mut found, mut after) = (BTreeMap::new(), ObjectId(0));
    while let Some(object) = objset.next_object(after).expect("listed") {
        let dnode = objset.hold(object).expect("held");
        let info = dnode.info().expect("known");
        let mut data = vec![0; (info.max_block.0 as usize + 1) * info.block_size];
        dnode.read(0, &mut data).expect("read");
        data.truncate(data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        let spill = dnode.spill().expect("read").map(|spill| spill.to_vec());
        found.insert(object.0, (info.kind, dnode.bonus().expect("known").to_vec(), spill, data));
        after = object;
    }
    found
}

fn objects(objset: &Objset) -> Vec<ObjectId> {
    let (mut found, mut after) = (Vec::new(), ObjectId(0));
    while let Some(object) = objset.next_object(after).expect("listed") {
        found.push(object);
        after = object;
    }
    found
}

/// Makes an object of a random shape.
fn make(objset: &Arc<Objset>, random: &mut SplitMix, tx: &Tx) {
    let slots = 1 << random.below(4);
    let blocks = [512, 1536, 4096, 16 << 10, 128 << 10];
    let bonus_len = (random.below(bonus_bytes_max(slots) / 8) * 8).min(192 * slots);
    let kind = if random.chance(4) { ObjectType::UINT64_OTHER } else { ObjectType::PLAIN_FILE_CONTENTS };
    let new = NewObject {
        block_size: blocks[random.below(blocks.len())],
        indirect_shift: 12,
        bonus_type: ObjectType::UINT64_OTHER,
        bonus_len,
        slots: slots as u8,
        ..NewObject::new(kind)
    };
    let dnode = objset.allocate_object(new, tx).expect("allocated");
    dnode.set_bonus(&random.bytes(bonus_len), tx).expect("it fits");
}

/// Changes an object at random: its contents, its bonus, its spill block, or that it is there.
pub(super) fn change(objset: &Arc<Objset>, random: &mut SplitMix, tx: &Tx) {
    let all = objects(objset);
    if all.is_empty() || random.chance(4) {
        return make(objset, random, tx);
    }
    let object = all[random.below(all.len())];
    let dnode = objset.hold(object).expect("held");
    let info = dnode.info().expect("known");
    let most = if info.block_size.is_power_of_two() { 40 * info.block_size } else { info.block_size };
    match random.below(8) {
        0 => objset.free_object(object, tx).expect("freed"),
        1 => dnode.free_range(random.below(most) as u64, random.below(most) as u64 + 1, tx).expect("freed"),
        2 => dnode.free_range(random.below(most) as u64, u64::MAX, tx).expect("truncated"),
        3 => dnode.set_bonus(&random.bytes(info.bonus_len), tx).expect("it fits"),
        // Where the bonus leaves no room for its pointer there is none.
        4 => {
            let _ = dnode.set_spill(abd::Abd::from_slice(&random.bytes(1024)), tx);
        }
        5 if info.has_spill => dnode.remove_spill(tx).expect("removed"),
        _ => {
            let at = random.below(most);
            let length = (random.below(3 * info.block_size) + 1).min(most - at);
            let data = if random.chance(2) { random.bytes(length) } else { vec![random.below(256) as u8; length] };
            dnode.write(at as u64, &data, tx).expect("written");
        }
    }
}

pub(super) fn sent(pool: &Pool, from: Option<&str>, to: &str, options: SendOptions) -> Vec<u8> {
    let held = |name: &str| pool.dsl().hold(&format!("{SOURCE}@{name}")).expect("held");
    let to: DatasetHandle = held(to);
    let base = from.map(|name| Base::snapshot(&to, held(name)).expect("an earlier one"));
    let mut writer = Writer::new(Vec::new());
    Sending::new(to, base, options).expect("it can be sent").run(&mut writer).expect("sent");
    writer.into_sink()
}

/// Receives a stream that breaks off at random places and goes on there each time.
pub(super) fn in_pieces(source: &Pool, copy: &Pool, (from, to): (Option<&str>, &str), options: &SendOptions, random: &mut SplitMix) {
    let target = Target { name: COPY.to_string(), snapshot: to.to_string(), resumable: true, ..Target::default() };
    let mut options = options.clone();
    // Heads of raw streams are longer.
    let least = if options.raw { 3 << 10 } else { 400 };
    for attempt in 0.. {
        let whole = sent(source, from, to, options.clone());
        let end = if attempt < 4 && whole.len() > least { least + random.below(whole.len() - least) } else { whole.len() };
        match receive(copy, &whole[..end], &target) {
            Ok(()) => return,
            Err(ReceiveError::Stream(StreamError::Truncated { .. })) => {}
            Err(error) => panic!("{to}, after {end} of {} bytes: {error}", whole.len()),
        }
        let state = copy.dsl().resume_state(COPY).expect("looked").expect("kept");
        options.resume = Some((state.point.object, state.point.offset));
    }
}

/// If this fails, a backup that was made and brought back lacks something, or has something else: of what is encrypted here, there, on both sides, or
/// on none.
#[test]
fn what_was_sent_and_received_is_the_same() {
    for seed in 0..4 {
        let pool = |is_encrypted| pool_with(&Arc::new(MemDevice::new("d0", 80 << 20)), is_encrypted);
        let (source, copy, mut random) = (pool(seed & 1 != 0), pool(seed & 2 != 0), SplitMix::new(seed));
        let properties = vec![("compression".to_string(), "lz4".to_string())];
        let new = CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) };
        source.dsl().create_dataset(SOURCE, new).expect("created");
        let mut before: Option<String> = None;
        for round in 0..ROUNDS {
            let handle = source.dsl().hold(SOURCE).expect("held");
            let objset = handle.objset().expect("an object set");
            for _ in 0..20 {
                let tx = handle.assign(TxSpace::Writes(8 << 20)).expect("assigned");
                change(&objset, &mut random, &tx);
                drop(tx);
                if random.chance(3) {
                    source.sync().expect("synced");
                }
            }
            drop((objset, handle));
            let name = format!("s{round}");
            source.dsl().snapshot(&[format!("{SOURCE}@{name}")], Vec::new()).expect("taken");
            let options = SendOptions { compressed: random.chance(2), embedded: random.chance(2), ..SendOptions::default() };
            if random.chance(2) {
                in_pieces(&source, &copy, (before.as_deref(), &name), &options, &mut random);
            } else {
                let target = Target { name: COPY.to_string(), snapshot: name.clone(), ..Target::default() };
                let stream = sent(&source, before.as_deref(), &name, options);
                receive(&copy, &stream, &target).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            }
            let (expected, found) = (facts(&source, &format!("{SOURCE}@{name}")), facts(&copy, &format!("{COPY}@{name}")));
            assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "seed {seed}, round {round}: objects");
            for (object, facts) in &expected {
                assert!(facts == &found[object], "seed {seed}, round {round}: object {object} of type {:?} is another one", facts.0);
            }
            before = Some(name);
        }
        copy.sync().expect("synced");
        assert!(copy.verify_space().expect("readable").is_clean(), "seed {seed}");
    }
}
