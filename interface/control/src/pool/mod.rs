//! Pools: those that are open, those that are to be, and what is done to them.

pub(crate) mod absent;
pub(crate) mod cache_file;
pub(crate) mod candidate;
pub(crate) mod closing;
pub(crate) mod compatibility;
pub(crate) mod create;
pub(crate) mod hostid;
pub(crate) mod import;
pub(crate) mod intake;
pub(crate) mod leaving;
pub(crate) mod lifecycle;
pub(crate) mod objections;
pub(crate) mod open;
pub(crate) mod opening;
pub(crate) mod properties;
pub(crate) mod queries;
pub(crate) mod reguid;
pub(crate) mod remembered;
pub(crate) mod reopening;
pub(crate) mod rewinding;
pub(crate) mod scrub;
pub(crate) mod set;
pub(crate) mod split;
pub(crate) mod stopping;
pub(crate) mod streams;
pub(crate) mod sweeps;
pub(crate) mod upgrade;
pub(crate) mod vdevs;

pub(crate) use open::OpenPool;
pub(crate) use set::Pools;
