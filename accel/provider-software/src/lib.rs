//! The software provider: the reference for all others, over the `kernels` crate; always there.
//!
//! Its device memory is memory of its own, so that a user who reads host bytes instead of asking for the device's sees stale ones.
//! Every operation works on a snapshot of its operands and puts its result in when it is done: a graph that fails in the
//! middle leaves whole results or none. Programs run as jobs of the executor, each in order; writes to files and disks go through
//! the host's [`dpusm::HostStore`], and the program goes on when they end.
//!
//! [`Engine`] is the same for providers that model something around it: one operation at a time, on the caller's thread.
#![forbid(unsafe_code)]

mod engine;
mod memory;

pub use engine::{Answered, Engine, Step, compressed};
pub use memory::CopyMode;

use dpusm::{
    Capabilities, Capability, DeviceHandle, Feature, MemoryStats, OpError, Program, Provider, QueueLimits, Run, StoreKind, StoreTarget,
};
use exec::{Exec, TaskClass};
use ondisk::{ByteOrder, Checksum, Compression};
use std::sync::Arc;

const CHECKSUMS: [Checksum; 4] = [Checksum::FLETCHER_2, Checksum::FLETCHER_4, Checksum::SHA256, Checksum::SHA512];
/// zstd-1 to zstd-19, and the on-disk numbers of zstd-fast-1 to zstd-fast-1000.
const ZSTD_LEVELS: [(u8, u8); 2] = [(1, 19), (103, 123)];

/// Features that software has, on operands of any size.
pub fn features() -> Vec<Feature> {
    let mut list = vec![Feature::CopyIn { scatter: true }, Feature::CopyOut { scatter: true }];
    list.extend([Feature::ZeroFill, Feature::ZeroTest, Feature::Compare]);
    for kind in kernels::COMPRESSIONS {
        let levels: &[(u8, u8)] = if kind == Compression::ZSTD { &ZSTD_LEVELS } else { &[(0, 0)] };
        list.extend(levels.iter().map(|&(level_min, level_max)| Feature::Compress { kind, level_min, level_max }));
        list.push(Feature::Decompress { kind });
    }
    for kind in CHECKSUMS {
        list.extend([ByteOrder::Little, ByteOrder::Big].map(|order| Feature::Checksum { kind, order }));
    }
    for parity in 1..=dpusm::PARITY_MAX as u8 {
        let data_columns_max = dpusm::DATA_COLUMNS_MAX as u16;
        list.extend([Feature::RaidGenerate { parity, data_columns_max }, Feature::RaidReconstruct { parity, data_columns_max }]);
    }
    list.extend([StoreKind::File, StoreKind::Disk].into_iter().flat_map(|kind| [Feature::Store { kind }, Feature::Load { kind }]));
    list
}

/// Options of a software provider.
#[derive(Clone, Debug)]
pub struct SoftwareOptions {
    /// Name of the provider.
    pub name: String,
    /// Most bytes of device memory; beyond them `NoMemory`.
    pub memory_bytes_max: u64,
    /// Amount of work that it takes at a time.
    pub queue: QueueLimits,
    /// Features that it offers, for operands of any size.
    pub features: Vec<Feature>,
}

impl Default for SoftwareOptions {
    fn default() -> SoftwareOptions {
        let queue = QueueLimits { graphs_max: 1024, bytes_max: 1 << 30 };
        SoftwareOptions { name: "software".to_string(), memory_bytes_max: u64::MAX, queue, features: features() }
    }
}

/// See the module.
pub struct Software {
    exec: Exec,
    options: SoftwareOptions,
    engine: Arc<Engine>,
}

impl std::fmt::Debug for Software {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Software({})", self.options.name)
    }
}

impl Software {
    /// A software provider whose programs run on `exec`.
    pub fn new(exec: &Exec, options: SoftwareOptions) -> Arc<Software> {
        let engine = Engine::new(CopyMode::Copy, options.memory_bytes_max);
        Arc::new(Software { exec: exec.clone(), options, engine })
    }
}

/// Carries a program on from where it is.
fn drive(exec: Exec, engine: Arc<Engine>, mut run: Run) {
    while let Some(node) = run.next_node() {
        let began = exec.now_ns();
        match engine.step(run.program(), node, run.results()) {
            Step::Done(outcome) => {
                run.record(dpusm::NodeResult { outcome, device_ns: exec.now_ns().saturating_sub(began) });
            }
            Step::Host(start) => {
                let (exec, engine) = (exec.clone(), engine.clone());
                return start(Box::new(move |outcome| {
                    run.record(dpusm::NodeResult { outcome, device_ns: exec.now_ns().saturating_sub(began) });
                    drive(exec, engine, run);
                }));
            }
        }
    }
    run.finish();
}

impl Provider for Software {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { list: self.options.features.iter().copied().map(Capability::any).collect(), queue: self.options.queue }
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        self.engine.alloc(bytes)
    }

    fn free(&self, handle: DeviceHandle) {
        self.engine.free(handle);
    }

    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        for program in programs {
            let (exec, engine) = (self.exec.clone(), self.engine.clone());
            let job = move || {
                program.start(exec.now_ns());
                drive(exec, engine, Run::new(program));
            };
            self.exec.spawn(TaskClass::Write, Box::new(job));
        }
        Ok(())
    }

    fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        self.engine.open(target)
    }

    fn memory(&self) -> Option<MemoryStats> {
        Some(self.engine.memory())
    }
}
