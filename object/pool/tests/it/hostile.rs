//! Labels that lie, with right checksums: every one must end in an error or a pool, never in a panic or a hang. What the user
//! loses when these fail: the machine, to a stick somebody found.
use device::{BlockDevice, MemDevice};
use dsl::CreateDataset;
use exec::{Exec, Inline};
use kernels::checksum::{Verifier, embed};
use nvlist::{Encoding, NvList, NvString, Value};
use ondisk::label::{CONFIG_BYTES, CONFIG_OFFSET, LABELS, RING_BYTES, RING_OFFSET, label_offset};
use ondisk::{Checksum, ObjsetType};
use pool::{ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec, find_pools, inspect_labels};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};

const DEVICE_BYTES: usize = 64 << 20;

fn exec() -> Exec {
    Arc::new(Inline::new(3))
}

fn pool_on(count: usize) -> Vec<Arc<MemDevice>> {
    pool_of(TopKind::Raidz(1), count)
}

fn pool_of(kind: TopKind, count: usize) -> Vec<Arc<MemDevice>> {
    pool_of_each(kind, 1, count)
}

/// An exported pool of `tops` top-level vdevs with `count` devices each.
fn pool_of_each(kind: TopKind, tops: usize, count: usize) -> Vec<Arc<MemDevice>> {
    let devices: Vec<_> = (0..tops * count).map(|index| Arc::new(MemDevice::new(&format!("d{index}"), DEVICE_BYTES))).collect();
    let leaf = |device: &Arc<MemDevice>| LeafSpec { path: "d".to_string(), kind: LeafKind::File, device: device.clone() };
    let spec = PoolSpec::new(
        "tank",
        devices.chunks(count).map(|devices| TopSpec { kind, leaves: devices.iter().map(leaf).collect() }).collect(),
        CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) },
    );
    Pool::create(&exec(), spec, &Runtime::new()).expect("made").export().expect("exported");
    devices
}

/// Writes packed bytes as the configuration of all labels, with right checksums.
fn plant(device: &MemDevice, packed: &[u8]) {
    plant_in(device, 0..LABELS, packed);
}

/// As [`plant`], of these labels.
fn plant_in(device: &MemDevice, labels: std::ops::Range<usize>, packed: &[u8]) {
    device.tamper(|bytes| {
        for label in labels {
            let offset = label_offset(DEVICE_BYTES as u64, label) as usize + CONFIG_OFFSET;
            let block = &mut bytes[offset..offset + CONFIG_BYTES];
            block.fill(0);
            block[..packed.len()].copy_from_slice(packed);
            embed(Checksum::LABEL, block, Verifier::label(offset as u64)).expect("room for the trailer");
        }
    });
}

fn try_import(devices: &[Arc<MemDevice>]) -> bool {
    let opened = || devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect::<Vec<_>>();
    let exec = exec();
    for found in find_pools(&exec, opened()) {
        let _ = found.tree();
    }
    inspect_labels(&exec, &opened()[0]);
    let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
    Pool::import(&exec, opened(), &options, &Runtime::new()).is_ok()
}

/// Every number of a list and of the lists below it, by a path of indices.
fn numbers(list: &NvList, path: &mut Vec<usize>, out: &mut Vec<Vec<usize>>) {
    for (index, (_, value)) in list.iter().enumerate() {
        path.push(index);
        match value {
            Value::Uint64(_) => out.push(path.clone()),
            Value::NvList(below) => numbers(below, path, out),
            Value::NvListArray(lists) => {
                for (position, below) in lists.iter().enumerate() {
                    path.push(position);
                    numbers(below, path, out);
                    path.pop();
                }
            }
            _ => {}
        }
        path.pop();
    }
}

fn set(list: &mut NvList, path: &[usize], number: u64) {
    let Some((_, value)) = list.iter_mut().nth(path[0]) else { return };
    match value {
        Value::Uint64(old) => *old = number,
        Value::NvList(below) => set(below, &path[1..], number),
        Value::NvListArray(lists) => set(&mut lists[path[1]], &path[2..], number),
        _ => {}
    }
}

