//! Devices and pools in memory: labels that lie, pointers that lie, and a MOS whose objects were changed.

use device::{BlockDevice, MemDevice};
use dmu::{NewObject, Objset, Tx};
use dsl::{CreateDataset, DslPool, TxSpace, Walk};
use exec::{Exec, Inline};
use kernels::checksum::{Verifier, embed};
use ondisk::label::{CONFIG_BYTES, CONFIG_NVLIST_BYTES, CONFIG_OFFSET, LABELS, RING_OFFSET, label_offset};
use ondisk::{BlockPtr, Bookmark, Checksum, ObjectId, ObjectType, ObjsetType};
use pool::{ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec, find_pools, inspect_labels};
use std::cell::RefCell;
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zio::{ReadFlags, ReadRequest};

/// Bytes of a device: enough for four labels and a little more.
const LABEL_DEVICE_BYTES: usize = 2 << 20;
const DEVICE_BYTES: usize = 64 << 20;
const LABEL_START_BYTES: usize = 4 << 20;
const GANG_HEADER_BYTES: usize = 512;
const SLOT_BYTES: usize = 1024;

fn exec() -> Exec {
    Arc::new(Inline::new(3))
}

/// Puts a configuration, or (when the first byte of it is odd) an uberblock, on all labels of a device, with right checksums.
pub fn label(data: &[u8]) {
    let device = Arc::new(MemDevice::new("d", LABEL_DEVICE_BYTES));
    device.tamper(|bytes| {
        for start in (0..LABELS).map(|label| label_offset(LABEL_DEVICE_BYTES as u64, label) as usize) {
            let (at, length) = (start + CONFIG_OFFSET, data.len().min(CONFIG_NVLIST_BYTES));
            bytes[at..at + length].copy_from_slice(&data[..length]);
            let _ = embed(Checksum::LABEL, &mut bytes[at..at + CONFIG_BYTES], Verifier::label(at as u64));
            let (at, length) = (start + RING_OFFSET, data.len().min(SLOT_BYTES / 2));
            bytes[at..at + length].copy_from_slice(&data[data.len() - length..]);
            bytes[at..at + 8].copy_from_slice(&0x00ba_b10cu64.to_le_bytes());
            let _ = embed(Checksum::LABEL, &mut bytes[at..at + SLOT_BYTES], Verifier::label(at as u64));
        }
    });
    let exec = exec();
    let opened = || vec![device.clone() as Arc<dyn BlockDevice>];
    for found in find_pools(&exec, opened()) {
        let _ = (found.tree(), found.name().len(), found.comment().map(str::len), found.version());
    }
    let _ = inspect_labels(&exec, &opened()[0]);
    let options = ImportOptions { read_only: true, force: true, skip_activity: true, ..ImportOptions::default() };
    let _ = Pool::import(&exec, opened(), &options, &Runtime::new());
}

fn dataset() -> CreateDataset {
    CreateDataset { kind: ObjsetType::OTHER, properties: Vec::new(), init: Box::new(|_, _| Ok(())) }
}

/// Makes a pool on one device.
pub fn empty() -> (Arc<MemDevice>, Pool) {
    let device = Arc::new(MemDevice::new("d", DEVICE_BYTES));
    let leaves = vec![LeafSpec { path: "d".to_string(), kind: LeafKind::File, device: device.clone() }];
    let spec = PoolSpec::new("tank", vec![TopSpec { kind: TopKind::Leaf, leaves }], dataset());
    let pool = Pool::create(&exec(), spec, &Runtime::new()).expect("a pool in memory");
    (device, pool)
}

/// Makes an object in a dataset, and a snapshot with this number as its name.
pub fn go_on(dsl: &Arc<DslPool>, name: &str, index: u8) {
    let handle = dsl.hold(name).expect("held");
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    let objset = handle.objset().expect("its objects");
    let new = NewObject { block_size: 4096, ..NewObject::new(ObjectType::UINT64_OTHER) };
    let dnode = objset.allocate_object(new, &tx).expect("an object");
    let bytes: Vec<u8> = (0..40_960u32).map(|at| (at >> 3) as u8 ^ index).collect();
    dnode.write(0, &bytes, &tx).expect("written");
    drop(tx);
    dsl.snapshot(&[format!("{name}@{index}")], Vec::new()).expect("a snapshot");
}

/// Makes a pool on one device with a file system, snapshots and a clone.
pub fn populated() -> (Arc<MemDevice>, Pool) {
    let (device, pool) = empty();
    let dsl = pool.dsl().clone();
    dsl.create_dataset("tank/a", dataset()).expect("a dataset");
    (0..3).for_each(|index| go_on(&dsl, "tank/a", index));
    dsl.clone_snapshot("tank/c", "tank/a@1", Vec::new()).expect("a clone");
    pool.sync().expect("it syncs");
    (device, pool)
}

thread_local! {
    static KEPT: RefCell<Option<(Arc<MemDevice>, Pool)>> = const { RefCell::new(None) };
}

