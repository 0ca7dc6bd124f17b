//! The background operations of one owner.

use crate::{Exec, Job, Mutex, OperationHandle};

/// Operations that one owner has run in the background. None begins behind the back of [`Crew::join`]: who wants to end them says so
/// where the claims look, then joins.
#[derive(Debug, Default)]
pub struct Crew {
    members: Mutex<Vec<OperationHandle>>,
}

impl Crew {
    /// Starts `work` on an operation of its own if `claim` says that there is work and nobody else does it. Under an inline executor,
    /// where such work is driven by hand, nothing is asked and nothing begins.
    pub fn start_if(&self, exec: &Exec, name: &str, claim: impl FnOnce() -> bool, work: Job) {
        if exec.is_inline() {
            return;
        }
        let mut members = self.members.lock();
        if claim() {
            members.retain(|member| !member.is_finished());
            members.push(exec.spawn_operation(name, work));
        }
    }

    /// Waits until all that were started have ended.
    pub fn join(&self) {
        let members = std::mem::take(&mut *self.members.lock());
        members.into_iter().for_each(OperationHandle::join);
    }
}
