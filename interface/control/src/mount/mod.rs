//! Mounted file systems: coming, going, and coming back after a daemon died.

pub(crate) mod enclosed;
pub(crate) mod forcing;
pub(crate) mod handing;
pub(crate) mod heirs;
pub(crate) mod holding;
pub(crate) mod keeping;
pub(crate) mod leaving;
pub(crate) mod lifting;
pub(crate) mod lost;
pub(crate) mod mounting;
pub(crate) mod mounts;
pub(crate) mod note;
pub(crate) mod opens;
pub(crate) mod options;
pub(crate) mod patience;
pub(crate) mod phase;
pub(crate) mod place;
pub(crate) mod returning;
pub(crate) mod stored;
pub(crate) mod turns;
pub(crate) mod unmounting;
pub(crate) mod whereabouts;
pub(crate) mod wish;
pub(crate) mod working;
