//! Records and lists as they lie on disk, and the algorithms that read blocks.

use kernels::checksum::{Verifier, embed, verify_embedded};
use nvlist::{Encoding, NvList};
use ondisk::{
    BlockPtr, ByteOrder, Checksum, Compression, DNODE_SLOT_BYTES, DnodePhys, ErrorBlock, L2ARC_LOG_BLOCK_BYTES, L2ARC_LOG_ENTRIES_MAX,
    L2arcBlock, L2arcHeader, L2arcLogBlock, L2arcLogEntry, L2arcLogPtr, L2arcSweep, ObjectType, ObjsetPhys, RECORDS, SpaceMapEncoder,
    SpaceMapEntries, SpaceMapEntry, SpaceMapPhys, SpaceMapRun, Txg, Uberblock, VdevExtent,
};

macro_rules! data {
    ($($path:literal),*) => { vec![$(include_bytes!(concat!("../../../format/", $path)).to_vec()),*] };
}

pub fn nvlist_seeds() -> Vec<Vec<u8>> {
    data![
        "nvlist/tests/data/stripe1.nvlist",
        "nvlist/tests/data/raidz2.nvlist",
        "nvlist/tests/data/classes.nvlist",
        "nvlist/tests/data/v28.nvlist",
        "nvlist/tests/data/every-type.xdr",
        "nvlist/tests/data/every-type.native"
    ]
}

/// Checks that what decodes encodes to what decodes to the same; and a list may describe vdevs.
pub fn nvlist(data: &[u8]) {
    let Ok(list) = NvList::decode(data) else { return };
    for encoding in [Encoding::Xdr, Encoding::NativeLittle] {
        let packed = list.encode(encoding);
        let again = NvList::decode(&packed).expect("what was encoded decodes");
        assert_eq!(again.encode(encoding), packed, "{encoding:?}");
    }
    if let Ok(tree) = vdev::VdevTree::from_config(list.get_nvlist("vdev_tree").unwrap_or(&list)) {
        assert!(tree.tops.len() <= 1 << 17);
        let _ = (tree.is_readable(), tree.min_ashift(), tree.alloc_units());
    }
}

pub fn uberblock_seeds() -> Vec<Vec<u8>> {
    let raw: Vec<Vec<u8>> =
        data!["ondisk/tests/data/stripe1.uberblock", "ondisk/tests/data/raidz2.uberblock", "ondisk/tests/data/v28.uberblock"];
    raw.into_iter()
        .map(|mut slot| {
            slot.resize(1024, 0);
            slot
        })
        .collect()
}

pub fn uberblock(data: &[u8]) {
    if let Ok(Some((ub, _))) = Uberblock::decode_slot(data) {
        let _ = (ub.preference(), ub.mmp_interval_ms(), ub.mmp_sequence(), ub.raidz_reflow_offset(), format!("{ub:?}"));
        let slot = ub.encode_slot(1024);
        let (again, order) = Uberblock::decode_slot(&slot).expect("long enough").expect("it has its magic number");
        assert_eq!((again, order), (ub, ByteOrder::Little));
    }
}

/// Seeds of pointers out of real object sets.
pub fn blkptr_seeds() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for block in objset_seeds().iter().chain(&dnode_seeds()) {
        let phys = ObjsetPhys::decode(block).ok().map(|phys| phys.meta_dnode);
        let dnodes = block.chunks_exact(DNODE_SLOT_BYTES).filter_map(|slot| DnodePhys::decode(slot).ok().flatten());
        found.extend(
            phys.into_iter().chain(dnodes).flat_map(|dnode| dnode.ptrs().iter().map(|bp| bp.encode().to_vec()).collect::<Vec<_>>()),
        );
    }
    found.push(BlockPtr::embedded(&[7; 100], 4096, Compression::LZ4, ObjectType::PLAIN_FILE_CONTENTS, 0, Txg(9)).encode().to_vec());
    found.sort();
    found.dedup();
    found.truncate(64);
    found
}

