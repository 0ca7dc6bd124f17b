//! What can go wrong with an operation on a provider, and what its user has to do about it: one code space, typed.
//!
//! DPUSM mixes its own codes with errno where disks are written (code 5 and EIO look alike there); here an I/O error is a variant
//! of its own. Every error falls into one of two classes, which is all that a pipeline has to know: [`Verdict`].

use crate::speeds::Speeds;
use std::fmt;

/// Reason why an operation did not give a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpError {
    /// The provider has no such operation or algorithm, or it was disabled (DPUSM: `NOT_IMPLEMENTED`).
    NotImplemented,
    /// The provider has the operation, but not for this case: size, alignment, number of columns (DPUSM: `NOT_SUPPORTED`).
    NotSupported,
    /// The operation ran, and its result cannot be right: too short, too long, of another kind (DPUSM: `BAD_RESULT`).
    BadResult,
    /// Operands live on different providers, or on different generations of one (DPUSM: `PROVIDER_MISMATCH`).
    Mismatch,
    /// The provider is dead: invalidated, unregistered, or it dropped the work (DPUSM: `INVALIDATED`, `UNREGISTERED`).
    Down,
    /// The deadline of the graph passed.
    Timeout,
    /// The queue of the provider is full at this moment.
    Full,
    /// The user of the graph cancelled it.
    Cancelled,
    /// Something that the operation needs failed before.
    Skipped,
    /// The circuit breaker of the operation is open.
    Tripped,
    /// The operand may still be written to by a graph that was given up.
    Abandoned,
    /// The provider has no memory for the buffer.
    NoMemory,
    /// The provider said that the operation failed.
    Failed,
    /// The graph makes no sense: a programming error of its user.
    Invalid,
    /// A write to a file or disk failed with this errno.
    Io(i32),
    /// The provider changed host memory that it was not to write to.
    WroteOutside,
}

/// Action of a provider's user after an error. The data is safe either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Do this one operation in software; what is on the device can still be brought back.
    Software,
    /// Nothing can be brought back: begin again from the original data, without the provider.
    Down,
}

impl OpError {
    /// Number of different errors, all errnos counted as one.
    pub const COUNT: usize = 16;

    /// One error of each kind, by [`OpError::index`]; without errno.
    pub const ALL: [OpError; OpError::COUNT] = [
        OpError::NotImplemented,
        OpError::NotSupported,
        OpError::BadResult,
        OpError::Mismatch,
        OpError::Down,
        OpError::Timeout,
        OpError::Full,
        OpError::Cancelled,
        OpError::Skipped,
        OpError::Tripped,
        OpError::Abandoned,
        OpError::NoMemory,
        OpError::Failed,
        OpError::Invalid,
        OpError::Io(0),
        OpError::WroteOutside,
    ];

    /// Action of the user after the error.
    pub fn verdict(self) -> Verdict {
        if self == OpError::Down { Verdict::Down } else { Verdict::Software }
    }

    /// True when the provider is to blame, so that it counts for the circuit breaker.
    pub fn is_fault(self) -> bool {
        matches!(self, OpError::BadResult | OpError::Down | OpError::Timeout | OpError::Failed | OpError::Io(_) | OpError::WroteOutside)
    }

    /// A number below [`OpError::COUNT`].
    pub fn index(self) -> usize {
        match self {
            OpError::NotImplemented => 0,
            OpError::NotSupported => 1,
            OpError::BadResult => 2,
            OpError::Mismatch => 3,
            OpError::Down => 4,
            OpError::Timeout => 5,
            OpError::Full => 6,
            OpError::Cancelled => 7,
            OpError::Skipped => 8,
            OpError::Tripped => 9,
            OpError::Abandoned => 10,
            OpError::NoMemory => 11,
            OpError::Failed => 12,
            OpError::Invalid => 13,
            OpError::Io(_) => 14,
            OpError::WroteOutside => 15,
        }
    }

