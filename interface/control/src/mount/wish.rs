//! A file system that is to be mounted, and what is said of it.

use crate::mount::mounts::Mounted;
use crate::pool::OpenPool;
use std::path::PathBuf;
use std::sync::Arc;

/// File system that is to be mounted.
#[derive(Clone)]
pub(crate) struct Wish {
    pub pool: Arc<OpenPool>,
    pub name: String,
    /// Place to mount at, if not where the properties say (legacy mounts).
    pub place: Option<PathBuf>,
    /// True when somebody said that place, other than the properties: it stays the file system's whatever they say later.
    pub by_hand: bool,
    /// Options of the mount beyond the properties.
    pub options: Vec<String>,
    /// True to leave it alone without a word when it is not meant to be mounted (canmount, none, legacy), or is already.
    pub by_itself: bool,
    /// True to mount also what lacks what was redacted.
    pub forced: bool,
    /// True when it was mounted: `noauto` does not keep it from being mounted again.
    pub again: bool,
    /// True when whoever works on the name and keeps others from mounting it puts it back.
    pub past_bar: bool,
}

impl Wish {
    /// Wish for a file system that should be mounted by itself.
    pub fn by_itself(pool: &Arc<OpenPool>, name: &str) -> Wish {
        Wish {
            pool: pool.clone(),
            name: name.to_string(),
            place: None,
            by_hand: false,
            options: Vec::new(),
            by_itself: true,
            forced: false,
            again: false,
            past_bar: false,
        }
    }

    /// True when it is mounted, where it is said there.
    pub fn is_fulfilled(&self) -> bool {
        let mounts = &self.pool.mounts;
        self.place.as_ref().map_or_else(|| mounts.mountpoint(&self.name).is_some(), |place| mounts.is_there_at(&self.name, place))
    }

    /// Wish for what is mounted, once more.
    pub fn again(pool: &Arc<OpenPool>, mounted: &Mounted) -> Wish {
        let by_hand = mounted.is_by_hand();
        let place = by_hand.then(|| mounted.session.mountpoint());
        Wish { place, by_hand, options: mounted.wishes(), again: true, ..Wish::by_itself(pool, &mounted.name()) }
    }
}
