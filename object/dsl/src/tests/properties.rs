//! Properties with their sources, and the limits on space that they set.

use super::{TestPool, filesystem, with_props, write};
use crate::{DslError, PropSource, PropValue};
use ondisk::Compression;

fn set(pool: &TestPool, name: &str, property: &str, value: &str) -> Result<(), DslError> {
    pool.dsl.hold(name)?.set_props(&[(property.to_string(), value.to_string())])
}

fn get(pool: &TestPool, name: &str, property: &str) -> (PropValue, PropSource) {
    let entry = pool.dsl.hold(name).and_then(|handle| handle.prop(property)).expect("a property");
    (entry.value, entry.source)
}

fn text(value: &str) -> PropValue {
    PropValue::Text(value.to_string())
}

/// If this fails, whoever reads a pool's history is not told what counted since a property was inherited.
#[test]
fn the_history_tells_what_counts_since_a_property_is_inherited() {
    let pool = TestPool::create(61);
    let own = [("recordsize", "4K"), ("com.x:y", "w"), ("mountpoint", "/x")];
    pool.dsl.create_dataset("tank/a", with_props(&[("recordsize", "8K"), ("com.x:y", "z")])).expect("creates");
    pool.dsl.create_dataset("tank/a/b", with_props(&own)).expect("creates");
    for (property, text) in [("recordsize", "recordsize=8192"), ("com.x:y", "com.x:y=z"), ("mountpoint", "mountpoint=")] {
        pool.dsl.hold("tank/a/b").expect("holds").inherit_prop(property).expect("inherits");
        let told = pool.services.events.lock().last().map(|event| format!("{} {} {}", event.name, event.dataset, event.text));
        assert_eq!(told, Some(format!("inherit tank/a/b {text}")));
    }
}

/// A property must come from where `zfs get` says, also after a restart.
#[test]
fn values_are_inherited_with_their_source() {
    let pool = TestPool::create(4);
    pool.dsl.create_dataset("tank/a", with_props(&[("compression", "zstd-7"), ("com.x:y", "z")])).expect("creates");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("creates");
    let from_a = PropSource::Inherited("tank/a".to_string());
    assert_eq!(get(&pool, "tank/a", "compression"), (text("zstd-7"), PropSource::Local));
    assert_eq!(get(&pool, "tank/a/b", "compression"), (text("zstd-7"), from_a.clone()));
    let objset = pool.dsl.hold("tank/a/b").and_then(|handle| handle.objset()).expect("opens");
    assert_eq!((objset.props().compression, objset.props().zstd_level), (Compression::ZSTD, 7));
    set(&pool, "tank/a", "compression", "off").expect("sets");
    assert_eq!(objset.props().compression, Compression::OFF, "open object sets follow at once");
    set(&pool, "tank/a", "mountpoint", "/mnt/x").expect("sets");
    assert_eq!(get(&pool, "tank/a/b", "mountpoint"), (text("/mnt/x/b"), from_a.clone()));
    assert_eq!(get(&pool, "tank", "mountpoint"), (text("/tank"), PropSource::Default));
    drop(objset);
    let pool = pool.reopen();
    assert_eq!(get(&pool, "tank/a/b", "com.x:y"), (text("z"), from_a));
    assert_eq!(get(&pool, "tank/a/b", "canmount"), (text("on"), PropSource::Default));
    pool.dsl.hold("tank/a").expect("holds").inherit_prop("compression").expect("inherits");
    assert_eq!(get(&pool, "tank/a", "compression"), (text("on"), PropSource::Default));
    set(&pool, "tank/a", "redundant_metadata", "some").expect("sets");
    assert_eq!(get(&pool, "tank/a", "redundant_metadata"), (text("some"), PropSource::Local));
    for (property, value, error) in [
        ("used", "1", DslError::ReadOnlyProperty),
        ("casesensitivity", "mixed", DslError::ReadOnlyProperty),
        ("nonsense", "1", DslError::BadProperty),
        ("recordsize", "3000", DslError::BadValue),
        ("dedup", "edonr", DslError::BadValue),
        ("dedup", "fletcher4", DslError::BadValue),
    ] {
        assert_eq!(set(&pool, "tank/a", property, value), Err(error), "{property}");
    }
    let snapshot =
        |name: &str, value: &str| pool.dsl.snapshot(&[format!("tank/a@{name}")], vec![("com.x:y".to_string(), value.to_string())]);
    let longest = "z".repeat(8191);
    assert_eq!((snapshot("long", &longest), set(&pool, "tank/a/b", "com.x:y", &longest)), (Ok(()), Ok(())));
    let longer = format!("{longest}z");
    assert_eq!((snapshot("longer", &longer), set(&pool, "tank/a", "com.x:y", &longer)), (Err(DslError::BadValue), Err(DslError::BadValue)));
    let names: Vec<String> =
        pool.dsl.hold("tank/a").and_then(|handle| handle.props()).expect("all").into_iter().map(|entry| entry.name).collect();
    assert_eq!(names[..3], ["type", "creation", "used"]);
    assert_eq!(names.last().map(String::as_str), Some("com.x:y"));
}

