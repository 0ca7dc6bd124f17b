//! A modelled accelerator: results from software, time from the rates of a device ([`Rates`]), in virtual and in real time.
//!
//! Each operation of a program takes its turn on its lane (links, engines, memory); a program waits before it writes to disks and at
//! its end until the modelled time has come, on a timer, so a pool thread is free meanwhile.
//!
//! What the host pays, and what is honest about it. The bytes are always what software computes, so the computing has to be
//! done by this machine: under a virtual clock it takes no time; in real time it is CPU that a device would not take. Kept small:
//! copies in are shared memory (`CopyMode::Share`), and compressions can be remembered by content
//! ([`SimOptions::memo_bytes_max`]) — a block seen before costs a checksum and a comparison. What remains (checksums, parity,
//! comparisons, first compressions) is measured as thread CPU time in [`Sim::emulation_cpu_ns`], for a benchmark to subtract from the
//! process's, and it must say so. It still occupies cores: with few of them throughput is a lower bound. Writes to disks go
//! through the host and cost it what they cost; a device with peer-to-peer access would save that too.
#![forbid(unsafe_code)]

mod memo;
mod rates;
mod timeline;

pub use rates::{Lane, Rates};

use dpusm::{
    Capabilities, Capability, DeviceHandle, MemoryStats, NodeResult, Op, OpError, Outcome, Program, Provider, QueueLimits, Run,
    StoreTarget, View,
};
use exec::{Exec, Mutex, TaskClass};
use memo::Memo;
use provider_software::{CopyMode, Engine, Step, compressed};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use timeline::Timeline;

/// Options of a modelled accelerator.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Name of the provider.
    pub name: String,
    /// Speeds of its parts.
    pub rates: Rates,
    /// Most bytes of its memory.
    pub memory_bytes_max: u64,
    /// Amount of work that it takes at a time.
    pub queue: QueueLimits,
    /// Memory for remembered compressions, in bytes; 0: none.
    pub memo_bytes_max: u64,
}

impl SimOptions {
    /// Four U.2 NoLoad cards, remembering nothing.
    pub fn new(name: &str) -> SimOptions {
        let queue = QueueLimits { graphs_max: 256, bytes_max: 1 << 30 };
        SimOptions { name: name.to_string(), rates: Rates::noload_u2(4), memory_bytes_max: 8 << 30, queue, memo_bytes_max: 0 }
    }
}

struct Shared {
    exec: Exec,
    engine: Arc<Engine>,
    timeline: Mutex<Timeline>,
    memo: Memo,
    emulation_cpu_ns: AtomicU64,
}

/// See the module.
pub struct Sim {
    options: SimOptions,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sim({})", self.options.name)
    }
}

impl Sim {
    /// A modelled accelerator on the clock of `exec`.
    pub fn new(exec: &Exec, options: SimOptions) -> Arc<Sim> {
        let shared = Shared {
            exec: exec.clone(),
            engine: Engine::new(CopyMode::Share, options.memory_bytes_max),
            timeline: Mutex::new(Timeline::new(&options.rates)),
            memo: Memo::new(options.memo_bytes_max),
            emulation_cpu_ns: AtomicU64::new(0),
        };
        Arc::new(Sim { options, shared: Arc::new(shared) })
    }

    /// CPU that this process spent on computing what the device would have computed, in nanoseconds.
    pub fn emulation_cpu_ns(&self) -> u64 {
        self.shared.emulation_cpu_ns.load(Ordering::Relaxed)
    }
}

/// CPU time of this thread, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes that an operation is about, by which its lane is charged.
fn charged_bytes(run: &Run, node: usize) -> u64 {
    let program = run.program();
    let total = |views: &[View]| views.iter().map(|view| view.len() as u64).sum::<u64>();
    let resolved = |operand| program.resolve(operand, run.results()).map_or(0, |view| view.len() as u64);
    match &program.nodes()[node] {
        Op::CopyIn { target } | Op::Load { target, .. } => target.len() as u64,
        Op::CopyOut { source } | Op::ZeroTest { source } | Op::Checksum { source, .. } | Op::Store { source, .. } => resolved(source),
        Op::ZeroFill { target } => resolved(target),
        Op::Compress { source, .. } => source.len() as u64,
        Op::Decompress { target, .. } => target.len() as u64,
        Op::RaidGenerate { row } | Op::RaidReconstruct { row, .. } => total(row.columns()),
        Op::Compare { left, .. } => left.len() as u64,
        Op::Flush { .. } => 0,
    }
}

impl Shared {
    /// Carries out one node in software, with compressions from memory.
    fn step(&self, run: &Run, node: usize) -> Step {
        let before = thread_cpu_ns();
        let step = match &run.program().nodes()[node] {
            Op::Compress { source, target, how } => {
                let packed = Engine::snapshot(source).and_then(|block| {
                    match self.memo.compressed(&block, how, || compressed(&block, target.len(), how)) {
                        Some(packed) => {
                            let length = packed.len();
                            Engine::put(target, packed).map(|()| Outcome::Compressed(Some(length)))
                        }
                        None => Ok(Outcome::Compressed(None)),
                    }
                });
                Step::Done(packed)
            }
            _ => self.engine.step(run.program(), node, run.results()),
        };
        self.emulation_cpu_ns.fetch_add(thread_cpu_ns().saturating_sub(before), Ordering::Relaxed);
        step
    }

    fn wait_until(&self, at_ns: u64, job: impl FnOnce() + Send + 'static) {
        match at_ns.saturating_sub(self.exec.now_ns()) {
            0 => job(),
            delay_ns => self.exec.spawn_after(delay_ns, TaskClass::Write, Box::new(job)),
        }
    }
}

/// Carries a program on from where it is; on the device it is `at_ns`.
fn drive(shared: Arc<Shared>, mut run: Run, mut at_ns: u64) {
    while let Some(node) = run.next_node() {
        let kind = run.program().nodes()[node].kind();
        let bytes = charged_bytes(&run, node);
        let (end_ns, device_ns) = shared.timeline.lock().reserve(kind, bytes, at_ns);
        at_ns = end_ns;
        match shared.step(&run, node) {
            Step::Done(outcome) => run.record(NodeResult { outcome, device_ns }),
            Step::Host(start) => {
                let clock = shared.clone();
                return clock.wait_until(at_ns, move || {
                    start(Box::new(move |outcome| {
                        run.record(NodeResult { outcome, device_ns });
                        let now = shared.exec.now_ns();
                        drive(shared, run, at_ns.max(now));
                    }));
                });
            }
        }
    }
    let clock = shared.clone();
    clock.wait_until(at_ns, move || run.finish());
}

impl Provider for Sim {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { list: provider_software::features().into_iter().map(Capability::any).collect(), queue: self.options.queue }
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        self.shared.engine.alloc(bytes)
    }

    fn free(&self, handle: DeviceHandle) {
        self.shared.engine.free(handle);
    }

    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        for program in programs {
            let shared = self.shared.clone();
            let job = move || {
                let now = shared.exec.now_ns();
                program.start(now);
                drive(shared, Run::new(program), now);
            };
            self.shared.exec.spawn(TaskClass::Write, Box::new(job));
        }
        Ok(())
    }

    fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        self.shared.engine.open(target)
    }

    fn memory(&self) -> Option<MemoryStats> {
        Some(self.shared.engine.memory())
    }
}
