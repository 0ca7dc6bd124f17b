//! Memory that a client shares: a file in memory whose length is sealed, so that whoever was given it may count on its length.
//!
//! Bytes are put and taken as those of a file; who wants to have them in place maps the file.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// See the module.
#[derive(Debug)]
pub struct Memory {
    file: File,
    bytes: u64,
}

impl Memory {
    /// Makes memory of zeros. It takes room only where it is written.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(bytes: u64) -> io::Result<Memory> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("zirconia-osd", flags)?);
        file.set_len(bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Memory { file, bytes })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// True when it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Puts bytes at an offset.
    ///
    /// # Errors
    /// Those of the system.
    pub fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Takes bytes from an offset on.
    ///
    /// # Errors
    /// Those of the system; there are fewer.
    pub fn take(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
