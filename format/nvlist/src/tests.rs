//! Lists that lose a pair, an order or a flag make a pool that OpenZFS cannot import; lists that panic lose the whole process.

use super::*;

fn every_type() -> NvList {
    let inner = NvList::new().with("guid", 7u64).with("path", "/dev/sda");
    let mut list = NvList::new();
    list.add_boolean("present");
    list.add("byte", Byte(200)).add("i16", -3i16).add("u16", 65_000u16).add("i32", -70_000i32).add("u32", 4_000_000_000u32);
    list.add("i64", i64::MIN).add("u64", u64::MAX).add("text", "täxt").add("bytes", Bytes(vec![1, 2, 3, 4, 5]));
    list.add("i16s", vec![-1i16, 2]).add("u16s", vec![1u16, 2, 3]).add("i32s", vec![-1i32]).add("u32s", vec![9u32, 8]);
    list.add("i64s", vec![-1i64, 1]).add("u64s", vec![1u64, 2, 3]).add("texts", vec![NvString::from("a"), NvString::from("bcd")]);
    list.add("time", HrTime(12_345)).add("list", inner.clone()).add("lists", vec![inner.clone(), NvList::with_flags(0), inner]);
    list.add("yes", true).add("i8", -100i8).add("u8", 200u8).add("bools", vec![true, false]).add("i8s", vec![-1i8, 1]);
    list.add("u8s", vec![1u8, 2, 3]).add("double", 1.5f64).add("none", Vec::<u64>::new());
    list.add(&[b'x', 0xFF][..], Bytes(vec![0; 9]));
    list
}

#[test]
fn packing_keeps_every_pair() {
    for encoding in [Encoding::Xdr, Encoding::NativeLittle] {
        let list = every_type();
        let packed = list.encode(encoding);
        let (back, used) = NvList::decode_prefix(&packed).expect("own packing");
        assert_eq!(back, list, "{encoding:?}");
        assert_eq!(used, packed.len());
    }
}

#[test]
fn every_truncation_is_an_error() {
    for encoding in [Encoding::Xdr, Encoding::NativeLittle] {
        let packed = every_type().encode(encoding);
        for end in 0..packed.len() {
            assert!(NvList::decode(&packed[..end]).is_err(), "{encoding:?} cut at {end}");
        }
    }
}

#[test]
fn every_flipped_byte_is_survived() {
    for encoding in [Encoding::Xdr, Encoding::NativeLittle] {
        let packed = every_type().encode(encoding);
        for at in 0..packed.len() {
            for flip in [1u8, 0x80, 0xFF] {
                let mut bad = packed.clone();
                bad[at] ^= flip;
                // Whatever is accepted must pack again to something that is accepted.
                if let Ok(list) = NvList::decode(&bad) {
                    let again = NvList::decode(&list.encode(Encoding::Xdr)).expect("re-packed");
                    assert_eq!(again.len(), list.len());
                }
            }
        }
    }
}

#[test]
fn deep_nesting_is_refused_not_overflowed() {
    let mut list = NvList::new();
    for _ in 0..DEPTH_MAX + 1 {
        list = NvList::new().with("a", list);
    }
    for encoding in [Encoding::Xdr, Encoding::NativeLittle] {
        assert_eq!(NvList::decode(&list.encode(encoding)), Err(DecodeError::Depth));
    }
}

/// The bytes that OpenZFS's libnvpair packs for {"txg": uint64 5, "name": "ab"}.
#[test]
fn xdr_bytes_are_the_standards() {
    let list = NvList::new().with("txg", 5u64).with("name", "ab");
    let expect: Vec<u8> = [
        &[1u8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..],
        &[0, 0, 0, 32, 0, 0, 0, 32, 0, 0, 0, 3, b't', b'x', b'g', 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5],
        &[0, 0, 0, 32, 0, 0, 0, 32, 0, 0, 0, 4, b'n', b'a', b'm', b'e', 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, b'a', b'b', 0, 0],
        &[0; 8],
    ]
    .concat();
    assert_eq!(list.encode(Encoding::Xdr), expect);
}

#[test]
fn big_endian_native_is_read() {
    // {"a": uint64 258} as a big-endian machine packs it.
    let packed = [
        &[0u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..],
        &[0, 0, 0, 32, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8, b'a', 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(NvList::decode(&packed), Ok(NvList::new().with("a", 258u64)));
}

#[test]
fn erased_space_is_no_list() {
    assert_eq!(NvList::decode(&[0; 4096]), Err(DecodeError::Blank));
    let empty = NvList::with_flags(0);
    assert_eq!(NvList::decode(&empty.encode(Encoding::NativeLittle)), Ok(empty));
}

#[test]
fn unique_names_replace_and_others_do_not() {
    let mut unique = NvList::new();
    unique.add("a", 1u64).add("b", 2u64).add("a", 3u64);
    assert_eq!((unique.len(), unique.get_u64("a")), (2, Some(3)));
    let mut free = NvList::with_flags(0);
    free.add("a", 1u64).add("a", 3u64);
    assert_eq!((free.len(), free.get_u64("a")), (2, Some(3)));
    let mut placed = NvList::new().with("a", 1u64).with("b", 2u64);
    placed.set("a", 9u64);
    assert_eq!(placed.iter().next().map(|(name, _)| name.to_string()), Some("a".to_owned()));
}

#[test]
fn shown_as_zdb_shows() {
    let list = NvList::new()
        .with("version", 5000u64)
        .with("name", "tank")
        .with("vdev_tree", NvList::new().with("children", vec![NvList::new().with("id", 0u64)]))
        .with("flags", vec![1u64, 2]);
    assert_eq!(
        list.dump(4),
        "    version: 5000\n    name: 'tank'\n    vdev_tree:\n        children[0]:\n            id: 0\n    flags[0]: 1\n    flags[1]: 2\n"
    );
}

#[test]
fn a_listing_is_what_programs_look_for_in_openzfs_s_output() {
    let mut list = NvList::new().with("object", 16u64).with("toname", "tank@a").with("in", NvList::new().with("x", vec![1u64, 255]));
    list.add_boolean("largeblockok");
    let expected = "nvlist version: 0\n\tobject = 0x10\n\ttoname = tank@a\n\tin = (embedded nvlist)\n\tnvlist version: 0\n\
                    \t\tx = 0x1 0xff\n\t(end in)\n\n\tlargeblockok = 1\n";
    assert_eq!(list.listing(), expected);
}
