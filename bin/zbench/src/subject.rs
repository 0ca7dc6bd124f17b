//! The engine under test as a library: a pool on given devices with one object per stream, and the phases that are timed.

use crate::layout::Layout;
use crate::measure::text;
use abd::Abd;
use device::BlockDevice;
use dmu::{Dnode, NewObject, Objset, Tx};
use dsl::{CreateDataset, DatasetHandle, DslError, TxSpace};
use exec::Exec;
use offload::Accelerator;
use ondisk::{Guid, ObjectId, ObjectType, ObjsetType};
use pool::{ImportOptions, LeafSpec, Pool, PoolSpec, RebuildStatus, Runtime, ScanStatus, TopSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vdev::{LeafKind, Pairing};
use zio::IoKind;
use zpl::{CreateOptions, Zfs};

const DATASET: &str = "zbench/fs";
/// Number of transaction groups after which freed space is reused (OpenZFS: `TXG_DEFER_SIZE`).
pub const TXG_DEFER: usize = 2;

/// Configuration of a pool and of its use.
#[derive(Clone, Debug)]
pub struct Config {
    /// Layout of the pool.
    pub layout: Layout,
    /// Paths of files or block devices, as many as the layout has.
    pub devices: Vec<PathBuf>,
    /// Bytes of a record.
    pub record: usize,
    /// Value of the property `checksum`.
    pub checksum: String,
    /// Value of the property `compression`.
    pub compression: String,
    /// Number of worker threads of the executor.
    pub threads: usize,
    /// Budget of the cache in bytes.
    pub arc_max: u64,
}

/// Device bytes and operations so far: reads, writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceTotals {
    /// Number of bytes read, and of bytes written.
    pub bytes: [u64; 2],
    /// Number of reads, and of writes.
    pub ops: [u64; 2],
}

/// Pool with its dataset held.
pub struct Subject {
    exec: Exec,
    config: Config,
    pool: Pool,
    fs: DatasetHandle,
    opener: Opener,
}

/// Empty file system with these properties, as a dataset to make.
pub fn file_system(properties: &[(&str, &str)]) -> CreateDataset {
    let init =
        Box::new(|objset: &Arc<Objset>, tx: &Tx| Zfs::create(objset, &CreateOptions::default(), tx).map_err(|_| DslError::Unsupported));
    let properties = properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    CreateDataset { kind: ObjsetType::ZFS, properties, init }
}

type Open = dyn Fn(&Path) -> Result<Arc<dyn BlockDevice>, String> + Send + Sync;

/// Opener of devices by their paths.
#[derive(Clone)]
pub struct Opener(Arc<Open>);

impl Opener {
    /// Makes an opener that opens with `open`.
    pub fn new(open: impl Fn(&Path) -> Result<Arc<dyn BlockDevice>, String> + Send + Sync + 'static) -> Opener {
        Opener(Arc::new(open))
    }

    /// Opens devices, in the order of their paths.
    pub fn open(&self, paths: &[PathBuf]) -> Result<Vec<Arc<dyn BlockDevice>>, String> {
        paths.iter().map(|path| (self.0)(path)).collect()
    }
}

/// Opener of files and block devices.
impl Default for Opener {
    fn default() -> Opener {
        Opener::new(|path| device::open(path, &device::OpenOptions::default()).map_err(text))
    }
}

/// Kind of the leaf on a file or block device.
pub fn kind_of(path: &Path) -> LeafKind {
    if path.starts_with("/dev") && !path.starts_with("/dev/shm") { LeafKind::Disk } else { LeafKind::File }
}

fn runtime(config: &Config) -> Runtime {
    // What one turn's cache and dirty data used stays for the next: a pool that is in use has its memory.
    abd::set_cache_bytes_max((Runtime::new().txg.dirty_data_max + config.arc_max) as usize);
    Runtime { arc_max: config.arc_max, ..Runtime::new() }
}

impl Subject {
    /// Makes the pool, whatever lay on the devices.
    pub fn create(config: &Config) -> Result<Subject, String> {
        Subject::create_with(config, Opener::default())
    }

    /// Does [`Subject::create`] on what `opener` finds at the paths.
    pub fn create_with(config: &Config, opener: Opener) -> Result<Subject, String> {
        let subject = Subject::create_on(config, opener.open(&config.devices)?)?;
        Ok(Subject { opener, ..subject })
    }