/// Seeds of pointers of a pool that exists.
pub fn block_seeds() -> Vec<Vec<u8>> {
    let (_, pool) = populated();
    let mut seeds = Vec::new();
    let io: Arc<dyn dmu::BlockIo> = pool.mos().io().clone();
    let visit = &mut |bp: &BlockPtr| {
        seeds.push([&[0][..], &bp.encode()].concat());
        Ok(())
    };
    let _ = Walk::all(&*io, 0, &pool.uberblock().ub_rootbp, 0).run(visit);
    seeds.truncate(40);
    let mut gang = seeds[0].clone();
    gang[16] |= 0x80;
    gang.resize(1 + BlockPtr::BYTES + GANG_HEADER_BYTES, 0);
    let member: Vec<u8> = seeds[1][1..].to_vec();
    gang[1 + BlockPtr::BYTES..1 + 2 * BlockPtr::BYTES].copy_from_slice(&member);
    seeds.push(gang);
    seeds
}

/// Reads a block: how, a pointer, and perhaps a gang header to be put where it points.
pub fn block(data: &[u8]) {
    let [how, rest @ ..] = data else { return };
    let Some(raw) = rest.first_chunk::<{ BlockPtr::BYTES }>() else { return };
    KEPT.with_borrow_mut(|slot| {
        let (device, pool) = slot.get_or_insert_with(|| {
            let (device, pool) = populated();
            drop(pool.export());
            let options = ImportOptions { read_only: true, skip_activity: true, ..ImportOptions::default() };
            let again = Pool::import(&exec(), vec![device.clone() as Arc<dyn BlockDevice>], &options, &Runtime::new());
            (device, again.expect("it opens again"))
        });
        let bp = BlockPtr::decode(raw, true);
        if let (true, Some(header)) = (bp.is_gang(), rest.get(BlockPtr::BYTES..BlockPtr::BYTES + GANG_HEADER_BYTES)) {
            // Behind everything that the pool uses.
            let at = LABEL_START_BYTES + bp.dva(0).offset as usize % (DEVICE_BYTES / 2);
            if at > DEVICE_BYTES / 3 {
                let mut header = header.to_vec();
                let _ = embed(Checksum::GANG_HEADER, &mut header, Verifier::gang_header(bp.dva(0), bp.physical_birth()));
                device.tamper(|bytes| bytes[at..at + GANG_HEADER_BYTES].copy_from_slice(&header));
            }
        }
        let flags = ReadFlags { raw: how & 1 != 0, scrub: how & 2 != 0, resilver: how & 4 != 0, speculative: how & 8 != 0 };
        let request = ReadRequest { flags, ..ReadRequest::new(bp, Bookmark::default()) };
        let _ = pool.zio().read_wait(request).map_err(|error| error.to_string());
        assert!(!pool.zio().is_suspended(), "no lie suspends a pool");
        let _ = pool.tree().dsize(&bp);
    });
}

/// Seeds of changes of objects: which, where and to what, twelve bytes each.
pub fn mos_seeds() -> Vec<Vec<u8>> {
    (0..40u8).map(|index| [index, index & 1, 8 * (index % 32), 0, 1, 0, 0, 0, 0, 0, 0, 0].to_vec()).collect()
}

/// Changes objects of a MOS, and then does with the pool what users do: any error will do.
pub fn mos(data: &[u8]) {
    let (_device, pool) = populated();
    let mos = pool.mos().clone();
    let mut objects = vec![ObjectId(1)];
    while let Some(next) = mos.next_object(objects[objects.len() - 1]).expect("a MOS that is whole") {
        objects.push(next);
    }
    let changes: Vec<(ObjectId, [u8; 11])> =
        data.as_chunks::<12>().0.iter().take(6).map(|[object, rest @ ..]| (objects[usize::from(*object) % objects.len()], *rest)).collect();
    let change = move |_: &Arc<DslPool>, (), tx: &Tx| {
        for (object, change) in &changes {
            let _ = change_object(&mos, *object, change, tx);
        }
        Ok(())
    };
    let _ = pool.dsl().sync_task(|_, _| Ok(()), change);
    let dsl = pool.dsl().clone();
    let _ = (dsl.children("tank"), dsl.snapshots("tank/a"), dsl.leaked_bytes(), dsl.hold("tank/c").map(|clone| clone.space()));
    let _ = (dsl.bookmarks("tank/a"), dsl.user_holds("tank/a@1"), dsl.create_bookmark("tank/a#m", "tank/a@0"));
    let held = ["tank/a@2".to_string()];
    let _ = (dsl.hold_snapshots(&held, "tag"), dsl.destroy_snapshots(&held, true), dsl.release_snapshots(&held, "tag"));
    let _ = pool.verify_space();
    for snapshot in ["tank/a@1", "tank/a@0", "tank/a@2"] {
        let _ = dsl.destroy_snapshots(&[snapshot.to_string()], false);
    }
    let _ = (dsl.destroy_dataset("tank/c"), dsl.destroy_dataset("tank/a"), pool.sync(), pool.history());
    let _ = (pool.props(), pool.status(), pool.export());
}

fn change_object(mos: &Arc<Objset>, object: ObjectId, change: &[u8; 11], tx: &Tx) -> Result<(), dmu::DmuError> {
    let [place, low, high, value @ ..] = change;
    let (dnode, at) = (mos.hold(object)?, usize::from(u16::from_le_bytes([*low, *high])));
    let mut bonus = dnode.bonus()?.to_vec();
    if place & 1 == 0 && !bonus.is_empty() {
        let at = at % bonus.len() / 8 * 8;
        let end = (at + 8).min(bonus.len());
        bonus[at..end].copy_from_slice(&value[..end - at]);
        dnode.set_bonus(&bonus, tx)?;
    } else {
        let at = at % dnode.info()?.block_size.saturating_sub(8).max(1);
        dnode.write(at as u64, value, tx)?;
    }
    Ok(())
}