pub fn blkptr(data: &[u8]) {
    let Some(raw) = data.first_chunk::<{ BlockPtr::BYTES }>() else { return };
    for little in [true, false] {
        let bp = BlockPtr::decode(raw, little);
        for extent in [VdevExtent::Absent, VdevExtent::Unknown, VdevExtent::Known { asize: 1 << 30, gang_header_asize: 4096 }] {
            let _ = bp.validate(|_| extent).map_err(|error| error.to_string());
        }
        let _ = (format!("{bp:?}"), bp.dvas().count(), bp.asize(), bp.is_gang(), bp.embedded_payload(), bp.fill(), bp.physical_birth());
        assert_eq!(BlockPtr::decode(&bp.encode(), true), bp);
    }
}

pub fn dnode_seeds() -> Vec<Vec<u8>> {
    let blocks: Vec<Vec<u8>> = data!["ondisk/tests/data/dnodes.dnodes", "ondisk/tests/data/stripe1.dnodes", "ondisk/tests/data/v28.dnodes"];
    let used = |slot: &&[u8]| slot.iter().any(|byte| *byte != 0);
    blocks.iter().flat_map(|block| block.chunks_exact(2 * DNODE_SLOT_BYTES).filter(used).map(<[u8]>::to_vec).collect::<Vec<_>>()).collect()
}

pub fn dnode(data: &[u8]) {
    if let Ok(Some(dnode)) = DnodePhys::decode(data) {
        let mut out = vec![0xEE; dnode.slots() * DNODE_SLOT_BYTES];
        dnode.encode_into(&mut out).expect("what was decoded fits");
        assert_eq!(DnodePhys::decode(&out), Ok(Some(dnode)));
    }
}

pub fn objset_seeds() -> Vec<Vec<u8>> {
    data!["ondisk/tests/data/stripe1.objset", "ondisk/tests/data/dnodes.objset", "ondisk/tests/data/v28.objset"]
}

pub fn objset(data: &[u8]) {
    if let Ok(objset) = ObjsetPhys::decode(data) {
        let block = objset.encode().expect("what was decoded fits");
        assert_eq!(ObjsetPhys::decode(&block), Ok(objset));
    }
}

pub fn record_seeds() -> Vec<Vec<u8>> {
    [objset_seeds(), uberblock_seeds(), dnode_seeds()].concat()
}

/// Decodes a record; the first byte chooses which.
pub fn records(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let record = &RECORDS[usize::from(*first) % RECORDS.len()];
    let mut bytes = rest.to_vec();
    bytes.resize(record.bytes, 0);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        assert_eq!((record.convert)(&bytes, order, order), bytes, "{}", record.name);
        let _ = (record.show)(&bytes, order);
    }
    let text = String::from_utf8_lossy(rest);
    if let Ok(block) = ErrorBlock::from_name(&text) {
        assert_eq!(ErrorBlock::from_name(&block.name()), Ok(block));
    }
    let _ = (ondisk::bookmark_from_name(&text), SpaceMapPhys::decode_bonus(rest), ondisk::BpobjPhys::decode_bonus(rest));
}

/// Swaps bytes of a block; the first two bytes are type and level.
pub fn byteswap(data: &[u8]) {
    let [kind, level, rest @ ..] = data else { return };
    let mut block = rest.to_vec();
    ondisk::byteswap_block(ObjectType(*kind), level % 3, &mut block);
    assert_eq!(block.len(), rest.len());
}

pub fn space_map_seeds() -> Vec<Vec<u8>> {
    let make = |two_words: bool| {
        let mut encoder = SpaceMapEncoder::new(0, 4096, two_words);
        for index in 0..60u64 {
            encoder.debug(ondisk::MapType::Alloc, 1, Txg(index));
            let kind = if index % 3 == 0 { ondisk::MapType::Free } else { ondisk::MapType::Alloc };
            let _ = encoder.run(SpaceMapRun { kind, offset: index * 512, run: 1 + index, vdev: None });
        }
        encoder.finish()
    };
    vec![make(false), make(true)]
}

pub fn space_map(data: &[u8]) {
    let runs = SpaceMapEntries::new(data).filter(|entry| matches!(entry, Ok(SpaceMapEntry::Run(_)))).count();
    assert!(runs <= data.len() / 8);
}

