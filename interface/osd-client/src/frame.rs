//! Frames: a header, and a body of at most 64 KiB.

use crate::fields::{Body, Fields, Malformed};

/// Bytes of the header of a frame.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the longest body.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Bit that makes the kind of a reply of that of its request.
pub const REPLY: u16 = 0x8000;
/// Kind of the frame that says that a transaction is on disk, or never will be.
pub const COMMITTED: u16 = 0xc001;
/// Kind of the last frame of a connection that ends because its client does what no client does.
pub const REFUSED: u16 = 0xc002;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body.
    pub length: u32,
    /// Kind of what the body says.
    pub kind: u16,
    /// Number of the request that it is, or is about.
    pub tag: u64,
}

impl Header {
    /// Bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.kind.to_le_bytes());
        bytes[8..].copy_from_slice(&self.tag.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`Malformed::Length`] for a body that is too long, [`Malformed::Value`] where zeros should be.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Malformed> {
        let mut fields = Fields::of(bytes);
        let (length, kind, reserved, tag) = (fields.u32()?, fields.u16()?, fields.u16()?, fields.u64()?);
        if length as usize > BODY_BYTES_MAX {
            return Err(Malformed::Length);
        }
        if reserved != 0 {
            return Err(Malformed::Value);
        }
        Ok(Header { length, kind, tag })
    }
}

/// Bytes of a frame.
///
/// # Errors
/// [`Malformed::Length`] for a body that is too long.
pub fn frame(kind: u16, tag: u64, body: &[u8]) -> Result<Vec<u8>, Malformed> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Malformed::Length);
    }
    let header = Header { length: body.len() as u32, kind, tag };
    Ok(Body::default().bytes(&header.encode()).bytes(body).done())
}
