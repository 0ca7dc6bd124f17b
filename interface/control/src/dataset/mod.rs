//! Datasets: their properties, their names, what is done to them.

pub(crate) mod asked;
pub(crate) mod datasets;
pub(crate) mod effects;
pub(crate) mod following;
pub(crate) mod listing;
pub(crate) mod names;
pub(crate) mod owners;
pub(crate) mod properties;
pub(crate) mod references;
pub(crate) mod volumes;
