//! Devices of pools: finding, opening and judging them, and who uses them.

pub(crate) mod beneath;
pub(crate) mod contents;
pub(crate) mod devices;
pub(crate) mod identity;
pub(crate) mod inuse;
pub(crate) mod labels;
pub(crate) mod names;
pub(crate) mod reserved;
pub(crate) mod served;
pub(crate) mod taken;
pub(crate) mod workers;
