//! Protocol data units: the basic header segment, what comes behind it, and what is sent (RFC 7143, section 11).

use crate::bytes::{be8, be16, be32, field, put};
use abd::Abd;

/// Operation codes of PDUs (RFC 7143, section 11.2.1.2).
pub mod opcode {
    /// NOP-Out, a ping of the initiator or its answer to one.
    pub const NOP_OUT: u8 = 0x00;
    /// SCSI Command.
    pub const SCSI_COMMAND: u8 = 0x01;
    /// SCSI Task Management Function request.
    pub const TASK_MANAGEMENT: u8 = 0x02;
    /// Login request.
    pub const LOGIN: u8 = 0x03;
    /// Text request.
    pub const TEXT: u8 = 0x04;
    /// SCSI Data-Out, for writes.
    pub const DATA_OUT: u8 = 0x05;
    /// Logout request.
    pub const LOGOUT: u8 = 0x06;
    /// SNACK request.
    pub const SNACK: u8 = 0x10;
    /// NOP-In, a ping of the target or its answer to one.
    pub const NOP_IN: u8 = 0x20;
    /// SCSI Response.
    pub const SCSI_RESPONSE: u8 = 0x21;
    /// SCSI Task Management Function response.
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    /// Login response.
    pub const LOGIN_RESPONSE: u8 = 0x23;
    /// Text response.
    pub const TEXT_RESPONSE: u8 = 0x24;
    /// SCSI Data-In, for reads.
    pub const DATA_IN: u8 = 0x25;
    /// Logout response.
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    /// Ready To Transfer.
    pub const R2T: u8 = 0x31;
    /// Asynchronous message.
    pub const ASYNC: u8 = 0x32;
    /// Reject.
    pub const REJECT: u8 = 0x3F;
}

/// Length of the basic header segment in bytes.
pub(crate) const HEADER_BYTES: usize = 48;
/// Tag that stands for none.
pub(crate) const NO_TAG: u32 = 0xFFFF_FFFF;
/// Bit of byte 1: the last PDU of a sequence.
pub(crate) const FINAL: u8 = 0x80;

/// Difference of two serial numbers (RFC 1982): above zero when `a` comes after `b`.
pub(crate) fn serial_distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// A received PDU, with lengths that were checked and digests that were right.
#[derive(Clone, Debug)]
pub struct Pdu {
    /// Basic header segment.
    pub header: [u8; HEADER_BYTES],
    /// Additional header segments, as they came.
    pub additional: Vec<u8>,
    /// Data segment, without padding.
    pub data: Abd,
}

impl Pdu {
    /// A PDU without data.
    pub fn new(header: [u8; HEADER_BYTES]) -> Pdu {
        Pdu { header, additional: Vec::new(), data: Abd::default() }
    }

    /// Operation code.
    pub fn opcode(&self) -> u8 {
        self.header[0] & 0x3F
    }

    /// True for a command that is delivered at once, outside of the order of commands.
    pub fn is_immediate(&self) -> bool {
        self.header[0] & 0x40 != 0
    }

    /// True for the last PDU of a sequence.
    pub fn is_final(&self) -> bool {
        self.header[1] & FINAL != 0
    }

    /// Flags, byte 1.
    pub fn flags(&self) -> u8 {
        self.header[1]
    }

    /// Initiator task tag.
    pub fn task_tag(&self) -> u32 {
        be32(&self.header, 16)
    }

    /// Bytes 8 to 15: the logical unit number, where the PDU has one.
    pub fn lun(&self) -> u64 {
        field(&self.header, 8, 8)
    }

    /// Field of four bytes at `at`.
    pub fn word(&self, at: usize) -> u32 {
        be32(&self.header, at)
    }

    /// Field of two bytes at `at`.
    pub fn half(&self, at: usize) -> u16 {
        be16(&self.header, at)
    }

    /// Byte at `at`.
    pub fn byte(&self, at: usize) -> u8 {
        be8(&self.header, at)
    }
}

/// Data segment of a PDU that is sent.
#[derive(Clone, Debug)]
pub enum Body {
    /// A few bytes: text, sense data, parameters.
    Bytes(Vec<u8>),
    /// Data of a unit, as it gave them.
    Pages(Abd),
}

impl Default for Body {
    fn default() -> Body {
        Body::Bytes(Vec::new())
    }
}

impl Body {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Pages(pages) => pages.len(),
        }
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part `start..end`, which must lie inside; pages are not copied.
    pub fn slice(&self, start: usize, end: usize) -> Body {
        match self {
            Body::Bytes(bytes) => Body::Bytes(bytes[start..end].to_vec()),
            Body::Pages(pages) => Body::Pages(pages.slice(start..end)),
        }
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Body::Bytes(bytes) => bytes.clone(),
            Body::Pages(pages) => pages.to_vec(),
        }
    }
}

/// A PDU to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Basic header segment; the length of the data segment is filled in by [`Outgoing::with`].
    pub header: [u8; HEADER_BYTES],
    /// Data segment, without padding.
    pub body: Body,
}

impl Outgoing {
    /// A PDU with an operation code, flags, and a task tag.
    pub fn new(opcode: u8, flags: u8, task_tag: u32) -> Outgoing {
        let mut header = [0; HEADER_BYTES];
        header[0] = opcode;
        header[1] = flags;
        put(&mut header, 16, &task_tag.to_be_bytes());
        Outgoing { header, body: Body::default() }
    }

    /// Sets the data segment.
    pub fn with(mut self, body: Body) -> Outgoing {
        let length = body.len() as u32;
        put(&mut self.header, 5, &length.to_be_bytes()[1..]);
        self.body = body;
        self
    }

    /// Sets a field of four bytes at `at`.
    pub fn word(mut self, at: usize, value: u32) -> Outgoing {
        put(&mut self.header, at, &value.to_be_bytes());
        self
    }

    /// Sets the byte at `at`.
    pub fn byte(mut self, at: usize, value: u8) -> Outgoing {
        put(&mut self.header, at, &[value]);
        self
    }

    /// Sets the logical unit number.
    pub fn lun(mut self, lun: u64) -> Outgoing {
        put(&mut self.header, 8, &lun.to_be_bytes());
        self
    }
}