/// Seeds of a header of a cache device and the start of a log block behind it.
pub fn cache_device_seeds() -> Vec<Vec<u8>> {
    let pointer = |daddr: u64| L2arcLogPtr::new((daddr, 1024), Compression::LZ4, (daddr - (1 << 20), 1 << 20), [daddr; 4]);
    let entry =
        |n: u64| L2arcLogEntry { le_dva: [8, n], le_birth: 7, le_prop: n << 16 | n, le_daddr: (6 << 20) + n * 4096, ..Default::default() };
    let block = L2arcLogBlock { previous: pointer(6 << 20), entries: (0..12).map(entry).collect() };
    let header = L2arcHeader {
        dh_magic: L2arcHeader::MAGIC,
        dh_version: L2arcHeader::VERSION,
        dh_log_entries: 12,
        dh_start: (4 << 20) + 512,
        dh_end: 64 << 20,
        dh_evict: 20 << 20,
        dh_start_lbps: [pointer(10 << 20), pointer(8 << 20)],
        ..L2arcHeader::default()
    };
    vec![[&header.encode()[..], &block.encode()[..1024]].concat()]
}

/// Checks what a cache device says of itself: log blocks that are followed lie on it, and what decodes encodes to what decodes to the same.
pub fn cache_device(data: &[u8]) {
    if let Some(header) = L2arcHeader::detect(data) {
        let sweep = L2arcSweep::of(&header, header.dh_start);
        let [this, before] = &header.dh_start_lbps;
        let _ = (sweep.is_round(this, before), this.lsize(), this.checksum_kind(), this.compression());
        for pointer in [this, before].into_iter().filter(|pointer| sweep.holds(pointer)) {
            let last = pointer.lbp_daddr + (pointer.asize() - 1);
            assert!(pointer.lbp_daddr >= sweep.start && last <= sweep.end && pointer.asize() <= L2ARC_LOG_BLOCK_BYTES as u64);
        }
    }
    let Some(block) = data.get(L2arcHeader::SIZE..).and_then(|log| L2arcLogBlock::decode(log, L2ARC_LOG_ENTRIES_MAX)) else { return };
    for entry in &block.entries {
        let told = L2arcBlock::from_word(entry.le_prop);
        assert_eq!(L2arcBlock::from_word(told.to_word()), told);
    }
    assert_eq!(L2arcLogBlock::decode(&block.encode(), block.entries.len()), Some(block));
}

/// Checks blocks that hold their own checksum; the first byte chooses which, and whether it is made right.
pub fn checksums(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let kinds = [Checksum::LABEL, Checksum::GANG_HEADER, Checksum::ZILOG, Checksum::ZILOG2, Checksum::FLETCHER_4];
    let kind = kinds[usize::from(*first >> 1) % kinds.len()];
    let (mut block, verifier) = (rest.to_vec(), Verifier::log_block([1, 2, 3, 4]));
    if *first & 1 == 1 && embed(kind, &mut block, verifier).is_ok() {
        assert!(verify_embedded(kind, &block, verifier).is_ok(), "what was just sealed verifies");
    }
    let _ = verify_embedded(kind, rest, verifier);
}

const KINDS: [Compression; 6] = [Compression::LZJB, Compression::ZLE, Compression::LZ4, Compression::ZSTD, Compression(5), Compression(13)];

/// Decompresses; the first byte chooses the algorithm, the next two are the length of what comes out, in units of 8 bytes.
pub fn decompress(data: &[u8]) {
    let [kind, low, high, source @ ..] = data else { return };
    let mut target = vec![0xEE; 8 * usize::from(u16::from_le_bytes([*low, *high])).min(1 << 14)];
    let _ = kernels::decompress(KINDS[usize::from(*kind) % KINDS.len()], source, &mut target);
}

pub fn decompress_seeds() -> Vec<Vec<u8>> {
    let plain: Vec<u8> = (0..8192u32).map(|at| if at % 512 < 300 { 0 } else { ((at * at) >> 7) as u8 }).collect();
    let mut seeds = Vec::new();
    for (index, kind) in KINDS.into_iter().enumerate() {
        let mut packed = vec![0; plain.len()];
        let Some(length) = kernels::compress(kind, 3, &plain, &mut packed) else { continue };
        packed.truncate(length);
        let units = (plain.len() / 8) as u16;
        seeds.push([&[index as u8][..], &units.to_le_bytes(), &packed].concat());
    }
    seeds
}
