//! What the engine knows and can, as files for other programs (OpenZFS: `zfs_sysfs.c`): features of the engine and of pools, properties of pools and
//! of datasets. None of it changes while the daemon runs.

use dsl::prop::table::{Attr, FILESYSTEM, Kind, PropDesc, SNAPSHOT, TABLE, VOLUME};
use pool::{FEATURES, Feature, Support};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Abilities of the engine that no feature of a pool tells (OpenZFS: `zfs_kernel_features`).
const ENGINE: [&str; 3] = ["com.delphix:vdev_initialize", "org.zfsonlinux:vdev_trim", "org.openzfs:l2arc_persistent"];
/// Properties of datasets that are shown only to whoever names them.
const HIDDEN: [&str; 1] = ["ivsetguid"];
/// Kinds of datasets, as properties name those that they are of.
const KINDS: [(&str, u8); 3] = [("filesystem", FILESYSTEM), ("snapshot", SNAPSHOT), ("volume", VOLUME)];

/// Ways in which a property of pools has its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Nobody sets it.
    Fact,
    /// Users set it.
    Set,
}

/// Property of pools: name, type, way, values in words, default (OpenZFS: `zpool_prop.c`).
type PoolRow = (&'static str, &'static str, Way, &'static str, &'static str);

const ON_OFF: &str = "on | off";
const POOL: &[PoolRow] = &[
    ("allocated", "number", Way::Fact, "<size>", "0"),
    ("altroot", "string", Way::Set, "<path>", ""),
    ("ashift", "number", Way::Set, "<ashift, 9-16, or 0=default>", "0"),
    ("autoexpand", "index", Way::Set, ON_OFF, "off"),
    ("autoreplace", "index", Way::Set, ON_OFF, "off"),
    ("autotrim", "index", Way::Set, ON_OFF, "off"),
    ("bcloneratio", "number", Way::Fact, "<1.00x or higher if cloned>", "0"),
    ("bclonesaved", "number", Way::Fact, "<size>", "0"),
    ("bcloneused", "number", Way::Fact, "<size>", "0"),
    ("bootfs", "string", Way::Set, "<filesystem>", ""),
    ("cachefile", "string", Way::Set, "<file> | none", ""),
    ("capacity", "number", Way::Fact, "<percent>", "0"),
    ("checkpoint", "number", Way::Fact, "<size>", "0"),
    ("comment", "string", Way::Set, "<comment-string>", ""),
    ("compatibility", "string", Way::Set, "<file[,file...]> | off | legacy", "off"),
    ("dedup_table_quota", "number", Way::Set, "<size>", "18446744073709551615"),
    ("dedup_table_size", "number", Way::Fact, "<size>", "0"),
    ("dedupcached", "number", Way::Fact, "<size>", "0"),
    ("dedupratio", "number", Way::Fact, "<1.00x or higher if deduped>", "0"),
    ("delegation", "index", Way::Set, ON_OFF, "on"),
    ("expandsize", "number", Way::Fact, "<size>", "0"),
    ("failmode", "index", Way::Set, "wait | continue | panic", "wait"),
    ("fragmentation", "number", Way::Fact, "<percent>", "0"),
    ("free", "number", Way::Fact, "<size>", "0"),
    ("freeing", "number", Way::Fact, "<size>", "0"),
    ("guid", "number", Way::Fact, "<guid>", "0"),
    ("health", "number", Way::Fact, "<state>", "0"),
    ("leaked", "number", Way::Fact, "<size>", "0"),
    ("listsnapshots", "index", Way::Set, ON_OFF, "off"),
    ("load_guid", "number", Way::Fact, "<load_guid>", "0"),
    ("multihost", "index", Way::Set, ON_OFF, "off"),
    ("readonly", "index", Way::Set, ON_OFF, "off"),
    ("size", "number", Way::Fact, "<size>", "0"),
    ("version", "number", Way::Set, "<version>", "5000"),
];

/// Files by their paths below the module's folder, with their texts.
pub(crate) fn facts() -> &'static BTreeMap<String, String> {
    static FACTS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    FACTS.get_or_init(|| {
        let mut facts = BTreeMap::new();
        ENGINE.iter().for_each(|name| add(&mut facts, &format!("features.kernel/{name}"), &[("supported", "yes")]));
        FEATURES.iter().filter(|feature| feature.support != Support::None).for_each(|feature| add_feature(&mut facts, feature));
        POOL.iter().for_each(|row| add_pool(&mut facts, row));
        TABLE.iter().for_each(|property| add_dataset(&mut facts, property));
        facts
    })
}

