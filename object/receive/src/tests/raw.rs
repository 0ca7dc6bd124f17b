//! Raw streams: what is encrypted arrives without a key, and is with its key what was sent; what they must go on from; keys that changed meanwhile.

use super::both_ways::{COPY, SOURCE, change, facts, in_pieces, sent};
use super::{head, pool_with, receive, stream_of};
use crate::{ReceiveError, Target};
use device::MemDevice;
use dsl::{CreateDataset, DslError, PropValue, TxSpace};
use exec::SplitMix;
use ondisk::{Compression, ObjsetType};
use pool::Pool;
use send::{Base, SendOptions, Sending};
use std::sync::Arc;
use stream::{Begin, Features, ObjectRange, Reader, Record, Spill, Writer};

/// Key of everything that is encrypted here.
const KEY: [u8; 32] = [7; 32];

fn pool(is_encrypted: bool) -> Pool {
    pool_with(&Arc::new(MemDevice::new("d0", 80 << 20)), is_encrypted)
}

fn raw() -> SendOptions {
    SendOptions { raw: true, ..SendOptions::default() }
}

fn target(snapshot: &str) -> Target {
    Target { name: COPY.to_string(), snapshot: snapshot.to_string(), ..Target::default() }
}

/// Makes the dataset that is sent.
fn create(pool: &Pool, properties: &[(&str, &str)]) {
    let properties = properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let new = CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) };
    pool.dsl().create_dataset(SOURCE, new).expect("created");
}

/// Changes the dataset that is sent at random, and takes a snapshot.
fn go_on(pool: &Pool, random: &mut SplitMix, snapshot: &str) {
    let handle = pool.dsl().hold(SOURCE).expect("held");
    let objset = handle.objset().expect("an object set");
    for _ in 0..20 {
        let tx = handle.assign(TxSpace::Writes(8 << 20)).expect("assigned");
        change(&objset, random, &tx);
        drop(tx);
        if random.chance(3) {
            pool.sync().expect("synced");
        }
    }
    drop((objset, handle));
    pool.dsl().snapshot(&[format!("{SOURCE}@{snapshot}")], Vec::new()).expect("taken");
}

/// Compares a snapshot here and there; both keys are loaded.
fn compare(source: &Pool, copy: &Pool, snapshot: &str) {
    let (expected, found) = (facts(source, &format!("{SOURCE}@{snapshot}")), facts(copy, &format!("{COPY}@{snapshot}")));
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "{snapshot}: objects");
    for (object, facts) in &expected {
        assert!(facts == &found[object], "{snapshot}: object {object} of type {:?} is another one", facts.0);
    }
}

