//! What a host and a target say to each other (docs/target-protocol.md): frames, programs, completions, the handshake, addresses.
//!
//! The vocabulary is that of NVMe's Subsystem Local Memory and Computational Programs: a buffer is a memory range of the target, copying
//! in and out is Memory Write and Memory Read, and a graph is one *Execute* that names the ranges it works on, answered by one
//! *Completion*. What those standards do in a command each, the creation and release of ranges included, travels with it.
//!
//! A connection begins with a handshake in the open (`noise`); from then on every frame is sealed (`seal`): nobody on the link can read one, change it, or say it again.
//!
//! On one machine, payload goes through memory that both share ([`Region`]), and frames say where it lies.
//!
//! Invariants: numbers stand for buffers and stores, so nothing here knows device memory; every length is checked against what is really
//! there before anything is allocated; no input makes this panic; a frame whose checks fail is never handed on.
#![forbid(unsafe_code)]

mod address;
mod bytes;
mod cipher;
mod completion;
mod frame;
mod handshake;
mod noise;
mod program;
mod region;
mod seal;
mod secret;
mod shared;

pub use address::{Address, AddressError, Connection, Listener, WithFile};
pub use bytes::Malformed;
pub use cipher::NoiseError;
pub use completion::{WireCompletion, WireOutcome, WireResult};
pub use frame::{Frame, HEADER_BYTES, Header, Kind, Limits, ReadError, Received, read_frame, write_frame};
pub use handshake::{Challenge, Hello, NOISE_BYTES, Proof, Refusal, Refused, VERSION, Welcome};
pub use noise::{Channel, Initiator, respond};
pub use program::{BufferRef, OpenStore, OperandRef, ViewRef, WireOp, WireProgram};
pub use region::{Place, Region, RegionError};
pub use seal::{Opener, Sealer, sealed_bytes};
pub use secret::{SECRET_BYTES_MIN, Secret, SecretError};
pub use shared::{CompletionRoom, ExecutePlaces, RegionAnswer, RegionOffer, SHARED_MEMORY};
