//! Redacted streams: what they leave out is known to be lacking, until a stream brings it that knows what was left out.

use super::*;
use dsl::Redaction;
use send::{SendOptions, Sending};
use stream::{Redact, token};

/// Snapshots by which the streams are redacted.
const BY: [u64; 2] = [11, 12];

fn redact(number: u64, offset: u64, length: u64) -> (Record, Vec<u8>) {
    (Record::Redact(Redact { object: number, offset, length, toguid: 0 }), Vec::new())
}

fn list(name: &str, guids: &[u64]) -> NvList {
    NvList::new().with(name, guids.to_vec())
}

/// A full stream without the second block of object 5.
fn lacking() -> Vec<u8> {
    let mut records = full();
    records[4] = redact(5, BLOCK as u64, BLOCK as u64);
    stream_of(head(0, 0xA, Features::REDACTED), Some(&list("redact_snaps", &BY)), &records)
}

/// A pool with tank/fs@a, which lacks a block.
fn pool_that_lacks() -> Pool {
    let pool = pool();
    receive(&pool, &lacking(), &target("a")).expect("received");
    pool
}

fn redacted_by(pool: &Pool, name: &str) -> Option<Vec<u64>> {
    pool.dsl().hold(name).expect("held").redacted_by().expect("readable")
}

/// Datasets that are counted as redacted.
fn count(pool: &Pool) -> u64 {
    pool.features().iter().find(|(name, ..)| *name == "redacted_datasets").and_then(|(_, _, count)| *count).expect("enabled")
}

/// If this fails, holes are taken for what a file has.
#[test]
fn what_lacks_something_says_so() {
    let pool = pool_that_lacks();
    assert_eq!(contents(&pool, "tank/fs")[0].3[..3 * BLOCK], [[0xA1u8; BLOCK], [0; BLOCK], [0; BLOCK]].concat());
    for name in ["tank/fs", "tank/fs@a"] {
        assert_eq!(redacted_by(&pool, name), Some(BY.to_vec()), "{name}");
        let value = pool.dsl().hold(name).expect("held").prop("redact_snaps").expect("a property").value;
        assert_eq!(value, dsl::PropValue::Text("11,12".to_string()), "{name}");
    }
    assert_eq!(count(&pool), 2);
    pool.dsl().clone_snapshot("tank/clone", "tank/fs@a", Vec::new()).expect("cloned");
    pool.dsl().snapshot(&["tank/clone@b".to_string()], Vec::new()).expect("taken");
    assert_eq!((redacted_by(&pool, "tank/clone@b"), count(&pool)), (Some(BY.to_vec()), 4), "all that comes of it lacks the same");
    pool.dsl().create_bookmark("tank/fs#m", "tank/fs@a").expect("made");
    let marks = pool.dsl().bookmarks("tank/fs").expect("listed");
    assert_eq!(marks[0].redaction, Some(Redaction { snapshots: BY.to_vec(), is_whole: true, runs: 0 }));
    for name in ["tank/clone@b", "tank/fs@a"] {
        if name == "tank/fs@a" {
            pool.dsl().destroy_dataset("tank/clone").expect("destroyed");
        }
        pool.dsl().destroy_snapshots(&[name.to_string()], false).expect("destroyed");
    }
    assert_eq!(count(&pool), 1);
    check(&pool);
}

