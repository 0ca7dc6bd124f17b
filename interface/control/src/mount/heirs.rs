//! Mounts that share what a daemon which died left in the arena of their pool: when it can go.

use exec::Exec;
use std::sync::Arc;
use zil::Arena;

/// Share of one mount, and of whoever goes on with mounts. When the last is dropped, all that the kernel sends again has come, and what the daemon
/// before did is known of it: the rest is forgotten.
pub(crate) struct Heirs {
    exec: Exec,
    arena: Arc<Arena>,
}

impl Heirs {
    /// Makes the first share in what is in an arena.
    pub(crate) fn of(exec: &Exec, arena: Arc<Arena>) -> Arc<Heirs> {
        Arc::new(Heirs { exec: exec.clone(), arena })
    }
}

impl Drop for Heirs {
    fn drop(&mut self) {
        // Who drops it serves requests; giving memory back takes as long as it is.
        let arena = self.arena.clone();
        drop(self.exec.spawn_operation("z-sent-again", Box::new(move || arena.forget_inherited())));
    }
}
