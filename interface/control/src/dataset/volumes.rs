//! Volumes: their sizes, the space that is kept for them, and what a change of one means to the other (OpenZFS: `zfs_do_create`,
//! `zvol_volsize_to_reservation`, `zfs_add_synthetic_resv`, `zfs_fix_auto_resv`).

use crate::failure::because;
use control_api::{ErrorKind, Failure, Remark};
use dsl::prop::table::{Parsed, native, size as size_of};
use dsl::volume::{DEFAULT_BLOCK_BYTES, SIZE_MAX};
use dsl::{DatasetHandle, DslError};
use ondisk::names::spa_version;
use std::collections::BTreeMap;
use vdev::{TopKind, VdevTree};

/// Bytes of the block whose space on RAID-Z is the measure of all others (OpenZFS: `SPA_OLD_MAXBLOCKSIZE`).
const MEASURE_BYTES: u64 = 128 << 10;
/// Number of pointers in an indirect block (OpenZFS: `DNODES_PER_LEVEL`).
const POINTERS_PER_INDIRECT: u64 = 1024;
/// Bytes of an indirect block.
const INDIRECT_BYTES: u64 = 128 << 10;
/// Reason for which a size cannot be (OpenZFS: `EZFS_VOLTOOBIG`).
const TOO_LARGE: &str = "volume size exceeds limit for this system";
/// Number of blocks of the dnodes' object from its root down to the volume's dnode.
const DNODE_PATH: u64 = 7;

/// Sizes and properties of a new volume.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewVolume {
    /// Size in bytes, whole blocks.
    pub size: u64,
    /// Block size in bytes.
    pub block_size: u64,
    /// Properties that are set: what was asked for, and the space that is kept.
    pub properties: BTreeMap<String, String>,
    /// Remarks on its properties, for the answer.
    pub remarks: Vec<Remark>,
}

impl NewVolume {
    /// Plans a volume from what was asked for.
    pub fn plan(name: &str, asked: &BTreeMap<String, String>, sparse: bool, tree: &VdevTree) -> Result<NewVolume, Failure> {
        let wrong = |why: &str| because(ErrorKind::Invalid, format!("cannot create '{name}'"), why);
        let number = |property: &str, what: &str| match asked.get(property) {
            None => Ok(None),
            Some(text) => match size_of(text) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(why) => Err(because(ErrorKind::Invalid, format!("bad volume {what} '{text}'"), why)),
            },
        };
        let size = number("volsize", "size")?.ok_or_else(|| wrong("missing volume size"))?;
        if size == 0 {
            return Err(wrong("volume size cannot be zero"));
        }
        let (usual, least) = usual_block_size(tree);
        let given = number("volblocksize", "block size")?;
        let block_size = given.unwrap_or(usual);
        let is_possible = native("volblocksize").is_some_and(|desc| desc.parse(&block_size.to_string()).is_ok());
        if !is_possible {
            return Err(wrong("'volblocksize' must be power of 2 from 512B to 16M"));
        }
        let size = size.checked_next_multiple_of(block_size).filter(|size| *size <= SIZE_MAX).ok_or_else(|| wrong(TOO_LARGE))?;
        let mut properties = asked.clone();
        properties.insert("volsize".to_string(), size.to_string());
        if given.is_some() || block_size != DEFAULT_BLOCK_BYTES {
            properties.insert("volblocksize".to_string(), block_size.to_string());
        }
        let is_auto = properties.get("refreservation").is_some_and(|text| text == "auto");
        if is_auto || !sparse && !properties.contains_key("refreservation") {
            properties.insert("refreservation".to_string(), reservation(tree, size, block_size).to_string());
        }
        let remarks = given.and_then(|given| waste(given, usual, least)).map(Remark::Warning).into_iter().collect();
        Ok(NewVolume { size, block_size, properties, remarks })
    }

    /// The volume as pools of a version can have it: before version 9 its space is kept by its reservation (OpenZFS: `zfs_do_create`).
    pub fn in_version(mut self, version: u64, asked: &BTreeMap<String, String>) -> NewVolume {
        if version < spa_version::REFRESERVATION
            && !asked.contains_key("refreservation")
            && let Some(bytes) = self.properties.remove("refreservation")
        {
            self.properties.entry("reservation".to_string()).or_insert(bytes);
        }
        self
    }
}

/// Remark on a volume that was made.
pub(crate) fn notice(name: &str) -> Remark {
    let file = format!("the file dev/zvol/{name} in the daemon's state directory");
    Remark::Warning(format!("volume '{name}' is {file}, and no block device: 'losetup' makes one of it"))
}

