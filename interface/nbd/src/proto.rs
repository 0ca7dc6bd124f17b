//! Numbers of the protocol, under the names that `proto.md` has for them, and big-endian fields: what is missing reads as zero, so no length panics.

/// First words of a server (`NBDMAGIC`).
pub(crate) const INIT_MAGIC: u64 = 0x4E42_444D_4147_4943;
/// First words of every option (`IHAVEOPT`).
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
/// First word of answers to options.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_E889_0455_65A9;
/// First word of requests.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of simple replies.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of chunks of structured replies.
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668E_33EF;

/// Handshake flags: fixed newstyle, no zeroes. The client's have the same bits.
pub(crate) const HANDSHAKE_FLAGS: u16 = 0b11;
/// Client flag: no zeroes behind the answer to `NBD_OPT_EXPORT_NAME`.
pub(crate) const NO_ZEROES: u32 = 0b10;

/// Options (`NBD_OPT_*`).
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Answers to options (`NBD_REP_*`).
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = 0x8000_0001;
    pub(crate) const ERR_POLICY: u32 = 0x8000_0002;
    pub(crate) const ERR_INVALID: u32 = 0x8000_0003;
    pub(crate) const ERR_UNKNOWN: u32 = 0x8000_0006;
    pub(crate) const ERR_SHUTDOWN: u32 = 0x8000_0007;
}

/// Kinds of information about an export (`NBD_INFO_*`).
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags (`NBD_FLAG_*`).
pub(crate) mod flag {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands (`NBD_CMD_*`).
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands (`NBD_CMD_FLAG_*`).
pub(crate) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Kinds of chunks of structured replies (`NBD_REPLY_TYPE_*`).
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = 0x8001;
    pub(crate) const ERROR_OFFSET: u16 = 0x8002;
    /// Flag of the last chunk of a reply.
    pub(crate) const DONE: u16 = 1;
}

/// Errors of requests (`NBD_E*`).
pub(crate) mod error {
    pub(crate) const PERM: u32 = 1;
    pub(crate) const IO: u32 = 5;
    pub(crate) const INVAL: u32 = 22;
    pub(crate) const NOSPC: u32 = 28;
    pub(crate) const OVERFLOW: u32 = 75;
    pub(crate) const NOTSUP: u32 = 95;
    pub(crate) const SHUTDOWN: u32 = 108;
}

/// The metadata context that there is.
pub(crate) const ALLOCATION: &str = "base:allocation";
/// Number under which a client has it.
pub(crate) const ALLOCATION_ID: u32 = 1;
/// States of an extent in it: not allocated, and read as zeros.
pub(crate) const STATE_HOLE_ZERO: u32 = 0b11;

/// Bytes of a payload in either direction, at most.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Bytes of an option's data, at most: a name, and more contexts than there are.
pub(crate) const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Bytes of a string, at most.
pub(crate) const STRING_BYTES_MAX: usize = 4096;

/// Bytes of the header of a request.
pub(crate) const REQUEST_BYTES: usize = 28;
/// Bytes of the header of an option.
pub(crate) const OPTION_BYTES: usize = 16;

/// Number in the field of `width` bytes (8 at most) at `at`; bytes beyond the end are zero.
pub(crate) fn field(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes.iter().skip(at).chain(std::iter::repeat(&0)).take(width).fold(0, |value, byte| value << 8 | u64::from(*byte))
}