    /// Names by [`OpError::index`], for counters.
    pub const NAMES: [&'static str; OpError::COUNT] = [
        "not_implemented",
        "not_supported",
        "bad_result",
        "mismatch",
        "down",
        "timeout",
        "full",
        "cancelled",
        "skipped",
        "tripped",
        "abandoned",
        "no_memory",
        "failed",
        "invalid",
        "io",
        "wrote_outside",
    ];
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpError::NotImplemented => "the provider does not have this operation",
            OpError::NotSupported => "the provider does not support this size, alignment or shape",
            OpError::BadResult => "the provider gave a result that cannot be right",
            OpError::Mismatch => "the operands belong to different providers",
            OpError::Down => "the provider is down",
            OpError::Timeout => "the provider did not answer in time",
            OpError::Full => "the provider's queue is full",
            OpError::Cancelled => "the operation was cancelled",
            OpError::Skipped => "an operation that this one needs failed",
            OpError::Tripped => "the operation is switched off after failures",
            OpError::Abandoned => "a graph that was given up may still write to the buffer",
            OpError::NoMemory => "the provider has no memory left",
            OpError::Failed => "the operation failed",
            OpError::Invalid => "the graph is malformed",
            OpError::WroteOutside => "the provider changed host memory that it was not to write to",
            OpError::Io(errno) => return write!(f, "the write failed (errno {errno})"),
        })
    }
}
impl std::error::Error for OpError {}

/// Reason why a provider was not registered, unregistered or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryError {
    /// A provider of this name is there already: replace it, or unregister it first.
    Exists {
        /// Name of the provider.
        name: String,
    },
    /// There is no provider of this name.
    Unknown {
        /// Name that was asked for.
        name: String,
    },
    /// The name is empty, too long, or has characters other than letters, digits, `-`, `_` and `.`.
    BadName {
        /// Name that was given.
        name: String,
    },
    /// The provider cannot move bytes to its memory and back: the test that failed.
    CannotCopy(Fault),
    /// The provider was caught lying, and has to be loaded by somebody.
    Distrusted {
        /// Name of the provider.
        name: String,
        /// Operation that it lied at.
        operation: crate::OpKind,
    },
    /// The provider has sessions still.
    InUse {
        /// Number of sessions.
        sessions: usize,
    },
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistryError::Exists { name } => write!(f, "a provider called '{name}' is registered already"),
            RegistryError::Unknown { name } => write!(f, "no provider is called '{name}'"),
            RegistryError::BadName { name } => write!(f, "'{name}' is no name for a provider"),
            RegistryError::CannotCopy(fault) => write!(f, "bytes copied to the provider and back: {fault}"),
            RegistryError::Distrusted { name, operation } => {
                write!(f, "'{name}' gave a wrong result of {} and is not used any more", operation.name())
            }
            RegistryError::InUse { sessions } => write!(f, "the provider is in use ({sessions} sessions)"),
        }
    }
}
impl std::error::Error for RegistryError {}

/// Fault that a known-answer test found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation did not run.
    Error(OpError),
    /// The operation ran, and the result was not what software computes.
    WrongAnswer,
    /// The operation wrote to bytes beside those that it was given.
    WroteOutside,
    /// The operation changed bytes that it was to read only.
    ChangedSource,
    /// The capability admits no size that can be tested.
    Untestable,
    /// The operation does less in a second than the processors of this machine, at some sizes of blocks or at all.
    TooSlow(Speeds),
    /// The operation was not compared with the processors of this machine: for want of time, or it takes no block of a size that is measured.
    Unmeasured,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Error(error) => error.fmt(f),
            Fault::WrongAnswer => f.write_str("the answer was wrong"),
            Fault::WroteOutside => f.write_str("bytes outside of the operand were changed"),
            Fault::ChangedSource => f.write_str("bytes that it only reads were changed"),
            Fault::Untestable => f.write_str("it cannot be tested here"),
            Fault::TooSlow(speeds) => write!(f, "it is not faster than the processors of this machine: {speeds}"),
            Fault::Unmeasured => f.write_str("there was no time, or no block, to compare it with the processors of this machine"),
        }
    }
}

impl From<OpError> for Fault {
    fn from(error: OpError) -> Fault {
        if error == OpError::WroteOutside { Fault::WroteOutside } else { Fault::Error(error) }
    }
}
