//! What the tests share: a target on files, a proxy that harms frames between it and the host, and the write of a record.

pub mod proxy;

use abd::{Abd, AbdPart};
use dpusm::{
    Capabilities, Compress, Device, DeviceHandle, Feature, Graph, HostDone, HostRead, HostStore, NoHost, OpError, Program, Provider,
    RaidContext, RegisterOptions, Registry, Store, StoreKind, StoreTarget, View,
};
use exec::{Exec, Mutex, Pool, SplitMix};
use ondisk::{ByteOrder, Checksum, Compression};
use provider_software::{Software, SoftwareOptions};
use provider_target::{LinkStats, TargetOptions, TargetProvider};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use target_server::{Listening, Stores, Target, TargetSetup};
use target_wire::{Address, Listener, Secret};

/// Data and parity columns of the layout: a raidz2 of twelve.
pub const DATA: usize = 10;
pub const PARITY: usize = 2;
const SECTOR: usize = 512;
/// Time that a graph may take, in nanoseconds: longer than anything here takes.
pub const DEADLINE_NS: u64 = 120_000_000_000;

pub fn exec() -> Exec {
    Arc::new(Pool::new(3))
}

/// A folder that goes away again.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("provider-target-{}-{name}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file on the target's side.
pub struct Disk(pub File);

impl HostStore for Disk {
    fn read(&self, offset: u64, bytes: usize, done: HostRead) {
        let mut part = AbdPart::scratch(bytes);
        let read = self.0.read_exact_at(&mut part, offset);
        done(read.map(|()| part.freeze()).map_err(|error| error.raw_os_error().unwrap_or(5)));
    }

    fn write(&self, offset: u64, data: Abd, done: HostDone) {
        done(self.0.write_all_at(&data.to_vec(), offset).map_err(|error| error.raw_os_error().unwrap_or(5)));
    }

    fn flush(&self, done: HostDone) {
        done(Ok(()));
    }
}

/// The files in one folder, and nothing else.
struct Files(PathBuf);

impl Stores for Files {
    fn open(&self, _kind: StoreKind, path: &Path) -> Result<Arc<dyn HostStore>, i32> {
        if path.parent() != Some(&self.0) {
            return Err(13);
        }
        match File::options().read(true).write(true).open(path) {
            Ok(file) => Ok(Arc::new(Disk(file))),
            Err(error) => Err(error.raw_os_error().unwrap_or(5)),
        }
    }
}

/// Disks whose writes are begun, and done when they are let go.
#[derive(Default)]
pub struct Held {
    is_on: AtomicBool,
    begun: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Held {
    /// From now on.
    pub fn hold(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    /// Number of writes that are begun.
    pub fn begun(&self) -> usize {
        self.begun.lock().len()
    }

    pub fn let_go(&self) {
        let begun = std::mem::take(&mut *self.begun.lock());
        begun.into_iter().for_each(|write| write());
    }
}

/// Stores whose writes go through [`Held`].
pub struct HeldStores(pub Arc<Held>, pub Arc<dyn Stores>);

impl Stores for HeldStores {
    fn open(&self, kind: StoreKind, path: &Path) -> Result<Arc<dyn HostStore>, i32> {
        Ok(Arc::new(HeldStore(self.0.clone(), self.1.open(kind, path)?)))
    }
}

struct HeldStore(Arc<Held>, Arc<dyn HostStore>);

impl HostStore for HeldStore {
    fn read(&self, offset: u64, bytes: usize, done: HostRead) {
        self.1.read(offset, bytes, done);
    }

    fn write(&self, offset: u64, data: Abd, done: HostDone) {
        if !self.0.is_on.load(Ordering::Acquire) {
            return self.1.write(offset, data, done);
        }
        let disk = self.1.clone();
        self.0.begun.lock().push(Box::new(move || disk.write(offset, data, done)));
    }

    fn flush(&self, done: HostDone) {
        self.1.flush(done);
    }
}

/// A provider that does not reach what it works with any more, once it is cut off: what that had begun may go on for an hour.
pub struct CutOff {
    pub inner: Arc<dyn Provider>,
    pub is_cut: Arc<AtomicBool>,
}

impl Provider for CutOff {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn version(&self) -> &str {
        self.inner.version()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        self.inner.alloc(bytes)
    }
    fn free(&self, handle: DeviceHandle) {
        self.inner.free(handle);
    }
    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        if self.is_cut.load(Ordering::Acquire) {
            drop(programs);
            return Ok(());
        }
        self.inner.submit(programs)
    }
    fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        self.inner.open(target)
    }
    fn close(&self, handle: DeviceHandle) {
        self.inner.close(handle);
    }
    fn lingers_ns(&self) -> u64 {
        3_600_000_000_000
    }
}

