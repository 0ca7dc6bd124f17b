//! Z.I.A., the ZFS Interface for Accelerators: stages of the pipeline on a provider of `dpusm` (docs/adr/0006).
//!
//! ```text
//! write ─► first: {copy in, compress, pad, checksum} ─► allocate ─► second: {parity of each row, copy out} ─► devices
//!            │ anything fails                              │ no room in one piece      │ anything fails
//!            └──► software, from the original              └──► bring back, gang       └──► that stage in software, or from the original
//! ```
//! Invariants:
//! 1. the original bytes stay with the request until its end: whatever a provider does, the block can begin again without it;
//! 2. a buffer is valid on the host, on the device, or on both: [`Offloaded`] says which, and nothing reads a side that is not;
//! 3. metadata never leaves the host ([`claimed`]);
//! 4. no write is answered, and so no uberblock written, while something that the provider said of the block is to be judged: its checksum and its
//!    copies always, its other results when the block is picked for verification, which the first thousands of each operation are;
//! 5. one lie, and nothing goes to the provider any more;
//! 6. without an accelerator the pipeline does nothing of this: one relaxed load per write and per compressed read.

mod claimed;
mod first;
mod look;
mod reading;
mod reconstruct;
mod second;
mod stores;

pub(crate) use claimed::{Claimed, may_leave};
pub(crate) use reading::decompress;
pub(crate) use reconstruct::{parity, rebuild, reconstruct, reconstructs};
pub(crate) use stores::open_stores;

use crate::core::Core;
use crate::snapshot::Snapshot;
use crate::{WriteRequest, WriteThen};
use abd::Abd;
use dpusm::{Device, FallbackReason, Feature, Graph, OpError, OpKind, Report, Sampler, Session, Store, View};
use exec::RwLock;
use ondisk::{ByteOrder, Checksum, Compression, Guid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether data stays on the device between stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZiaMode {
    /// Copied in once; the stages pass handles.
    #[default]
    Offload,
    /// Copied in and out at each stage, as OpenZFS does with QAT: to show what staying is worth.
    PerOp,
}

/// Which stages go to the provider, and how (Z.I.A.: the pool properties `zia_*`).
#[derive(Clone, Debug, PartialEq)]
pub struct ZiaPolicy {
    /// `zia_compress`.
    pub compress: bool,
    /// `zia_decompress`.
    pub decompress: bool,
    /// `zia_checksum`.
    pub checksum: bool,
    /// `zia_raidz1_gen` to `zia_raidz3_gen`.
    pub raidz_gen: [bool; 3],
    /// `zia_raidz1_rec` to `zia_raidz3_rec`.
    pub raidz_rec: [bool; 3],
    /// `zia_file_write`.
    pub file_write: bool,
    /// `zia_disk_write`.
    pub disk_write: bool,
    /// `zia_mode`.
    pub mode: ZiaMode,
    /// `zia_verify`: share of the blocks whose results are computed again in software, in percent, once the provider's first ones stood that. Of the
    /// others only checksums and copies are.
    pub verify_percent: f64,
    /// Blocks of fewer bytes stay on the host.
    pub bytes_min: usize,
    /// How long one graph may take, in nanoseconds.
    pub deadline_ns: u64,
}

impl Default for ZiaPolicy {
    /// Nothing is offloaded; all of what will be is verified.
    fn default() -> ZiaPolicy {
        ZiaPolicy {
            compress: false,
            decompress: false,
            checksum: false,
            raidz_gen: [false; 3],
            raidz_rec: [false; 3],
            file_write: false,
            disk_write: false,
            mode: ZiaMode::Offload,
            verify_percent: 100.0,
            bytes_min: 16 << 10,
            deadline_ns: 5_000_000_000,
        }
    }
}

/// A provider in use by a pool.
#[derive(Debug)]
pub struct Accelerator {
    session: Session,
    policy: ZiaPolicy,
    sampler: Sampler,
    /// The devices that it writes by itself, by their leaves' guids.
    stores: RwLock<BTreeMap<Guid, Store>>,
}

impl Accelerator {
    /// A pool's use of a provider.
    pub fn new(session: Session, policy: ZiaPolicy) -> Accelerator {
        let sampler = Sampler::new(policy.verify_percent, 1);
        Accelerator { session, policy, sampler, stores: RwLock::default() }
    }

    /// The provider.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What goes to it.
    pub fn policy(&self) -> &ZiaPolicy {
        &self.policy
    }
}

/// The pipeline's accelerator, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Zia {
    is_set: AtomicBool,
    accelerator: RwLock<Option<Arc<Accelerator>>>,
}

impl Zia {
    /// The accelerator with its provider as it is now; a block keeps them to its end. None also when the provider is down.
    fn current(&self) -> Option<(Arc<Accelerator>, Device)> {
        if !self.is_set.load(Ordering::Relaxed) {
            return None;
        }
        let accelerator = self.accelerator.read().clone()?;
        let device = accelerator.session.device().ok()?;
        Some((accelerator, device))
    }

    /// Gives stages of the pipeline to a provider, or to none any more.
    pub(crate) fn set(&self, accelerator: Option<Accelerator>) {
        let mut current = self.accelerator.write();
        self.is_set.store(accelerator.is_some(), Ordering::Relaxed);
        *current = accelerator.map(Arc::new);
    }

    /// The accelerator that new blocks go to.
    pub(crate) fn get(&self) -> Option<Arc<Accelerator>> {
        self.accelerator.read().clone()
    }
}

