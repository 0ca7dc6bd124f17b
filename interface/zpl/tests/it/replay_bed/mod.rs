//! A pool on a simulated device with a file system and a volume, and logs that are put there as OpenZFS writes them.

use abd::Abd;
use device::BlockDevice;
use dsl::{CreateDataset, DslError, TxSpace};
use exec::{Exec, Inline};
use kernels::checksum::{Verifier, checksum, embed};
use metaslab::AllocRequest;
use need::pattern;
use ondisk::{BlockPtr, ByteOrder, Checksum, Compression, Dva, ObjectType, ObjsetType, Txg, ZilHeader};
use pool::{ImportOptions, LeafSpec, Pool, PoolError, PoolSpec, Runtime, TopSpec};
use sim::{Image, Sim, SimDevice};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zil::testing::{LOG_BYTES, log_block, log_pointer};
use zpl::{CreateOptions, FileReplay, Node, Settings, WriteData, Zfs};

pub const FS: &str = "tank/fs";
pub const VOLUME: &str = "tank/vol";
pub const RECORD_BYTES: u64 = 16 << 10;
pub const DEVICE_BYTES: usize = 64 << 20;
const LABEL_START_BYTES: u64 = 4 << 20;
const VOLUME_BYTES: u64 = 1 << 20;
/// Txgs between the last on disk and the youngest block of a log.
const LOST_TXGS: u64 = 40;

pub fn runtime() -> Runtime {
    Runtime { replay: Some(Arc::new(FileReplay)), ..Runtime::new() }
}

/// Node at a path.
pub fn node(zfs: &Arc<Zfs>, path: &str) -> Node {
    let root = zfs.node(zfs.root()).expect("the root");
    path.split('/').filter(|name| !name.is_empty()).fold(root, |at, name| zfs.lookup(&at, name.as_bytes()).expect("a name"))
}

/// Paths below a directory, and their objects.
pub fn listing(zfs: &Arc<Zfs>, directory: &Node, path: &str, names: &mut BTreeMap<String, u64>) {
    let mut entries = Vec::new();
    zfs.list(directory, 3, &mut |listed| {
        entries.push((String::from_utf8_lossy(listed.name).into_owned(), listed.dirent.object));
        true
    })
    .expect("listed");
    for (name, object) in entries {
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        let child = zfs.node(object).expect("a node");
        if child.fields().is_directory() {
            listing(zfs, &child, &path, names);
        }
        names.insert(path, object.0);
    }
}

pub fn write(zfs: &Arc<Zfs>, node: &Node, offset: u64, bytes: &[u8]) {
    let data = Abd::from_slice(bytes);
    zfs.write(node, WriteData { offset, data, may_keep: true, kill_suid: false, synchronous: false }).expect("written");
}

pub fn dataset(kind: ObjsetType, properties: &[(&str, &str)]) -> CreateDataset {
    let init = move |objset: &Arc<dmu::Objset>, tx: &dmu::Tx| match kind {
        ObjsetType::ZVOL => dsl::volume::create(objset, VOLUME_BYTES, RECORD_BYTES, tx),
        _ => Zfs::create(objset, &CreateOptions::default(), tx).map_err(|_| DslError::Unsupported),
    };
    let properties = properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    CreateDataset { kind, properties, init: Box::new(init) }
}

/// Devices of a machine that was just started.
pub struct Devices {
    exec: Exec,
    pub sim: Sim,
    devices: Vec<Arc<SimDevice>>,
}

impl Devices {
    pub fn of(images: Vec<Image>) -> Devices {
        let exec: Exec = Arc::new(Inline::new(5));
        let sim = Sim::new(&exec, 5);
        let devices = images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image)).collect();
        Devices { exec, sim, devices }
    }
    /// A new pool on the first device.
    pub fn create(&self) -> Pool {
        let device = self.devices[0].clone();
        let leaf = LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device };
        let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
        let spec = PoolSpec { ashift: Some(9), ..PoolSpec::new("tank", tops, dataset(ObjsetType::ZFS, &[])) };
        Pool::create(&self.exec, spec, &Runtime::new()).expect("made")
    }
    pub fn images(&self) -> Vec<Image> {
        self.devices.iter().map(|device| device.image()).collect()
    }
    pub fn import(&self, read_only: bool, runtime: &Runtime) -> Result<Pool, PoolError> {
        let devices = self.devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        Pool::import(&self.exec, devices, &ImportOptions { read_only, ..ImportOptions::default() }, runtime)
    }
    /// Space maps and blocks agree.
    pub fn check_space(&self, what: &str) {
        let pool = self.import(true, &runtime()).unwrap_or_else(|error| panic!("{what}, read-only: {error}"));
        let report = pool.verify_space().expect("readable");
        assert!(report.is_clean(), "{what}: {report:?}");
        pool.export().expect("closed");
    }
}

/// Log to be left by a crash.
pub struct NewLog<'a> {
    pub dataset: &'a str,
    pub blocks: usize,
    pub records: &'a dyn Fn(&Bed, u64) -> Vec<Vec<u8>>,
}

/// Pool before the crash.
pub struct Bed {
    devices: Devices,
    pool: Pool,
}