/// The features that a record needs: fewer than all, so that registration is quick.
pub fn features() -> Vec<Feature> {
    vec![
        Feature::CopyIn { scatter: true },
        Feature::CopyOut { scatter: true },
        Feature::ZeroFill,
        Feature::Compress { kind: Compression::LZ4, level_min: 0, level_max: 0 },
        Feature::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little },
        Feature::RaidGenerate { parity: 2, data_columns_max: DATA as u16 },
        Feature::Store { kind: StoreKind::File },
    ]
}

pub fn secret() -> Secret {
    Secret::new(b"correct horse battery staple").unwrap()
}

/// A target process, as far as a test needs one.
pub struct Side {
    pub folder: Folder,
    pub target: Arc<Target>,
}

pub fn setup(lease_ms: u64) -> TargetSetup {
    TargetSetup { lease_ns: lease_ms * 1_000_000, memory_bytes_max: 256 << 20, ..TargetSetup::new(secret()) }
}

impl Side {
    pub fn new(name: &str, features: Vec<Feature>, setup: TargetSetup) -> Side {
        Side::with(name, features, setup, |software| software, |files| files)
    }

    /// One whose provider, and whose files, are behind what these make of them.
    pub fn with(
        name: &str,
        features: Vec<Feature>,
        setup: TargetSetup,
        provider: impl FnOnce(Arc<dyn Provider>) -> Arc<dyn Provider>,
        stores: impl FnOnce(Arc<dyn Stores>) -> Arc<dyn Stores>,
    ) -> Side {
        let exec = exec();
        let folder = Folder::new(name);
        let software = provider(Software::new(&exec, SoftwareOptions { features, ..SoftwareOptions::default() }));
        let options = RegisterOptions { scratch: Some(folder.0.clone()), test_bytes_max: 512, ..RegisterOptions::default() };
        let device = Registry::new(&exec).register(software, &options).unwrap();
        assert_eq!(device.disabled(), []);
        let target = Target::new(&exec, device, setup, stores(Arc::new(Files(folder.0.clone()))));
        Side { folder, target }
    }

    pub fn tcp(&self) -> Listening {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_string())).unwrap();
        self.target.listen(listener).unwrap()
    }

    pub fn unix(&self) -> Listening {
        let listener = Listener::bind(&Address::Unix(self.folder.0.join("socket"))).unwrap();
        self.target.listen(listener).unwrap()
    }

    /// Listens on a Unix socket, with shared memory, or on TCP.
    pub fn listen(&self, is_local: bool) -> Listening {
        if is_local { self.unix() } else { self.tcp() }
    }

    /// New disks of 16 MiB.
    pub fn disks(&self, name: &str) -> Vec<PathBuf> {
        let one = |number| {
            let path = self.folder.0.join(format!("{name}-{number}"));
            File::create(&path).unwrap().set_len(16 << 20).unwrap();
            path
        };
        (0..PARITY + DATA).map(one).collect()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.target.stop();
    }
}

pub fn options(address: &Address) -> TargetOptions {
    TargetOptions::new("target", address.clone(), secret())
}

/// A host: its provider, registered.
pub struct Host {
    pub provider: Arc<TargetProvider>,
    pub device: Device,
}

impl Host {
    pub fn new(exec: &Exec, address: &Address, scratch: &Path, bytes_max: usize) -> Host {
        Host::with(exec, &options(address), scratch, bytes_max)
    }

    pub fn with(exec: &Exec, options: &TargetOptions, scratch: &Path, bytes_max: usize) -> Host {
        let provider = TargetProvider::connect(exec, options).unwrap();
        let options = RegisterOptions { scratch: Some(scratch.to_path_buf()), test_bytes_max: bytes_max, ..RegisterOptions::default() };
        let device = Registry::new(exec).register(provider.clone(), &options).unwrap();
        assert_eq!(device.disabled(), []);
        Host { provider, device }
    }

    pub fn open(&self, disks: &[PathBuf]) -> Result<Vec<Store>, OpError> {
        disks.iter().map(|path| self.device.open(&file(path))).collect()
    }

    /// Writes records of one length through the target, and looks that they lie on the disks as they must; what crossed the link.
    pub fn write_all(&self, disks: &[PathBuf], stores: &[Store], blocks: &[Abd]) -> LinkStats {
        let offset = |number: usize| (number * blocks[0].len()) as u64;
        let before = self.provider.stats();
        for (number, block) in blocks.iter().enumerate() {
            write_on(&self.device, stores, block, offset(number)).unwrap();
        }
        let crossed = self.provider.stats().since(&before);
        for (number, block) in blocks.iter().enumerate() {
            assert!(is_on(disks, &software(block), offset(number)), "record {number} of {}", block.len());
        }
        crossed
    }

    /// There and back, in one program; what came back.
    pub fn round_trip(&self, block: &Abd) -> Abd {
        self.round_trip_into(block, vec![AbdPart::scratch(block.len())])
    }

    /// As [`Host::round_trip`], into these parts.
    pub fn round_trip_into(&self, block: &Abd, parts: Vec<AbdPart>) -> Abd {
        let buffer = self.device.alloc(block.len()).unwrap();
        let mut graph = Graph::new();
        graph.copy_in(block, &buffer.whole());
        let node = graph.copy_out(buffer.whole(), parts);
        self.device.run(graph, DEADLINE_NS).unwrap().take_bytes(node).unwrap()
    }
}

