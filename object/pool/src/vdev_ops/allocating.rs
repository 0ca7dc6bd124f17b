//! Top-level vdevs from which nothing new is allocated (OpenZFS: `spa_vdev_noalloc`, `spa_vdev_alloc`): what is on them stays until it is freed.

use crate::PoolError;
use crate::spa::state::Config;
use crate::sync::changes::{Edit, Edited};
use ondisk::Guid;
use vdev::{TopVdev, VdevTree};

/// The change by which new blocks lie on a top-level vdev, or not any more. Refused for logs, and for the last vdev that has room for all blocks.
pub(crate) fn allocating(guid: Guid, is_on: bool) -> Edit {
    Box::new(move |config: &Config, _| {
        let takes_blocks = |top: &TopVdev| top.is_normal() && !top.nonallocating;
        let mut tree = VdevTree::clone(&config.tree);
        let has_others = tree.tops.iter().any(|top| takes_blocks(top) && top.guid != guid);
        let top = tree.tops.iter_mut().find(|top| top.is_concrete() && top.guid == guid).ok_or(PoolError::NoSuchDevice)?;
        if top.is_log {
            return Err(PoolError::Target("nothing but intent logs is allocated from a log device"));
        }
        if !is_on && !has_others && top.is_normal() {
            return Err(PoolError::Target("the pool has no other vdev from which it could allocate"));
        }
        top.nonallocating = !is_on;
        let log = Some(("vdev set", format!("vdev_guid: {}: allocating={}", guid.0, if is_on { "on" } else { "off" })));
        Ok(Edited { tree: tree.into(), log, ..Edited::default() })
    })
}
