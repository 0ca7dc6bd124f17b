//! What makes direct I/O of a file efficient (OpenZFS: `zfs_get_direct_alignment`).

use crate::ZplError;
use crate::direct::{DirectAlignment, Property};
use crate::store::Store;
use crate::znode::Znode;

/// Alignment that makes direct I/O of the file efficient; None while it can't be direct (OpenZFS: `zfs_get_direct_alignment`).
pub(crate) fn direct_alignment(store: &Store, node: &Znode) -> Result<Option<DirectAlignment>, ZplError> {
    let fields = node.fields();
    let is_off = !store.direct().params().enabled || store.settings().direct == Property::Disabled || store.is_snapshot();
    if is_off || !fields.is_regular() {
        return Ok(None);
    }
    let (page, record) = (abd::PAGE_BYTES as u64, store.record_size());
    let block = node.dnode.info()?.block_size as u64;
    let offset = if fields.size <= block && block < record { record } else { block };
    Ok(Some(DirectAlignment { memory: page, offset: offset.max(page) }))
}
