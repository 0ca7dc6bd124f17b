//! What properties do here. What is set and does nothing would be believed: it is stored for other systems with a warning each time. The tables
//! have every property; a test walks them.

use crate::pool::compatibility;
use crate::pool::objections::of_word;
use control_api::{Failure, Remark, Response, WITHOUT_EFFECT};
use std::collections::BTreeMap;

/// Effect of a property here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Property does what OpenZFS's manual page says; or the engine refuses what it can't do.
    Works,
    /// Values of which something works, or that ask for nothing; the others are stored and nothing more, for this reason.
    Stored(&'static [&'static str], &'static str),
}

use Effect::{Stored, Works};

const OFF: &[&str] = &["off"];
const NONE: &[&str] = &["none"];
const LABELS: &str = "mounts have no SELinux contexts in this version";
const SHARES: &str = "nothing is shared before 'zfs share', and what is stays so until 'zfs unshare'";

/// Properties of datasets that can be set.
const OF_DATASETS: &[(&str, Effect)] = &[
    ("quota", Works),
    ("reservation", Works),
    ("volsize", Works),
    ("volblocksize", Works),
    ("recordsize", Works),
    ("mountpoint", Works),
    ("sharenfs", Stored(OFF, SHARES)),
    ("checksum", Works),
    ("compression", Works),
    ("atime", Works),
    ("devices", Works),
    ("exec", Works),
    ("setuid", Works),
    ("readonly", Works),
    ("zoned", Stored(OFF, "file systems can't be given to containers in this version")),
    ("snapdir", Works),
    ("aclmode", Stored(&["discard"], "NFSv4 ACLs are not evaluated in this version")),
    ("aclinherit", Stored(&["restricted", "secure"], "NFSv4 ACLs are not inherited in this version")),
    ("canmount", Works),
    ("xattr", Works),
    ("copies", Works),
    ("version", Works),
    ("utf8only", Works),
    ("normalization", Works),
    ("casesensitivity", Works),
    ("vscan", Stored(OFF, "files are not scanned for viruses")),
    ("nbmand", Stored(OFF, "there are no mandatory locks on this platform")),
    ("sharesmb", Stored(OFF, SHARES)),
    ("refquota", Works),
    ("refreservation", Works),
    ("primarycache", Works),
    ("secondarycache", Works),
    ("logbias", Works),
    ("dedup", Works),
    ("mlslabel", Stored(NONE, "labels of security are not looked at")),
    ("sync", Works),
    ("dnodesize", Works),
    ("volmode", Works),
    ("filesystem_limit", Works),
    ("snapshot_limit", Works),
    ("snapdev", Works),
    (
        "acltype",
        Stored(&["off", "disabled", "noacl", "posix", "posixacl"], "NFSv4 ACLs are kept, but not evaluated or inherited in this version"),
    ),
    ("context", Stored(NONE, LABELS)),
    ("fscontext", Stored(NONE, LABELS)),
    ("defcontext", Stored(NONE, LABELS)),
    ("rootcontext", Stored(NONE, LABELS)),
    ("relatime", Works),
    ("redundant_metadata", Works),
    ("overlay", Works),
    ("encryption", Works),
    ("keylocation", Works),
    ("keyformat", Works),
    ("pbkdf2iters", Works),
    ("special_small_blocks", Works),
    ("prefetch", Stored(&["all"], "reading ahead can't be limited in this version")),
    ("volthreading", Works),
    ("direct", Works),
    ("longname", Works),
];

/// Properties of pools that can be set, at creation or later; features and the users' own apart.
const OF_POOLS: &[(&str, Effect)] = &[
    ("ashift", Works),
    ("autoexpand", Works),
    ("autoreplace", Works),
    ("autotrim", Works),
    ("background_latency_target", Works),
    ("bootfs", Works),
    ("cachefile", Works),
    ("comment", Works),
    ("compatibility", Works),
    ("dedup_table_quota", Works),
    ("delegation", Works),
    ("failmode", Works),
    ("listsnapshots", Stored(OFF, "'zfs list -t all' lists snapshots")),
    ("listsnaps", Stored(OFF, "'zfs list -t all' lists snapshots")),
    ("multihost", Works),
];

