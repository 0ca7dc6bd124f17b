//! Facts of the format by hand: each of these is a way in which OpenZFS would misread our pools, or we theirs.

use crate::*;

#[test]
fn label_geometry() {
    let device = 100 * (1 << 20) + 12_345;
    let usable = 100 * (1 << 20);
    assert_eq!([0, 1, 2, 3].map(|index| label::label_offset(device, index)), [0, 262_144, usable - 524_288, usable - 262_144]);
    assert_eq!(label::CONFIG_NVLIST_BYTES, 114_648);
    assert_eq!((label::ring_slots(9), label::ring_slots(12), label::ring_slots(16)), (128, 32, 16));
    assert_eq!(label::ring_slot_offset(12, 3), 131_072 + 3 * 4096);
    assert_eq!(label::BOOT_REGION_OFFSET + label::BOOT_REGION_BYTES, label::LABEL_START_BYTES);
}

#[test]
fn space_map_words_are_the_standards() {
    let mut map = SpaceMapEncoder::new(0, 4096, true);
    map.debug(MapType::Free, 3, Txg(77));
    map.run(SpaceMapRun { kind: MapType::Alloc, offset: 5, run: 7, vdev: None }).expect("small");
    map.run(SpaceMapRun { kind: MapType::Free, offset: 1 << 20, run: 1 << 16, vdev: None }).expect("long");
    map.run(SpaceMapRun { kind: MapType::Free, offset: 9, run: 1, vdev: Some(VdevId(2)) }).expect("with a vdev");
    assert_eq!(map.length(), 48);
    let bytes = map.finish();
    let words: Vec<u64> = bytes.chunks_exact(8).map(|raw| u64::from_le_bytes(raw.try_into().expect("eight"))).collect();
    assert_eq!(words[0], 2 << 62 | 1 << 60 | 3 << 50 | 77);
    assert_eq!(words[1], 5 << 16 | 6);
    assert_eq!(words[2..4], [3 << 62 | 0xFFFF << 24, 1 << 63 | 1 << 20]);
    assert_eq!(words[4..6], [3 << 62 | 2, 1 << 63 | 9]);
}

#[test]
fn two_word_entries_do_not_cross_blocks() {
    let mut map = SpaceMapEncoder::new(4096 - 8, 4096, true);
    let run = SpaceMapRun { kind: MapType::Alloc, offset: 1, run: 1, vdev: Some(VdevId(0)) };
    map.run(run).expect("a run");
    assert_eq!(map.length(), 4096 + 16);
    let bytes = map.finish();
    let entries: Result<Vec<_>, _> = SpaceMapEntries::new(&bytes).collect();
    assert_eq!(entries, Ok(vec![SpaceMapEntry::Padding, SpaceMapEntry::Run(run)]));
}

#[test]
fn long_runs_are_split_and_impossible_ones_refused() {
    let long = SpaceMapRun { kind: MapType::Alloc, offset: 0, run: ONE_WORD_RUN_MAX + 1, vdev: None };
    let mut old = SpaceMapEncoder::new(0, 4096, false);
    old.run(long).expect("two entries");
    let total: u64 =
        SpaceMapEntries::new(&old.clone().finish()).map(|entry| if let Ok(SpaceMapEntry::Run(run)) = entry { run.run } else { 0 }).sum();
    assert_eq!((old.length(), total), (16, ONE_WORD_RUN_MAX + 1));
    assert_eq!(old.run(SpaceMapRun { vdev: Some(VdevId(1)), ..long }), Err(SpaceMapError::Range));
    assert_eq!(old.run(SpaceMapRun { offset: ONE_WORD_OFFSET_END, ..long }), Err(SpaceMapError::Range));
    assert_eq!(old.run(SpaceMapRun { offset: u64::MAX, ..long }), Err(SpaceMapError::Range));
}

