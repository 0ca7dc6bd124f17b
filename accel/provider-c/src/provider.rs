//! A library as a [`Provider`]: loading it, its capabilities, its memory and stores. What its programs look like in C it does not know
//! (`pending`).

use crate::error::LoadError;
use crate::ffi::{self, CCapability, CMemory, COwn, CProgram, CTable, status};
use crate::guard::Copies;
use crate::{host, pending};
use dpusm::{
    Capabilities, Capability, DeviceHandle, Feature, MemoryCount, MemoryStats, OpError, Program, Provider, QueueLimits, Sizes, StoreKind,
    StoreTarget,
};
use exec::Exec;
use ondisk::{ByteOrder, Checksum, Compression};
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most capabilities of a library; one that says more is refused.
const CAPABILITIES_MAX: u64 = 1024;
/// Limits of a provider that names none.
const GRAPHS_MAX: u64 = 256;
const BYTES_MAX: u64 = 1 << 30;
/// EIO, for a store that cannot be opened.
const EIO: i32 = 5;

/// A provider written in C.
pub struct CProvider {
    name: String,
    about: String,
    table: CTable,
    capabilities: Vec<Capability>,
    copies: Copies,
    is_shut_down: AtomicBool,
}

// SAFETY: the table holds functions and addresses of the library, which stays loaded; the header demands that they may be used
// from any thread.
unsafe impl Send for CProvider {}
// SAFETY: as above.
unsafe impl Sync for CProvider {}

impl std::fmt::Debug for CProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CProvider({})", self.name)
    }
}

/// A string of the library, which stays.
fn text(bytes: *const c_char) -> Option<String> {
    if bytes.is_null() {
        return None;
    }
    // SAFETY: the header demands a string that ends, and the library stays loaded.
    unsafe { CStr::from_ptr(bytes) }.to_str().ok().map(String::from)
}

impl CProvider {
    /// Loads the shared object at `path` and asks it for its provider. Runs the library's code with all rights of this process.
    ///
    /// # Errors
    /// Why it is no provider, or has no device.
    pub fn load(exec: &Exec, path: &Path) -> Result<Arc<CProvider>, LoadError> {
        // SAFETY: loading runs the library's initializers, as whoever named it wants.
        let library = unsafe { libloading::Library::new(path) }.map_err(LoadError::Library)?;
        // Stays loaded, also when it turns out to be no provider: it may have started threads.
        let library = std::mem::ManuallyDrop::new(library);
        // SAFETY: the header fixes the type of the function with this name.
        let open = unsafe { library.get::<ffi::OpenFn>(ffi::OPEN) }.map_err(LoadError::Library)?;
        // SAFETY: a table of zeros is one in which everything is missing.
        let mut table: CTable = unsafe { std::mem::zeroed() };
        host::set_clock(exec);
        // SAFETY: both tables are valid; HOST is for ever.
        let opened = unsafe { open(&host::HOST, &mut table) };
        status(opened, 0).map_err(LoadError::NoDevice)?;
        if table.version != ffi::VERSION || (table.size as usize) < size_of::<CTable>() {
            return Err(LoadError::Version { found: table.version });
        }
        let is_complete = table.capabilities.is_some() && table.alloc.is_some() && table.free.is_some() && table.submit.is_some();
        match (text(table.name), is_complete) {
            (Some(name), true) => {
                let about = text(table.about).unwrap_or_default();
                let capabilities = capabilities_of(&table)?;
                let (copies, is_shut_down) = (Copies::default(), AtomicBool::new(false));
                Ok(Arc::new(CProvider { name, about, table, capabilities, copies, is_shut_down }))
            }
            _ => Err(LoadError::Incomplete),
        }
    }
}

/// Capabilities of a library, which is asked how many there are and then for the list. A number that cannot be is no reason to believe any of them.
fn capabilities_of(table: &CTable) -> Result<Vec<Capability>, LoadError> {
    let Some(capabilities) = table.capabilities else { return Err(LoadError::Incomplete) };
    let at_most = |said: u64, most: u64| if said > most { Err(LoadError::Capabilities { said, most }) } else { Ok(said) };
    // SAFETY: no entry is to be written.
    let said = unsafe { capabilities(table.own, std::ptr::null_mut(), 0) };
    let count = at_most(said, CAPABILITIES_MAX)?;
    let mut entries = vec![CCapability::default(); count as usize];
    // SAFETY: the list has room for `count` entries.
    let said = unsafe { capabilities(table.own, entries.as_mut_ptr(), count) };
    let written = at_most(said, count)?;
    Ok(entries[..written as usize].iter().filter_map(capability).collect())
}

