//! Pools in memory, with one object whose blocks tell their age: what the tests of scans, resilver, rebuild and sweeps share.

use device::{BlockDevice, MemDevice};
use dmu::NewObject;
use dsl::{CreateDataset, TxSpace};
use exec::{Exec, Inline};
use ondisk::{Guid, ObjectId, ObjectType, ObjsetType};
use pool::{Host, ImportOptions, LeafSpec, Pool, PoolError, PoolSpec, Runtime, TopSpec};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};

pub const DEVICE_BYTES: usize = 80 << 20;
pub const BLOCK_BYTES: usize = 32 << 10;
pub const BLOCKS: u64 = 24;

pub fn devices(count: usize) -> Vec<Arc<MemDevice>> {
    devices_of(count, DEVICE_BYTES)
}

pub fn devices_of(count: usize, bytes: usize) -> Vec<Arc<MemDevice>> {
    (0..count).map(|index| Arc::new(MemDevice::new(&format!("d{index}"), bytes))).collect()
}

pub fn exec(seed: u64) -> Exec {
    Arc::new(Inline::new(seed))
}

pub fn host() -> Host {
    Host { id: 1, name: "testhost".to_string() }
}

pub fn dataset() -> CreateDataset {
    let properties = vec![("compression".to_string(), "off".to_string())];
    CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) }
}

pub fn leaf<D: BlockDevice + 'static>(device: &Arc<D>) -> LeafSpec {
    LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() }
}

/// Top-level vdevs of these kinds and numbers of leaves, over the devices in their order.
pub fn tops<D: BlockDevice + 'static>(layout: &[(TopKind, usize)], devices: &[Arc<D>]) -> Vec<TopSpec> {
    let mut rest = devices.iter().map(leaf);
    let mut next = |_: usize| rest.next().expect("enough devices");
    layout.iter().map(|&(kind, count)| TopSpec { kind, leaves: (0..count).map(&mut next).collect() }).collect()
}

pub fn opened<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Vec<Arc<dyn BlockDevice>> {
    devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect()
}

/// Copies of the disks, as after a crash.
pub fn copies(disks: &[Arc<MemDevice>]) -> Vec<Arc<MemDevice>> {
    disks.iter().map(|disk| Arc::new(MemDevice::with_bytes(&disk.path().display().to_string(), disk.contents()))).collect()
}

pub fn create(devices: &[Arc<MemDevice>], kind: TopKind) -> Pool {
    create_under(&exec(7), devices, kind)
}

pub fn create_under(exec: &Exec, devices: &[Arc<MemDevice>], kind: TopKind) -> Pool {
    create_as(exec, devices, kind, &Runtime::new())
}

pub fn create_as(exec: &Exec, devices: &[Arc<MemDevice>], kind: TopKind, runtime: &Runtime) -> Pool {
    let tops = vec![TopSpec { kind, leaves: devices.iter().map(leaf).collect() }];
    let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset()) };
    Pool::create(exec, spec, runtime).expect("created")
}

pub fn import(devices: &[Arc<MemDevice>], read_only: bool) -> Result<Pool, PoolError> {
    import_under(devices, read_only, &Runtime::new())
}

pub fn import_under(devices: &[Arc<MemDevice>], read_only: bool, runtime: &Runtime) -> Result<Pool, PoolError> {
    let options = ImportOptions { host: host(), read_only, ..ImportOptions::default() };
    Pool::import(&exec(8), opened(devices), &options, runtime)
}

/// Numbers that follow from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Bytes that tell block and age.
pub fn pattern(seed: u64, block: u64) -> Vec<u8> {
    pattern_of(BLOCK_BYTES, seed, block)
}

/// As [`pattern`], of this length.
pub fn pattern_of(length: usize, seed: u64, block: u64) -> Vec<u8> {
    let mut state = seed << 32 | block;
    let mut bytes = vec![0; length / 8 * 8];
    for word in bytes.chunks_exact_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&state.to_le_bytes());
    }
    bytes
}

pub fn write(pool: &Pool, object: ObjectId, blocks: std::ops::Range<u64>, seed: u64) {
    let handle = pool.dsl().hold("tank").expect("held");
    let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
    let dnode = handle.objset().expect("objset").hold(object).expect("object");
    for block in blocks {
        dnode.write(block * BLOCK_BYTES as u64, &pattern(seed, block), &tx).expect("written");
    }
}

pub fn new_object(pool: &Pool) -> ObjectId {
    let handle = pool.dsl().hold("tank").expect("held");
    let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
    let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::UINT64_OTHER) };
    handle.objset().expect("objset").allocate_object(new, &tx).expect("allocated").object()
}

/// A pool with one object whose blocks have age 1, on the devices.
pub fn filled(devices: &[Arc<MemDevice>], kind: TopKind) -> (Pool, ObjectId) {
    let pool = create(devices, kind);
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    (pool, object)
}

/// Waits for what other threads do.
pub fn until(exec: &Exec, what: &str, is_so: impl Fn() -> bool) {
    const STEP_NS: u64 = 1_000_000;
    const STEPS: u32 = 60_000;
    for _ in 0..STEPS {
        if is_so() {
            return;
        }
        exec.sleep_ns(STEP_NS);
    }
    panic!("{what} does not come");
}

/// Every block is what was written last.
pub fn check(pool: &Pool, object: ObjectId, ages: &[u64], what: &str) {
    pool.cache().clear();
    let dnode = pool.dsl().hold("tank").expect("held").objset().expect("objset").hold(object).expect("object");
    let mut block = vec![0; BLOCK_BYTES];
    for (index, age) in ages.iter().enumerate().filter(|(_, age)| **age != 0) {
        let read = dnode.read(index as u64 * BLOCK_BYTES as u64, &mut block);
        assert!(read.is_ok() && block == pattern(*age, index as u64), "{what}: block {index}: {read:?}");
    }
}

pub fn guids(pool: &Pool) -> Vec<Guid> {
    pool.tree().leaves.iter().map(|leaf| leaf.guid).collect()
}

pub fn checksum_errors(pool: &Pool) -> u64 {
    pool.status().leaves.iter().map(|leaf| leaf.counts.checksum_errors).sum()
}

pub fn redundancy(kind: TopKind, count: usize) -> usize {
    match kind {
        TopKind::Raidz(parity) => usize::from(parity),
        TopKind::Draid(config) => config.parity(),
        _ => count - 1,
    }
}

/// After everything was resilvered, any `parity` devices can go.
pub fn check_redundancy(devices: &[Arc<MemDevice>], kind: TopKind, object: ObjectId, ages: &[u64], what: &str) {
    let count = devices.len();
    let lose = redundancy(kind, count);
    for set in (0u32..1 << count).filter(|set| set.count_ones() as usize == lose) {
        let rest: Vec<_> = (0..count).filter(|index| set >> index & 1 == 0).map(|index| devices[index].clone()).collect();
        let pool = import(&rest, true).unwrap_or_else(|error| panic!("{what}, without {set:b}: {error}"));
        check(&pool, object, ages, &format!("{what}, without {set:b}"));
        assert!(pool.verify_space().expect("readable").is_clean(), "{what}, without {set:b}");
        assert_eq!(checksum_errors(&pool), 0, "{what}, without {set:b}: a device still lacks blocks");
    }
}
