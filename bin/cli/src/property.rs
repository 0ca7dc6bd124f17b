//! What the columns of property lists look like: headings, widths, alignment, and which names exist at all.
//!
//! The facts are OpenZFS's (`module/zcommon/zfs_prop.c`, `zpool_prop.c`, `zprop_common.c: zprop_width`).

use crate::Stop;
use crate::table::{Align, Column};

/// Look of a property's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Number, right-aligned, at least five characters.
    Number,
    /// Text, right-aligned with a least width of its own in characters.
    Wide(usize),
    /// Word of a few, the longest of which has this many characters.
    Index(usize),
    /// Text of any kind.
    Text,
}

/// Property as the commands know it.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Name of the property.
    pub name: &'static str,
    /// Heading; in lower case it is another name of the property.
    pub heading: &'static str,
    /// Look of its values.
    pub kind: Kind,
}

const fn p(name: &'static str, heading: &'static str, kind: Kind) -> Described {
    Described { name, heading, kind }
}

use Kind::{Index, Number, Text, Wide};

/// Properties of pools.
pub const POOL: &[Described] = &[
    p("name", "NAME", Text),
    p("size", "SIZE", Number),
    p("capacity", "CAP", Number),
    p("altroot", "ALTROOT", Text),
    p("health", "HEALTH", Wide(8)),
    p("guid", "GUID", Number),
    p("load_guid", "LOAD_GUID", Number),
    p("version", "VERSION", Number),
    p("bootfs", "BOOTFS", Text),
    p("delegation", "DELEGATION", Index(3)),
    p("autoreplace", "REPLACE", Index(3)),
    p("cachefile", "CACHEFILE", Text),
    p("failmode", "FAILMODE", Index(8)),
    p("listsnapshots", "LISTSNAPS", Index(3)),
    p("autoexpand", "EXPAND", Index(3)),
    p("dedupratio", "DEDUP", Number),
    p("free", "FREE", Number),
    p("allocated", "ALLOC", Number),
    p("readonly", "RDONLY", Index(3)),
    p("ashift", "ASHIFT", Number),
    p("comment", "COMMENT", Text),
    p("expandsize", "EXPANDSZ", Number),
    p("freeing", "FREEING", Number),
    p("fragmentation", "FRAG", Number),
    p("leaked", "LEAKED", Number),
    p("multihost", "MULTIHOST", Index(3)),
    p("checkpoint", "CKPOINT", Number),
    p("autotrim", "AUTOTRIM", Index(3)),
    p("compatibility", "COMPATIBILITY", Text),
    p("bcloneused", "BCLONE_USED", Number),
    p("bclonesaved", "BCLONE_SAVED", Number),
    p("bcloneratio", "BCLONE_RATIO", Number),
    p("dedup_table_size", "DDTSIZE", Number),
    p("dedup_table_quota", "DDTQUOTA", Number),
    p("last_scrubbed_txg", "LAST_SCRUBBED_TXG", Number),
    p("dedupcached", "DEDUPCACHED", Number),
    p("maxblocksize", "MAXBLOCKSIZE", Number),
    p("maxdnodesize", "MAXDNODESIZE", Number),
    p("background_latency_target", "BACKGROUND_LATENCY_TARGET", Text),
    p("zia_available", "ZIA_AVAILABLE", Index(3)),
    p("zia_provider", "ZIA_PROVIDER", Text),
    p("zia_compress", "ZIA_COMPRESS", Index(3)),
    p("zia_decompress", "ZIA_DECOMPRESS", Index(3)),
    p("zia_checksum", "ZIA_CHECKSUM", Index(3)),
    p("zia_raidz1_gen", "ZIA_RAIDZ1_GEN", Index(3)),
    p("zia_raidz2_gen", "ZIA_RAIDZ2_GEN", Index(3)),
    p("zia_raidz3_gen", "ZIA_RAIDZ3_GEN", Index(3)),
    p("zia_raidz1_rec", "ZIA_RAIDZ1_REC", Index(3)),
    p("zia_raidz2_rec", "ZIA_RAIDZ2_REC", Index(3)),
    p("zia_raidz3_rec", "ZIA_RAIDZ3_REC", Index(3)),
    p("zia_file_write", "ZIA_FILE_WRITE", Index(3)),
    p("zia_disk_write", "ZIA_DISK_WRITE", Index(3)),
    p("zia_verify", "ZIA_VERIFY", Number),
    p("zia_mode", "ZIA_MODE", Index(7)),
];