fn add(facts: &mut BTreeMap<String, String>, folder: &str, files: &[(&str, &str)]) {
    facts.extend(files.iter().map(|(name, text)| (format!("{folder}/{name}"), format!("{text}\n"))));
}

const fn bit(is_so: bool) -> &'static str {
    if is_so { "1" } else { "0" }
}

fn add_feature(facts: &mut BTreeMap<String, String>, feature: &Feature) {
    let files = [
        ("description", feature.description),
        ("guid", feature.guid),
        ("uname", feature.name),
        ("readonly_compatible", bit(feature.read_only_compatible)),
        ("required_for_mos", bit(feature.needed_for_mos)),
        ("activate_on_enable", bit(feature.activate_on_enable)),
        ("per_dataset", bit(dsl::features::PER_DATASET.contains(&feature.guid))),
    ];
    add(facts, &format!("features.pool/{}", feature.guid), &files);
}

fn add_pool(facts: &mut BTreeMap<String, String>, (name, kind, way, values, default): &PoolRow) {
    let files = [
        ("type", *kind),
        ("readonly", bit(*way == Way::Fact)),
        ("setonce", "0"),
        ("visible", "1"),
        ("values", *values),
        ("default", *default),
    ];
    add(facts, &format!("properties.pool/{name}"), &files);
}

fn add_dataset(facts: &mut BTreeMap<String, String>, property: &PropDesc) {
    let (kind, default) = match property.kind {
        Kind::Text(default) => ("string", default.to_string()),
        Kind::Index(_) => ("index", property.word(property.default).unwrap_or_default().to_string()),
        _ => ("number", property.default.to_string()),
    };
    let values = values_of(property);
    let of: String = KINDS.iter().filter(|(_, mask)| property.applies & mask != 0).map(|(name, _)| format!("{name} ")).collect();
    let files = [
        ("type", kind),
        ("readonly", bit(property.attr == Attr::ReadOnly)),
        ("setonce", bit(property.attr == Attr::OneTime)),
        ("visible", bit(!HIDDEN.contains(&property.name))),
        ("values", values.as_str()),
        ("default", default.as_str()),
        ("datasets", of.as_str()),
    ];
    add(facts, &format!("properties.dataset/{}", property.name), &files);
}

/// Values that a property of datasets may have, in words.
fn values_of(property: &PropDesc) -> String {
    let text = match property.kind {
        Kind::Index(words) => return words.iter().map(|(word, _)| *word).collect::<Vec<&str>>().join(" | "),
        _ if matches!(property.name, "recordsize" | "volblocksize") => "512 to 16M, power of 2",
        Kind::Bytes => "<size>",
        Kind::BytesOrNone => "<size> | none",
        Kind::CountOrNone => "<count> | none",
        Kind::Number => "<number>",
        Kind::Ratio => "<1.00x or higher>",
        Kind::Time => "<date>",
        Kind::Text(_) => "<text>",
    };
    text.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, programs that ask what the engine can find other names than OpenZFS's, or none.
    #[test]
    fn files_are_where_openzfs_has_them() {
        let text = |path: &str| facts().get(path).map_or("", String::as_str);
        assert_eq!(text("features.kernel/org.zfsonlinux:vdev_trim/supported"), "yes\n");
        assert_eq!(text("features.pool/org.open-zfs:large_blocks/guid"), "org.open-zfs:large_blocks\n");
        assert_eq!(text("features.pool/org.open-zfs:large_blocks/per_dataset"), "1\n");
        assert_eq!(text("features.pool/com.delphix:hole_birth/required_for_mos"), "1\n");
        assert_eq!(text("properties.pool/comment/values"), "<comment-string>\n");
        assert_eq!(text("properties.dataset/recordsize/values"), "512 to 16M, power of 2\n");
        assert_eq!(text("properties.dataset/recordsize/default"), "131072\n");
        assert_eq!(text("properties.dataset/recordsize/datasets"), "filesystem \n");
        assert_eq!(text("properties.dataset/ivsetguid/visible"), "0\n");
        assert!(text("properties.dataset/sync/values").contains("always"));
        assert!(
            facts()
                .values()
                .all(|text| text.ends_with('\n') && text.trim_end().chars().all(|letter| letter == ' ' || letter.is_ascii_graphic()))
        );
    }

    /// If this fails, a property of pools can be set and is not among those that programs find, or not as one that can.
    #[test]
    fn every_property_of_pools_that_is_openzfs_s_is_there() {
        let is_own = |name: &str| name.starts_with("zia_") || name == "background_latency_target";
        for name in pool::settable_props().filter(|name| !is_own(name)) {
            assert_eq!(facts().get(&format!("properties.pool/{name}/readonly")).map(String::as_str), Some("0\n"), "{name}");
        }
    }
}
