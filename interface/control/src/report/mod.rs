//! What is said of pools and vdevs: pure functions over an open pool.

pub(crate) mod diagnosis;
pub(crate) mod direct;
pub(crate) mod direct_rows;
pub(crate) mod iostat;
pub(crate) mod module;
pub(crate) mod pictures;
pub(crate) mod status;
pub(crate) mod sweeps;
pub(crate) mod vdev_props;