fn refused(pool: &Pool, stream: &[u8], target: &Target) -> DslError {
    match receive(pool, stream, target) {
        Err(ReceiveError::Dsl(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// If this fails, a backup at a place that nobody trusts with the key cannot be read once it is brought back, or lacks something.
#[test]
fn what_came_raw_is_the_same_with_its_key() {
    for (seed, suite) in ["aes-256-gcm", "aes-128-ccm"].into_iter().enumerate() {
        let (source, copy, mut random) = (pool(true), pool(seed & 1 != 0), SplitMix::new(seed as u64 + 10));
        create(&source, &[("compression", "lz4"), ("encryption", suite)]);
        let mut before: Option<String> = None;
        for round in 0..6 {
            let name = format!("s{round}");
            go_on(&source, &mut random, &name);
            if random.chance(2) {
                in_pieces(&source, &copy, (before.as_deref(), &name), &raw(), &mut random);
            } else {
                let stream = sent(&source, before.as_deref(), &name, raw());
                receive(&copy, &stream, &target(&name)).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            }
            let prop = |name: &str| copy.dsl().hold(COPY).expect("held").prop(name).expect("known").value;
            assert_eq!(prop("encryptionroot"), PropValue::Text(COPY.to_string()));
            // Now and then it stays loaded.
            if prop("keystatus") == PropValue::Text("unavailable".to_string()) {
                assert_eq!(copy.dsl().hold(COPY).expect("held").objset().map(drop), Err(DslError::NoKey));
                copy.dsl().load_key(COPY, &KEY, false).expect("the key of where it came from");
            }
            compare(&source, &copy, &name);
            if random.chance(2) {
                copy.dsl().unload_key(COPY).expect("nobody uses it");
            }
            before = Some(name);
        }
        copy.sync().expect("synced");
        assert!(copy.verify_space().expect("readable").is_clean(), "seed {seed}");
    }
}

/// Raw stream that goes on from a bookmark.
fn since_bookmark(pool: &Pool, from: &str, to: &str) -> Vec<u8> {
    let to = pool.dsl().hold(&format!("{SOURCE}@{to}")).expect("held");
    let bookmark = pool.dsl().bookmarks(SOURCE).expect("listed").into_iter().find(|bookmark| bookmark.name == from).expect("it is there");
    let base = Base::bookmark(&to, SOURCE, &bookmark).expect("an earlier one");
    let mut writer = Writer::new(Vec::new());
    Sending::new(to, Some(base), raw()).expect("it can be sent").run(&mut writer).expect("sent");
    writer.into_sink()
}

/// If this fails, a copy that somebody wrote to, with its key, cannot be brought back to what is sent, or what came later is lost where only a bookmark
/// is left of what it goes on from.
#[test]
fn a_copy_that_was_written_to_goes_back() {
    let (source, copy, mut random) = (pool(true), pool(false), SplitMix::new(20));
    create(&source, &[]);
    go_on(&source, &mut random, "a");
    receive(&copy, &sent(&source, None, "a", raw()), &target("a")).expect("received");
    copy.dsl().load_key(COPY, &KEY, false).expect("loaded");
    {
        let handle = copy.dsl().hold(COPY).expect("held");
        let objset = handle.objset().expect("an object set");
        for _ in 0..10 {
            let tx = handle.assign(TxSpace::Writes(8 << 20)).expect("assigned");
            change(&objset, &mut random, &tx);
        }
    }
    copy.sync().expect("synced");
    copy.dsl().snapshot(&[format!("{COPY}@mine")], Vec::new()).expect("taken");
    go_on(&source, &mut random, "b");
    source.dsl().create_bookmark(&format!("{SOURCE}#a"), &format!("{SOURCE}@a")).expect("made");
    source.dsl().destroy_snapshots(&[format!("{SOURCE}@a")], false).expect("destroyed");
    let stream = since_bookmark(&source, "a", "b");
    assert_eq!(refused(&copy, &stream, &target("b")), DslError::Modified);
    receive(&copy, &stream, &Target { force: true, ..target("b") }).expect("received by force");
    compare(&source, &copy, "b");
    copy.sync().expect("synced");
    assert!(copy.verify_space().expect("readable").is_clean());
}

/// If this fails, blocks of two datasets, or two ways of encrypting one, are mixed: nobody can read them any more.
#[test]
fn raw_streams_go_on_from_what_they_were_made_from() {
    let (source, mut random) = (pool(true), SplitMix::new(30));
    create(&source, &[]);
    for name in ["a", "b", "c"] {
        go_on(&source, &mut random, name);
    }
    let plain = |from: Option<&str>, to: &str| sent(&source, from, to, SendOptions::default());
    let (first, second, third) =
        (sent(&source, None, "a", raw()), sent(&source, Some("a"), "b", raw()), sent(&source, Some("b"), "c", raw()));
    let open = pool(false);
    receive(&open, &plain(None, "a"), &target("a")).expect("received");
    assert_eq!(refused(&open, &second, &target("b")), DslError::NotEncrypted);
    let own = pool(true);
    receive(&own, &plain(None, "a"), &target("a")).expect("received");
    assert_eq!(refused(&own, &second, &target("b")), DslError::OtherKeys);
    let copy = pool(false);
    receive(&copy, &first, &target("a")).expect("received");
    assert_eq!(refused(&copy, &plain(Some("a"), "b"), &target("b")), DslError::NoKey, "what is no raw stream is encrypted here");
    copy.dsl().load_key(COPY, &KEY, false).expect("loaded");
    receive(&copy, &plain(Some("a"), "b"), &target("b")).expect("received");
    assert_eq!(refused(&copy, &third, &target("c")), DslError::OtherIvSet);
    let force = |name| Target { force: true, ..target(name) };
    assert_eq!(refused(&copy, &first, &force("d")), DslError::Encrypted, "keys of what is there would go with it");
    assert_eq!(refused(&open, &first, &force("d")), DslError::Encrypted);
    let silent = Begin { flags: 0, ..head(0, 0xB, Features::RAW) };
    let elsewhere = Target { name: "tank/other".to_string(), ..target("b") };
    assert!(matches!(receive(&open, &stream_of(silent, None, &[]), &elsewhere), Err(ReceiveError::Unsupported(_))));
    for records in [Vec::new(), vec![(Record::ObjectRange(ObjectRange::default()), Vec::new())]] {
        let bytes = stream_of(head(0, 0xB, Features::RAW), None, &records);
        assert!(matches!(receive(&open, &bytes, &elsewhere), Err(ReceiveError::Invalid(_))), "it has no keys");
    }
    assert!(copy.verify_space().expect("readable").is_clean());
}

/// Stream with a spill block of so many bytes behind its first object.
fn with_spill(stream: &[u8], length: u64) -> Vec<u8> {
    let (mut reader, mut payload) = (Reader::new(stream), Vec::new());
    let (mut writer, mut is_there) = (Writer::new(Vec::new()), false);
    while let Some(record) = reader.read_record(&mut payload).expect("a stream") {
        let spill = match &record {
            Record::Object(object) if !is_there => Some((object.object, object.bonustype)),
            _ => None,
        };
        let written = match record {
            Record::Begin(begin) => writer.begin_packed(begin, &payload),
            Record::End(end) => writer.end(end.toguid),
            record => writer.record(&record, &payload),
        };
        written.expect("memory takes all");
        if let Some((object, kind)) = spill {
            let compressiontype = Compression::LZ4.0;
            let spill = Spill { object, kind, length, compressiontype, compressed_size: 512, ..Spill::default() };
            writer.record(&Record::Spill(spill), &[0; 512]).expect("memory takes all");
            is_there = true;
        }
    }
    writer.into_sink()
}

/// If this fails, a stream that somebody made up ends the process that receives it, or is told off for a pool that is too small.
#[test]
fn lengths_of_spill_blocks_are_not_believed() {
    let (source, mut random) = (pool(true), SplitMix::new(60));
    create(&source, &[]);
    go_on(&source, &mut random, "a");
    let whole = sent(&source, None, "a", raw());
    for length in [1 << 40, u64::MAX - 511] {
        let copy = pool(false);
        let outcome = receive(&copy, &with_spill(&whole, length), &target("a"));
        assert!(matches!(outcome, Err(ReceiveError::Invalid(_))), "{length}: {outcome:?}");
        copy.sync().expect("synced");
        assert!(copy.verify_space().expect("readable").is_clean());
    }
}

/// Properties of a key of 32 bytes.
fn keyed() -> Vec<(String, String)> {
    vec![("keyformat".to_string(), "raw".to_string())]
}

/// If this fails, a copy asks for a key that was given up where it comes from, or one that got another user's key here can never be opened again.
#[test]
fn keys_follow_those_of_the_source_unless_they_are_others_here() {
    let (source, mut random) = (pool(true), SplitMix::new(40));
    create(&source, &[]);
    go_on(&source, &mut random, "a");
    let first = sent(&source, None, "a", raw());
    source.dsl().change_key(SOURCE, keyed(), &[8; 32]).expect("changed");
    go_on(&source, &mut random, "b");
    let second = sent(&source, Some("a"), "b", raw());
    let copy = pool(false);
    receive(&copy, &first, &target("a")).expect("received");
    copy.dsl().load_key(COPY, &KEY, false).expect("loaded");
    receive(&copy, &second, &target("b")).expect("received");
    assert_eq!(copy.dsl().load_key(COPY, &KEY, false), Err(DslError::WrongKey), "the old key is not loaded any more");
    copy.dsl().load_key(COPY, &[8; 32], false).expect("the new one");
    compare(&source, &copy, "b");
    // Here everything has a key of this place.
    let own = pool(true);
    receive(&own, &first, &target("a")).expect("received");
    own.dsl().load_key(COPY, &KEY, false).expect("loaded");
    own.dsl().inherit_key(COPY).expect("it has the key of the pool");
    receive(&own, &second, &target("b")).expect("received");
    compare(&source, &own, "b");
    // And here one has a key of its own.
    let other = pool(false);
    receive(&other, &first, &target("a")).expect("received");
    other.dsl().load_key(COPY, &KEY, false).expect("loaded");
    other.dsl().change_key(COPY, keyed(), &[9; 32]).expect("changed");
    receive(&other, &second, &target("b")).expect("received");
    compare(&source, &other, "b");
    other.dsl().unload_key(COPY).expect("nobody uses it");
    other.dsl().load_key(COPY, &[9; 32], false).expect("its own key");
}

/// If this fails, each file system of a replica asks for a key of its own, or one gets a root whose key does not open it.
#[test]
fn what_had_the_key_of_another_one_has_it_again() {
    let (source, copy, mut random) = (pool(true), pool(false), SplitMix::new(50));
    create(&source, &[]);
    go_on(&source, &mut random, "a");
    let first = sent(&source, None, "a", raw());
    let at = |name: &str, snapshot: &str| Target { name: name.to_string(), ..target(snapshot) };
    for name in ["tank/top", "tank/top/below"] {
        receive(&copy, &first, &at(name, "a")).expect("received");
    }
    assert_eq!(copy.dsl().adopt_key("tank/top"), Err(DslError::OtherRoot), "nothing above is encrypted");
    assert_eq!(copy.dsl().adopt_key("tank/top/below"), Ok(()));
    let is_below = || Err(DslError::NotEncryptionRoot { root: "tank/top".to_string() });
    assert_eq!((copy.dsl().adopt_key("tank/top/below"), copy.dsl().load_key("tank/top/below", &KEY, false)), (is_below(), is_below()));
    go_on(&source, &mut random, "b");
    receive(&copy, &sent(&source, Some("a"), "b", raw()), &at("tank/top/below", "b")).expect("received");
    copy.dsl().load_key("tank/top", &KEY, false).expect("loaded");
    for (name, snapshot) in [("tank/top", "a"), ("tank/top/below", "a"), ("tank/top/below", "b")] {
        assert!(facts(&copy, &format!("{name}@{snapshot}")) == facts(&source, &format!("{SOURCE}@{snapshot}")), "{name}@{snapshot}");
    }
    // Another key there is another one here, of both.
    source.dsl().change_key(SOURCE, keyed(), &[8; 32]).expect("changed");
    go_on(&source, &mut random, "c");
    for (name, from) in [("tank/top", "a"), ("tank/top/below", "b")] {
        receive(&copy, &sent(&source, Some(from), "c", raw()), &at(name, "c")).expect("received");
    }
    copy.dsl().load_key("tank/top", &[8; 32], false).expect("the new one");
    for name in ["tank/top@c", "tank/top/below@c"] {
        assert!(facts(&copy, name) == facts(&source, &format!("{SOURCE}@c")), "{name}");
    }
}
