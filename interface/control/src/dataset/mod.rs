//! Datasets: their properties, their names, what is done to them.

pub(crate) mod allow;
pub(crate) mod asked;
mod clearing;
mod clones;
pub(crate) mod datasets;
mod dependents;
mod destroying;
pub(crate) mod diff;
pub(crate) mod effects;
pub(crate) mod encryption;
pub(crate) mod following;
pub(crate) mod keys;
pub(crate) mod listing;
pub(crate) mod maker;
pub(crate) mod names;
pub(crate) mod owners;
mod package;
mod passing;
pub(crate) mod projects;
pub(crate) mod properties;
pub(crate) mod receiving;
pub(crate) mod references;
pub(crate) mod rights;
mod rollback;
pub(crate) mod sending;
pub(crate) mod volumes;
pub(crate) mod waiting;
