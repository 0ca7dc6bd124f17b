//! Letting go of cached blocks: who reads data once asks for it (OpenZFS: `DMU_UNCACHEDIO`, `db_pending_evict`).

use super::Dnode;
use crate::state::Found;

impl Dnode {
    /// Takes blocks out of the cache whose last byte lies in the range: a reader that goes on in a block still wants it. Never
    /// waits; blocks whose pointer is not in memory stay.
    pub fn forget(&self, offset: u64, length: usize) {
        let (block_size, max_block, freed) = {
            let state = self.state.read();
            (state.core.block_size as u64, state.core.max_block, state.core.freed)
        };
        if freed {
            return;
        }
        let end = offset.saturating_add(length as u64);
        let last = (end / block_size).min(max_block.saturating_add(1));
        for block in offset / block_size..last {
            let found = self.state.read().find(block);
            if let Found::Clean(tree) = found
                && let Some(bp) = self.pointer_now(&tree, 0, block)
                && !bp.is_hole()
            {
                self.context.env.io.forget(&bp);
            }
        }
    }
}