#[test]
fn large_dnodes_keep_bonus_and_spill() {
    let spill = BlockPtr(std::array::from_fn(|index| index as u64 + 100));
    let dnode = DnodePhys {
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        indirect_shift: 17,
        levels: 2,
        bonus_type: ObjectType::SA,
        checksum: Checksum::INHERIT,
        compression: Compression::INHERIT,
        flags: dnode_flags::USED_BYTES,
        data_block_sectors: 256,
        extra_slots: 1,
        max_block: BlockId(9),
        used: 4096,
        block_ptrs: [BlockPtr([7; 16]), BlockPtr::HOLE, BlockPtr::HOLE],
        block_ptr_count: 1,
        bonus: vec![3; 1024 - 64 - 128 - 128],
        spill: Some(spill),
    };
    let mut slots = vec![0xFF; 1024];
    dnode.encode_into(&mut slots).expect("it fits exactly");
    assert_eq!(slots[7], dnode_flags::USED_BYTES | dnode_flags::SPILL_BLKPTR);
    assert_eq!(slots[1024 - 128..][..8], 100u64.to_le_bytes());
    let back = DnodePhys::decode(&slots).expect("decodes").expect("allocated");
    assert_eq!((back.spill, &back.bonus), (Some(spill), &dnode.bonus));
    let one_more = DnodePhys { bonus: vec![3; 705], ..dnode };
    assert_eq!(one_more.encode_into(&mut slots), Err(DnodeError::Bonus(705)));
}

/// OpenZFS gives the object of a long redaction list as many pointers as fit, and puts the spill pointer on the last of them.
#[test]
fn a_spill_pointer_may_lie_on_the_last_pointer_of_a_redaction_list() {
    let mut slots = vec![0u8; 512];
    // Type, shift of indirect blocks, levels, pointers, type of the bonus; flags and the size of a block.
    slots[..5].copy_from_slice(&[195, 17, 1, 3, 195]);
    (slots[7], slots[8]) = (dnode_flags::SPILL_BLKPTR, 8);
    let spill = BlockPtr(std::array::from_fn(|index| index as u64 + 100));
    slots[384..].copy_from_slice(&spill.encode());
    let dnode = DnodePhys::decode(&slots).expect("decodes").expect("allocated");
    assert_eq!((dnode.spill, dnode.bonus.len(), dnode.ptrs()), (Some(spill), 0, [BlockPtr::HOLE; 3].as_slice()));
    let mut again = vec![0xFF; 512];
    dnode.encode_into(&mut again).expect("fits as before");
    assert_eq!(DnodePhys::decode(&again), Ok(Some(dnode)));
    slots[11] = 0;
    slots[10] = 8;
    assert_eq!(DnodePhys::decode(&slots), Err(DnodeError::Bonus(8)), "a bonus has no room there");
}

/// If this fails, runs of blocks begin or end elsewhere than OpenZFS has them, and what was not to be sent is.
#[test]
fn redacted_blocks_are_packed_as_openzfs_packs_them() {
    let one = RedactBlockPhys::new(7, 3, 1, 131_072);
    assert_eq!((one.rbp_size_count, one.count(), one.block_bytes()), (256 << 48, 1, 131_072));
    let most = RedactBlockPhys::new(7, 0, RedactBlockPhys::COUNT_MAX, 16 << 20);
    assert_eq!(most.rbp_size_count, 32_768 << 48 | ((1 << 48) - 1));
    assert_eq!((most.count(), most.block_bytes()), (1 << 48, 16 << 20));
    assert_eq!(RedactBlockPhys::decode(&one.encode()), Ok(one));
}

#[test]
fn old_bonuses_read_with_zeros() {
    let bonus = [1u64, 2, 3, 4].map(u64::to_le_bytes).concat();
    let bpobj = BpobjPhys::decode_bonus(&bonus).expect("version 1");
    assert_eq!((bpobj.bpo_num_blkptrs, bpobj.bpo_uncomp, bpobj.bpo_subobjs), (1, 4, 0));
    assert!(BpobjPhys::decode_bonus(&bonus[..15]).is_err());
    let map = SpaceMapPhys::decode_bonus(&bonus[..24]).expect("without a histogram");
    assert_eq!((map.smp_length, map.smp_alloc, map.smp_histogram), (2, 3, [0; 32]));
}

#[test]
fn scan_state_is_24_words() {
    let scan =
        DslScanPhys { scn_func: scan_func::SCRUB, scn_bookmark: BookmarkPhys { zb_level: -1, ..Default::default() }, ..Default::default() };
    let words = scan.to_words();
    assert_eq!((words[0], words[21]), (1, u64::MAX));
    assert_eq!(DslScanPhys::from_words(&words), scan);
    assert_eq!(DslScanPhys::from_words(&words[..3]).scn_func, 1);
}

