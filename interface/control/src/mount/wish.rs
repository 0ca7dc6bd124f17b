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
    /// Options of the mount beyond the properties.
    pub options: Vec<String>,
    /// True to leave it alone without a word when it is not meant to be mounted (canmount, none, legacy), or is already.
    pub by_itself: bool,
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
            options: Vec::new(),
            by_itself: true,
            again: false,
            past_bar: false,
        }
    }

    /// Wish for what is mounted, once more.
    pub fn again(pool: &Arc<OpenPool>, mounted: &Mounted) -> Wish {
        let place = mounted.by_hand.then(|| mounted.session.mountpoint());
        Wish { place, options: mounted.wishes(), again: true, ..Wish::by_itself(pool, &mounted.name()) }
    }
}
