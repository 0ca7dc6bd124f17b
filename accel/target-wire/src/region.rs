//! Memory that a host and a target on one machine share: a sealed memory file of the host's, passed over their Unix socket.
//!
//! It is read and written as a file and never mapped. So a page that cannot be had, or that the other side took out again, is an error or
//! zeros, not a signal; no reference is ever made to bytes that somebody else may change; and nothing here is unsafe. What is read
//! is a copy, and its CRC is that of the copy: what the other side writes afterwards is not seen.
//!
//! Invariants: nobody can change the length of a region that was made or accepted here; nothing is read or written outside of it.

use crate::Connection;
use crate::frame::{Header, Kind};
use crate::seal::Sealer;
use abd::{Abd, AbdPart};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// The seals that make a region's length what it is for good.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset of the part in the region, in bytes.
    pub offset: u64,
    /// Length of the part in bytes.
    pub bytes: u64,
}

/// Reason why a file is no region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// No file came with the offer.
    NoFile,
    /// The file is no memory file, or its length could be changed: then reading it could fail at any time.
    NotSealed,
    /// The file has another length than was said, none, or more than a region may have.
    Length,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegionError::NoFile => "no file came",
            RegionError::NotSealed => "the file's length is not sealed",
            RegionError::Length => "the file's length is wrong",
        })
    }
}
impl std::error::Error for RegionError {}

/// See the module.
#[derive(Debug)]
pub struct Region {
    file: File,
    bytes: u64,
}

impl Region {
    /// Longest region, in bytes.
    pub const BYTES_MAX: u64 = 256 << 20;

    /// A new region of zeros. It takes memory only where it is written.
    ///
    /// # Errors
    /// Those of the system: it may not have memory files, or not for us.
    pub fn create(bytes: u64) -> io::Result<Region> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Older systems do not know the flag, some newer ones insist on it.
        let file = memfd_create("zirconia-target", flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create("zirconia-target", flags))?;
        let file = File::from(file);
        file.set_len(bytes)?;
        fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
        Ok(Region { file, bytes })
    }

    /// A region that somebody else made, who says how long it is.
    ///
    /// # Errors
    /// Why it is not used.
    pub fn accept(file: Option<OwnedFd>, bytes: u64) -> Result<Region, RegionError> {
        let file = file.ok_or(RegionError::NoFile)?;
        // Only memory files have seals. They are looked at before the length, which holds from then on.
        let seals = fcntl_get_seals(&file).map_err(|_| RegionError::NotSealed)?;
        if !seals.contains(SEALS) {
            return Err(RegionError::NotSealed);
        }
        let length = fstat(&file).ok().and_then(|status| u64::try_from(status.st_size).ok());
        if length != Some(bytes) || bytes == 0 || bytes > Region::BYTES_MAX {
            return Err(RegionError::Length);
        }
        Ok(Region { file: file.into(), bytes })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// True for a region without bytes, which is of no use.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// True when a place is a part of it, and has bytes.
    pub fn has(&self, place: Place) -> bool {
        place.bytes > 0 && place.offset.checked_add(place.bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Writes a payload at an offset; its CRC, of just the bytes that were written.
    ///
    /// # Errors
    /// `InvalidInput` for what does not lie in the region, and those of the system: no memory.
    pub fn write(&self, offset: u64, payload: &Abd) -> io::Result<u32> {
        if !self.has(Place { offset, bytes: payload.len() as u64 }) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (mut crc, mut at, mut failed) = (libdeflater::Crc::new(), offset, None);
        payload.fold((), |(), run| {
            crc.update(run);
            failed = self.file.write_all_at(run, at).err();
            at += run.len() as u64;
            failed.is_none().then_some(())
        });
        failed.map_or_else(|| Ok(crc.sum()), Err)
    }

    /// A copy of a place's bytes, and the CRC of the copy.
    ///
    /// # Errors
    /// As for [`Region::write`].
    pub fn read(&self, place: Place) -> io::Result<(Abd, u32)> {
        let bytes = usize::try_from(place.bytes).ok().filter(|_| self.has(place)).ok_or(io::ErrorKind::InvalidInput)?;
        let mut part = AbdPart::scratch(bytes);
        self.file.read_exact_at(&mut part, place.offset)?;
        let crc = libdeflater::crc32(&part);
        Ok((part.freeze(), crc))
    }

    /// Offers it over a connection to the target: the frame, and the file with it.
    ///
    /// # Errors
    /// Those of the connection; `Unsupported` for one that is not local.
    pub fn offer(&self, connection: &Connection, sealer: &mut Sealer) -> io::Result<()> {
        let mut frame = Vec::new();
        sealer.write(&mut frame, &Header::of(Kind::Region), &crate::RegionOffer { bytes: self.bytes }.encode(), &Abd::default())?;
        connection.send_with_file(&frame, self.as_fd())
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
