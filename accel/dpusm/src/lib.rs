//! The registry of providers: accelerators that compress, checksum and compute parity on data that stays in their memory.
//!
//! After DPUSM (the Data Processing Unit Services Module), with what it lacks: owned handles instead of bare pointers, graphs of
//! operations submitted at once and completed asynchronously instead of one blocking call per operation, deadlines, back-pressure,
//! and no trust: known-answer tests at registration, verification, a circuit breaker per operation, and an end of it all with the first lie.
//!
//! ```text
//! Registry::register(provider) ──► Session ──device()──► Device ──alloc──► Buffer ──view──► View
//!                                                          └──submit(Graph, deadline)──► Report, as a job
//! ```
//! How a block is written (docs/adr/0006): one graph {copy in, compress, pad, checksum}; the host takes the size and allocates; a
//! second graph {parity, store…} on the same buffers. Any error means software ([`Verdict`]); the host keeps the original until then.
//!
//! Invariants: performs no I/O (but for a scratch file in tests of providers); knows no pool, no txg, no block pointer; a callback is
//! a job, never a call inside somebody's call; no lock is held while a provider or a user is called.
#![forbid(unsafe_code)]

mod breaker;
mod capability;
mod check;
mod contest;
mod device;
mod error;
mod generation;
mod graph;
mod handle;
mod host_guard;
mod in_flight;
mod known_answers;
mod program;
mod provider;
mod registry;
mod shapes;
mod speeds;
mod stats;
mod straggler;
mod submit;
mod trust;
mod verify;
mod worth;

pub use breaker::{Admission, Breaker, BreakerPolicy, BreakerState};
pub use capability::{Capabilities, Capability, Feature, OpKind, QueueLimits, Sizes, StoreKind};
pub use device::{Buffer, Device};
pub use error::{Fault, OpError, RegistryError, Verdict};
pub use generation::{DeviceState, Disabled};
pub use graph::{Compress, Compressed, Graph, NodeId, Op, Operand, Outcome, Payload, Report};
pub use handle::{
    DATA_COLUMNS_MAX, DeviceHandle, HostDone, HostRead, HostStore, NoHost, PARITY_MAX, RaidContext, Store, StoreTarget, View,
};
pub use program::{Done, NodeResult, Program, Run, needs};
pub use provider::{MemoryCount, MemoryStats, Provider};
pub use registry::{PROOFS, ProviderInfo, RegisterOptions, Registry, Session};
pub use shapes::{ShapeFault, Shapes, random_shapes};
pub use speeds::{Measured, Speed, Speeds};
pub use stats::{FallbackReason, OpStats, Tally};
pub use straggler::{Onward, Straggler};
pub use submit::{Refused, ReportFn, Submission};
pub use verify::{Claim, Sampler, verify};
pub use worth::WorthPolicy;
