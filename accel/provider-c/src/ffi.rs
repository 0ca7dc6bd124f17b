//! The tables of `include/zirconia/provider.h`, field by field in the same order, and what its numbers say. The header checks its sizes, so
//! does this file. It calls nothing.

use dpusm::OpError;
use std::ffi::{c_char, c_int, c_void};

/// Version of the tables.
pub(crate) const VERSION: u32 = 1;
/// Name of the exported function.
pub(crate) const OPEN: &[u8] = b"zirconia_provider_open\0";

pub(crate) const OK: i32 = 0;
pub(crate) const NOT_IMPLEMENTED: i32 = 1;
pub(crate) const NOT_SUPPORTED: i32 = 2;
pub(crate) const NO_MEMORY: i32 = 4;
pub(crate) const DOWN: i32 = 5;
pub(crate) const IO: i32 = 6;
pub(crate) const SKIPPED: i32 = 7;

/// Result that a status stands for.
pub(crate) fn status(status: i32, errno: i32) -> Result<(), OpError> {
    Err(match status {
        OK => return Ok(()),
        NOT_IMPLEMENTED => OpError::NotImplemented,
        NOT_SUPPORTED => OpError::NotSupported,
        NO_MEMORY => OpError::NoMemory,
        DOWN => OpError::Down,
        IO => OpError::Io(errno),
        SKIPPED => OpError::Skipped,
        _ => OpError::Failed,
    })
}

pub(crate) const COPY_IN: u32 = 0;
pub(crate) const COPY_OUT: u32 = 1;
pub(crate) const ZERO_FILL: u32 = 2;
pub(crate) const ZERO_TEST: u32 = 3;
pub(crate) const COMPRESS: u32 = 4;
pub(crate) const DECOMPRESS: u32 = 5;
pub(crate) const CHECKSUM: u32 = 6;
pub(crate) const RAID_GENERATE: u32 = 7;
pub(crate) const RAID_RECONSTRUCT: u32 = 8;
pub(crate) const COMPARE: u32 = 9;
pub(crate) const STORE: u32 = 10;
pub(crate) const FLUSH: u32 = 11;

pub(crate) const VIEW: u32 = 0;
pub(crate) const RESULT: u32 = 1;
pub(crate) const PADDING: u32 = 2;

/// The address that C knows a buffer or store by.
pub(crate) struct COwn(pub(crate) *mut c_void);

// SAFETY: only an address, which Rust never follows; the header demands that the provider may be called from any thread.
unsafe impl Send for COwn {}
// SAFETY: as above.
unsafe impl Sync for COwn {}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CView {
    pub(crate) buffer: *mut c_void,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl CView {
    pub(crate) const NONE: CView = CView { buffer: std::ptr::null_mut(), offset: 0, length: 0 };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct COperand {
    pub(crate) kind: u32,
    pub(crate) node: u32,
    pub(crate) view: CView,
}

impl COperand {
    pub(crate) const NONE: COperand = COperand { kind: VIEW, node: 0, view: CView::NONE };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CPiece {
    pub(crate) bytes: *mut c_void,
    pub(crate) length: u64,
}

#[repr(C)]
pub(crate) struct CNode {
    pub(crate) op: u32,
    pub(crate) algorithm: u32,
    pub(crate) level: u32,
    pub(crate) big_endian: u32,
    pub(crate) source: COperand,
    pub(crate) target: COperand,
    pub(crate) pieces: *const CPiece,
    pub(crate) pieces_count: u64,
    pub(crate) limit: u64,
    pub(crate) round_to: u64,
    pub(crate) store: *mut c_void,
    pub(crate) offset: u64,
    pub(crate) columns: *const CView,
    pub(crate) columns_count: u32,
    pub(crate) parity_count: u32,
    pub(crate) lost: *const u32,
    pub(crate) lost_count: u64,
}

impl CNode {
    pub(crate) fn new(op: u32) -> CNode {
        CNode {
            op,
            algorithm: 0,
            level: 0,
            big_endian: 0,
            source: COperand::NONE,
            target: COperand::NONE,
            pieces: std::ptr::null(),
            pieces_count: 0,
            limit: 0,
            round_to: 0,
            store: std::ptr::null_mut(),
            offset: 0,
            columns: std::ptr::null(),
            columns_count: 0,
            parity_count: 0,
            lost: std::ptr::null(),
            lost_count: 0,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CResult {
    pub(crate) status: i32,
    pub(crate) error_number: i32,
    pub(crate) value: u64,
    pub(crate) checksum: [u64; 4],
    pub(crate) device_ns: u64,
}

#[repr(C)]
pub(crate) struct CProgram {
    pub(crate) cookie: *mut c_void,
    pub(crate) nodes: *const CNode,
    pub(crate) nodes_count: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CCapability {
    pub(crate) op: u32,
    pub(crate) algorithm: u32,
    pub(crate) level_min: u32,
    pub(crate) level_max: u32,
    pub(crate) big_endian: u32,
    pub(crate) scatter: u32,
    pub(crate) parity_count: u32,
    pub(crate) data_columns_max: u32,
    pub(crate) store_kind: u32,
    pub(crate) reserved: u32,
    pub(crate) size_min: u64,
    pub(crate) size_max: u64,
    pub(crate) align: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CMemory {
    pub(crate) active: [u64; 3],
    pub(crate) total: [u64; 3],
}

#[repr(C)]
pub(crate) struct CHost {
    pub(crate) version: u32,
    pub(crate) size: u32,
    pub(crate) complete: unsafe extern "C" fn(*mut c_void, *const CResult, u64),
    pub(crate) started: unsafe extern "C" fn(*mut c_void),
    pub(crate) given_up: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// Functions that a provider offers; they are options because C may leave them out.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CTable {
    pub(crate) version: u32,
    pub(crate) size: u32,
    pub(crate) name: *const c_char,
    pub(crate) about: *const c_char,
    pub(crate) own: *mut c_void,
    pub(crate) graphs_max: u64,
    pub(crate) bytes_max: u64,
    pub(crate) capabilities: Option<unsafe extern "C" fn(*mut c_void, *mut CCapability, u64) -> u64>,
    pub(crate) alloc: Option<unsafe extern "C" fn(*mut c_void, u64, *mut *mut c_void) -> i32>,
    pub(crate) free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub(crate) submit: Option<unsafe extern "C" fn(*mut c_void, *const CProgram, u64) -> u64>,
    pub(crate) store_open: Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char, *mut *mut c_void) -> i32>,
    pub(crate) store_close: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub(crate) memory: Option<unsafe extern "C" fn(*mut c_void, *mut CMemory)>,
    pub(crate) shut_down: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// Type of the exported function.
pub(crate) type OpenFn = unsafe extern "C" fn(*const CHost, *mut CTable) -> i32;

const _: () = assert!(size_of::<COperand>() == 32 && size_of::<CNode>() == 160 && size_of::<CResult>() == 56);
const _: () = assert!(size_of::<CCapability>() == 64 && size_of::<CHost>() == 32 && size_of::<CTable>() == 112);
