//! Mounts that outlive the daemon: the file system's side of it ([`fuse::Lasting`]), which is the arena's of its pool (docs/adr/0018).

use dmu::DmuError;
use fuse::{Done, Errno, Lasting, NodeId, Reply, Underway};
use std::sync::Arc;
use zil::Arena;

/// Bits of a request's number that are the kernel's: they begin anew with each mount, whose number is above them.
const KERNELS_BITS: u32 = 48;

/// Requests of one mount in the arena of its pool.
pub(crate) struct Lasts {
    pub arena: Arc<Arena>,
    pub objset: u64,
    /// Number of the mount; its low bits are enough to tell it from one before.
    pub mount: u32,
}

impl Lasts {
    fn number(&self, unique: u64) -> u64 {
        u64::from(self.mount) << KERNELS_BITS | unique & ((1 << KERNELS_BITS) - 1)
    }
}

impl Lasting for Lasts {
    fn begin(&self, unique: u64) -> Underway {
        Box::new(self.arena.begin(self.number(unique)))
    }

    fn left(&self) {
        self.arena.left();
    }

    fn done_before(&self, unique: u64) -> Option<Done> {
        let done = self.arena.take_done(self.objset, self.number(unique))?;
        Some(Done { node: NodeId(done.object), bytes: done.bytes })
    }

    fn is_settled(&self) -> bool {
        self.arena.is_settled()
    }

    fn wait_settled(&self) -> Reply<()> {
        self.arena.wait_settled().map_err(|_: DmuError| Errno::EIO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a request of a mount is taken for one of the mount before it, which was done: a program is told of something that never was.
    #[test]
    fn numbers_of_one_mount_are_not_those_of_another() {
        let arena = Arena::create(zil::ARENA_BYTES).expect("an arena");
        let lasts = |mount| Lasts { arena: arena.clone(), objset: 54, mount };
        assert_ne!(lasts(1).number(2), lasts(2).number(2));
        assert_ne!(lasts(1).number(2), lasts(1).number(4));
        assert_ne!(lasts(0x1_0000).number(2), 0);
    }
}
