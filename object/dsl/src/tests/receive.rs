//! What is received takes the place of what was there: every counter of space, every block, and what a crash leaves.

use super::{TestPool, filesystem, write};
use crate::resume::ResumeState;
use crate::{DslError, ReceiveBegin, ReceiveEnd, ResumePoint, StreamRedaction, TxSpace};
use ondisk::{ObjectId, ObjsetType};

pub(super) fn beginning(target: &str, from_guid: u64, force: bool) -> ReceiveBegin {
    ReceiveBegin {
        target: target.to_string(),
        snapshot: "new".to_string(),
        kind: ObjsetType::ZFS,
        from_guid,
        origin: None,
        force,
        ignores_case: false,
        features: Vec::new(),
        needs: Vec::new(),
        raw: None,
        redaction: StreamRedaction::default(),
        resumable: None,
        init: filesystem().init,
    }
}

fn state() -> ResumeState {
    ResumeState {
        from_guid: 0,
        to_guid: 0x99,
        to_name: "far/fs@s".to_string(),
        point: ResumePoint::BEGIN,
        large_blocks: true,
        embedded: false,
        compressed: true,
        raw: false,
        redacted: None,
        from_redacted: None,
    }
}

fn guid(pool: &TestPool, name: &str) -> u64 {
    pool.dsl.hold(name).expect("held").guid()
}

/// Receives into `target`: writes blocks of an object, which is made when it is 0, and ends it.
fn receive(pool: &TestPool, begin: ReceiveBegin, object: u64, blocks: &[u64]) -> Result<(), DslError> {
    let (target, force) = (begin.target.clone(), begin.force);
    let handle = pool.dsl.receive_begin(begin)?;
    let objset = handle.objset()?;
    let number = ObjectId(if object == 0 { 7 } else { object });
    for block in blocks {
        let tx = handle.assign(TxSpace::Writes(1 << 20))?;
        let dnode = match objset.hold(number) {
            Ok(dnode) => dnode,
            Err(_) => {
                let new =
                    dmu::NewObject { block_size: 4096, indirect_shift: 12, ..dmu::NewObject::new(ondisk::ObjectType::PLAIN_FILE_CONTENTS) };
                objset.claim_object(number, new, &tx)?
            }
        };
        dnode.write(block * 4096, &[0x5A; 4096], &tx)?;
        drop(tx);
        pool.sync();
    }
    let received = handle.object();
    drop((objset, handle));
    let end = ReceiveEnd { target, received, snapshot: "new".to_string(), guid: 0x77, creation_time: 5, force, raw: None };
    pool.dsl.receive_end(&end)
}

/// If this fails, space of what was replaced is lost, or counted twice, or freed while a snapshot has it.
#[test]
fn space_is_right_after_what_was_received() {
    let pool = TestPool::create(41);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("created");
    let object = write(&pool, "tank/a", 0, 0, &[1; 10 * 4096]).expect("written");
    pool.dsl.snapshot(&["tank/a@one".to_string()], Vec::new()).expect("taken");
    let one = guid(&pool, "tank/a@one");
    receive(&pool, beginning("tank/a", one, false), object, &[0, 3, 20]).expect("received");
    pool.drain();
    pool.check();
    pool.check_features();
    assert_eq!(guid(&pool, "tank/a@new"), 0x77);
    assert_eq!(pool.dsl.hold("tank/a@new").expect("held").creation_time(), 5);

    // Over what was written and snapshots that are newer.
    write(&pool, "tank/a", object, 4096, &[2; 5 * 4096]).expect("written");
    pool.dsl.snapshot(&["tank/a@mine".to_string()], Vec::new()).expect("taken");
    write(&pool, "tank/a", object, 0, &[3; 2 * 4096]).expect("written");
    pool.sync();
    let again = |force: bool| ReceiveBegin { snapshot: "newer".to_string(), ..beginning("tank/a", one, force) };
    assert_eq!(pool.dsl.receive_begin(again(false)).map(drop), Err(DslError::Modified));
    let handle = pool.dsl.receive_begin(again(true)).expect("begun");
    assert_eq!(pool.dsl.receive_begin(again(true)).map(drop), Err(DslError::Busy), "one at a time");
    let received = handle.object();
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    handle.objset().expect("opened").hold(ObjectId(object)).expect("held").write(8 * 4096, &[4; 4096], &tx).expect("written");
    drop((tx, handle));
    let end =
        ReceiveEnd { target: "tank/a".into(), received, snapshot: "newer".into(), guid: 0x78, creation_time: 6, force: true, raw: None };
    pool.dsl.receive_end(&end).expect("received");
    pool.drain();
    pool.check();
    let names: Vec<String> = pool.dsl.snapshots("tank/a").expect("listed").into_iter().map(|snapshot| snapshot.name).collect();
    assert_eq!(names, ["one", "newer"]);
    let pool = pool.reopen();
    pool.check();
}