/// Block size in bytes of a volume that is made without one, and the smallest amount that the vdevs allocate (OpenZFS: `default_volblocksize`).
fn usual_block_size(tree: &VdevTree) -> (u64, u64) {
    let least = |top: &vdev::TopVdev| match top.kind {
        TopKind::Draid(config) => (config.data() as u64) << top.ashift,
        TopKind::Raidz(1) => 2 << top.ashift,
        TopKind::Raidz(_) => 4 << top.ashift,
        _ => 1 << top.ashift,
    };
    let least = tree.tops.iter().filter(|top| top.is_concrete()).map(least).max().unwrap_or(512);
    let mut usual = DEFAULT_BLOCK_BYTES;
    while usual * 2 <= least {
        usual *= 2;
    }
    (usual, least)
}

/// Remark on a block size that wastes space.
fn waste(given: u64, usual: u64, least: u64) -> Option<String> {
    if given < DEFAULT_BLOCK_BYTES {
        return Some(format!(
            "Warning: volblocksize ({given}) is less than the default minimum block size ({DEFAULT_BLOCK_BYTES}).\n\
             To reduce wasted space a volblocksize of {usual} is recommended."
        ));
    }
    (given < usual).then(|| {
        let percent = 100 * least.saturating_sub(given) / least;
        format!(
            "Warning: volblocksize ({given}) is much less than the minimum allocation\nunit ({least}), which wastes at least {percent}% of \
             space. To reduce wasted space,\nuse a larger volblocksize ({usual} is recommended), fewer dRAID data disks\nper group, or \
             smaller sector size (ashift)."
        )
    })
}

/// Space in bytes that a volume takes when all of it is written: its data as they lie on the vdev that makes most of them, and the blocks above
/// them (OpenZFS: `zvol_volsize_to_reservation`; what its callers pass never has `copies` as it looks for it, so that these do not count).
pub(crate) fn reservation(tree: &VdevTree, size: u64, block_size: u64) -> u64 {
    let blocks = size / block_size.max(1);
    let mut indirects = DNODE_PATH;
    let mut level = blocks;
    while level > 1 {
        level = level.div_ceil(POINTERS_PER_INDIRECT);
        indirects += level;
    }
    let striped = tree.tops.iter().filter(|top| matches!(top.kind, TopKind::Raidz(_) | TopKind::Draid(_)));
    let data = striped.map(|top| {
        let measure = u128::from(top.asize_for_psize(MEASURE_BYTES) >> 9).max(1);
        let scaled = u128::from(blocks) * u128::from(top.asize_for_psize(block_size)) / measure * u128::from(MEASURE_BYTES >> 9);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    });
    let data = data.max().filter(|data| *data != 0).unwrap_or(blocks.saturating_mul(block_size));
    // Metadata have one copy more than data.
    data.saturating_add(indirects.saturating_mul(2 * INDIRECT_BYTES))
}

/// Changes that new properties mean to a volume that is there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// New size in bytes, if there is one.
    pub size: Option<u64>,
    /// Other properties: the space that is kept follows the size as long as it is what a volume of that size takes.
    pub properties: BTreeMap<String, String>,
}

/// Size in bytes that properties ask for, if they do; an error says why a volume with such blocks cannot have it.
pub(crate) fn asked_size(block_size: u64, asked: &BTreeMap<String, String>) -> Result<Option<u64>, Refusal> {
    let size = asked.get("volsize").and_then(|text| match native("volsize")?.parse(text) {
        Ok(Parsed::Number(bytes)) => Some(bytes),
        _ => None,
    });
    match size {
        Some(size) if !size.is_multiple_of(block_size) => {
            let block = nice(block_size);
            Err(Refusal::Words(format!("'volsize' must be a multiple of volume block size ({block})")))
        }
        Some(0) => Err(Refusal::Words("'volsize' cannot be zero".to_string())),
        Some(size) if size > SIZE_MAX => Err(Refusal::Words(TOO_LARGE.to_string())),
        size => Ok(size),
    }
}

/// Works out a change; an error says why it cannot be.
pub(crate) fn change(handle: &DatasetHandle, tree: &VdevTree, asked: &BTreeMap<String, String>) -> Result<Change, Refusal> {
    let block_size = handle.prop_u64("volblocksize")?.0;
    let old_size = handle.prop_u64("volsize")?.0;
    let size = asked_size(block_size, asked)?;
    let mut properties = asked.clone();
    properties.remove("volsize");
    let kept = handle.prop_u64("refreservation")?.0;
    let follows = size.is_some() && !properties.contains_key("refreservation") && kept == reservation(tree, old_size, block_size);
    if follows || properties.get("refreservation").is_some_and(|text| text == "auto") {
        let bytes = reservation(tree, size.unwrap_or(old_size), block_size);
        properties.insert("refreservation".to_string(), bytes.to_string());
    }
    Ok(Change { size, properties })
}

