//! The pool that is surveyed: it has one dataset, whose objects are files of the library or objects of the object storage device.

use super::args::Layer;
use crate::files::pattern;
use crate::layout::Layout;
use crate::matrix::cell::Mode;
use crate::measure::text;
use crate::subject::{TXG_DEFER, file_system, kind_of};
use abd::Abd;
use device::BlockDevice;
use direct_io::{Access, Direct};
use dsl::DatasetHandle;
use exec::Exec;
use osd::{Device, Fid, Object};
use pool::{ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::ops::Range;
use std::sync::Arc;
use zpl::{NewNode, Node, Settings, WriteData, Zfs};

const POOL: &str = "zbench";
const DATASET: &str = "zbench/ost";
/// Sequence of the objects: the first that Lustre gives a metadata target.
const SEQUENCE: u64 = 0x2_0000_0401;
/// Syncs until what was freed can be used again.
const SETTLING: usize = TXG_DEFER + 2;

/// Configuration of the dataset, and the way to it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Library or object storage device.
    pub layer: Layer,
    /// Devices and how they are combined.
    pub layout: Layout,
    /// Bytes of a record.
    pub record: u64,
    /// Value of the property `checksum`.
    pub checksum: String,
    /// Value of the property `compression`.
    pub compression: String,
    /// Mode in which requests ask for their I/O.
    pub mode: Mode,
    /// Budget of the cache in bytes.
    pub arc_max: u64,
}

/// Objects that requests go to, by their index.
pub trait Target: Send + Sync {
    /// Writes a range of an object.
    fn write(&self, object: usize, range: Range<u64>) -> Result<(), String>;
    /// Reads a range of an object.
    fn read(&self, object: usize, range: Range<u64>) -> Result<(), String>;
    /// Bytes so far that did not go through memory.
    fn direct_bytes(&self) -> u64;
    /// Destroys all objects.
    fn destroy(&self) -> Result<(), String>;
}

/// Amounts that were used up to now.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// Bytes that all devices read and wrote.
    pub device_bytes: u64,
    /// Bytes that were copied in memory.
    pub copied: u64,
    /// Seconds of processors.
    pub cpu: f64,
}

/// Pool that is surveyed, by whichever way.
pub trait Ground {
    /// Executor of the threads of a test.
    fn exec(&self) -> &Exec;
    /// Waits until everything written so far is on the devices.
    fn sync(&self) -> Result<(), String>;
    /// Syncs until what was destroyed is free.
    fn settle(&self) -> Result<(), String>;
    /// Opens objects of these numbers, for requests of up to so many bytes; makes them where that is wanted.
    fn open(&self, numbers: Range<u32>, request: u64, makes: bool) -> Result<Arc<dyn Target>, String>;
    /// Amounts that were used up to now; None where this process and its devices did all.
    fn used(&self) -> Result<Option<Used>, String>;
    /// Exports the pool and imports it again: the cache is empty afterwards. Nobody has objects open.
    fn again(self: Box<Self>) -> Result<Box<dyn Ground>, String>;
    /// Exports the pool.
    fn end(self: Box<Self>) -> Result<(), String>;
}

/// Files of the library.
struct Library {
    zfs: Arc<Zfs>,
    names: Vec<String>,
    nodes: Vec<Node>,
    access: Access,
    data: Abd,
}

/// Objects of the object storage device.
struct Store {
    device: Arc<Device>,
    objects: Vec<Arc<Object>>,
    is_direct: bool,
    /// Bytes that loans are filled with: nothing, as in the original, unless contents matter.
    fill: Option<Vec<u8>>,
}

impl Target for Library {
    fn write(&self, object: usize, range: Range<u64>) -> Result<(), String> {
        let data = self.data.slice(0..(range.end - range.start) as usize);
        let write = WriteData { offset: range.start, data, may_keep: true, kill_suid: false, synchronous: false };
        self.zfs.write_with(&self.nodes[object], write, self.access).map(drop).map_err(text)
    }

    fn read(&self, object: usize, range: Range<u64>) -> Result<(), String> {
        self.zfs.read_with(&self.nodes[object], range.start, range.end - range.start, self.access).map(drop).map_err(text)
    }

    fn direct_bytes(&self) -> u64 {
        let counts = self.zfs.direct().stats.snapshot();
        counts.direct_reads.1 + counts.direct_writes.1 + counts.coalesced_writes.1
    }

    fn destroy(&self) -> Result<(), String> {
        let root = self.zfs.node(self.zfs.root()).map_err(text)?;
        self.names.iter().try_for_each(|name| self.zfs.unlink(&root, name.as_bytes()).map_err(text))
    }
}

impl Target for Store {
    fn write(&self, object: usize, range: Range<u64>) -> Result<(), String> {
        let object = &self.objects[object];
        let mut loans = object.lend(std::slice::from_ref(&range)).map_err(text)?;
        if let Some(fill) = &self.fill {
            loans.iter_mut().for_each(|loan| {
                let length = loan.len();
                loan.copy_from_slice(&fill[..length]);
            });
        }
        let running = self.device.begin().write(object, range).start().map_err(text)?;
        let written = running.commit(object, loans).map_err(text);
        running.stop();
        written
    }

    fn read(&self, object: usize, range: Range<u64>) -> Result<(), String> {
        let (object, length) = (&self.objects[object], range.end - range.start);
        let read = if self.is_direct { object.read_direct(range.start, length) } else { object.read(range.start, length) };
        read.map(drop).map_err(text)
    }

