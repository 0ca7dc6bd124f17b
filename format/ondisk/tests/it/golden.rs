//! Blocks that OpenZFS 2.3.2 wrote against what its `zdb` says of them: a wrong offset here reads every pool wrongly.
//!
//! `*.uberblock` is the best slot of a label, `*.objset` the root block of a dataset, `*.dnodes` the block of objects 32–63; the texts
//! are cut from `zdb -luuuu` and `zdb -P -dddd` of the same pools.

use ondisk::label::ring_slot_shift;
use ondisk::*;

macro_rules! uberblock {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../data/", $name, ".uberblock")), include_str!(concat!("../data/", $name, ".uberblock.txt")))
    };
}

/// The value of the line ` key = value` or `key=value` in a text of zdb.
fn field<'a>(text: &'a str, key: &str) -> &'a str {
    let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{key} = "))).expect(key);
    line.split_once(" = ").expect(key).1
}

#[test]
fn uberblocks_are_read_as_zdb_reads_them() {
    let all = [uberblock!("stripe1"), uberblock!("raidz2"), uberblock!("v28"), uberblock!("classes"), uberblock!("ashift13")];
    for (name, slot, text) in all {
        let (ub, order) = Uberblock::decode_slot(slot).expect(name).expect(name);
        assert_eq!(order, ByteOrder::Little);
        assert_eq!(ub.ub_version.to_string(), field(text, "version"), "{name}");
        assert_eq!(ub.ub_txg.to_string(), field(text, "txg"), "{name}");
        assert_eq!(ub.ub_guid_sum.to_string(), field(text, "guid_sum"), "{name}");
        assert_eq!(ub.ub_timestamp.to_string(), field(text, "timestamp").split(' ').next().expect("a number"), "{name}");
        assert_eq!(ub.ub_rootbp.to_string(), field(text, "rootbp"), "{name}");
        assert_eq!(ub.ub_checkpoint_txg.to_string(), field(text, "checkpoint_txg"), "{name}");
        assert!(ub.mmp_valid());
        assert_eq!(ub.encode_slot(1024)[..216], slot[..], "{name}: written as it was read");
    }
    assert_eq!([9, 12, 16].map(ring_slot_shift), [10, 12, 13]);
}

/// If this fails, OpenZFS waits too short a time before it imports a pool that this host has open.
#[test]
fn the_words_of_heartbeats_are_where_openzfs_looks_for_them() {
    let ub = Uberblock {
        ub_magic: Uberblock::MAGIC,
        ub_mmp_magic: Uberblock::MMP_MAGIC,
        ub_mmp_config: Uberblock::mmp_config_of(1000, 3, 10),
        ..Uberblock::default()
    };
    assert_eq!(ub.ub_mmp_config, 0x000a_0003_0003_e807);
    assert_eq!((ub.mmp_interval_ms(), ub.mmp_sequence(), ub.mmp_fail_intervals()), (Some(1000), Some(3), Some(10)));
    let before = Uberblock { ub_mmp_magic: 0, ..ub };
    assert_eq!((before.mmp_interval_ms(), before.mmp_sequence(), before.mmp_fail_intervals()), (None, None, None));
}

#[test]
fn a_big_endian_uberblock_reads_the_same() {
    let (_, slot, _) = uberblock!("raidz2");
    let (ub, _) = Uberblock::decode_slot(slot).expect("whole").expect("magic");
    let mut foreign = vec![0; 1024];
    ub.put(&mut foreign, ByteOrder::Big);
    assert_eq!(Uberblock::decode_slot(&foreign), Ok(Some((ub, ByteOrder::Big))));
}

const OBJSETS: [(&str, &[u8], ObjsetType); 3] = [
    ("stripe1", include_bytes!("../data/stripe1.objset"), ObjsetType::META),
    ("dnodes", include_bytes!("../data/dnodes.objset"), ObjsetType::ZFS),
    ("v28", include_bytes!("../data/v28.objset"), ObjsetType::META),
];

#[test]
fn object_sets_are_read_and_written_back() {
    for (name, block, kind) in OBJSETS {
        let objset = ObjsetPhys::decode(block).expect(name);
        assert_eq!(objset.objset_type, kind, "{name}");
        assert_eq!(objset.meta_dnode.object_type, ObjectType::DNODE);
        assert_eq!(objset.meta_dnode.data_block_bytes(), DNODE_BLOCK_BYTES);
        assert_eq!(objset.encode().expect(name), block, "{name}: written as it was read");
        // The block of a big-endian pool, brought home by the cache.
        let mut foreign = block.to_vec();
        byteswap_block(ObjectType::OBJSET, 0, &mut foreign);
        assert_ne!(foreign, block);
        byteswap_block(ObjectType::OBJSET, 0, &mut foreign);
        assert_eq!(ObjsetPhys::decode(&foreign), Ok(objset), "{name}");
    }
}