#[test]
fn every_number_of_a_label_may_lie() {
    let devices = pool_on(3);
    let config = inspect_labels(&exec(), &(devices[0].clone() as Arc<dyn BlockDevice>)).configs.remove(0);
    let mut paths = Vec::new();
    numbers(&config, &mut Vec::new(), &mut paths);
    assert!(paths.len() > 20, "the test must reach the vdev tree");
    for path in &paths {
        for number in [0, 1, 2, 8, 63, 64, 255, 1 << 20, 1 << 32, 1 << 45, u64::MAX / 2, u64::MAX] {
            let mut config = config.clone();
            set(&mut config, path, number);
            plant(&devices[0], &config.encode(Encoding::Xdr));
            try_import(&devices);
        }
    }
    plant(&devices[0], &config.encode(Encoding::Xdr));
    assert!(try_import(&devices), "the true label still leads to the pool");
}

#[test]
fn labels_that_do_not_say_how_many_vdevs_there_are_still_lead_to_all_of_them() {
    let devices = pool_of_each(TopKind::Leaf, 3, 1);
    for device in &devices {
        let mut config = inspect_labels(&exec(), &(device.clone() as Arc<dyn BlockDevice>)).configs.remove(0);
        assert!(config.remove("vdev_children"), "labels of today say it");
        plant(device, &config.encode(Encoding::Xdr));
    }
    assert!(try_import(&devices), "old pools have such labels");
}

#[test]
fn noise_in_a_label_is_survived() {
    let devices = pool_on(3);
    let config = inspect_labels(&exec(), &(devices[0].clone() as Arc<dyn BlockDevice>)).configs.remove(0);
    let packed = config.encode(Encoding::Xdr);
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    };
    for _ in 0..400 {
        let mut noisy = packed.clone();
        for _ in 0..1 + random(4) {
            let at = random(noisy.len());
            noisy[at] = [0, 1, 0x7f, 0xff, random(256) as u8][random(5)];
        }
        plant(&devices[0], &noisy);
        try_import(&devices);
    }
    plant(&devices[0], &packed);
    assert!(try_import(&devices), "the true label still leads to the pool");
}

/// Two leaves on one device would be one copy where the user believes in two, and each write would destroy the other's data.
#[test]
fn a_device_with_labels_of_two_leaves_is_one_of_them() {
    let devices = pool_of(TopKind::Mirror, 2);
    let label_of = |device: &Arc<MemDevice>| inspect_labels(&exec(), &(device.clone() as Arc<dyn BlockDevice>)).configs.remove(0);
    let [first, second] = [&devices[0], &devices[1]].map(label_of);
    let number = |list: &NvList, name: &str| list.get_u64(name).expect("a number of the label");
    let packed = |guid: u64, age: u64| {
        let mut list = first.clone();
        for (name, changed) in [("guid", guid), ("txg", number(&first, "txg") - age)] {
            let (_, value) = list.iter_mut().find(|(known, _)| **known == NvString::from(name)).expect("there");
            *value = Value::Uint64(changed);
        }
        list.encode(Encoding::Xdr)
    };
    let [own, others] = [&first, &second].map(|list| number(list, "guid"));
    // The newest says that it is the first leaf, a leaf that the pool does not have, or (the way round) the second.
    for (guids, alone) in
        [([own, others, own], true), ([0x5eed, own, others], true), ([others, own, own], true), ([own, others, own], false)]
    {
        for (label, (guid, age)) in guids.into_iter().zip(0..).enumerate() {
            plant_in(&devices[0], label..label + 1, &packed(guid, age));
        }
        plant_in(&devices[0], 3..LABELS, &packed(guids[2], 2));
        let opened = devices.iter().take(if alone { 1 } else { 2 }).map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
        let pool = Pool::import(&exec(), opened, &options, &Runtime::new()).expect("imported");
        let usable = pool.tree().leaves.iter().filter(|leaf| leaf.state.is_usable()).count();
        assert_eq!(usable, if alone { 1 } else { 2 }, "labels of {guids:x?}");
    }
}