/// Properties of vdevs.
pub const VDEV: &[Described] = &[
    p("name", "NAME", Text),
    p("capacity", "CAP", Number),
    p("state", "STATE", Number),
    p("guid", "GUID", Number),
    p("asize", "ASIZE", Number),
    p("psize", "PSIZE", Number),
    p("ashift", "ASHIFT", Number),
    p("size", "SIZE", Number),
    p("free", "FREE", Number),
    p("allocated", "ALLOC", Number),
    p("comment", "COMMENT", Text),
    p("expandsize", "EXPANDSZ", Number),
    p("fragmentation", "FRAG", Number),
    p("bootsize", "BOOTSIZE", Number),
    p("parity", "PARITY", Number),
    p("path", "PATH", Text),
    p("devid", "DEVID", Text),
    p("physpath", "PHYSPATH", Text),
    p("encpath", "ENCPATH", Text),
    p("fru", "FRU", Text),
    p("parent", "PARENT", Text),
    p("children", "CHILDREN", Text),
    p("numchildren", "NUMCHILD", Number),
    p("read_errors", "RDERR", Number),
    p("write_errors", "WRERR", Number),
    p("checksum_errors", "CKERR", Number),
    p("initialize_errors", "INITERR", Number),
    p("null_ops", "NULLOP", Number),
    p("read_ops", "READOP", Number),
    p("write_ops", "WRITEOP", Number),
    p("free_ops", "FREEOP", Number),
    p("claim_ops", "CLAIMOP", Number),
    p("trim_ops", "TRIMOP", Number),
    p("null_bytes", "NULLBYTE", Number),
    p("read_bytes", "READBYTE", Number),
    p("write_bytes", "WRITEBYTE", Number),
    p("free_bytes", "FREEBYTE", Number),
    p("claim_bytes", "CLAIMBYTE", Number),
    p("trim_bytes", "TRIMBYTE", Number),
    p("removing", "REMOVING", Index(3)),
    p("allocating", "ALLOCATING", Index(3)),
    p("failfast", "FAILFAST", Index(3)),
    p("checksum_n", "CKSUM_N", Number),
    p("checksum_t", "CKSUM_T", Number),
    p("io_n", "IO_N", Number),
    p("io_t", "IO_T", Number),
    p("raidz_expanding", "RAIDZ_EXPANDING", Index(3)),
    p("slow_io_n", "SLOW_IO_N", Number),
    p("slow_io_t", "SLOW_IO_T", Number),
    p("trim_support", "TRIMSUP", Index(3)),
    p("trim_errors", "TRIMERR", Number),
    p("slow_ios", "SLOW", Number),
    p("sit_out", "SIT_OUT", Index(3)),
    p("autosit", "AUTOSIT", Index(3)),
];