/// If this fails, a stream fills what a limit keeps small, or what fits with what one transaction may exceed it by is refused.
#[test]
fn what_is_received_exceeds_the_limit_by_as_much_as_is_set() {
    let pool = TestPool::create(47);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("created");
    pool.sync();
    let handle = pool.dsl.hold("tank/a").expect("held");
    let limit = (handle.space().referenced + 40_960).to_string();
    handle.set_props(&[("refquota".to_string(), limit)]).expect("sets");
    drop(handle);
    let blocks: Vec<u64> = (0..40).collect();
    pool.dsl.tune_receives(0);
    let refused = receive(&pool, beginning("tank/a", 0, true), 0, &blocks);
    assert_eq!(refused, Err(DslError::Quota));
    pool.dsl.tune_receives(1);
    pool.dsl.destroy_lost_receives().expect("gone");
    receive(&pool, beginning("tank/a", 0, true), 0, &blocks).expect("received");
    pool.drain();
    pool.check();
}

/// If this fails, a full stream over a file system, or into a clone's place, leaves wrong sums.
#[test]
fn full_streams_make_and_replace() {
    let pool = TestPool::create(42);
    receive(&pool, beginning("tank/new", 0, false), 0, &[0, 1, 2]).expect("received");
    pool.drain();
    pool.check();
    pool.dsl.create_dataset("tank/old", filesystem()).expect("created");
    write(&pool, "tank/old", 0, 0, &[1; 4 * 4096]).expect("written");
    assert_eq!(receive(&pool, beginning("tank/old", 0, false), 0, &[0]), Err(DslError::Exists));
    receive(&pool, beginning("tank/old", 0, true), 0, &[0, 9]).expect("received");
    pool.drain();
    pool.check();
    // A clone of something that is there.
    let source = guid(&pool, "tank/new@new");
    let begin =
        ReceiveBegin { origin: Some("tank/new@new".to_string()), snapshot: "new".to_string(), ..beginning("tank/clone", source, false) };
    receive(&pool, begin, 7, &[1]).expect("received");
    pool.drain();
    pool.check();
    assert_eq!(pool.dsl.hold("tank/clone").expect("held").origin(), Ok(Some("tank/new@new".to_string())));
    pool.check_features();
}

/// If this fails, whoever may receive into one file system and rename another has what comes take the place of the other and of all its snapshots.
#[test]
fn what_is_received_replaces_what_it_was_begun_for_and_nothing_else() {
    let pool = TestPool::create(48);
    for name in ["tank/a", "tank/b"] {
        pool.dsl.create_dataset(name, filesystem()).expect("created");
    }
    pool.dsl.snapshot(&["tank/b@kept".to_string()], Vec::new()).expect("taken");
    let received = pool.dsl.receive_begin(beginning("tank/a", 0, true)).expect("begun").object();
    pool.dsl.rename("tank/a", "tank/c").expect("renamed");
    pool.dsl.rename("tank/b", "tank/a").expect("renamed");
    let end =
        ReceiveEnd { target: "tank/a".into(), received, snapshot: "new".into(), guid: 0x77, creation_time: 5, force: true, raw: None };
    assert_eq!(pool.dsl.receive_end(&end), Err(DslError::NotFound));
    assert!(pool.dsl.hold("tank/a@kept").is_ok());
    pool.dsl.receive_end(&ReceiveEnd { target: "tank/c".into(), ..end }).expect("received");
    pool.drain();
    pool.check();
}

