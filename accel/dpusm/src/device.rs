//! A provider as its users have it: what it offers, its memory, its stores, and work for it. How far it is trusted, and what becomes of it,
//! is its [`Generation`]'s to know.

use crate::breaker::BreakerState;
use crate::generation::{DeviceState, Disabled, Generation};
use crate::graph::{Graph, Report};
use crate::handle::{Memory, Store, StoreTarget, View};
use crate::provider::MemoryStats;
use crate::speeds::Measured;
use crate::stats::{FallbackReason, OpStats, Tally};
use crate::submit::{Refused, Submission};
use crate::{Capabilities, Feature, OpError, OpKind};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A provider as its users have it: one generation, which stays the same while any handle of it lives.
#[derive(Clone)]
pub struct Device(pub(crate) Arc<Generation>);

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({} generation {})", self.0.name, self.0.number)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Device {}

impl Device {
    /// The provider's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The provider's version.
    pub fn version(&self) -> String {
        self.0.provider.version().to_string()
    }

    /// Number of the generation, ascending over all providers.
    pub fn generation(&self) -> u64 {
        self.0.number
    }

    /// State of the provider's generation.
    pub fn state(&self) -> DeviceState {
        self.0.state()
    }

    /// Capabilities of the provider: what was declared and stood the tests.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// Capabilities that were declared and are not used, with the reason.
    pub fn disabled(&self) -> &[Disabled] {
        &self.0.disabled
    }

    /// Operations that are faster than the processors of this machine, with their speeds; none when nobody asked for that.
    pub fn measured(&self) -> &[Measured] {
        &self.0.measured
    }

    /// True when a feature is offered exactly so.
    pub fn has(&self, feature: &Feature) -> bool {
        self.0.capabilities.find(feature).is_some()
    }

    /// True when graphs may use a feature, on operands of any size that it was declared for, whether it is offered or only proves copies.
    pub fn can_use(&self, feature: &Feature) -> bool {
        self.0.usable.iter().any(|capability| capability.feature == *feature)
    }