#[test]
fn aces_of_a_big_endian_pool_are_read() {
    // owner@ allow (8 bytes), then user 1000 allow (16 bytes), then zeros.
    let mut block =
        [&[0u8, 0, 0x10, 0x00, 0x00, 0x01, 0x02, 0x03][..], &[0, 0, 0, 0, 0x00, 0x01, 0x02, 0x03], &1000u64.to_be_bytes(), &[0; 8]]
            .concat();
    byteswap_block(ObjectType::ACL, 0, &mut block);
    let owner = sa::AceHeader::decode(&block).expect("whole");
    assert_eq!((owner.z_flags, owner.z_access_mask), (sa::ACE_OWNER, 0x0001_0203));
    let user = sa::AcePhys::decode(&block[8..]).expect("whole");
    assert_eq!((user.z_hdr.z_access_mask, user.z_fuid), (0x0001_0203, 1000));
}

#[test]
fn zap_leaf_swap_keeps_names() {
    let mut leaf = vec![0u8; 16384];
    let header =
        zap::LeafHeader { lh_block_type: zap::ZBT_LEAF, lh_magic: zap::ZAP_LEAF_MAGIC, lh_nfree: 5, lh_freelist: 9, ..Default::default() };
    header.put(&mut leaf, ByteOrder::Big);
    let entry_at = zap::leaf_chunk_offset(14, 0);
    let entry = zap::LeafEntry { le_type: zap::LEAF_CHUNK_ENTRY, le_name_chunk: 1, le_cd: 3, le_hash: 77, ..Default::default() };
    entry.put(&mut leaf[entry_at..], ByteOrder::Big);
    let array = zap::LeafArray { la_type: zap::LEAF_CHUNK_ARRAY, la_array: *b"a name of the ZAP\0\0\0\0", la_next: zap::LEAF_CHAIN_END };
    array.put(&mut leaf[entry_at + 24..], ByteOrder::Big);
    byteswap_block(ObjectType::DIRECTORY_CONTENTS, 0, &mut leaf);
    assert_eq!(zap::LeafHeader::decode(&leaf), Ok(header));
    assert_eq!(zap::LeafEntry::decode(&leaf[entry_at..]), Ok(entry));
    assert_eq!(zap::LeafArray::decode(&leaf[entry_at + 24..]), Ok(array));
    assert_eq!(zap::leaf_chunks(14), 638);
}

#[test]
fn features_are_openzfs_2_3s() {
    assert_eq!(Feature::ALL.len(), 44);
    let lz4 = Feature::from_name("lz4_compress").expect("lz4");
    assert_eq!(lz4.info().guid, "org.illumos:lz4_compress");
    assert!(lz4.info().activate_on_enable() && !lz4.info().readonly_compat());
    let redaction: FeatureSet = [Feature::RedactionListSpill].into_iter().collect();
    let all = redaction.with_dependencies();
    for needed in [Feature::RedactionBookmarks, Feature::BookmarkV2, Feature::ExtensibleDataset, Feature::Bookmarks] {
        assert!(all.contains(needed), "{needed:?}");
    }
    for feature in FeatureSet::all().iter() {
        assert_eq!(Feature::from_guid(feature.info().guid), Some(feature));
    }
}

#[test]
fn error_log_names_round_trip() {
    let block = ErrorBlock { object: ObjectId(0x1F), level: Level(1), block: BlockId(0xABC), birth: Txg(16) };
    assert_eq!(block.name(), "1f:1:abc:10");
    assert_eq!(ErrorBlock::from_name("1f:1:abc:10"), Ok(block));
    for bad in ["", "1:2:3", "1:2:3:4:5", "1:2:3:+4", "1:2:3:g", "1:100:3:4"] {
        assert_eq!(ErrorBlock::from_name(bad), Err(BadErrorName), "{bad}");
    }
    let bookmark = Bookmark { objset: ObjsetId(54), object: ObjectId(8), level: Level(0), block: BlockId(2) };
    assert_eq!(bookmark_from_name(&bookmark_name(&bookmark)), Ok(bookmark));
}

