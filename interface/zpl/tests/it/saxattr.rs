//! Extended attributes in system attributes, in the intent log of a pool with the feature `zilsaxattr`. What users lose when these fail: an attribute
//! that fsync(2) made durable, or the pool, to software from before the feature that replays a log which it does not know.

use device::BlockDevice;
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline};
use ondisk::ObjsetType;
use pool::{ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use sim::{Image, Sim, SimDevice};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zpl::{CreateOptions, FileReplay, NewNode, Node, SetAttrs, SetMode, Settings, Zfs};

const DEVICE_BYTES: usize = 64 << 20;
const FEATURE: &str = "zilsaxattr";

fn runtime() -> Runtime {
    Runtime { replay: Some(Arc::new(FileReplay)), ..Runtime::new() }
}

fn root() -> CreateDataset {
    let init =
        |objset: &Arc<dmu::Objset>, tx: &dmu::Tx| Zfs::create(objset, &CreateOptions::default(), tx).map_err(|_| DslError::Unsupported);
    CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(init) }
}

/// A pool on one device.
struct Machine {
    exec: Exec,
    device: Arc<SimDevice>,
    pool: Pool,
}

impl Machine {
    fn new(features: Option<Vec<String>>) -> Machine {
        let exec: Exec = Arc::new(Inline::new(7));
        let device = Sim::new(&exec, 7).device("d0", DEVICE_BYTES);
        let leaf = LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() };
        let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
        let spec = PoolSpec { ashift: Some(9), features, ..PoolSpec::new("tank", tops, root()) };
        let pool = Pool::create(&exec, spec, &runtime()).expect("made");
        Machine { exec, device, pool }
    }

    /// The machine after a power cut that left this on the device.
    fn after(image: Image) -> Machine {
        let exec: Exec = Arc::new(Inline::new(7));
        exec.sleep_ns(1_000_000_000_000);
        let device = Sim::new(&exec, 7).device_from("d0", image);
        Machine::import(exec, device)
    }

    fn import(exec: Exec, device: Arc<SimDevice>) -> Machine {
        let all = vec![device.clone() as Arc<dyn BlockDevice>];
        let pool = Pool::import(&exec, all, &ImportOptions::default(), &runtime()).expect("imported");
        Machine { exec, device, pool }
    }

    fn mount(&self) -> Arc<Zfs> {
        let handle = self.pool.dsl().hold("tank").expect("held");
        let zfs = Zfs::open(&handle.objset().expect("objset"), Some(self.pool.txgs().clone()), Settings::default()).expect("open");
        zfs.drain_unlinked().expect("drained");
        let tells_xattrs = handle.logs_xattrs();
        zfs.set_log(handle.intent_log(Arc::downgrade(&zfs) as _).expect("a log"), tells_xattrs);
        zfs.set_space_source(Arc::new(handle));
        zfs
    }

    /// Number of datasets that use the feature; None where the pool has not got it.
    fn users(&self) -> Option<u64> {
        let features = self.pool.features();
        features.into_iter().find(|(name, ..)| name == FEATURE).and_then(|(_, _, count)| count)
    }

    /// Exports the pool and imports it again.
    fn again(self) -> Machine {
        let Machine { exec, device, pool } = self;
        pool.export().expect("exported");
        Machine::import(exec, device)
    }

    /// Sets an attribute and makes it durable: true when no txg was waited for.
    fn attribute(&self, zfs: &Arc<Zfs>, file: &Node, value: &[u8]) -> bool {
        let synced = self.pool.txgs().synced_txg();
        zfs.set_xattr(file, b"user.mime", value, SetMode::Any).expect("set");
        zfs.fsync(file).expect("durable");
        self.pool.txgs().synced_txg() == synced
    }
}

fn file(zfs: &Arc<Zfs>, name: &[u8]) -> Node {
    let root = zfs.node(zfs.root()).expect("the root");
    zfs.lookup(&root, name).or_else(|_| zfs.create_node(&root, name, &NewNode { mode: 0o100_644, ..NewNode::default() })).expect("a file")
}

/// Has the log begin: the first commits wait for txgs.
fn begin(zfs: &Arc<Zfs>, file: &Node) {
    for round in 0..4 {
        zfs.set_attrs(file, &SetAttrs { mode: Some(0o600 + round), ..SetAttrs::default() }).expect("set");
        zfs.fsync(file).expect("durable");
    }
}

fn value(zfs: &Arc<Zfs>) -> Vec<u8> {
    zfs.get_xattr(&file(zfs, b"f"), b"user.mime").expect("an attribute")
}

#[test]
fn an_attribute_that_was_made_durable_survives_a_power_cut_without_a_txg() {
    let machine = Machine::new(None);
    assert_eq!(machine.users(), Some(0));
    let zfs = machine.mount();
    let node = file(&zfs, b"f");
    begin(&zfs, &node);
    assert_eq!(machine.users(), Some(1), "counted before the first record");
    assert!(machine.attribute(&zfs, &node, b"text/plain"), "no txg is waited for");
    let image = machine.device.image();
    drop((node, zfs));
    let machine = machine.again();
    assert_eq!(machine.users(), Some(0), "without a log the pool is whoever's");

    let after = Machine::after(image);
    assert_eq!(after.pool.replayed().len(), 1);
    assert_eq!(value(&after.mount()), b"text/plain");
}

/// The feature may be enabled while the dataset has a log, and without it attributes are on disk with their txg.
#[test]
fn a_log_from_before_the_feature_begins_anew_with_it() {
    let enabled = Machine::new(None).pool.features().into_iter().filter(|(name, _, count)| count.is_some() && name != FEATURE);
    let machine = Machine::new(Some(enabled.map(|(name, ..)| name).collect()));
    let zfs = machine.mount();
    let node = file(&zfs, b"f");
    begin(&zfs, &node);
    assert!(!machine.attribute(&zfs, &node, b"text/plain"), "nothing but a txg makes it durable");
    begin(&zfs, &node);
    assert_eq!(machine.users(), None);
    drop((node, zfs));
    machine.pool.enable_feature(FEATURE).expect("enabled");
    let zfs = machine.mount();
    let node = file(&zfs, b"f");
    begin(&zfs, &node);
    assert_eq!(machine.users(), Some(1));
    assert!(machine.attribute(&zfs, &node, b"text/html"), "no txg is waited for");
    assert_eq!(value(&Machine::after(machine.device.image()).mount()), b"text/html");
}