/// Quotas that do not hold let one user fill the pool.
#[test]
fn quotas_and_reservations_hold() {
    let pool = TestPool::create(5);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("creates");
    set(&pool, "tank/a", "quota", "16M").expect("sets");
    let fill = |name: &str| -> (u64, DslError) {
        for index in 0..1000u64 {
            if let Err(error) = write(&pool, name, 0, 0, &[1 + (index % 200) as u8; 100_000]) {
                return (index, error);
            }
        }
        (1000, DslError::NotFound)
    };
    assert_eq!(fill("tank/a/b").1, DslError::Quota);
    pool.drain();
    let used = pool.dsl.hold("tank/a").expect("holds").space().used;
    assert!((16 << 20..(16 << 20) + 300_000).contains(&used), "{used} bytes under a quota of 16 MiB");
    assert_eq!(set(&pool, "tank/a", "quota", "1M"), Err(DslError::NoSpace), "less than is used");
    set(&pool, "tank/a", "quota", "none").expect("sets");
    set(&pool, "tank/a/b", "refquota", "24M").expect("sets");
    assert_eq!(fill("tank/a/b").1, DslError::Quota);
    let before = pool.dsl.used_bytes();
    set(&pool, "tank/a", "reservation", "1G").expect("sets");
    assert!(pool.dsl.used_bytes() - before > 1 << 29, "a reservation counts as used above");
    pool.dsl.create_dataset("tank/c", with_props(&[("refreservation", "1G")])).expect("creates");
    pool.drain();
    let space = pool.dsl.hold("tank/c").expect("holds").space();
    assert_eq!(space.used, 1 << 30);
    assert_eq!(space.used_by_refreservation + space.used_by_dataset, 1 << 30);
    write(&pool, "tank/c", 0, 0, &[5; 300_000]).expect("writes");
    pool.drain();
    assert_eq!(pool.dsl.hold("tank/c").expect("holds").space().used, 1 << 30, "writes use up the reservation first");
    pool.dsl.snapshot(&["tank/c@s".to_string()], Vec::new()).expect("snapshots");
    let space = pool.dsl.hold("tank/c").expect("holds").space();
    assert_eq!(space.used_by_refreservation, 1 << 30, "the reservation is for what comes after the snapshot");
    pool.dsl.destroy_snapshots(&["tank/c@s".to_string()], false).expect("destroys");
    pool.drain();
    assert_eq!(pool.dsl.hold("tank/c").expect("holds").space().used, 1 << 30);
    pool.dsl.destroy_dataset("tank/c").expect("destroys");
    set(&pool, "tank/a", "reservation", "none").expect("sets");
    pool.services.space.lock().usable_bytes = (1 << 30) + pool.dsl.used_bytes() + 2_000_000;
    set(&pool, "tank/a/b", "refquota", "none").expect("sets");
    assert_eq!(fill("tank").1, DslError::NoSpace);
    pool.drain();
    let offered = pool.services.space.lock().usable_bytes - (1 << 30);
    assert!(pool.dsl.used_bytes() < offered + 300_000, "the pool's reserve is not for who writes much at once");
    pool.check();
}