/// If this fails, a stream goes on from a block that is not there, and what comes of it is neither the one nor the other.
#[test]
fn only_streams_that_bring_what_is_lacking_go_on_from_it() {
    let next = |to, features, list: Option<NvList>| stream_of(head(0xA, to, features), list.as_ref(), &increment());
    let redacted = |guids: &[u64]| next(0xE, Features::REDACTED, Some(list("redact_snaps", guids)));
    let from = |guids: &[u64]| next(0xE, Features::default(), Some(list("redact_from_snaps", guids)));
    let fits: [(Vec<u8>, Option<Vec<u64>>); 4] =
        [(next(12, Features::default(), None), None), (from(&[12]), None), (from(&BY), None), (redacted(&[12]), Some(vec![12]))];
    for (index, (stream, left)) in fits.iter().enumerate() {
        let pool = pool_that_lacks();
        receive(&pool, stream, &target("b")).unwrap_or_else(|error| panic!("{index}: {error}"));
        assert_eq!((redacted_by(&pool, "tank/fs"), redacted_by(&pool, "tank/fs@b")), (left.clone(), left.clone()), "{index}");
        assert_eq!(redacted_by(&pool, "tank/fs@a"), Some(BY.to_vec()), "the older one stays what it was");
        assert_eq!(count(&pool), 1 + 2 * u64::from(left.is_some()));
        pool.dsl().destroy_snapshots(&["tank/fs@b".to_string()], false).expect("destroyed");
        pool.dsl().rollback("tank/fs@a").expect("goes back");
        assert_eq!((redacted_by(&pool, "tank/fs"), count(&pool)), (Some(BY.to_vec()), 2), "{index}");
        check(&pool);
    }
    let pool = pool_that_lacks();
    for stream in [next(0xE, Features::default(), None), redacted(&[12, 13]), redacted(&[11, 12, 13]), from(&[13])] {
        match receive(&pool, &stream, &target("b")) {
            Err(ReceiveError::Dsl(DslError::Redacted)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(receive(&pool, &next(0xE, Features::REDACTED, None), &target("b")), Err(ReceiveError::Invalid(_))));
    assert_eq!((snapshots(&pool), count(&pool)), (vec!["a".to_string()], 2));
    check(&pool);
}

/// If this fails, whoever sends a stream to a pool stops it, or says of nothing that it brings what is lacking.
#[test]
fn lists_that_cannot_be_kept_are_refused() {
    let pool = pool();
    let long: Vec<u64> = (1001..=2025).collect();
    let by = stream_of(head(0, 0xA, Features::REDACTED), Some(&list("redact_snaps", &long)), &full());
    let from = stream_of(head(0, 0xA, Features::default()), Some(&list("redact_from_snaps", &long)), &full());
    for (stream, resumable) in [(by, false), (from, true)] {
        match receive(&pool, &stream, &Target { resumable, ..target("a") }) {
            Err(ReceiveError::Dsl(DslError::TooManySnapshots)) => {}
            other => panic!("{other:?}"),
        }
    }
    let most = stream_of(head(0, 0xA, Features::REDACTED), Some(&list("redact_snaps", &long[1..])), &full());
    receive(&pool, &most, &target("a")).expect("received");
    assert_eq!(redacted_by(&pool, "tank/fs@a"), Some(long[1..].to_vec()));
    let next = stream_of(head(0xA, 0xE, Features::default()), Some(&list("redact_from_snaps", &[])), &increment());
    assert!(matches!(receive(&pool, &next, &target("b")), Err(ReceiveError::Dsl(DslError::Redacted))));
    check(&pool);
}

/// If this fails, a redacted stream that broke off goes on whole, or cannot go on at all.
#[test]
fn a_token_says_by_what_a_stream_is_redacted() {
    let pool = pool();
    let stream = lacking();
    let kept = Target { resumable: true, ..target("a") };
    assert!(receive(&pool, &stream[..stream.len() - 400], &kept).is_err(), "it breaks off");
    let state = pool.dsl().resume_state("tank/fs").expect("readable").expect("kept");
    let token = token::decode(&state.token()).expect("a token");
    assert_eq!(token.get_u64_array("redact_snaps"), Some(&BY[..]));
    let rest = |guids: &[u64]| {
        let list = list("redact_snaps", guids).with("resume_object", state.point.object).with("resume_offset", state.point.offset);
        let features = Features::REDACTED.with(Features::RESUMING);
        stream_of(head(0, 0xA, features), Some(&list), &[write(5, 0, 0xA1), redact(5, BLOCK as u64, BLOCK as u64), object(7, 512, &[2; 8])])
    };
    assert!(matches!(receive(&pool, &rest(&[11, 13]), &kept), Err(ReceiveError::NotResumed(_))));
    receive(&pool, &rest(&BY), &kept).expect("received");
    assert_eq!(redacted_by(&pool, "tank/fs@a"), Some(BY.to_vec()));
    check(&pool);
}

/// If this fails, a copy of what lacks something is taken for whole.
#[test]
fn copies_of_what_lacks_something_lack_it_too() {
    let pool = pool_that_lacks();
    let mut writer = Writer::new(Vec::new());
    let snapshot = pool.dsl().hold("tank/fs@a").expect("held");
    Sending::new(snapshot, None, SendOptions::default()).expect("it can be sent").run(&mut writer).expect("sent");
    let copy = Target { name: "tank/copy".to_string(), ..target("a") };
    receive(&pool, &writer.into_sink(), &copy).expect("received");
    assert_eq!(redacted_by(&pool, "tank/copy@a"), Some(BY.to_vec()));
    assert_eq!(contents(&pool, "tank/copy@a"), contents(&pool, "tank/fs@a"));
}