    fn direct_bytes(&self) -> u64 {
        let counts = self.device.counts();
        counts.direct + counts.read_direct
    }

    fn destroy(&self) -> Result<(), String> {
        self.objects.iter().try_for_each(|object| {
            let running = self.device.begin().destroy(object).start().map_err(text)?;
            let destroyed = running.destroy(object).map_err(text);
            running.stop();
            destroyed
        })
    }
}

/// Pool on devices.
pub struct Bed {
    exec: Exec,
    devices: Vec<Arc<dyn BlockDevice>>,
    setup: Setup,
    pool: Pool,
}

fn runtime(setup: &Setup) -> Runtime {
    Runtime { arc_max: setup.arc_max, ..Runtime::new() }
}

impl Bed {
    /// Makes a pool of the devices, as many as its layout has.
    pub fn create(exec: &Exec, devices: Vec<Arc<dyn BlockDevice>>, setup: &Setup) -> Result<Bed, String> {
        let leaf = |device: &Arc<dyn BlockDevice>| {
            let path = device.path();
            LeafSpec { path: path.display().to_string(), kind: kind_of(path), device: device.clone() }
        };
        let mut leaves = devices.iter().map(leaf);
        let top = |(kind, count)| TopSpec { kind, leaves: leaves.by_ref().take(count).collect() };
        let tops = setup.layout.tops().into_iter().map(top).collect();
        let spec = PoolSpec { ashift: Some(12), force: true, ..PoolSpec::new(POOL, tops, file_system(&[])) };
        let pool = Pool::create(exec, spec, &runtime(setup)).map_err(text)?;
        let direct = if setup.mode == Mode::Direct { "standard" } else { "disabled" };
        let record = setup.record.to_string();
        let properties = [
            ("recordsize", record.as_str()),
            ("checksum", setup.checksum.as_str()),
            ("compression", setup.compression.as_str()),
            ("direct", direct),
        ];
        pool.dsl().create_dataset(DATASET, file_system(&properties)).map_err(text)?;
        Ok(Bed { exec: exec.clone(), devices, setup: setup.clone(), pool })
    }

    fn open_library(&self, handle: DatasetHandle, numbers: Range<u32>, request: u64, makes: bool) -> Result<Arc<dyn Target>, String> {
        let zfs = Zfs::open(&handle.objset().map_err(text)?, Some(self.pool.txgs().clone()), Settings::default()).map_err(text)?;
        zfs.set_space_source(Arc::new(handle));
        let root = zfs.node(zfs.root()).map_err(text)?;
        let names: Vec<String> = numbers.map(|number| format!("f{number}")).collect();
        let node = |name: &String| {
            let new = NewNode { mode: 0o100_644, ..NewNode::default() };
            if makes { zfs.create_node(&root, name.as_bytes(), &new) } else { zfs.lookup(&root, name.as_bytes()) }
        };
        let nodes = names.iter().map(node).collect::<Result<Vec<_>, _>>().map_err(text)?;
        drop(root);
        let access = if self.setup.mode == Mode::Direct { Access::DIRECT } else { Access::default() };
        Ok(Arc::new(Library { zfs, names, nodes, access, data: Abd::from_slice(&pattern(request as usize)) }))
    }

    fn open_store(&self, handle: DatasetHandle, numbers: Range<u32>, request: u64, makes: bool) -> Result<Arc<dyn Target>, String> {
        let device = Device::open(handle, Direct::default()).map_err(text)?;
        let object = |number: u32| {
            let object = device.object(Fid::new(SEQUENCE, number + 1))?;
            if makes {
                let running = device.begin().create(&object).start()?;
                running.create(&object, osd::NewObject::default())?;
                running.stop();
            }
            Ok::<_, osd::OsdError>(object)
        };
        let objects = numbers.map(object).collect::<Result<Vec<_>, _>>().map_err(text)?;
        let fill = (self.setup.compression != "off").then(|| pattern(request as usize).to_vec());
        Ok(Arc::new(Store { device, objects, is_direct: self.setup.mode == Mode::Direct, fill }))
    }
}

impl Ground for Bed {
    fn exec(&self) -> &Exec {
        &self.exec
    }

    fn sync(&self) -> Result<(), String> {
        self.pool.sync().map_err(text)
    }

    fn settle(&self) -> Result<(), String> {
        (0..SETTLING).try_for_each(|_| self.sync())
    }

    fn open(&self, numbers: Range<u32>, request: u64, makes: bool) -> Result<Arc<dyn Target>, String> {
        let handle = self.pool.dsl().hold(DATASET).map_err(text)?;
        match self.setup.layer {
            Layer::Osd => self.open_store(handle, numbers, request, makes),
            _ => self.open_library(handle, numbers, request, makes),
        }
    }

    fn used(&self) -> Result<Option<Used>, String> {
        Ok(None)
    }

    fn again(self: Box<Self>) -> Result<Box<dyn Ground>, String> {
        let Bed { exec, devices, setup, pool } = *self;
        pool.export().map_err(text)?;
        let pool = Pool::import(&exec, devices.clone(), &ImportOptions::default(), &runtime(&setup)).map_err(text)?;
        Ok(Box::new(Bed { exec, devices, setup, pool }))
    }

    fn end(self: Box<Self>) -> Result<(), String> {
        self.pool.export().map_err(text)
    }
}