const DNODES: [(&str, &[u8], &str); 3] = [
    ("stripe1", include_bytes!("../data/stripe1.dnodes"), include_str!("../data/stripe1.dnodes.txt")),
    ("dnodes", include_bytes!("../data/dnodes.dnodes"), include_str!("../data/dnodes.dnodes.txt")),
    ("v28", include_bytes!("../data/v28.dnodes"), include_str!("../data/v28.dnodes.txt")),
];

/// Lists a block of dnodes in the shape of the texts.
fn list(block: &[u8], first: usize) -> String {
    let mut out = String::new();
    let mut slot = 0;
    while slot < DNODE_SLOTS_PER_BLOCK {
        let Some(dnode) = DnodePhys::decode(&block[slot * DNODE_SLOT_BYTES..]).expect("a dnode") else {
            slot += 1;
            continue;
        };
        let line = format!(
            "{} levels={} iblk={} dblk={} dsize={} type={} bonus={} {}",
            first + slot,
            dnode.levels,
            1 << dnode.indirect_shift,
            dnode.data_block_bytes(),
            dnode.slots() * DNODE_SLOT_BYTES,
            dnode.object_type.listing_name(),
            dnode.bonus.len(),
            if dnode.bonus.is_empty() { "" } else { dnode.bonus_type.listing_name() }
        );
        out.push_str(line.trim_end());
        out.push('\n');
        slot += dnode.slots();
    }
    out
}

#[test]
fn dnodes_are_read_as_zdb_reads_them() {
    for (name, block, text) in DNODES {
        assert_eq!(list(block, 32), text, "{name}");
        let mut foreign = block.to_vec();
        byteswap_block(ObjectType::DNODE, 0, &mut foreign);
        assert_ne!(foreign, block);
        byteswap_block(ObjectType::DNODE, 0, &mut foreign);
        assert_eq!(list(&foreign, 32), text, "{name} in big-endian");
    }
}

#[test]
fn dnodes_are_written_back_as_they_were() {
    for (name, block, _) in DNODES {
        let mut out = block.to_vec();
        let mut slot = 0;
        while slot < DNODE_SLOTS_PER_BLOCK {
            let at = slot * DNODE_SLOT_BYTES;
            slot += match DnodePhys::decode(&block[at..]).expect(name) {
                Some(dnode) => {
                    out[at..at + dnode.slots() * DNODE_SLOT_BYTES].fill(0xAA);
                    dnode.encode_into(&mut out[at..]).expect(name);
                    dnode.slots()
                }
                None => 1,
            };
        }
        assert_eq!(out, block, "{name}");
    }
}

#[test]
fn dsl_records_of_a_real_pool_make_sense() {
    let (_, block, _) = DNODES[0];
    let root_dir = DnodePhys::decode(block).expect("object 32").expect("object 32");
    assert_eq!(root_dir.bonus_type, ObjectType::DSL_DIR);
    let dir = DslDirPhys::decode(&root_dir.bonus).expect("a directory");
    assert_eq!((dir.dd_parent_obj, dir.dd_child_dir_zapobj, dir.dd_props_zapobj), (0, 34, 33));
    assert_eq!(dir.dd_flags, DD_FLAG_USED_BREAKDOWN);
    assert_eq!(dir.dd_used_breakdown.iter().sum::<u64>(), dir.dd_used_bytes);
    let bpobj = DnodePhys::decode(&block[9 * 512..]).expect("object 41").expect("object 41");
    assert_eq!(BpobjPhys::decode_bonus(&bpobj.bonus), Ok(BpobjPhys::default()));
}

#[test]
fn system_attributes_of_a_real_file_make_sense() {
    let (_, block, _) = DNODES[1];
    let file = DnodePhys::decode(&block[8 * 512..]).expect("object 40").expect("object 40");
    assert_eq!((file.bonus_type, file.slots()), (ObjectType::SA, 4));
    let (header, order) = sa::SaHeader::detect(&file.bonus).expect("a header").expect("a magic");
    assert_eq!(order, ByteOrder::Little);
    assert!(header.header_bytes() >= 8 && header.header_bytes() < file.bonus.len());
    let aces = header.lengths(&file.bonus, order)[0];
    assert_eq!(usize::from(aces) % 4, 0);
}