/// Warning about a value that is going to be stored.
fn judge(table: &[(&'static str, Effect)], name: &str, value: &str) -> Option<String> {
    let effect = table.iter().find(|(known, _)| *known == name).map_or(Works, |(_, effect)| *effect);
    match effect {
        Stored(works, why) if !works.contains(&value) => {
            Some(format!("{WITHOUT_EFFECT}property '{name}' is stored as '{value}', but {why}"))
        }
        _ => None,
    }
}

/// Does what a request wants, and adds the warnings about its properties to the answer.
pub(crate) fn around(warnings: Vec<String>, work: impl FnOnce() -> Result<Response, Failure>) -> Result<Response, Failure> {
    let mut response = work()?;
    if let Response::Done { remarks } | Response::Created { remarks, .. } | Response::Rewound { remarks, .. } = &mut response {
        remarks.extend(warnings.into_iter().map(Remark::Warning));
    }
    Ok(response)
}

/// Warnings about a pool that is made.
pub(crate) fn of_creation(request: &control_api::PoolCreate) -> Vec<String> {
    let mut warnings = of_pool(&request.properties);
    warnings.extend(beyond(&request.properties));
    warnings.extend(of_dataset(&request.fs_properties, || !request.new.special.is_empty()));
    warnings
}

/// Warnings about features that a new pool is to have, and that its `compatibility` does not name (OpenZFS: `zpool_do_create`).
fn beyond(properties: &BTreeMap<String, String>) -> Vec<String> {
    let wish = properties.get("compatibility").and_then(|value| compatibility::allowed(value).ok().flatten());
    let Some(allowed) = wish else { return Vec::new() };
    let wanted = properties.iter().filter(|(_, value)| *value == "enabled").filter_map(|(name, _)| name.strip_prefix("feature@"));
    let warning = |name: &str| format!("Warning: feature \"{name}\" enabled but is not in specified 'compatibility' feature set.");
    wanted.filter(|name| !allowed.contains(*name)).map(warning).collect()
}

/// Warnings about some properties of a dataset; its pool may have vdevs for metadata.
pub(crate) fn of_dataset(properties: &BTreeMap<String, String>, has_special: impl FnOnce() -> bool) -> Vec<String> {
    let judged = properties.iter().filter_map(|(name, value)| judge(OF_DATASETS, name, value));
    // OpenZFS stores it with a warning, too (`zfs_valid_proplist`).
    let small = properties.get("special_small_blocks").filter(|value| *value != "0" && !has_special());
    let homeless = |value: &String| {
        format!("{WITHOUT_EFFECT}property 'special_small_blocks' is stored as '{value}', but the pool has no special vdev")
    };
    judged.chain(small.map(homeless)).collect()
}

/// Warnings about some properties of a pool.
pub(crate) fn of_pool<'a>(properties: impl IntoIterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    // What is no value at all is refused for that.
    let values = properties.into_iter().filter(|(name, value)| of_word(name, value).is_none());
    values.filter_map(|(name, value)| judge(OF_POOLS, name, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsl::prop::table::{Attr, TABLE};

    /// If this fails, somebody relies on a property that does nothing.
    #[test]
    fn every_property_works_or_says_that_it_does_not() {
        let settable = || TABLE.iter().filter(|desc| desc.attr != Attr::ReadOnly).map(|desc| desc.name);
        for name in settable() {
            assert!(OF_DATASETS.iter().any(|(known, _)| *known == name), "'{name}': what does it do?");
        }
        for (name, _) in OF_DATASETS {
            assert!(settable().any(|known| known == *name), "'{name}' can't be set");
        }
        for (table, wrong) in [(OF_DATASETS, "something else"), (OF_POOLS, "something else")] {
            for (name, effect) in table {
                let said = judge(table, name, wrong);
                match effect {
                    Works => assert_eq!(said, None),
                    Stored(works, why) => {
                        assert!(said.is_some_and(|said| said.contains(why)), "{name}");
                        works.iter().for_each(|value| assert_eq!(judge(table, name, value), None, "{name}={value}"));
                    }
                }
            }
        }
    }

    /// What is a default must not warn when it is set.
    #[test]
    fn defaults_are_no_reason_for_warnings() {
        for desc in TABLE.iter().filter(|desc| desc.attr != Attr::ReadOnly) {
            let text = match desc.kind {
                dsl::prop::table::Kind::Text(default) => default.to_string(),
                dsl::prop::table::Kind::Index(_) if desc.name == "version" => continue,
                dsl::prop::table::Kind::Index(_) => desc.word(desc.default).unwrap_or_default().to_string(),
                dsl::prop::table::Kind::CountOrNone => "none".to_string(),
                _ => desc.default.to_string(),
            };
            assert_eq!(judge(OF_DATASETS, desc.name, &text), None, "{}={text}", desc.name);
        }
    }

    /// If this fails, a pool for an old system gets a feature that this one does not know, and nobody is told.
    #[test]
    fn features_beyond_the_wish_are_told_at_creation() {
        let properties = |words: &[(&str, &str)]| -> BTreeMap<String, String> {
            words.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect()
        };
        assert_eq!(beyond(&properties(&[("compatibility", "legacy"), ("feature@blake3", "enabled")])).len(), 1);
        assert!(beyond(&properties(&[("compatibility", "legacy"), ("feature@blake3", "disabled")])).is_empty());
        assert!(beyond(&properties(&[("compatibility", "off"), ("feature@blake3", "enabled")])).is_empty());
    }

    /// If this fails, somebody relies on a property of a pool that does nothing.
    #[test]
    fn every_property_of_pools_is_known() {
        for name in pool::settable_props().filter(|name| !name.starts_with("zia_")) {
            assert!(OF_POOLS.iter().any(|(known, _)| *known == name), "'{name}': what does it do?");
        }
    }
}