/// A capability as C has it; None for one that names nothing.
fn capability(c: &CCapability) -> Option<Capability> {
    let algorithm = u8::try_from(c.algorithm).ok()?;
    let level = |level: u32| u8::try_from(level).ok();
    let parity = u8::try_from(c.parity_count).ok().filter(|parity| (1..=dpusm::PARITY_MAX as u8).contains(parity));
    let data_columns_max = c.data_columns_max.min(dpusm::DATA_COLUMNS_MAX as u32) as u16;
    let scatter = c.scatter != 0;
    let feature = match c.op {
        ffi::COPY_IN => Feature::CopyIn { scatter },
        ffi::COPY_OUT => Feature::CopyOut { scatter },
        ffi::ZERO_FILL => Feature::ZeroFill,
        ffi::ZERO_TEST => Feature::ZeroTest,
        ffi::COMPARE => Feature::Compare,
        ffi::COMPRESS => Feature::Compress { kind: Compression(algorithm), level_min: level(c.level_min)?, level_max: level(c.level_max)? },
        ffi::DECOMPRESS => Feature::Decompress { kind: Compression(algorithm) },
        ffi::CHECKSUM => Feature::Checksum { kind: Checksum(algorithm), order: ByteOrder::from_little(c.big_endian == 0) },
        ffi::RAID_GENERATE => Feature::RaidGenerate { parity: parity?, data_columns_max },
        ffi::RAID_RECONSTRUCT => Feature::RaidReconstruct { parity: parity?, data_columns_max },
        ffi::STORE => Feature::Store { kind: if c.store_kind == 0 { StoreKind::File } else { StoreKind::Disk } },
        _ => return None,
    };
    let most = if c.size_max == 0 { usize::MAX } else { usize::try_from(c.size_max).ok()? };
    let sizes = Sizes { min_bytes: usize::try_from(c.size_min).ok()?, max_bytes: most, align_bytes: usize::try_from(c.align).ok()?.max(1) };
    Some(Capability { feature, sizes })
}

impl Provider for CProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.about
    }

    fn capabilities(&self) -> Capabilities {
        let or = |value: u64, usual: u64| if value == 0 { usual } else { value };
        let graphs_max = usize::try_from(or(self.table.graphs_max, GRAPHS_MAX)).unwrap_or(usize::MAX);
        let queue = QueueLimits { graphs_max, bytes_max: or(self.table.bytes_max, BYTES_MAX) };
        Capabilities { list: self.capabilities.clone(), queue }
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        let alloc = self.table.alloc.ok_or(OpError::NotImplemented)?;
        let mut buffer = std::ptr::null_mut();
        // SAFETY: `buffer` is where the address goes.
        status(unsafe { alloc(self.table.own, bytes as u64, &mut buffer) }, 0)?;
        Ok(DeviceHandle::new(COwn(buffer)))
    }

    fn free(&self, handle: DeviceHandle) {
        if let (Some(free), Some(buffer)) = (self.table.free, handle.into_own::<COwn>()) {
            // SAFETY: the buffer is this provider's, and its last use.
            unsafe { free(self.table.own, buffer.0) };
        }
    }

    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        let Some(submit) = self.table.submit else { return Err(programs) };
        let mut sent: Vec<(u64, CProgram)> = Vec::with_capacity(programs.len());
        for program in programs {
            sent.extend(pending::send(program, &self.copies).map(|sent| (sent.cookie, sent.entry)));
        }
        let (cookies, entries): (Vec<u64>, Vec<CProgram>) = sent.into_iter().unzip();
        if entries.is_empty() {
            return Ok(());
        }
        // SAFETY: the entries' lists are held in `pending` until they are answered or taken back.
        let taken = unsafe { submit(self.table.own, entries.as_ptr(), entries.len() as u64) };
        let rest = cookies.into_iter().skip(usize::try_from(taken).unwrap_or(usize::MAX));
        let refused: Vec<Program> = rest.filter_map(pending::take).map(|pending| pending.into_program()).collect();
        if refused.is_empty() { Ok(()) } else { Err(refused) }
    }

    fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        let open = self.table.store_open.ok_or(OpError::NotImplemented)?;
        let path = CString::new(target.path.as_os_str().as_bytes()).map_err(|_| OpError::Invalid)?;
        let kind = u32::from(target.kind == StoreKind::Disk);
        let mut store = std::ptr::null_mut();
        // SAFETY: the path ends with a zero, `store` is where the address goes.
        status(unsafe { open(self.table.own, kind, path.as_ptr(), &mut store) }, EIO)?;
        Ok(DeviceHandle::new(COwn(store)))
    }

    fn close(&self, handle: DeviceHandle) {
        if let (Some(close), Some(store)) = (self.table.store_close, handle.into_own::<COwn>()) {
            // SAFETY: the store is this provider's, and its last use.
            unsafe { close(self.table.own, store.0) };
        }
    }

    fn memory(&self) -> Option<MemoryStats> {
        let mut counts = CMemory::default();
        // SAFETY: `counts` is where the numbers go.
        unsafe { self.table.memory?(self.table.own, &mut counts) };
        let count = |[buffers, requested_bytes, actual_bytes]: [u64; 3]| MemoryCount { buffers, requested_bytes, actual_bytes };
        Some(MemoryStats { active: count(counts.active), total: count(counts.total) })
    }

    fn shut_down(&self) {
        if let (Some(shut_down), false) = (self.table.shut_down, self.is_shut_down.swap(true, Ordering::AcqRel)) {
            // SAFETY: called once.
            unsafe { shut_down(self.table.own) };
        }
    }
}