/// If this fails, one receive that is under way or broke off, or one file system without contents, hides all datasets of the pool from `zfs list`.
#[test]
fn what_has_no_contents_has_the_properties_of_the_dataset() {
    let pool = TestPool::create(44);
    let empty = |target: &str| ReceiveBegin { init: Box::new(|_, _| Ok(())), ..beginning(target, 0, false) };
    let begun = pool.dsl.receive_begin(ReceiveBegin { resumable: Some(state()), ..empty("tank/begun") }).expect("begun");
    receive(&pool, empty("tank/empty"), 0, &[0]).expect("received");
    let has = |entries: &[crate::PropEntry], name: &str| entries.iter().any(|entry| entry.name == name);
    let (entries, failed) = begun.known_props();
    assert_eq!(failed, None, "nothing of it is read yet");
    assert!(has(&entries, "used") && has(&entries, "receive_resume_token") && !has(&entries, "utf8only"));
    for name in ["tank/empty", "tank/empty@new"] {
        let handle = pool.dsl.hold(name).expect("held");
        let (entries, failed) = handle.known_props();
        assert!(failed.is_some() && has(&entries, "used") && !has(&entries, "version"), "{name}");
        assert_eq!(handle.props().err(), failed, "who needs all of them is told");
    }
}

/// If this fails, what a receive left half done is seen, kept for ever, or lost though it can be resumed.
#[test]
fn what_is_not_whole_goes_or_waits() {
    let pool = TestPool::create(43);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("created");
    let object = write(&pool, "tank/a", 0, 0, &[1; 4096]).expect("written");
    pool.dsl.snapshot(&["tank/a@one".to_string()], Vec::new()).expect("taken");
    let one = guid(&pool, "tank/a@one");
    let state = state();
    let kept = ReceiveBegin { resumable: Some(state.clone()), ..beginning("tank/kept", 0, false) };
    let handle = pool.dsl.receive_begin(kept).expect("begun");
    let point = ResumePoint { object: 7, offset: 4096, bytes: 900 };
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    handle.note_received(point, &tx);
    drop(tx);
    pool.sync();
    assert_eq!(pool.dsl.snapshot(&["tank/kept@x".to_string()], Vec::new()), Err(DslError::Busy));
    drop(handle);
    let hidden = pool.dsl.receive_begin(beginning("tank/a", one, false)).expect("begun");
    let tx = hidden.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    hidden.objset().expect("opened").hold(ObjectId(object)).expect("held").write(0, &[9; 4096], &tx).expect("written");
    drop((tx, hidden));
    pool.sync();
    let pool = pool.reopen();
    assert_eq!(pool.dsl.destroy_lost_receives(), Ok(1), "what cannot be resumed");
    assert!(pool.dsl.partial_receive("tank/a").expect("looked").is_none());
    assert_eq!(pool.dsl.resume_state("tank/kept"), Ok(Some(ResumeState { point, ..state })));
    pool.drain();
    pool.check();
    // A dataset with something hidden in it is destroyed with that.
    drop(pool.dsl.receive_begin(beginning("tank/a", one, false)).expect("begun"));
    pool.dsl.destroy_snapshots(&["tank/a@one".to_string()], false).expect_err("the hidden one began as it");
    let partial = pool.dsl.partial_receive("tank/a").expect("looked").expect("there").object();
    pool.dsl.receive_abort(partial).expect("given up");
    pool.dsl.destroy_snapshots(&["tank/a@one".to_string()], false).expect("destroyed");
    drop(pool.dsl.receive_begin(beginning("tank/a", 0, true)).expect("begun"));
    pool.dsl.destroy_dataset("tank/a").expect("destroyed");
    let partial = pool.dsl.partial_receive("tank/kept").expect("looked").expect("there").object();
    pool.dsl.receive_abort(partial).expect("given up");
    pool.drain();
    pool.check();
    assert!(pool.dsl.children("tank").expect("listed").is_empty());
}
