//! Lists that OpenZFS 2.3.2 packed: what we read must be what its own tools show, and what we pack must be the same bytes.
//!
//! `*.nvlist` is the config area of a label and `*.txt` what `zdb -l` printed of it; `every-type.*` came from libnvpair's `nvlist_pack`.

use nvlist::{Byte, Bytes, Encoding, HrTime, NvList, NvString};

macro_rules! label {
    ($name:literal) => {
        ($name, include_bytes!(concat!("data/", $name, ".nvlist")).as_slice(), include_str!(concat!("data/", $name, ".txt")))
    };
}

#[test]
fn labels_are_read_as_zdb_reads_them() {
    for (name, packed, text) in [label!("stripe1"), label!("raidz2"), label!("v28"), label!("classes"), label!("ashift13")] {
        let list = NvList::decode(packed).expect(name);
        assert_eq!(list.dump(4), text, "{name}");
    }
}

#[test]
fn labels_are_packed_to_the_same_bytes() {
    for (name, packed, _) in [label!("stripe1"), label!("raidz2"), label!("v28"), label!("classes"), label!("ashift13")] {
        let (list, used) = NvList::decode_prefix(packed).expect(name);
        assert_eq!(list.encode(Encoding::Xdr), packed[..used], "{name}");
    }
}

fn every_type() -> NvList {
    let inner = NvList::new().with("guid", 7u64).with("path", "/dev/sda");
    let mut list = NvList::new();
    list.add_boolean("present");
    list.add("byte", Byte(100)).add("i16", -3i16).add("u16", 65_000u16).add("i32", -70_000i32).add("u32", 4_000_000_000u32);
    list.add("i64", i64::MIN).add("u64", u64::MAX).add("text", "täxt").add("bytes", Bytes(vec![1, 2, 3, 4, 5]));
    list.add("i16s", vec![-1i16, 2]).add("u16s", vec![1u16, 2, 3]).add("i32s", vec![-1i32]).add("u32s", vec![9u32, 8]);
    list.add("i64s", vec![-1i64, 1]).add("u64s", vec![1u64, 2, 3]).add("texts", vec![NvString::from("a"), NvString::from("bcd")]);
    list.add("time", HrTime(12_345)).add("list", inner.clone()).add("lists", vec![inner.clone(), NvList::with_flags(0), inner]);
    list.add("yes", true).add("i8", 100i8).add("u8", 100u8).add("bools", vec![true, false]).add("i8s", vec![2i8, 1]);
    list.add("u8s", vec![1u8, 2, 3]).add("double", 1.5f64);
    list
}

#[test]
fn every_type_is_packed_as_libnvpair_packs_it() {
    let list = every_type();
    let (xdr, native) = (include_bytes!("data/every-type.xdr").as_slice(), include_bytes!("data/every-type.native").as_slice());
    assert_eq!(NvList::decode(xdr).as_ref(), Ok(&list));
    assert_eq!(list.encode(Encoding::Xdr), xdr);
    assert_eq!(NvList::decode(native).as_ref(), Ok(&list));
    assert_eq!(list.encode(Encoding::NativeLittle), native);
}
