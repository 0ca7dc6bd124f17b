//! Arbitrary bytes and arbitrary values: a decoder that panics or runs away loses the process that owns every other pool.

use ondisk::*;

/// A small deterministic generator (xorshift64*): the seed is the test's name in numbers.
struct Bytes(u64);
impl Bytes {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn block(&mut self, bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes + 8);
        while out.len() < bytes {
            out.extend(self.next().to_le_bytes());
        }
        out.truncate(bytes);
        out
    }
    /// Mostly small numbers: they get further into a decoder than uniform ones.
    fn small(&mut self, bytes: usize) -> Vec<u8> {
        let mut out = self.block(bytes);
        for byte in &mut out {
            *byte = if *byte < 160 { 0 } else { *byte % 17 };
        }
        out
    }
}

#[test]
fn every_record_survives_both_byte_orders() {
    let mut random = Bytes(1);
    for record in RECORDS {
        for _ in 0..20 {
            let bytes = random.block(record.bytes);
            for order in [ByteOrder::Little, ByteOrder::Big] {
                assert_eq!((record.convert)(&bytes, order, order), bytes, "{} {order:?}", record.name);
                assert!((record.show)(&bytes, order).len() > record.name.len());
            }
            let swapped = (record.convert)(&bytes, ByteOrder::Little, ByteOrder::Big);
            assert_eq!((record.convert)(&swapped, ByteOrder::Big, ByteOrder::Little), bytes, "{}", record.name);
        }
    }
}

#[test]
fn what_decodes_as_a_dnode_encodes_to_itself() {
    let mut random = Bytes(2);
    let mut decoded = 0;
    for round in 0..4000 {
        let mut block = if round % 2 == 0 { random.block(4096) } else { random.small(4096) };
        // Half-plausible core so that a good part is accepted.
        (block[1], block[2], block[3]) = (12 + (block[1] % 7), 1 + block[2] % 13, block[3] % 4);
        (block[8], block[9], block[10], block[11]) = (block[8] | 1, 0, block[10], block[11] % 3);
        block[12] %= 9;
        let Ok(Some(dnode)) = DnodePhys::decode(&block) else { continue };
        decoded += 1;
        let mut out = vec![0xEE; dnode.slots() * DNODE_SLOT_BYTES];
        dnode.encode_into(&mut out).expect("what was decoded fits");
        assert_eq!(DnodePhys::decode(&out), Ok(Some(dnode)));
    }
    assert!(decoded > 100, "{decoded} dnodes were accepted");
}

#[test]
fn arbitrary_object_sets_are_errors_or_values() {
    let mut random = Bytes(3);
    for bytes in [0, 1, 511, 512, 1023, 1024, 1500, 2048, 4096, 4097] {
        for _ in 0..50 {
            if let Ok(objset) = ObjsetPhys::decode(&random.small(bytes)) {
                assert_eq!(objset.encode().map(|block| block.len()), Ok(bytes));
            }
        }
    }
}

#[test]
fn byte_swap_stays_inside_any_block_of_any_type() {
    let mut random = Bytes(4);
    for kind in 0..=255 {
        for bytes in [0, 1, 7, 8, 31, 48, 72, 88, 264, 320, 512, 1000, 1024, 4096, 16384] {
            let mut block = random.block(bytes);
            if kind % 3 == 0 && bytes >= 8 {
                block[..8].copy_from_slice(&[zap::ZBT_LEAF, zap::ZBT_MICRO, zap::ZBT_HEADER][kind as usize / 3 % 3].to_be_bytes());
            }
            byteswap_block(ObjectType(kind), 0, &mut block);
            byteswap_block(ObjectType(kind), 1, &mut block);
            assert_eq!(block.len(), bytes);
        }
    }
}

#[test]
fn arbitrary_space_maps_end() {
    let mut random = Bytes(5);
    for bytes in [0, 1, 8, 15, 16, 4096, 131_072] {
        let map = random.block(bytes);
        let entries: Vec<_> = SpaceMapEntries::new(&map).collect();
        assert!(entries.len() <= bytes / 8 + 1);
        assert!(entries.iter().rev().skip(1).all(Result::is_ok), "an error ends the map");
    }
}

#[test]
fn arbitrary_logs_end() {
    let mut random = Bytes(6);
    for _ in 0..500 {
        let mut block = random.small(4096);
        block[8] &= 0xF8;
        let records = zil::LogRecords::new(&block, ByteOrder::Little);
        assert!(records.count() <= 4096 / 32);
    }
}

#[test]
fn arbitrary_block_pointers_are_shown_and_judged() {
    let mut random = Bytes(7);
    let extent = |vdev: VdevId| match vdev.0 % 3 {
        0 => VdevExtent::Absent,
        1 => VdevExtent::Unknown,
        _ => VdevExtent::Known { asize: 1 << 40, gang_header_asize: 512 },
    };
    for round in 0..20_000 {
        let bytes = if round % 2 == 0 { random.block(128) } else { random.small(128) };
        let bp = BlockPtr::decode(&bytes.try_into().expect("128 bytes"), round % 3 == 0);
        assert!(!bp.to_string().is_empty());
        if bp.validate(extent).is_ok() {
            assert!(bp.lsize() <= BLOCK_BYTES_MAX && bp.embedded_payload().len() <= BLOCK_BYTES_MAX);
            assert!(bp.is_hole() || bp.dvas().all(|dva| dva.vdev.0 % 3 != 0));
        }
    }
}