/// Properties of datasets.
pub const DATASET: &[Described] = &[
    p("name", "NAME", Text),
    p("type", "TYPE", Text),
    p("creation", "CREATION", Number),
    p("used", "USED", Number),
    p("available", "AVAIL", Number),
    p("referenced", "REFER", Number),
    p("compressratio", "RATIO", Number),
    p("mounted", "MOUNTED", Index(3)),
    p("origin", "ORIGIN", Text),
    p("quota", "QUOTA", Number),
    p("reservation", "RESERV", Number),
    p("volsize", "VOLSIZE", Number),
    p("volblocksize", "VOLBLOCK", Number),
    p("recordsize", "RECSIZE", Number),
    p("mountpoint", "MOUNTPOINT", Text),
    p("sharenfs", "SHARENFS", Text),
    p("checksum", "CHECKSUM", Index(9)),
    p("compression", "COMPRESS", Index(14)),
    p("atime", "ATIME", Index(3)),
    p("devices", "DEVICES", Index(3)),
    p("exec", "EXEC", Index(3)),
    p("setuid", "SETUID", Index(3)),
    p("readonly", "RDONLY", Index(3)),
    p("zoned", "ZONED", Index(3)),
    p("snapdir", "SNAPDIR", Index(8)),
    p("aclmode", "ACLMODE", Index(11)),
    p("aclinherit", "ACLINHERIT", Index(13)),
    p("createtxg", "CREATETXG", Number),
    p("canmount", "CANMOUNT", Index(6)),
    p("xattr", "XATTR", Index(3)),
    p("copies", "COPIES", Index(1)),
    p("version", "VERSION", Index(7)),
    p("utf8only", "UTF8ONLY", Index(3)),
    p("normalization", "NORMALIZATION", Index(6)),
    p("casesensitivity", "CASE", Index(11)),
    p("vscan", "VSCAN", Index(3)),
    p("nbmand", "NBMAND", Index(3)),
    p("sharesmb", "SHARESMB", Text),
    p("refquota", "REFQUOTA", Number),
    p("refreservation", "REFRESERV", Number),
    p("guid", "GUID", Number),
    p("primarycache", "PRIMARYCACHE", Index(8)),
    p("secondarycache", "SECONDARYCACHE", Index(8)),
    p("usedbysnapshots", "USEDSNAP", Number),
    p("usedbydataset", "USEDDS", Number),
    p("usedbychildren", "USEDCHILD", Number),
    p("usedbyrefreservation", "USEDREFRESERV", Number),
    p("userrefs", "USERREFS", Number),
    p("defer_destroy", "DEFER_DESTROY", Index(3)),
    p("logbias", "LOGBIAS", Index(10)),
    p("objsetid", "OBJSETID", Number),
    p("dedup", "DEDUP", Index(13)),
    p("mlslabel", "MLSLABEL", Text),
    p("sync", "SYNC", Index(8)),
    p("dnodesize", "DNSIZE", Index(6)),
    p("refcompressratio", "REFRATIO", Number),
    p("written", "WRITTEN", Number),
    p("logicalused", "LUSED", Number),
    p("logicalreferenced", "LREFER", Number),
    p("filesystem_count", "FSCOUNT", Number),
    p("snapshot_count", "SSCOUNT", Number),
    p("volmode", "VOLMODE", Index(7)),
    p("filesystem_limit", "FSLIMIT", Number),
    p("snapshot_limit", "SSLIMIT", Number),
    p("snapdev", "SNAPDEV", Index(7)),
    p("acltype", "ACLTYPE", Index(8)),
    p("context", "CONTEXT", Text),
    p("fscontext", "FSCONTEXT", Text),
    p("defcontext", "DEFCONTEXT", Text),
    p("rootcontext", "ROOTCONTEXT", Text),
    p("relatime", "RELATIME", Index(3)),
    p("redundant_metadata", "REDUND_MD", Index(4)),
    p("overlay", "OVERLAY", Index(3)),
    p("encryption", "ENCRYPTION", Index(11)),
    p("keylocation", "KEYLOCATION", Text),
    p("keyformat", "KEYFORMAT", Index(10)),
    p("pbkdf2iters", "PBKDF2ITERS", Number),
    p("special_small_blocks", "SPECIAL_SMALL_BLOCKS", Number),
    p("encryptionroot", "ENCROOT", Text),
    p("keystatus", "KEYSTATUS", Index(11)),
    p("receive_resume_token", "RESUMETOK", Text),
    p("redact_snaps", "RSNAPS", Text),
    p("snapshots_changed", "SNAPSHOTS_CHANGED", Number),
    p("prefetch", "PREFETCH", Index(8)),
    p("direct", "DIRECT", Index(8)),
    p("longname", "LONGNAME", Index(3)),
    p("clones", "CLONES", Text),
    p("volthreading", "zvol threading", Index(3)),
    p("numclones", "NUMCLONES", Number),
    p("useraccounting", "USERACCOUNTING", Number),
    p("unique", "UNIQUE", Number),
    p("inconsistent", "INCONSISTENT", Number),
    p("ivsetguid", "IVSETGUID", Number),
];

/// Properties of datasets that are shown only to whoever names them (OpenZFS: `zprop_register_hidden`).
pub const HIDDEN: [&str; 4] = ["inconsistent", "ivsetguid", "unique", "useraccounting"];

/// Environment variable for whoever looks what becomes of properties that a daemon does not have (OpenZFS: `libzfs_init`).
const LACKING: &str = "ZFS_SYSFS_PROP_SUPPORT_TEST";
/// Names of the properties that are lacking then.
const LACKED: [&str; 3] = ["comment", "dnodesize", "feature@large_blocks"];

/// True for a property that is hidden, where the variable that hides some says so.
fn is_lacking(variable: Option<&str>, name: &str) -> bool {
    let is_set = |value: &str| value.parse::<u64>().is_ok_and(|number| number > 0) || ["yes", "on"].contains(&&*value.to_lowercase());
    LACKED.contains(&name) && variable.is_some_and(is_set)
}