/// What is to be offloaded of one write.
#[derive(Clone, Copy, Debug, Default)]
struct Wishes {
    compress: bool,
    checksum: bool,
    parity: bool,
}

/// A block that an accelerator has a part in, on its way to the devices.
pub(crate) struct Offloaded {
    accelerator: Arc<Accelerator>,
    device: Device,
    wishes: Wishes,
    /// Its results are computed again in software.
    is_verified: bool,
    /// The physical bytes in device memory; None when they are valid on the host only.
    on_device: Option<View>,
    /// The physical bytes in host memory; None when they are valid on the device only.
    on_host: Option<Abd>,
    /// How many there are.
    psize: usize,
    /// How they are compressed.
    compression: Compression,
    /// The provider compressed them.
    is_packed_there: bool,
    /// Their checksum, and of which kind, when the provider computed one.
    sum: Option<(Checksum, [u64; 4])>,
}

impl Offloaded {
    /// The physical bytes, once they are on the host, and what the provider says of them.
    pub(crate) fn take(&mut self) -> (Option<Abd>, Claimed) {
        let claimed = Claimed { device: self.device.clone(), sum: self.sum, is_verified: self.is_verified() };
        (self.on_host.take(), claimed)
    }

    /// Its results are computed again in software: it was picked, or the provider was caught meanwhile.
    fn is_verified(&self) -> bool {
        self.is_verified || self.device.is_distrusted()
    }

    /// Has everything of the block verified that comes from a graph which was let through to see whether the provider works again.
    fn note_report(&mut self, report: &Report) {
        self.is_verified |= report.is_probe;
    }

    /// Counts a stage that is done in software after all.
    fn fell_back(&self, kind: OpKind, reason: impl Into<FallbackReason>) {
        self.device.note_fallback(kind, reason.into());
    }

    fn deadline_ns(&self) -> u64 {
        self.accelerator.policy.deadline_ns
    }

    fn is_per_op(&self) -> bool {
        self.accelerator.policy.mode == ZiaMode::PerOp
    }
}

/// Submits a graph for somebody: `then` gets them back, with the report or with why the provider did not take it. Not inside this call, unless
/// it was refused.
fn submit<T, F>(device: &Device, graph: Graph, deadline_ns: u64, whose: T, then: F)
where
    T: Send + 'static,
    F: FnOnce(T, Result<Report, OpError>) + Send + 'static,
{
    let slot = Arc::new(exec::Mutex::new(Some((whose, then))));
    let taken = slot.clone();
    let done = move |report: Report| {
        let waiting = taken.lock().take();
        if let Some((whose, then)) = waiting {
            then(whose, Ok(report));
        }
    };
    if let Err(refused) = device.submit(graph, deadline_ns, done) {
        let waiting = slot.lock().take();
        if let Some((whose, then)) = waiting {
            then(whose, Err(refused.error));
        }
    }
}

/// What an error of a graph means for the stage that it was to do.
fn reason(error: OpError) -> FallbackReason {
    error.into()
}

/// Begins a write on the accelerator; gives it back when the accelerator has no part in it.
pub(crate) fn write(
    core: &Arc<Core>,
    snapshot: &Arc<Snapshot>,
    request: WriteRequest,
    then: WriteThen,
    again: bool,
) -> Option<(WriteRequest, WriteThen)> {
    if !may_leave(&request.bookmark, request.level, request.object_type) {
        return Some((request, then));
    }
    let Some((accelerator, device)) = core.zia.current() else { return Some((request, then)) };
    let wishes = wishes(&accelerator.policy, &device, snapshot, &request);
    let writes = request.data.len() >= accelerator.policy.bytes_min && !accelerator.stores.read().is_empty();
    if !wishes.compress && !wishes.checksum && !wishes.parity && !writes {
        return Some((request, then));
    }
    let block = first::Block { core: core.clone(), snapshot: snapshot.clone(), request, then, again };
    first::begin(block, accelerator, device, wishes);
    None
}

/// Which stages of a write go to the provider.
fn wishes(policy: &ZiaPolicy, device: &Device, snapshot: &Snapshot, request: &WriteRequest) -> Wishes {
    let compression = crate::transform::effective_compression(request);
    let is_compressed = !matches!(compression, Compression::OFF | Compression::EMPTY | Compression::ON | Compression::INHERIT);
    let parity = |parity: usize| policy.raidz_gen.get(parity.wrapping_sub(1)) == Some(&true);
    let wished = Wishes {
        compress: policy.compress && is_compressed,
        checksum: policy.checksum && request.checksum != Checksum::OFF,
        parity: snapshot.view.tree.tops.iter().any(|top| parity(top.parity())),
    };
    let note = |is_wished: bool, kind: OpKind, reason: Option<FallbackReason>| match reason {
        Some(reason) if is_wished => {
            device.note_fallback(kind, reason);
            false
        }
        _ => is_wished,
    };
    let too_small = (request.data.len() < policy.bytes_min).then_some(FallbackReason::TooSmall);
    let unless = |has: bool| too_small.or((!has).then_some(FallbackReason::NotSupported));
    let sum = Feature::Checksum { kind: request.checksum, order: ByteOrder::Little };
    Wishes {
        compress: note(
            wished.compress,
            OpKind::Compress,
            unless(device.capabilities().compresses(compression, crate::transform::effective_level(request))),
        ),
        checksum: note(wished.checksum, OpKind::Checksum, unless(device.has(&sum))),
        parity: note(wished.parity, OpKind::RaidGenerate, too_small),
    }
}
