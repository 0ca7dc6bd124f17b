//! A fragmented pool: blocks that no free segment holds become gangs, whose every sector must be accounted for. OpenZFS's zdb,
//! where it is installed, judges the result. What the user loses when this fails: a nearly full pool.
use crate::common::host;
use device::{BlockDevice, FileDevice};
use dmu::NewObject;
use dsl::{CreateDataset, DatasetHandle, TxSpace};
use exec::{Exec, Inline};
use metaslab::{AllocRequest, Allocator};
use need::pattern;
use ondisk::{Dva, ObjectType, ObjsetType, Txg};
use pool::{ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};

const BLOCK: usize = 131_072;
const BLOCKS: u64 = 24;

fn files(dir: &Path, count: usize) -> Vec<(PathBuf, Arc<dyn BlockDevice>)> {
    (0..count)
        .map(|index| {
            let path = dir.join(format!("d{index}"));
            std::fs::File::options().create(true).truncate(false).write(true).open(&path).and_then(|file| file.set_len(128 << 20)).unwrap();
            let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&path, false).unwrap());
            (path, device)
        })
        .collect()
}

fn create(exec: &Exec, dir: &Path, kind: TopKind, count: usize, ashift: u32) -> Pool {
    let leaf =
        |(path, device): (PathBuf, Arc<dyn BlockDevice>)| LeafSpec { path: path.display().to_string(), kind: LeafKind::File, device };
    let spec = PoolSpec {
        ashift: Some(ashift),
        host: host(),
        ..PoolSpec::new(
            "gangs",
            vec![TopSpec { kind, leaves: files(dir, count).into_iter().map(leaf).collect() }],
            CreateDataset { kind: ObjsetType::OTHER, properties: Vec::new(), init: Box::new(|_, _| Ok(())) },
        )
    };
    Pool::create(exec, spec, &Runtime::new()).expect("created")
}

/// Takes all free space in pieces of 16 KiB and gives every fourth back; what is kept.
fn fragment(alloc: &Allocator, txg: Txg) -> Vec<Dva> {
    let piece = AllocRequest { psize: 16384, copies: 1, txg, hint: 1 };
    let pieces: Vec<Dva> = std::iter::from_fn(|| alloc.alloc(&piece).ok()).map(|copies| copies[0]).collect();
    let mut kept = Vec::new();
    for (index, dva) in pieces.into_iter().enumerate() {
        if index % 4 == 1 { alloc.unalloc(txg, &dva) } else { kept.push(dva) }
    }
    kept
}

/// Writes blocks into a pool without large segments, then gives the space back; the object's number.
fn write_gangs(pool: &Pool, handle: &DatasetHandle) -> ondisk::ObjectId {
    let os = handle.objset().expect("objset");
    let alloc = pool.zio().view().allocator;
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    let kept = fragment(&alloc, tx.txg());
    let new = NewObject { block_size: BLOCK, ..NewObject::new(ObjectType::UINT64_OTHER) };
    let object = os.allocate_object(new, &tx).expect("allocated");
    (0..BLOCKS).for_each(|block| object.write(block * BLOCK as u64, &pattern(BLOCK, block), &tx).expect("written"));
    drop(tx);
    pool.sync().expect("synced");
    assert!(pool.zio().stats().gang_writes.get() >= BLOCKS);
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    (0..5).for_each(|block| object.write(block * BLOCK as u64, &pattern(BLOCK, 100 + block), &tx).expect("written"));
    kept.iter().for_each(|dva| assert!(alloc.free(tx.txg(), dva)));
    drop(tx);
    (0..4).for_each(|_| pool.sync().expect("synced"));
    object.object()
}

#[test]
fn gangs_are_written_read_freed_and_accounted_for() {
    for (kind, count, ashift) in [(TopKind::Raidz(1), 3, 12), (TopKind::Mirror, 2, 12), (TopKind::Leaf, 1, 9)] {
        let dir = std::env::temp_dir().join(format!("zirconia-gangs-{}-{count}-{ashift}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let exec: Exec = Arc::new(Inline::new(1));
        let pool = create(&exec, &dir, kind, count, ashift);
        let handle = pool.dsl().hold("gangs").expect("held");
        let object = write_gangs(&pool, &handle);
        drop(handle);
        pool.export().expect("exported");

        if !need::lacks(need::Need::Zdb, "gangs as OpenZFS sees them").unwrap() {
            let program = need::zdb().expect("it is not lacking");
            let said = need::judged(&program, &dir, "gangs").expect("a clean pool");
            assert!(said.contains("ganged count"), "{kind:?}: {said}");
        }
        let devices = files(&dir, count).into_iter().map(|(_, device)| device).collect();
        let options = ImportOptions { host: host(), ..ImportOptions::default() };
        let pool = Pool::import(&exec, devices, &options, &Runtime::new()).expect("imported");
        let dnode = pool.dsl().hold("gangs").expect("held").objset().expect("objset").hold(object).expect("object");
        for block in 0..BLOCKS {
            let mut bytes = vec![0; BLOCK];
            dnode.read(block * BLOCK as u64, &mut bytes).expect("read");
            assert!(bytes == pattern(BLOCK, if block < 5 { 100 + block } else { block }), "{kind:?} block {block}");
        }
        drop(dnode);
        pool.export().expect("exported again");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