impl Bed {
    /// Makes the pool, the file system filled by `fill`, and the volume.
    pub fn new(fill: &dyn Fn(&Arc<Zfs>)) -> Bed {
        let devices = Devices::of(vec![Image::new(DEVICE_BYTES)]);
        let pool = devices.create();
        let files = dataset(ObjsetType::ZFS, &[("recordsize", "16384"), ("compression", "off")]);
        pool.dsl().create_dataset(FS, files).expect("made");
        let sizes = [("volsize", "1048576"), ("volblocksize", "16384"), ("compression", "off")];
        pool.dsl().create_dataset(VOLUME, dataset(ObjsetType::ZVOL, &sizes)).expect("made");
        let bed = Bed { devices, pool };
        fill(&bed.files());
        let volume = bed.pool.dsl().hold(VOLUME).expect("held");
        let tx = volume.assign(TxSpace::Writes(1 << 20)).expect("assigned");
        let data = volume.objset().expect("objset").hold(ondisk::ObjectId(1)).expect("data");
        data.write(0, &pattern(2048, 9), &tx).expect("written");
        drop(tx);
        bed.pool.sync().expect("synced");
        bed
    }

    /// The file system, mounted.
    pub fn files(&self) -> Arc<Zfs> {
        let handle = self.pool.dsl().hold(FS).expect("held");
        let zfs = Zfs::open(&handle.objset().expect("objset"), Some(self.pool.txgs().clone()), Settings::default()).expect("open");
        zfs.set_space_source(Arc::new(handle));
        zfs
    }

    fn place(&self, bytes: usize, txg: Txg) -> Dva {
        let request = AllocRequest { psize: bytes as u64, copies: 1, txg, hint: 0 };
        self.pool.zio().view().allocator.alloc(&request).expect("room")[0]
    }

    fn put(&self, dva: Dva, bytes: &[u8]) {
        self.devices.devices[0].tamper(|image| image.write((LABEL_START_BYTES + dva.offset) as usize, bytes));
    }

    /// A block of data that was written in a txg that was lost.
    pub fn data(&self, bytes: &[u8]) -> BlockPtr {
        let txg = self.pool.txgs().open_txg();
        let mut bp = BlockPtr::HOLE;
        bp.set_dva(0, self.place(bytes.len(), txg));
        bp.set_lsize(bytes.len());
        bp.set_psize(bytes.len());
        bp.set_compression(Compression::OFF);
        bp.set_checksum_kind(Checksum::FLETCHER_4);
        bp.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
        bp.set_little_endian(true);
        bp.set_birth(txg, txg);
        bp.set_fill(1);
        bp.set_checksum(checksum(Checksum::FLETCHER_4, &[bytes], ByteOrder::Little).expect("a checksum"));
        self.put(bp.dva(0), bytes);
        bp
    }

    /// Puts logs there, each in so many blocks, whose first one is on disk already; records are made for the first txg that was lost.
    pub fn leave_logs(&self, logs: &[NewLog<'_>]) {
        let begun: Vec<BlockPtr> = logs.iter().map(|log| self.begin_log(log.dataset)).collect();
        self.pool.sync().expect("synced");
        let open = self.pool.txgs().open_txg();
        for (log, first) in logs.iter().zip(begun) {
            self.write_log(first, log.blocks, &(log.records)(self, open.0), open);
        }
    }

    /// Gives a dataset a log of one block, which nobody wrote yet.
    fn begin_log(&self, dataset: &str) -> BlockPtr {
        let handle = self.pool.dsl().hold(dataset).expect("held");
        let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
        let first = log_pointer(handle.object(), 1, self.place(LOG_BYTES, tx.txg()), tx.txg());
        let header = ZilHeader { zh_log: first, ..ZilHeader::default() };
        handle.objset().expect("objset").set_zil_header(header, &tx).expect("set");
        first
    }

    fn write_log(&self, first: BlockPtr, blocks: usize, records: &[Vec<u8>], open: Txg) {
        let objset = first.checksum()[ondisk::zil::ZIL_ZC_OBJSET];
        let later = (1..=blocks as u64).map(|index| {
            let age = if index == blocks as u64 { LOST_TXGS } else { index };
            log_pointer(objset, 1 + index, self.place(LOG_BYTES, open), Txg(open.0 + age))
        });
        let pointers: Vec<BlockPtr> = std::iter::once(first).chain(later).collect();
        let share = records.len().div_ceil(blocks).max(1);
        for (index, pair) in pointers.windows(2).enumerate() {
            let part: Vec<Vec<u8>> = records.iter().skip(index * share).take(share).cloned().collect();
            let mut block = log_block(&part, pair[1], ByteOrder::Little);
            assert_eq!(block.len(), LOG_BYTES, "the records fit");
            embed(Checksum::ZILOG2, &mut block, Verifier::log_block(pair[0].checksum())).expect("room");
            self.put(pair[0].dva(0), &block);
        }
    }

    /// Txg of the youngest block of a log that is left now.
    pub fn youngest(&self) -> Txg {
        Txg(self.pool.txgs().open_txg().0 + LOST_TXGS)
    }

    /// The machine stops.
    pub fn crash(self) -> Vec<Image> {
        let Bed { devices, pool } = self;
        drop(pool);
        devices.images()
    }
}
