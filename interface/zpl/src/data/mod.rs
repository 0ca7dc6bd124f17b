//! Data of files: reading, writing, truncating, punching, seeking, sharing (OpenZFS: `zfs_vnops.c`, `zfs_extend`, `zfs_trunc`,
//! `zfs_free_range`, `zfs_grow_blocksize`).
//!
//! A small file is one block as large as its data (in sectors); the block grows with the file up to the record size, then
//! further blocks of that size follow. Growth and truncation lock the whole file, other operations their range.
//!
//! A request is prepared (`request.rs`) and then driven (`drive.rs`), whether it goes through the cache or direct.

mod clone;
mod drive;
mod memory;
mod request;
mod resize;
mod stable;

pub use clone::{DataAt, set_cloning};
pub use drive::{ReadThen, WriteThen};
pub(crate) use request::grow_block;
pub use request::{FILE_BYTES_MAX, WriteData};
pub use resize::{Allocate, set_reports_holes};

use crate::ZplError;
use crate::direct::Access;
use crate::nodes::Node;
use crate::store::Store;
use abd::Abd;
use dmu::SyncMode;
use drive::Driver;
use request::{Reading, Writing};
use std::sync::Arc;

/// Data of the files of a file system.
pub(crate) struct Data {
    store: Arc<Store>,
    driver: Arc<Driver>,
}

impl Data {
    pub(crate) fn new(store: Arc<Store>) -> Data {
        Data { driver: Arc::new(Driver::new(store.clone())), store }
    }

    /// Reads up to `length` bytes as `access` asks; short only at the end of the file.
    pub(crate) fn read(&self, node: &Node, offset: u64, length: u64, access: Access) -> Result<Abd, ZplError> {
        self.driver.read(node, Reading::prepare(node, offset..offset.saturating_add(length), access)?)
    }

    /// Does [`Data::read`] without waiting for the disks of the direct part: `then` runs when the bytes are there.
    pub(crate) fn read_then(&self, node: &Node, offset: u64, length: u64, access: Access, then: ReadThen) {
        self.driver.read_then(node, Reading::prepare(node, offset..offset.saturating_add(length), access), then);
    }

    /// Writes as `access` asks; the file grows as needed.
    pub(crate) fn write(&self, node: &Node, write: WriteData, access: Access) -> Result<u64, ZplError> {
        let synchronous = write.synchronous;
        let Some((length, txg)) = self.driver.write(node, Writing::prepare(node, write, access)?)? else { return Ok(0) };
        if synchronous {
            self.store.wait_for_stable(node.object, txg)?;
        }
        Ok(length)
    }

    /// Does [`Data::write`] without waiting for the disks: neither of the direct part nor, when the write is
    /// synchronous, of the log or the txg.
    pub(crate) fn write_then(&self, node: &Node, write: WriteData, access: Access, then: WriteThen) {
        let synchronous = write.synchronous && self.store.objset.props().sync != SyncMode::Disabled;
        let prepared = Writing::prepare(node, write, access);
        self.driver.carry_out(node, prepared, synchronous, then);
    }
}
