//! Names by which initiators know volumes: a target for each, named as the volume is, and a disk that is the same wherever its pool goes.

use iscsi::Identity;
use ondisk::Guid;

/// Beginning of the names of all targets.
const PREFIX: &str = "iqn.2026-01.zirconia:";
/// Bytes of the longest name of a target or an initiator (RFC 7143, section 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

/// Name of the target of a volume. Names of targets have small letters, digits, `.`, `:` and `-` only: `/` becomes `:`, `-` becomes `--`, and each
/// byte that has no place becomes `-` and two hexadecimal digits, so that no two volumes have one name.
pub(super) fn target(volume: &str) -> String {
    let mut name = PREFIX.to_string();
    for byte in volume.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'.' => name.push(char::from(byte)),
            b'/' => name.push(':'),
            b'-' => name.push_str("--"),
            other => name.push_str(&format!("-{other:02x}")),
        }
    }
    name
}

/// Name of the target that a user means, who may name its volume.
pub(super) fn meant(word: &str) -> String {
    if is_name(word) { word.to_string() } else { target(word) }
}

/// True for what can be the name of a target or an initiator.
pub(super) fn is_name(word: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b':' | b'-');
    ["iqn.", "eui.", "naa."].iter().any(|prefix| word.len() > prefix.len() && word.starts_with(prefix))
        && word.len() <= NAME_BYTES_MAX
        && word.bytes().all(|byte| is_legal(byte) || (!word.starts_with("iqn.") && byte.is_ascii_uppercase()))
}

/// Identity of the disk of a volume: of its pool and its dataset by their guids, which neither a name nor a host changes.
pub(super) fn identity(pool: Guid, dataset: Guid) -> Identity {
    let mut naa = [0; 16];
    naa[..8].copy_from_slice(&pool.0.to_be_bytes());
    naa[8..].copy_from_slice(&dataset.0.to_be_bytes());
    let serial = format!("{:016x}{:016x}", pool.0, dataset.0);
    Identity { serial, naa, vendor: "ZIRCONIA".into(), product: "VOLUME".into(), revision: "0001".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// If this fails, two volumes have one name, and an initiator writes to the other one's disk; or nobody can log in to one.
    #[test]
    fn every_volume_has_a_legal_name_of_its_own() {
        assert_eq!(target("tank/vol"), "iqn.2026-01.zirconia:tank:vol");
        assert_eq!(target("tank/db-1/My_Vol 2"), "iqn.2026-01.zirconia:tank:db--1:-4dy-5f-56ol-202");
        let volumes = ["a/b", "a/b:c", "a/b/c", "a/b-3ac", "a/b-c", "a/b--c", "a/B", "a/b_", "a/b-5f", "a/b."];
        let names: BTreeSet<String> = volumes.iter().map(|volume| target(volume)).collect();
        assert_eq!(names.len(), volumes.len(), "{names:?}");
        assert!(names.iter().all(|name| is_name(name)), "{names:?}");
        assert!(!is_name(&target(&format!("tank/{}", "v".repeat(220)))), "too long");
        assert_eq!(meant("tank/vol"), meant("iqn.2026-01.zirconia:tank:vol"));
        for wrong in ["", "iqn.", "iqn.a b", "iqn.A", "tank/vol", "iqn.a\n"] {
            assert!(!is_name(wrong), "{wrong:?}");
        }
        assert!(is_name("eui.02004567A425678D"));
    }

    /// If this fails, an initiator takes one disk for another, or two paths to one disk for two disks.
    #[test]
    fn disks_are_told_apart_by_pool_and_dataset() {
        let of = |pool, dataset| identity(Guid(pool), Guid(dataset));
        assert_eq!(of(1, 2), of(1, 2));
        assert_ne!(of(1, 2).naa, of(2, 2).naa);
        assert_ne!(of(1, 2).serial, of(1, 3).serial);
    }
}