    /// Does [`Subject::create`] on devices that are open already; such a pool cannot be imported again.
    pub fn create_on(config: &Config, devices: Vec<Arc<dyn BlockDevice>>) -> Result<Subject, String> {
        let exec: Exec = Arc::new(exec::Pool::new(config.threads));
        let mut leaves = config.devices.iter().zip(devices);
        let mut leaf = || {
            let (path, device) = leaves.next().ok_or("fewer devices than the layout has")?;
            Ok::<_, String>(LeafSpec { path: path.display().to_string(), kind: kind_of(path), device })
        };
        let mut tops = Vec::new();
        for (kind, count) in config.layout.tops() {
            tops.push(TopSpec { kind, leaves: (0..count).map(|_| leaf()).collect::<Result<_, _>>()? });
        }
        let root = CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) };
        let name = "zbench".to_string();
        let spec = PoolSpec { ashift: Some(12), force: true, ..PoolSpec::new(&name, tops, root) };
        let pool = Pool::create(&exec, spec, &runtime(config)).map_err(text)?;
        let properties =
            [("recordsize", config.record.to_string()), ("checksum", config.checksum.clone()), ("compression", config.compression.clone())];
        let properties = properties.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        let dataset = CreateDataset { kind: ObjsetType::ZFS, properties, init: Box::new(|_, _| Ok(())) };
        pool.dsl().create_dataset(DATASET, dataset).map_err(text)?;
        let fs = pool.dsl().hold(DATASET).map_err(text)?;
        Ok(Subject { exec, config: config.clone(), pool, fs, opener: Opener::default() })
    }

    /// Executor of the pool.
    pub fn exec(&self) -> &Exec {
        &self.exec
    }

    /// Pool itself.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Gives stages of the pipeline to a provider, or to none any more.
    pub fn set_accelerator(&self, accelerator: Option<Accelerator>) {
        self.pool.zio().set_stage(accelerator.map(Accelerator::into_stage));
    }

    /// Exports and imports: the cache is empty afterwards.
    pub fn reimport(self) -> Result<Subject, String> {
        let Subject { exec, config, pool, fs, opener } = self;
        drop(fs);
        pool.export().map_err(text)?;
        let pool = Pool::import(&exec, opener.open(&config.devices)?, &ImportOptions::default(), &runtime(&config)).map_err(text)?;
        let fs = pool.dsl().hold(DATASET).map_err(text)?;
        Ok(Subject { exec, config, pool, fs, opener })
    }

    /// Exports: everything is on the devices.
    pub fn export(self) -> Result<(), String> {
        let Subject { pool, fs, .. } = self;
        drop(fs);
        pool.export().map_err(text)
    }

    /// Makes a new, empty object.
    pub fn make_object(&self) -> Result<ObjectId, String> {
        let objset = self.fs.objset().map_err(text)?;
        let tx = self.fs.assign(TxSpace::Writes(1 << 20)).map_err(text)?;
        let new = NewObject { block_size: self.config.record, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
        let object = objset.allocate_object(new, &tx).map_err(text)?;
        Ok(object.object())
    }

    /// Object with this number.
    pub fn object(&self, object: ObjectId) -> Result<Arc<Dnode>, String> {
        self.fs.objset().map_err(text)?.hold(object).map_err(text)
    }

    /// Does one buffered write.
    pub fn write_at(&self, object: &Dnode, offset: u64, data: &[u8]) -> Result<(), String> {
        let tx = self.fs.assign(TxSpace::Writes(data.len() as u64)).map_err(text)?;
        object.write(offset, data, &tx).map_err(text)
    }

    /// Does one buffered read of as many bytes as `buffer` has.
    pub fn read_at(&self, object: &Dnode, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        object.read(offset, buffer).map_err(text)
    }

    /// Does one direct write of whole records from memory that begins on a page.
    pub fn write_direct_at(&self, object: &Dnode, offset: u64, data: &[u8]) -> Result<(), String> {
        let tx = self.fs.assign(TxSpace::Writes(data.len() as u64)).map_err(text)?;
        object.write_direct(offset, data, &tx).map_err(text)
    }

    /// Does one direct read into memory that begins on a page.
    pub fn read_direct_at(&self, object: &Dnode, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        object.read_direct_into(offset, buffer).map_err(text)
    }

    /// Does [`Subject::write_direct_at`] without waiting for the devices; may wait until the pool takes more.
    pub fn write_direct_then(
        &self,
        object: &Dnode,
        offset: u64,
        data: Abd,
        then: impl FnOnce(Result<(), String>) + Send + 'static,
    ) -> Result<(), String> {
        let tx = self.fs.assign(TxSpace::Writes(data.len() as u64)).map_err(text)?;
        object.write_direct_then(offset, data, tx, move |tx, result| {
            drop(tx);
            then(result.map_err(text));
        });
        Ok(())
    }

    /// Does a direct read into a buffer of the engine, without waiting for the devices.
    pub fn read_direct_then(&self, object: &Dnode, offset: u64, length: usize, then: impl FnOnce(Result<(), String>) + Send + 'static) {
        object.read_direct_then(offset, length, move |result| then(result.map(drop).map_err(text)));
    }

    /// Frees an object.
    pub fn free_object(&self, object: ObjectId) -> Result<(), String> {
        let tx = self.fs.assign(TxSpace::Frees).map_err(text)?;
        self.fs.objset().map_err(text)?.free_object(object, &tx).map_err(text)
    }

    /// Syncs until what was freed can be used again.
    pub fn settle(&self) -> Result<(), String> {
        (0..TXG_DEFER + 2).try_for_each(|_| self.sync())
    }

    /// Number of bytes that went the direct path so far.
    pub fn direct_bytes(&self) -> u64 {
        let stats = self.pool.iostats();
        stats.direct_read.get().1 + stats.direct_write.get().1
    }

    /// Waits until everything written so far is on the devices.
    pub fn sync(&self) -> Result<(), String> {
        self.pool.sync().map_err(text)
    }

    /// Scrubs the pool, to the end.
    pub fn scrub(&self) -> Result<(), String> {
        self.pool.scrub_start().map_err(text)?;
        self.pool.scrub_wait().map_err(text)
    }

    /// Declares a leaf faulted, for good (`zpool offline -f`).
    pub fn fault(&self, leaf: usize) -> Result<(), String> {
        self.pool.fault(self.leaf(leaf)?, false).map_err(text)
    }

    /// Brings a leaf back; what it lacks is resilvered by itself.
    pub fn online(&self, leaf: usize) -> Result<(), String> {
        let guid = self.leaf(leaf)?;
        let device = self.opener.open(&self.config.devices[leaf..=leaf])?.pop();
        self.pool.online(guid, device).map_err(text).map(drop)
    }

    /// Replaces a leaf by a new one at the same place, which the resilver fills.
    pub fn replace(&self, leaf: usize) -> Result<(), String> {
        let guid = self.leaf(leaf)?;
        let path = &self.config.devices[leaf];
        let device = self.opener.open(std::slice::from_ref(path))?.pop().ok_or("no device")?;
        let new = LeafSpec { path: path.display().to_string(), kind: kind_of(path), device };
        self.pool.attach(guid, &new, Pairing::Replacing, true).map_err(text)
    }

    /// Lets the distributed spare of the pool stand in for a leaf; a sequential rebuild fills it.
    pub fn rebuild_onto_spare(&self, leaf: usize) -> Result<(), String> {
        let spare = self.pool.spares().into_iter().find(|spare| spare.is_distributed()).ok_or("the layout has no distributed spare")?;
        self.pool.spare_in(self.leaf(leaf)?, spare.guid, None, true).map_err(text)
    }

    /// State of the last or current rebuild.
    pub fn rebuild_status(&self) -> Option<RebuildStatus> {
        self.pool.rebuild_status().into_iter().next()
    }

    /// Sets a property of the pool.
    pub fn set_pool_property(&self, name: &str, value: &str) -> Result<(), String> {
        self.pool.set_prop(name, value).map_err(|error| format!("{name}={value}: {error}"))
    }

    /// Sets a parameter of the I/O scheduler, by OpenZFS's name.
    pub fn tune(&self, name: &str, value: u64) -> Result<(), String> {
        let mut outcome = Ok(());
        self.pool.zio().tune_queues(|tunables| outcome = tunables.set(name, value));
        outcome.map_err(|error| format!("{name}={value}: {error}"))
    }

    /// Guid of the leaf on the device with this number. There is no other one, but while it is replaced.
    fn leaf(&self, index: usize) -> Result<Guid, String> {
        let path = self.config.devices[index].display().to_string();
        let tree = self.pool.tree();
        tree.leaves.iter().find(|leaf| leaf.path == path).map(|leaf| leaf.guid).ok_or(format!("{path} is not in the pool"))
    }

    /// Number of leaves of the pool.
    pub fn leaf_count(&self) -> usize {
        self.pool.tree().leaves.len()
    }

    /// Number of background I/Os that the latency promise lets each leaf's device have, in thousandths, in the order of the leaves.
    pub fn shares_milli(&self) -> Vec<u32> {
        let share = |leaf: &vdev::Leaf| self.pool.zio().queue_state(leaf.guid).map_or(0, |state| state.promise.share_milli);
        self.pool.tree().leaves.iter().map(share).collect()
    }

    /// State of the last or current scan.
    pub fn scan_status(&self) -> Option<ScanStatus> {
        self.pool.scan_status()
    }

    /// Waits until no scan makes progress any more.
    pub fn wait_for_scan(&self) -> Result<(), String> {
        self.pool.scrub_wait().map_err(text)
    }

    /// Totals of what the devices did since the import.
    pub fn device_totals(&self) -> DeviceTotals {
        self.device_totals_without(None)
    }

    /// Totals of what the devices did but for one, whose counts end with it when it is replaced.
    pub fn device_totals_without(&self, without: Option<usize>) -> DeviceTotals {
        let mut totals = DeviceTotals::default();
        let status = self.pool.status();
        let path = without.map(|index| self.config.devices[index].display().to_string());
        for leaf in status.leaves.iter().filter(|leaf| path.as_ref() != Some(&status.tree.leaf(leaf.leaf).path)) {
            for kind in [IoKind::Read as usize, IoKind::Write as usize] {
                totals.bytes[kind] += leaf.counts.bytes[kind];
                totals.ops[kind] += leaf.counts.ops[kind];
            }
        }
        totals
    }
}