/// If this fails, `zpool get feature@zstd_compress` says that nothing needs the feature while everything written from now on does.
#[test]
fn a_compression_that_needs_a_feature_makes_it_active_when_it_is_set() {
    use crate::PoolServices;
    let pool = TestPool::create(13);
    let refs = || pool.services.feature_refs(crate::features::ZSTD_COMPRESS);
    pool.dsl.create_dataset("tank/a", with_props(&[("compression", "zstd-3")])).expect("creates");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("creates");
    assert_eq!(refs(), 1, "once for the dataset that has it, not for those that inherit it");
    set(&pool, "tank", "compression", "zstd").expect("sets");
    set(&pool, "tank", "compression", "zstd-9").expect("sets");
    assert_eq!(refs(), 2);
    pool.check_features();
    pool.dsl.destroy_dataset("tank/a/b").expect("destroys");
    pool.dsl.destroy_dataset("tank/a").expect("destroys");
    assert_eq!(refs(), 1);
}

/// If this fails, a pool whose blocks only newer software can check is opened by software that takes all of them for damaged; or everything that has no such
/// block says that it does.
#[test]
fn salted_checksums_need_their_feature_and_are_told_by_it() {
    use crate::PoolServices;
    use crate::features::{BLAKE3, EDONR, SKEIN};
    const SALTED: [(&str, &str); 3] = [("skein", SKEIN), ("edonr", EDONR), ("blake3", BLAKE3)];
    let without = TestPool::create_without(dmu::testing::MemBlockIo::inline(3), &[SKEIN, EDONR, BLAKE3]);
    without.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    for (checksum, guid) in SALTED {
        let refused = set(&without, "tank/a", "checksum", checksum);
        assert_eq!(refused, Err(DslError::NeedsFeature(guid)), "{checksum}");
        let words = format!("the value needs feature@{checksum}, which is not enabled on the pool");
        assert_eq!(refused.map_err(|error| error.to_string()), Err(words));
        let new = with_props(&[("checksum", checksum)]);
        assert_eq!(without.dsl.create_dataset("tank/b", new), Err(DslError::NeedsFeature(guid)), "{checksum}");
    }
    let old = TestPool::create_without(dmu::testing::MemBlockIo::inline(3), &[crate::features::LZ4_COMPRESS]);
    assert_eq!(set(&old, "tank", "compression", "lz4"), Err(DslError::NeedsFeature(crate::features::LZ4_COMPRESS)));
    assert_eq!(set(&old, "tank", "compression", "on"), Ok(()), "what the pool has");
    let pool = TestPool::create(12);
    let refs = || SALTED.map(|(_, guid)| pool.services.feature_refs(guid));
    for (number, (checksum, _)) in SALTED.into_iter().enumerate() {
        let name = format!("tank/{checksum}");
        pool.dsl.create_dataset(&name, filesystem()).expect("creates");
        pool.sync();
        set(&pool, &name, "checksum", checksum).expect("sets");
        pool.drain();
        let count = |index: usize| u64::from(index < number);
        assert_eq!(refs(), [0, 1, 2].map(count), "{checksum}: nothing was written with it");
        write(&pool, &name, 0, 0, &[1; 512]).expect("writes");
        pool.sync();
        assert_eq!(refs()[number], 1, "{checksum}: a block has it");
    }
    pool.check_features();
    pool.dsl.destroy_dataset("tank/edonr").expect("destroys");
    pool.drain();
    assert_eq!(refs(), [1, 0, 1]);
}