pub fn file(path: &Path) -> StoreTarget {
    StoreTarget { kind: StoreKind::File, path: path.to_path_buf(), host: Arc::new(NoHost) }
}

/// Blocks of words, which shrink, and of noise, which do not.
pub fn blocks(count: usize, bytes: usize, compressible: bool) -> Vec<Abd> {
    let mut random = SplitMix::new(7);
    let words: [&[u8]; 4] = [b"checksum ", b"parity ", b"compression ", b"the "];
    let one = |number: usize| -> Vec<u8> {
        if compressible && number.is_multiple_of(2) {
            std::iter::repeat_with(|| words[random.below(4)]).flatten().copied().take(bytes).collect()
        } else {
            random.bytes(bytes)
        }
    };
    (0..count).map(one).map(|block| Abd::from_slice(&block)).collect()
}

/// Facts that a block pointer would say of a record, and what lies on the disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub checksum: [u64; 4],
    /// Columns of the record, parity first.
    pub columns: Vec<Vec<u8>>,
}

fn how(bytes: usize) -> Compress {
    Compress { kind: Compression::LZ4, level: 0, limit_bytes: bytes - bytes / 8, round_to_bytes: SECTOR }
}

fn column_lengths(stored: usize) -> [usize; DATA] {
    let longest = stored.div_ceil(DATA).next_multiple_of(SECTOR);
    std::array::from_fn(|column| stored.saturating_sub(column * longest).min(longest))
}

/// The record as software makes it.
pub fn software(block: &Abd) -> Written {
    let how = how(block.len());
    let mut stored = block.to_vec();
    let mut out = vec![0; how.limit_bytes];
    if let Some(length) = kernels::compress(how.kind, how.level, &stored, &mut out).filter(|length| how.is_worth(*length, stored.len())) {
        out.truncate(length);
        out.resize(how.stored_bytes(length), 0);
        stored = out;
    }
    let checksum = kernels::checksum(Checksum::FLETCHER_4, &[&stored], ByteOrder::Little).unwrap();
    let lengths = column_lengths(stored.len());
    let mut rest = &stored[..];
    let data: Vec<&[u8]> = lengths.iter().map(|length| rest.split_off(..*length).unwrap()).collect();
    let mut parity = vec![vec![0; lengths[0]]; PARITY];
    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
    kernels::raidz::generate(&data, &mut targets).unwrap();
    parity.extend(data.into_iter().map(<[u8]>::to_vec));
    Written { checksum, columns: parity }
}

/// Writes a record through a target, in two programs; its checksum.
pub fn write_on(device: &Device, stores: &[Store], block: &Abd, offset: u64) -> Result<[u64; 4], OpError> {
    let (source, target) = (device.alloc(block.len())?, device.alloc(block.len())?);
    let mut graph = Graph::new();
    graph.copy_in(block, &source.whole());
    let packed = graph.compress(&source.whole(), &target.whole(), how(block.len()));
    graph.zero_fill(packed.padding());
    let sum = graph.checksum(packed.result(), Checksum::FLETCHER_4, ByteOrder::Little);
    let report = device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?;
    report.all()?;
    let (whole, stored) = match report.compressed(packed)? {
        Some(length) => (target.whole(), how(block.len()).stored_bytes(length)),
        None => (source.whole(), block.len()),
    };
    let lengths = column_lengths(stored);
    let buffers = (0..PARITY).map(|_| device.alloc(lengths[0])).collect::<Result<Vec<_>, _>>()?;
    let mut at = 0;
    let mut data: Vec<View> = Vec::new();
    for length in lengths {
        data.push(whole.slice(at..at + length)?);
        at += length;
    }
    let row = RaidContext::new(buffers.iter().map(|buffer| buffer.whole()).collect(), data)?;
    let mut graph = Graph::new();
    graph.raid_generate(&row);
    for (column, store) in row.columns().iter().zip(stores).filter(|(column, _)| !column.is_empty()) {
        graph.store(column, store, offset);
        graph.flush(store);
    }
    device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?.all()?;
    report.checksum(sum)
}

/// Writes as software does when the target did not.
pub fn write_in_software(disks: &[PathBuf], written: &Written, offset: u64) {
    for (path, column) in disks.iter().zip(&written.columns) {
        File::options().write(true).open(path).unwrap().write_all_at(column, offset).unwrap();
    }
}

/// True when a record lies on the disks as it must.
pub fn is_on(disks: &[PathBuf], written: &Written, offset: u64) -> bool {
    disks.iter().zip(&written.columns).all(|(path, column)| {
        let mut found = vec![0; column.len()];
        File::open(path).unwrap().read_exact_at(&mut found, offset).unwrap();
        found == *column
    })
}

/// Waits until something is so: events of other threads, without a bound on their time.
pub fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
