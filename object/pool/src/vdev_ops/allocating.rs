//! Top-level vdevs from which nothing new is allocated (OpenZFS: `spa_vdev_noalloc`, `spa_vdev_alloc`): what is on them stays until it is freed, or until a
//! removal has copied it.

use crate::PoolError;
use crate::removal::INVALID;
use crate::spa::state::Config;
use crate::sync::changes::{Edit, Edited};
use ondisk::Guid;
use vdev::{TopVdev, VdevTree};

/// The change by which new blocks lie on a top-level vdev, or not any more. Refused for logs, and for the last vdev that has room for all blocks.
pub(crate) fn allocating(guid: Guid, is_on: bool) -> Edit {
    Box::new(move |config: &Config, _| {
        let refusal = || PoolError::Target("the pool has no other vdev from which it could allocate");
        let tree = allocated(config, guid, is_on, refusal)?;
        let log = Some(("vdev set", format!("vdev_guid: {}: allocating={}", guid.0, if is_on { "on" } else { "off" })));
        Ok(Edited { tree: tree.into(), log, ..Edited::default() })
    })
}

/// The change by which a vdev that is to leave is not allocated from any more, or that takes that back. A crash takes it back, too.
pub(crate) fn emptying(guid: Guid, is_on: bool) -> Edit {
    Box::new(move |config: &Config, _| {
        let mut tree = allocated(config, guid, is_on, || PoolError::Unremovable(INVALID))?;
        top_mut(&mut tree, guid)?.is_emptying = !is_on;
        Ok(Edited { tree: tree.into(), ..Edited::default() })
    })
}

/// The change by which a vdev begins to leave, from which nothing is allocated since longer: the removal begins with the same txg.
pub(crate) fn leaving(guid: Guid) -> Edit {
    Box::new(move |config: &Config, _| {
        let mut tree = VdevTree::clone(&config.tree);
        if tree.tops.iter().any(|top| top.is_leaving) {
            return Err(PoolError::Unremovable("Pool busy; removal may already be in progress"));
        }
        let top = top_mut(&mut tree, guid)?;
        if !top.nonallocating {
            // Somebody took that back meanwhile: what is allocated there now is not on disk yet, and would not be copied.
            return Err(PoolError::Unremovable("Pool busy; removal may already be in progress"));
        }
        top.is_leaving = true;
        Ok(Edited { tree: tree.into(), ..Edited::default() })
    })
}

/// The tree in which new blocks lie on a vdev, or not; `refusal` is for the last one that has room for all blocks. One that is leaving stays as it is.
fn allocated(config: &Config, guid: Guid, is_on: bool, refusal: impl FnOnce() -> PoolError) -> Result<VdevTree, PoolError> {
    let takes_blocks = |top: &TopVdev| top.is_normal() && !top.nonallocating;
    let mut tree = VdevTree::clone(&config.tree);
    let has_others = tree.tops.iter().any(|top| takes_blocks(top) && top.guid != guid);
    let top = top_mut(&mut tree, guid)?;
    if top.is_log {
        return Err(PoolError::Target("nothing but intent logs is allocated from a log device"));
    }
    if !is_on && !has_others && top.is_normal() {
        return Err(refusal());
    }
    (top.nonallocating, top.is_emptying) = (!is_on || top.is_leaving, false);
    Ok(tree)
}

fn top_mut(tree: &mut VdevTree, guid: Guid) -> Result<&mut TopVdev, PoolError> {
    tree.tops.iter_mut().find(|top| top.is_concrete() && top.guid == guid).ok_or(PoolError::NoSuchDevice)
}