#[test]
fn bad_block_pointers_are_named() {
    let extent = |vdev: VdevId| match vdev.0 {
        0 => VdevExtent::Known { asize: 1 << 20, gang_header_asize: 4096 },
        1 => VdevExtent::Unknown,
        _ => VdevExtent::Absent,
    };
    let mut good = BlockPtr::HOLE;
    good.set_lsize(4096);
    good.set_psize(4096);
    good.set_checksum_kind(Checksum::FLETCHER_4);
    good.set_compression(Compression::LZ4);
    good.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
    good.set_dva(0, Dva { vdev: VdevId(0), offset: 0, asize: 4096, gang: false });
    assert_eq!(good.validate(extent), Ok(()));
    let with = |change: &dyn Fn(&mut BlockPtr)| {
        let mut bp = good;
        change(&mut bp);
        bp.validate(extent)
    };
    let far = Dva { vdev: VdevId(0), offset: (1 << 20) - 512, asize: 4096, gang: false };
    assert_eq!(with(&|bp| bp.set_dva(1, far)), Err(BlockPtrError::Range(far)));
    assert_eq!(with(&|bp| bp.set_dva(2, Dva { vdev: VdevId(7), ..far })), Err(BlockPtrError::Vdev(VdevId(7))));
    assert_eq!(with(&|bp| bp.set_dva(1, Dva { vdev: VdevId(1), ..far })), Ok(()));
    assert_eq!(with(&|bp| bp.set_dva(0, Dva { asize: 0, offset: 512, ..far })), Err(BlockPtrError::NoAddress));
    assert_eq!(with(&|bp| bp.set_object_type(ObjectType(54))), Err(BlockPtrError::Type(ObjectType(54))));
    assert_eq!(with(&|bp| bp.set_compression(Compression(17))), Err(BlockPtrError::Compression(Compression(17))));
    assert_eq!(with(&|bp| bp.set_checksum_kind(Checksum(15))), Err(BlockPtrError::Checksum(Checksum(15))));
    assert_eq!(with(&|bp| bp.set_lsize(16 << 20)), Ok(()));
    assert_eq!(with(&|bp| bp.set_lsize((16 << 20) + 512)), Err(BlockPtrError::LogicalSize((16 << 20) + 512)));
    assert_eq!(with(&|bp| bp.set_psize((16 << 20) + 512)), Err(BlockPtrError::PhysicalSize((16 << 20) + 512)));
}

#[test]
fn file_attribute_words() {
    let entry = DirectoryEntryWord::from_word(0x4000_0000_0000_0022);
    assert_eq!((entry.file_type, entry.object), (4, ObjectId(34)));
    assert_eq!(entry.to_word(), 0x4000_0000_0000_0022);
    let registration = sa::SaRegistration { attr: 19, bytes: 0, byteswap: 4 };
    assert_eq!(sa::SaRegistration::from_word(registration.to_word()), registration);
    let header = sa::SaHeader::new(2, 16);
    assert_eq!((header.layout(), header.header_bytes()), (2, 16));
    assert_eq!(sa::ZPL_ATTRS[sa::zpl_attr::DACL_ACES].name, "ZPL_DACL_ACES");
}
use crate::sa::DirectoryEntry as DirectoryEntryWord;

/// If this fails, what one byte order wrote encrypted cannot be decrypted under the other, and fill counts destroy IVs.
#[test]
fn salt_iv_and_mac_are_strings_in_either_order() {
    for is_little in [true, false] {
        let mut bp = BlockPtr::HOLE;
        bp.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
        bp.set_uses_crypt(true);
        bp.set_little_endian(is_little);
        bp.set_fill(7);
        let (salt, iv) = ([1, 2, 3, 4, 5, 6, 7, 8], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]);
        let mac = std::array::from_fn(|index| 100 + index as u8);
        bp.set_salt_and_iv(salt, iv);
        bp.set_mac(mac);
        bp.set_fill(u64::from(u32::MAX));
        assert_eq!((bp.salt(), bp.iv(), bp.mac(), bp.fill()), (salt, iv, mac, u64::from(u32::MAX)));
        let order = if is_little { u64::from_le_bytes } else { u64::from_be_bytes };
        assert_eq!(bp.0[4], order(salt));
        assert_eq!(bp.0[14], order([100, 101, 102, 103, 104, 105, 106, 107]));
        assert_eq!(bp.0[11] >> 32, if is_little { 0x1615_1413 } else { 0x1314_1516 });
    }
}