/// OpenZFS steps from slot to slot in a dataset that does not say it has large dnodes, and trips over their inner slots: it could neither
/// send nor list the dataset.
#[test]
fn large_dnodes_are_told_by_the_feature() {
    use crate::PoolServices;
    use dmu::NewObject;
    use ondisk::ObjectType;
    let pool = TestPool::create(12);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let refs = || pool.services.feature_refs(crate::features::LARGE_DNODE);
    write(&pool, "tank/a", 0, 0, &[1; 512]).expect("writes");
    pool.sync();
    assert_eq!(refs(), 0, "an object of one slot needs no feature");
    let handle = pool.dsl.hold("tank/a").expect("holds");
    let tx = handle.assign(crate::TxSpace::Writes(512)).expect("room");
    let new = NewObject { slots: 4, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    handle.objset().and_then(|objset| Ok(objset.allocate_object(new, &tx)?)).expect("allocates");
    drop(tx);
    pool.sync();
    assert_eq!(refs(), 1);
    pool.check_features();
}

/// OpenZFS without the feature ends names at 255 bytes: it must see that a dataset has longer ones.
#[test]
fn long_names_are_told_by_the_feature() {
    use crate::PoolServices;
    let pool = TestPool::create(12);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let refs = || pool.services.feature_refs(crate::features::LONGNAME);
    write(&pool, "tank/a", 0, 0, &[1; 512]).expect("writes");
    pool.sync();
    assert_eq!(refs(), 0);
    pool.dsl.hold("tank/a").and_then(|handle| handle.objset()).expect("it opens").note_long_name();
    write(&pool, "tank/a", 0, 0, &[2; 512]).expect("writes");
    pool.sync();
    assert_eq!(refs(), 1);
    pool.check_features();
}

/// OpenZFS splits large blocks when it sends to where there are none, and would send a directory in pieces that nobody puts together.
#[test]
fn large_micro_zaps_are_told_by_the_feature() {
    use crate::PoolServices;
    use crate::features::{LARGE_BLOCKS, LARGE_MICROZAP};
    zap::set_micro_bytes_max(1 << 20);
    let pool = TestPool::create(12);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let refs = || [LARGE_MICROZAP, LARGE_BLOCKS].map(|guid| pool.services.feature_refs(guid));
    let add = |from: u64, to: u64, object: Option<ondisk::ObjectId>| {
        let handle = pool.dsl.hold("tank/a").expect("holds");
        let tx = handle.assign(crate::TxSpace::Writes(1 << 20)).expect("room");
        let objset = handle.objset().expect("it opens");
        let object = object.unwrap_or_else(|| zap::create(&objset, ondisk::ObjectType::DIRECTORY_CONTENTS, &tx).expect("a directory"));
        let directory = zap::Zap::hold(&objset, object).expect("opens");
        (from..to).for_each(|index| directory.add_u64(format!("{index}"), index, &tx).expect("added"));
        object
    };
    let object = add(0, 2047, None);
    pool.sync();
    assert_eq!(refs(), [0, 0], "128 KiB need no feature");
    add(2047, 2100, Some(object));
    pool.sync();
    assert_eq!(refs(), [1, 1]);
    pool.check_features();
}

/// If this fails, whoever deletes a file because the quota or the pool is full is told so again for the next seconds.
#[test]
fn what_is_being_freed_is_waited_for() {
    for limit in ["quota", "refquota", "pool"] {
        let pool = TestPool::create(7);
        pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
        pool.drain();
        match limit {
            "pool" => pool.services.space.lock().usable_bytes = (1 << 30) + pool.dsl.used_bytes() + 2_000_000,
            _ => set(&pool, "tank/a", limit, "2M").expect("sets"),
        }
        let mut objects = Vec::new();
        let refused = loop {
            match write(&pool, "tank/a", 0, 0, &[3; 200_000]) {
                Ok(object) => objects.push(object),
                Err(error) => break error,
            }
            assert!(objects.len() < 100, "{limit} holds nobody back");
        };
        assert_eq!(refused, if limit == "pool" { DslError::NoSpace } else { DslError::Quota });
        if limit == "pool" {
            assert_eq!(pool.dsl.create_dataset("tank/b", filesystem()), Err(DslError::NoSpace));
            assert_eq!(pool.dsl.snapshot(&["tank/a@s".to_string()], Vec::new()), Err(DslError::NoSpace));
            set(&pool, "tank/a", "com.x:y", "z").expect("what helps to tidy up works");
        }
        let handle = pool.dsl.hold("tank/a").expect("holds");
        let tx = handle.assign(crate::TxSpace::Frees).expect("freeing works when nothing else does");
        for object in objects.drain(..) {
            handle.objset().and_then(|objset| Ok(objset.free_object(ondisk::ObjectId(object), &tx)?)).expect("frees");
        }
        drop(tx);
        write(&pool, "tank/a", 0, 0, &[4; 200_000]).unwrap_or_else(|error| panic!("{limit}: {error} right after everything was freed"));
    }
}

/// Counts that `zfs get` shows, and by which OpenZFS holds users to their limits.
#[test]
fn file_systems_and_snapshots_are_counted_where_a_limit_was_set() {
    let pool = TestPool::create(9);
    for name in ["tank/a", "tank/a/b", "tank/a/b/c", "tank/z"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    let snapshot = |name: &str| pool.dsl.snapshot(&[name.to_string()], Vec::new()).expect("snapshots");
    snapshot("tank/a/b@1");
    let counts = |name: &str| ["filesystem_count", "snapshot_count"].map(|property| get(&pool, name, property).0);
    let count = |filesystems, snapshots| [PropValue::Count(filesystems), PropValue::Count(snapshots)];
    assert_eq!(counts("tank/a"), [text("none"), text("none")], "nobody asked for it");
    set(&pool, "tank/a", "snapshot_limit", "100").expect("sets");
    assert_eq!((counts("tank/a"), counts("tank/a/b"), counts("tank")), (count(2, 1), count(1, 1), [text("none"), text("none")]));
    pool.dsl.create_dataset("tank/a/b/d", filesystem()).expect("creates");
    snapshot("tank/a/b/d@1");
    snapshot("tank/a@1");
    assert_eq!((counts("tank/a"), counts("tank/a/b"), counts("tank/a/b/d")), (count(3, 3), count(2, 2), count(0, 1)));
    set(&pool, "tank/z", "filesystem_limit", "0").expect("sets");
    pool.dsl.rename("tank/a/b", "tank/z/b").expect("renames");
    assert_eq!((counts("tank/a"), counts("tank/z"), counts("tank/z/b")), (count(0, 1), count(3, 2), count(2, 2)));
    pool.dsl.destroy_snapshots(&["tank/z/b/d@1".to_string()], false).expect("destroys");
    pool.dsl.destroy_dataset("tank/z/b/d").expect("destroys");
    assert_eq!(counts("tank/z"), count(2, 1));
    let pool = pool.reopen();
    assert_eq!(get(&pool, "tank/z", "filesystem_count").0, PropValue::Count(2));
    pool.drain();
    pool.check();
}

/// If this fails, properties that come with a backup hide what was set here, or are lost when that is taken back.
#[test]
fn received_values_count_where_nothing_is_set() {
    let pool = TestPool::create(31);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("created");
    let handle = pool.dsl.hold("tank/a").expect("held");
    let received = |names: &[(&str, crate::ReceivedValue)]| {
        let values = names.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect();
        let refused = handle.receive_props(values, Vec::new()).expect("received");
        refused.into_iter().map(|(name, _)| name).collect::<Vec<String>>()
    };
    let (number, text) = (crate::ReceivedValue::Number, |text: &str| crate::ReceivedValue::Text(text.to_string()));
    let refused = received(&[("recordsize", number(8192)), ("org:tag", text("x")), ("used", number(7)), ("recordsize2", number(1))]);
    assert_eq!(refused, ["used", "recordsize2"]);
    assert_eq!(handle.prop_u64("recordsize").expect("known"), (8192, PropSource::Received));
    assert_eq!(handle.prop_text("org:tag").expect("known"), ("x".to_string(), PropSource::Received));
    handle.set_props(&[("recordsize".to_string(), "16K".to_string())]).expect("set");
    assert_eq!(handle.prop_u64("recordsize").expect("known"), (16384, PropSource::Local));
    handle.revert_prop("recordsize").expect("reverted");
    assert_eq!(handle.prop_u64("recordsize").expect("known"), (8192, PropSource::Received));
    handle.inherit_prop("recordsize").expect("inherited");
    assert_eq!(handle.prop_u64("recordsize").expect("known").1, PropSource::Default);
    assert_eq!(received(&[("recordsize", number(513))]), ["recordsize"], "a value that cannot be");
    assert_eq!(handle.prop_text("org:tag"), Err(DslError::NotFound), "what is not received again is gone");
}

/// If this fails, an encryption root forgets where its key comes from, or a limit goes without the words that take it away.
#[test]
fn what_is_a_dataset_s_own_is_not_inherited() {
    let pool = TestPool::create(38);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("created");
    let handle = pool.dsl.hold("tank/a").expect("held");
    for name in ["keylocation", "keyformat", "pbkdf2iters", "encryption", "version", "volsize"] {
        assert_eq!(
            (handle.inherit_prop(name), handle.revert_prop(name)),
            (Err(DslError::NotInherited), Err(DslError::NotInherited)),
            "{name}"
        );
    }
    for name in ["quota", "refreservation", "snapshot_limit", "canmount"] {
        assert_eq!((handle.inherit_prop(name), handle.revert_prop(name)), (Err(DslError::NotInherited), Ok(())), "{name}");
    }
    assert_eq!(handle.inherit_prop("used"), Err(DslError::ReadOnlyProperty));
}

/// If this fails, nobody sees what a backup's original had once something else is set here, and `zfs send -b` does not give it back.
#[test]
fn received_values_are_there_beneath_others() {
    let pool = TestPool::create(33);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("created");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("created");
    let handle = pool.dsl.hold("tank/a").expect("held");
    let values = [("org:tag", crate::ReceivedValue::Text("x".to_string())), ("recordsize", crate::ReceivedValue::Number(8192))];
    let values = values.map(|(name, value)| (name.to_string(), value)).to_vec();
    handle.receive_props(values.clone(), Vec::new()).expect("received");
    let shown = |name: &str| {
        let received = |property: &str| pool.dsl.hold(name).and_then(|handle| handle.prop(property)).expect("a property").received;
        [received("org:tag"), received("recordsize"), received("compression")]
    };
    let both = [Some(text("x")), Some(PropValue::Bytes(8192)), None];
    assert_eq!(shown("tank/a"), both);
    set(&pool, "tank/a", "recordsize", "16K").expect("set");
    set(&pool, "tank/a", "org:tag", "y").expect("set");
    assert_eq!(shown("tank/a"), both, "set here");
    handle.inherit_prop("recordsize").expect("inherited");
    assert_eq!(shown("tank/a"), both, "inherited");
    assert_eq!(handle.received_props().expect("read"), values);
    assert_eq!(shown("tank/a/b"), [None, None, None], "it was not received itself");
}

/// If this fails, `zfs receive -x` loses what the sender had, or a received quota holds back more, or less, than anybody can see.
#[test]
fn received_values_can_be_inherited_and_limits_follow_them() {
    let pool = TestPool::create(34);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("created");
    write(&pool, "tank/a", 0, 0, &[1; 300_000]).expect("writes");
    pool.drain();
    let handle = pool.dsl.hold("tank/a").expect("held");
    let receive = |values: &[(&str, u64)], inherited: &[&str]| {
        let values = values.iter().map(|(name, number)| ((*name).to_string(), crate::ReceivedValue::Number(*number))).collect();
        handle.receive_props(values, inherited.iter().map(|name| (*name).to_string()).collect()).expect("received")
    };
    assert!(receive(&[("recordsize", 8192)], &["recordsize"]).is_empty());
    assert_eq!(get(&pool, "tank/a", "recordsize"), (PropValue::Bytes(131_072), PropSource::Default));
    handle.revert_prop("recordsize").expect("reverted");
    assert_eq!(get(&pool, "tank/a", "recordsize"), (PropValue::Bytes(8192), PropSource::Received));
    set(&pool, "tank/a", "recordsize", "16K").expect("set");
    assert!(receive(&[("recordsize", 4096)], &["recordsize"]).is_empty());
    handle.revert_prop("recordsize").expect("reverted");
    assert_eq!(get(&pool, "tank/a", "recordsize"), (PropValue::Bytes(4096), PropSource::Received), "what is set is not marked");
    let too_little = ("quota".to_string(), DslError::NoSpace);
    let too_much = ("reservation".to_string(), DslError::NoSpace);
    assert_eq!(receive(&[("quota", 1000), ("reservation", 1 << 60)], &[]), [too_little, too_much]);
    pool.drain();
    assert!(receive(&[("quota", handle.space().used)], &[]).is_empty());
    assert_eq!(write(&pool, "tank/a", 0, 0, &[2; 200_000]), Err(DslError::Quota));
    assert!(receive(&[("quota", 0)], &[]).is_empty(), "none, as the sender has it");
    assert_eq!(get(&pool, "tank/a", "quota"), (PropValue::Limit(0), PropSource::Received));
    assert!(receive(&[], &[]).is_empty());
    write(&pool, "tank/a", 0, 0, &[3; 200_000]).expect("a quota that is not received again is gone");
}

/// If this fails, whoever may receive into a dataset takes off the quota that was received with it, without the permission to set one.
#[test]
fn received_values_that_are_kept_stay() {
    let pool = TestPool::create(36);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("created");
    let handle = pool.dsl.hold("tank/a").expect("held");
    write(&pool, "tank/a", 0, 0, &[1; 300_000]).expect("writes");
    pool.drain();
    let used = handle.space().used;
    let number = |name: &str, number: u64| (name.to_string(), crate::ReceivedValue::Number(number));
    assert_eq!(handle.receive_props(vec![number("quota", used), number("recordsize", 8192)], Vec::new()), Ok(Vec::new()));
    assert_eq!(handle.receive_props_beside(Vec::new(), Vec::new(), vec!["quota".to_string()]), Ok(Vec::new()));
    assert_eq!(get(&pool, "tank/a", "quota"), (PropValue::Limit(used), PropSource::Received));
    assert_eq!(get(&pool, "tank/a", "recordsize"), (PropValue::Bytes(131_072), PropSource::Default));
    assert_eq!(write(&pool, "tank/a", 0, 0, &[2; 200_000]), Err(DslError::Quota));
}

/// If this fails, what users tagged a dataset or snapshot with is on disk after a receive, but nobody sees it and no stream sends it on.
#[test]
fn received_user_properties_are_listed() {
    let pool = TestPool::create(32);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("created");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("created");
    pool.dsl.snapshot(&["tank/a@s".to_string()], Vec::new()).expect("snapshots");
    let receive = |name: &str, property: &str| {
        let values = vec![(property.to_string(), crate::ReceivedValue::Text("x".to_string()))];
        pool.dsl.hold(name).and_then(|handle| handle.receive_props(values, Vec::new())).expect("received")
    };
    assert!(receive("tank/a", "org:tag").is_empty() && receive("tank/a@s", "org:mark").is_empty());
    let listed = |name: &str| -> Vec<(String, PropSource)> {
        let all = pool.dsl.hold(name).and_then(|handle| handle.props()).expect("listed");
        all.into_iter().filter(|entry| entry.name.contains(':')).map(|entry| (entry.name, entry.source)).collect()
    };
    let (tag, from_a) = ("org:tag".to_string(), PropSource::Inherited("tank/a".to_string()));
    assert_eq!(listed("tank/a"), [(tag.clone(), PropSource::Received)]);
    assert_eq!(listed("tank/a/b"), [(tag.clone(), from_a.clone())]);
    assert_eq!(listed("tank/a@s"), [("org:mark".to_string(), PropSource::Received), (tag, from_a)]);
}
