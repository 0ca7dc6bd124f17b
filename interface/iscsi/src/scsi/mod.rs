//! SCSI as a disk speaks it: SPC-4 and SBC-3, over [`LogicalUnit`](crate::LogicalUnit).

pub(crate) mod block;
pub(crate) mod capacity;
pub(crate) mod command;
pub(crate) mod disk;
pub(crate) mod inquiry;
pub(crate) mod mode;
pub(crate) mod opcodes;
pub(crate) mod ranges;
pub(crate) mod reservations;
pub(crate) mod reserve;
pub(crate) mod sense;
pub(crate) mod table;
