//! What statfs(2) shows: the file system's space, and that of a project where a directory hands it on (OpenZFS: `zfs_statvfs`,
//! `zfs_statfs_project`).

use crate::ZplError;
use crate::nodes::Node;
use crate::store::Store;
use crate::userspace;
use crate::znode::flag;
use fuse::Statfs;

const UNIT: u64 = 512;

/// Space as it is seen at a node; none stands for what is in no object set.
pub(crate) fn statfs(store: &Store, node: Option<&Node>) -> Result<Statfs, ZplError> {
    let space = store.room.space().unwrap_or_default();
    let (blocks, free) = ((space.referenced + space.available) / UNIT, space.available / UNIT);
    let free_objects = space.objects_available.min(free);
    let mut shown = Statfs {
        blocks,
        bfree: free,
        bavail: free,
        files: free_objects + space.objects_used,
        ffree: free_objects,
        bsize: store.record_size() as u32,
        frsize: UNIT as u32,
        namelen: store.name_bytes_max() as u32,
    };
    let fields = node.map(|node| node.fields());
    if let Some(fields) = fields.filter(|fields| fields.flags & flag::PROJINHERIT != 0 && fields.flags & flag::PROJID != 0) {
        show_project(store, fields.project, &mut shown)?;
    }
    Ok(shown)
}

/// Shows a project's limit as the size, where it has one, and as free what it has not used of it.
fn show_project(store: &Store, project: u64, shown: &mut Statfs) -> Result<(), ZplError> {
    let value = |kind| userspace::value(&store.objset, kind, project);
    let bytes = value("projectquota")?;
    if bytes != 0 {
        shown.blocks = bytes / UNIT;
        shown.bfree = bytes.saturating_sub(value("projectused")?) / UNIT;
        shown.bavail = shown.bfree;
    }
    let objects = value("projectobjquota")?;
    if objects != 0 {
        shown.files = objects;
        shown.ffree = objects.saturating_sub(value("projectobjused")?);
    }
    Ok(())
}
