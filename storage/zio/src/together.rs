//! Reads of a scan that belong together: neighbours on their devices, whose repairs are to be neighbours too.
//!
//! The leaf reads of a group go out in one go, so that neighbours become one request (see `leaf::plugged`). Each block is verified on its own, on
//! whichever thread its last read ended; what it needs to have written waits for the others of the group. The last one lets all writes
//! go, again in one go. So a device that is being resilvered gets large writes.

use exec::Mutex;
use std::sync::Arc;

type Work = Box<dyn FnOnce() + Send>;

/// Writes that a group's blocks have to do.
#[derive(Default)]
struct Group {
    held: Mutex<Vec<Work>>,
}

impl Drop for Group {
    /// The last block is done.
    fn drop(&mut self) {
        let held = std::mem::take(&mut *self.held.lock());
        match held.len() {
            0 => {}
            _ => leaf::plugged(|| held.into_iter().for_each(|work| work())),
        }
    }
}

/// One block's place in a group. Dropped when the block has nothing to write.
pub(crate) struct Place(Arc<Group>);

impl Place {
    /// Issues `work` together with that of the others.
    pub(crate) fn hold(self, work: Work) {
        self.0.held.lock().push(work);
    }
}

/// Makes as many places in one group.
pub(crate) fn places(count: usize) -> Vec<Place> {
    let group = Arc::new(Group::default());
    (0..count).map(|_| Place(group.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, repairs are lost, or go out before their neighbours are known.
    #[test]
    fn work_is_done_once_when_the_last_place_is_gone() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut places = places(3);
        for (index, place) in places.drain(..2).enumerate() {
            let done = done.clone();
            place.hold(Box::new(move || done.lock().push(index)));
        }
        assert!(done.lock().is_empty(), "one block is still being verified");
        drop(places);
        assert_eq!(*done.lock(), [0, 1]);
    }
}