/// Devices of a pool have the same uberblocks, which are summed once: one that is damaged on some device, or on all in the same way, must
/// count as damaged there, and nowhere else. What the user loses: an import from a state that never was.
#[test]
fn an_uberblock_that_verified_elsewhere_is_damaged_where_it_differs() {
    for damaged in [&[0][..], &[1], &[2], &[0, 1, 2], &[]] {
        let devices = pool_on(3);
        for device in damaged.iter().map(|index| &devices[*index]) {
            device.tamper(|bytes| {
                for start in (0..LABELS).map(|label| label_offset(DEVICE_BYTES as u64, label) as usize + RING_OFFSET) {
                    let ring = &mut bytes[start..start + RING_BYTES];
                    let used = ring.iter().position(|byte| *byte != 0).expect("an uberblock");
                    // Its time.
                    ring[used + 33] ^= 1;
                }
            });
        }
        let opened = devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect::<Vec<_>>();
        let found = find_pools(&exec(), opened);
        assert_eq!(found.iter().map(|pool| pool.damaged_uberblocks()).sum::<usize>(), damaged.len() * LABELS, "{damaged:?}");
    }
}

/// Where OpenZFS starts a ring it puts an uberblock with a version and without a magic number, and old systems put one into every slot:
/// nothing is lost there, and a user who is told so looks for damage that does not exist.
#[test]
fn the_slots_that_a_new_ring_starts_with_are_not_damaged() {
    const SLOT_BYTES: usize = 4096;
    let devices = pool_on(3);
    let empty = |devices: &[Arc<MemDevice>], magic: u64| {
        devices[0].tamper(|bytes| {
            for start in (0..LABELS).map(|label| label_offset(DEVICE_BYTES as u64, label) as usize + RING_OFFSET) {
                for slot in
                    bytes[start..start + RING_BYTES].chunks_exact_mut(SLOT_BYTES).filter(|slot| slot[8..].iter().all(|byte| *byte == 0))
                {
                    (slot[0], slot[8]) = (magic as u8, 9);
                }
            }
        });
        let found = find_pools(&exec(), vec![devices[0].clone() as Arc<dyn BlockDevice>]);
        found.iter().map(|pool| pool.damaged_uberblocks()).sum::<usize>()
    };
    assert_eq!(empty(&devices, 0), 0, "no magic number, no txg: never written");
    let devices = pool_on(3);
    assert!(empty(&devices, 1) > LABELS, "what has something in the place of the number may have been one");
}

/// A copy of a device beside it says the same of itself. If this fails, a pool goes on in its owner's backup, or, from an old one, back in time.
#[test]
fn of_devices_that_say_to_be_the_same_the_newest_and_the_one_in_its_place_is_taken() {
    let devices = pool_on(3);
    let copy = |of: &MemDevice, name: &str| {
        let copy = MemDevice::new(name, DEVICE_BYTES);
        of.tamper(|bytes| copy.tamper(|own| own.copy_from_slice(bytes)));
        Arc::new(copy)
    };
    let path_of_first = |order: [&Arc<MemDevice>; 2]| {
        let all = order.into_iter().chain(&devices[1..]).map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let found = find_pools(&exec(), all);
        assert_eq!((found.len(), found[0].devices().count()), (1, 3));
        let first = found[0].devices().next().expect("a device");
        first.path().to_string_lossy().into_owned()
    };
    // Labels call it "d".
    let (own, other, moved) = (copy(&devices[0], "d"), copy(&devices[0], "copy"), copy(&devices[0], "/elsewhere/d"));
    for (right, wrong) in [(&own, &other), (&own, &moved), (&moved, &other)] {
        let name = right.path().to_string_lossy().into_owned();
        assert_eq!([path_of_first([right, wrong]), path_of_first([wrong, right])], [name.clone(), name]);
    }
    // What went on is the pool, wherever it lies now.
    let opened = devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    Pool::import(&exec(), opened, &options, &Runtime::new()).expect("imported").export().expect("exported");
    assert_eq!([path_of_first([&own, &devices[0]]), path_of_first([&devices[0], &own])], ["d0", "d0"]);
}