    /// A buffer of `bytes` bytes (at least one) in the provider's memory.
    ///
    /// # Errors
    /// `Down`, `Tripped`, `NoMemory`, `Invalid` for no bytes, or what the provider says.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, OpError> {
        if bytes == 0 {
            return Err(OpError::Invalid);
        }
        let handle = self.0.guarded(|provider| provider.alloc(bytes))?;
        self.0.live.fetch_add(1, Ordering::AcqRel);
        Ok(Buffer { device: self.clone(), memory: Arc::new(Memory::new(self.0.clone(), handle, bytes)) })
    }

    /// Opens a file or disk for [`Graph::store`]. May take a while: for operations, not for jobs.
    ///
    /// # Errors
    /// `NotImplemented` when the provider does not write to such; else as [`Device::alloc`].
    pub fn open(&self, target: &StoreTarget) -> Result<Store, OpError> {
        if !self.has(&Feature::Store { kind: target.kind }) {
            return Err(OpError::NotImplemented);
        }
        let handle = self.0.guarded(|provider| provider.open(target))?;
        self.0.live.fetch_add(1, Ordering::AcqRel);
        Ok(Store::new(self.0.clone(), handle, target.kind))
    }

    /// Submits a graph. `done` is called exactly once, as a job of the executor, never before or inside this call, and after
    /// `deadline_ns` nanoseconds at the latest.
    ///
    /// # Errors
    /// At once, with the graph to be had back: `Full`, `Tripped`, `Down`, `NotImplemented`, `NotSupported`, `Mismatch`,
    /// `Abandoned` or `Invalid`. Then `done` is not called.
    pub fn submit(&self, graph: Graph, deadline_ns: u64, done: impl FnOnce(Report) + Send + 'static) -> Result<Submission, Refused> {
        let batch: Vec<(Graph, crate::submit::ReportFn)> = vec![(graph, Box::new(done))];
        let mut outcomes = crate::submit::submit(&self.0, batch, deadline_ns);
        outcomes.pop().expect("one graph has one outcome")
    }

    /// Submits several graphs in one call to the provider; one outcome each, as [`Device::submit`].
    pub fn submit_all(&self, graphs: Vec<(Graph, crate::submit::ReportFn)>, deadline_ns: u64) -> Vec<Result<Submission, Refused>> {
        crate::submit::submit(&self.0, graphs, deadline_ns)
    }

    /// Submits a graph and waits for its end: for operations only.
    ///
    /// # Errors
    /// As [`Device::submit`].
    pub fn run(&self, graph: Graph, deadline_ns: u64) -> Result<Report, Refused> {
        let (completer, completion) = exec::completion();
        self.submit(graph, deadline_ns, move |report| completer.complete(report))?;
        Ok(completion.wait(&self.0.exec))
    }

    /// Handles of buffers and stores that are alive.
    pub fn live_handles(&self) -> usize {
        self.0.live.load(Ordering::Acquire)
    }

    /// Handles that were dropped after the provider died, so without a call to it.
    pub fn lost_handles(&self) -> usize {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Number of graphs in flight.
    pub fn graphs_in_flight(&self) -> usize {
        self.0.in_flight.graphs()
    }

    /// The provider's account of its memory.
    pub fn memory(&self) -> Option<MemoryStats> {
        if self.0.is_down() { None } else { self.0.provider.memory() }
    }

    /// The counters of the provider, over all its generations.
    pub fn stats(&self) -> &Arc<OpStats> {
        &self.0.stats
    }

    /// The state of the breaker of one operation, and how often it has opened.
    pub fn breaker(&self, kind: OpKind) -> (BreakerState, u64) {
        let breakers = self.0.breakers.lock();
        let breaker = &breakers[kind as usize];
        (breaker.state(), breaker.trips())
    }

    /// True when an operation of this kind would be let through now: for deciding before anything is copied.
    pub fn would_admit(&self, kind: OpKind) -> bool {
        !self.0.is_down() && self.0.breakers.lock()[kind as usize].would_admit(self.0.exec.now_ns())
    }

    /// Counts an operation that was done in software instead.
    pub fn note_fallback(&self, kind: OpKind, reason: FallbackReason) {
        self.0.stats.add(kind, Tally::Fallback(reason), 1);
    }

    /// Counts a block that began again from the original data because of an operation.
    pub fn note_restart(&self, kind: OpKind) {
        self.0.stats.add(kind, Tally::Restarts, 1);
    }

    /// Counts a result that was checked in software. A wrong one is a lie, and the end: nothing of the provider is used any more, in whatever
    /// operation, by whatever pool, until somebody loads it again.
    pub fn note_verified(&self, kind: OpKind, is_right: bool) {
        self.0.stats.add(kind, Tally::Verified, 1);
        if is_right {
            self.0.trust.note_right(kind);
        } else {
            self.0.stats.add(kind, Tally::VerifyFailures, 1);
            self.0.distrust(kind);
        }
    }

    /// True while every result of an operation is to be checked: for the first ones that the provider gives since it was loaded.
    pub fn wants_proof(&self, kind: OpKind) -> bool {
        self.0.trust.proven(kind) < self.0.proofs
    }

    /// True when the provider was caught lying: results that were taken before, and not checked yet, are to be checked.
    pub fn is_distrusted(&self) -> bool {
        self.0.lie().is_some()
    }
}

/// A buffer in the memory of a provider. Its contents are unspecified at first.
pub struct Buffer {
    device: Device,
    memory: Arc<Memory>,
}

impl Buffer {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.memory.len() == 0
    }

    /// View of the whole buffer.
    pub fn whole(&self) -> View {
        self.memory.whole()
    }

    /// View of a part of the buffer.
    ///
    /// # Errors
    /// `Invalid` when the range is not inside the buffer.
    pub fn view(&self, range: Range<usize>) -> Result<View, OpError> {
        self.whole().slice(range)
    }

    /// The provider (and its generation) that the memory belongs to.
    pub fn device(&self) -> Device {
        self.device.clone()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes of {})", self.memory.len(), self.device.name())
    }
}
