//! Calls that OpenZFS's commands make of its kernel, as a pool's history keeps them: scripts find there which snapshots one command took or destroyed.

use crate::pool::OpenPool;
use nvlist::NvList;
use std::collections::BTreeMap;

/// Names without values, each of which is there once.
fn flags(names: &[String]) -> NvList {
    let mut list = NvList::with_flags(0);
    for name in names {
        list.add_boolean(name.as_str());
    }
    list
}

/// Has the history tell of snapshots that were taken with these properties (OpenZFS: `zfs_ioc_snapshot`).
pub(super) fn log_snapshot(pool: &OpenPool, names: &[String], properties: &BTreeMap<String, String>) {
    let mut input = NvList::new().with("snaps", flags(names));
    if !properties.is_empty() {
        let list = properties.iter().fold(NvList::new(), |list, (name, value)| list.with(name.as_str(), value.as_str()));
        input.add("props", list);
    }
    pool.pool().log_call("snapshot", input);
}

/// Has the history tell of snapshots that were destroyed, or with `defer` were to be (OpenZFS: `zfs_ioc_destroy_snaps`).
pub(super) fn log_destroy(pool: &OpenPool, names: &[String], defer: bool) {
    let mut input = NvList::new().with("snaps", flags(names));
    if defer {
        input.add_boolean("defer");
    }
    pool.pool().log_call("destroy_snaps", input);
}
