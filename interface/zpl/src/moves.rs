//! Reads and writes as the kernel's requests ask for them.

use crate::direct::Access;
use crate::kernel::PastCache;
use crate::nodes::Node;
use crate::{DataAt, WriteData, Zfs, ZplError};
use fuse::{CopyRequest, Notifier, WriteRequest};

const O_SYNC_BITS: u32 = 0o4_010_000;
/// Mask of the access mode in flags of open(2).
const O_ACCMODE: u32 = 3;
const O_WRONLY: u32 = 1;
/// Part of its receive buffer that a write must fill to keep it: one in so many.
const KEEP_PART: usize = 2;

/// Way in which a request wants its data moved. Its flags are the file's at that moment, so fcntl(F_SETFL) counts at once. The kernel
/// copied the data: what the alignment of the caller's memory was cannot be seen, and does not matter.
pub(crate) fn access(open_flags: u32) -> Access {
    Access { flagged: open_flags & fuse::O_DIRECT != 0, ..Access::default() }
}

/// True for flags of open(2) of whoever writes, durably, and can neither read nor map.
pub(crate) fn is_log(flags: u32) -> bool {
    flags & O_ACCMODE == O_WRONLY && flags & O_SYNC_BITS != 0
}

/// Shares between files of one file system what copy_file_range(2) asks to copy. What the kernel has of the source it wrote before it asked, and what it
/// has of the target it forgets.
pub(crate) fn share(zfs: &Zfs, (from, to): (&Node, &Node), request: &CopyRequest) -> Result<u64, ZplError> {
    let (from, to) = (DataAt { node: from, offset: request.from_offset }, DataAt { node: to, offset: request.to_offset });
    zfs.clone_range(from, to, request.length)
}

/// Pages of the kernel that are to be forgotten when the write is done.
pub(crate) fn past_cache(notifier: Option<&Notifier>, node: &Node, request: &WriteRequest) -> Option<PastCache> {
    if !request.past_cache {
        node.kernel.note_pages();
        return None;
    }
    let notifier = notifier?.clone();
    let range = request.offset..request.offset.saturating_add(request.data.len() as u64);
    Some(PastCache { view: node.kernel.clone(), notifier, id: request.node, range })
}

/// Write that a request asks for, and the way of its data; `always` is for `sync=always`.
pub(crate) fn write_data(node: &Node, request: WriteRequest, always: bool) -> (WriteData, Access) {
    if request.from_cache {
        node.kernel.note_stored();
    }
    let access = if request.from_cache { Access::default() } else { access(request.open_flags) };
    let write = WriteData {
        may_keep: request.data.len() * KEEP_PART >= request.pinned_bytes,
        offset: request.offset,
        data: request.data,
        kill_suid: request.kill_suid,
        synchronous: always || request.open_flags & O_SYNC_BITS != 0 && !request.from_cache,
    };
    (write, access)
}