/// Property that a word means: by its name, or by its heading in lower case.
pub fn described(table: &'static [Described], word: &str) -> Option<&'static Described> {
    let found = table.iter().find(|property| property.name == word || property.heading.to_lowercase() == word);
    found.filter(|property| !is_lacking(std::env::var(LACKING).ok().as_deref(), property.name))
}

/// Name of the property that a word means; names with a colon or `@` stand for themselves.
pub fn canonical(table: &'static [Described], word: &str) -> Result<String, Stop> {
    match described(table, word) {
        Some(property) => Ok(property.name.to_string()),
        None if is_lacking(std::env::var(LACKING).ok().as_deref(), word) => {
            Err(Stop::usage(format!("bad property list: invalid property '{word}'")))
        }
        None if word.contains(':') || is_asked(word) || word.starts_with("feature@") || word.starts_with("unsupported@") => {
            Ok(word.to_string())
        }
        None => Err(Stop::usage(format!("bad property list: invalid property '{word}'"))),
    }
}

/// True for a property of datasets that is worked out only when it is named: `written@SNAPSHOT`, `written#BOOKMARK`, `userused@USER` and their
/// kind.
pub fn is_asked(word: &str) -> bool {
    if word.strip_prefix("written#").is_some_and(|bookmark| !bookmark.is_empty()) {
        return true;
    }
    let Some((kind, whose)) = word.split_once('@') else { return false };
    let owner = ["user", "group", "project"].into_iter().find_map(|who| kind.strip_prefix(who));
    // Of nobody there is no value, which is what OpenZFS shows, too.
    !whose.is_empty() && kind == "written" || owner.is_some_and(|what| matches!(what, "used" | "quota" | "objused" | "objquota"))
}

/// Word with the number of the user or group, which the daemon knows; names that the system does not know stay.
pub fn with_number(word: &str) -> String {
    let Some((kind, whose)) = word.split_once('@').filter(|(kind, _)| *kind != "written") else { return word.to_string() };
    if whose.bytes().all(|byte| byte.is_ascii_digit()) || kind.starts_with("project") {
        return word.to_string();
    }
    let table = if kind.starts_with("user") { "passwd" } else { "group" };
    // Names may come from elsewhere than /etc.
    let found = std::process::Command::new("getent").args([table, whose]).output();
    let line = found.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned()).unwrap_or_default();
    line.split(':').nth(2).map_or_else(|| word.to_string(), |number| format!("{kind}@{number}"))
}

/// Column that shows a property.
pub fn column(table: &'static [Described], name: &str) -> Column {
    let Some(property) = described(table, name) else {
        return Column::new(name.to_uppercase(), Align::Left);
    };
    let column = |align, least| Column { heading: property.heading.to_string(), align, width_min: least };
    match property.kind {
        Kind::Number => column(Align::Right, 5),
        Kind::Wide(least) => column(Align::Right, least),
        Kind::Index(longest) => column(Align::Left, longest),
        Kind::Text => column(Align::Left, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_found_by_name_and_by_heading_and_an_unknown_one_is_a_usage_error() {
        assert_eq!(canonical(DATASET, "refer").expect("heading"), "referenced");
        assert_eq!(canonical(DATASET, "compress").expect("heading"), "compression");
        assert_eq!(canonical(POOL, "frag").expect("heading"), "fragmentation");
        assert_eq!(canonical(DATASET, "com.example:x").expect("user property"), "com.example:x");
        assert_eq!(canonical(DATASET, "written@a").expect("asked"), "written@a");
        assert_eq!(canonical(DATASET, "written#a").expect("asked"), "written#a");
        assert!(
            canonical(DATASET, "used@a").is_err() && canonical(DATASET, "written@").is_err() && canonical(DATASET, "written#").is_err()
        );
        assert_eq!(canonical(DATASET, "userused@").expect("nobody's"), "userused@");
        assert_eq!(with_number("userobjused@root"), "userobjused@0");
        assert!(matches!(canonical(DATASET, "nosuch"), Err(Stop::Usage(why)) if why == "bad property list: invalid property 'nosuch'"));
    }

    /// Who tests an update of the daemon alone would see nothing of what is missing.
    #[test]
    fn properties_that_are_lacking_are_invalid() {
        assert!(is_lacking(Some("yes"), "dnodesize") && is_lacking(Some("1"), "comment"));
        assert!(!is_lacking(Some("yes"), "used") && !is_lacking(Some("0"), "dnodesize") && !is_lacking(None, "dnodesize"));
    }

    #[test]
    fn no_word_means_two_properties() {
        for table in [POOL, DATASET] {
            for property in table {
                let heading = property.heading.to_lowercase();
                let meant = table.iter().filter(|other| other.name == heading || other.heading.to_lowercase() == heading).count();
                assert_eq!(meant, 1, "{heading}");
            }
        }
    }

    /// A property that is not described is one that nobody can use; one that is described but not there misleads.
    #[test]
    fn the_manual_pages_describe_every_property_and_no_other() {
        for (page, table) in [("zpoolprops", POOL), ("zfsprops", DATASET)] {
            let path = format!("{}/../../man/man7/{page}.7", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&path).expect("the page");
            let described: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(".It Sy ")?.split(' ').next()).collect();
            let names: Vec<&str> = table.iter().map(|property| property.name).collect();
            assert_eq!(described, names, "{page}");
        }
    }
}