/// Reason for which a volume is not changed.
pub(crate) enum Refusal {
    /// Reason in words.
    Words(String),
    /// Error of the engine.
    Engine(DslError),
}

impl From<DslError> for Refusal {
    fn from(error: DslError) -> Refusal {
        Refusal::Engine(error)
    }
}

/// Text of a power of two as people write it.
pub(crate) fn nice(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        _ if bytes < 1 << 20 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(kind: TopKind, leaves: usize, ashift: u32) -> VdevTree {
        VdevTree::simple(&[(kind, leaves)], ashift, 1 << 30).expect("a tree")
    }

    fn asked(words: &[(&str, &str)]) -> BTreeMap<String, String> {
        words.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect()
    }

    /// If this fails, a volume that says its space is kept runs out of it, or OpenZFS does not know the reservation for its own and leaves
    /// it as it is when the volume grows. The numbers are those of OpenZFS 2.3.2's function, worked out by hand.
    #[test]
    fn the_space_that_is_kept_is_what_openzfs_keeps() {
        // 65536 blocks: 64 indirect blocks, 1 above them, 7 of the dnodes, each twice.
        assert_eq!(reservation(&tree(TopKind::Leaf, 1, 12), 1 << 30, 16384), (1 << 30) + 72 * 2 * 131_072);
        // raidz2 of 6, 4K sectors: 128K takes 48 sectors = 196608 (384 × 512), 16K takes 6 = 24576, and so does 8K: 4 rounded up to a multiple of 3.
        assert_eq!(reservation(&tree(TopKind::Raidz(2), 6, 12), 1 << 30, 16384), 65536 * 24576 / 384 * 256 + 72 * 2 * 131_072);
        assert_eq!(reservation(&tree(TopKind::Raidz(2), 6, 12), 1 << 30, 8192), 131_072 * 24576 / 384 * 256 + 136 * 2 * 131_072);
        assert_eq!(reservation(&tree(TopKind::Leaf, 1, 12), 16384, 16384), 16384 + 7 * 2 * 131_072);
    }

    /// If this fails, a volume on wide dRAID wastes most of each stripe, or OpenZFS's scripts find another size than they computed.
    #[test]
    fn blocks_are_16k_or_what_the_vdevs_allocate_at_least() {
        assert_eq!(usual_block_size(&tree(TopKind::Mirror, 2, 12)), (16384, 4096));
        assert_eq!(usual_block_size(&tree(TopKind::Raidz(1), 3, 12)), (16384, 8192));
        assert_eq!(usual_block_size(&tree(TopKind::Raidz(2), 6, 14)), (65536, 65536));
    }

    #[test]
    fn a_size_becomes_whole_blocks_and_its_space_is_kept_unless_it_is_sparse() {
        let tree = tree(TopKind::Leaf, 1, 12);
        let plan = |words: &[(&str, &str)], sparse| NewVolume::plan("tank/vol", &asked(words), sparse, &tree);
        let made = plan(&[("volsize", "100000")], false).expect("a plan");
        assert_eq!((made.size, made.block_size), (114_688, 16384));
        assert_eq!(made.properties.get("refreservation"), Some(&reservation(&tree, 114_688, 16384).to_string()));
        assert!(!made.properties.contains_key("volblocksize"), "the default is not stored");
        let old = made.in_version(8, &asked(&[("volsize", "100000")])).properties;
        assert_eq!((old.get("refreservation"), old.get("reservation")), (None, Some(&reservation(&tree, 114_688, 16384).to_string())));
        let sparse = plan(&[("volsize", "1M"), ("volblocksize", "64K")], true).expect("a plan");
        assert_eq!((sparse.block_size, sparse.properties.get("refreservation")), (65536, None));
        let auto = plan(&[("volsize", "1M"), ("refreservation", "auto")], true).expect("a plan");
        assert_eq!(auto.properties.get("refreservation"), Some(&reservation(&tree, 1 << 20, 16384).to_string()));
        let given = plan(&[("volsize", "1M"), ("refreservation", "none")], false).expect("a plan");
        assert_eq!(given.properties.get("refreservation").map(String::as_str), Some("none"));
        let why = |words: &[(&str, &str)]| plan(words, false).expect_err("refused").to_string();
        assert_eq!(why(&[("volsize", "0")]), "cannot create 'tank/vol': volume size cannot be zero");
        assert_eq!(why(&[]), "cannot create 'tank/vol': missing volume size");
        assert_eq!(why(&[("volsize", "8E")]), "cannot create 'tank/vol': volume size exceeds limit for this system");
        assert_eq!(why(&[("volsize", "big")]), "bad volume size 'big': bad numeric value 'big'");
        assert!(why(&[("volsize", "1M"), ("volblocksize", "3K")]).contains("power of 2 from 512B to 16M"));
    }
}
