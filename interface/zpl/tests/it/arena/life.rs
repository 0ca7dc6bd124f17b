//! Several processes, one after the other: each is killed while programs go on, and the next serves them.

use crate::arena::bed::{Killed, Served, copied, difference, seen};
use crate::arena::steps::Programs;
use exec::SplitMix;
use ondisk::ObjectId;
use pool::ArenaOutcome;
use zpl::{NewNode, Zfs};

fn lives(seed: u64, arena_bytes: u64) {
    let (mut served, mut programs) = (Served::new(arena_bytes, &[]), Programs::new(seed));
    let mut random = SplitMix::new(seed);
    for life in 0..8 {
        for step in 0..random.next_u64() % 40 {
            let arena = served.arena();
            let request = arena.begin(life << 32 | (step + 1));
            let _ = programs.step(&served);
            arena.left();
            arena.wait_settled().expect("synced");
            drop(request);
            if step == 5 {
                arena.forget_inherited();
            }
        }
        let nameless = programs.nameless(&served.zfs);
        let wanted = seen(&served.zfs, nameless.iter().copied());
        let next = Served::taken_over(served.killed());
        let found = seen(&next.zfs, nameless);
        assert_eq!(difference(&wanted, &found, true), None, "seed {seed}, life {life}");
        served = next;
    }
    programs.close_all(&served.zfs);
    assert_eq!(served.waiting(), 0, "seed {seed}: what nobody has open is deleted");
    served.end(&format!("seed {seed}"));
}

#[test]
fn programs_outlive_many_processes() {
    (1..=12).for_each(|seed| lives(seed, 4 << 20));
    (1..=4).for_each(|seed| lives(100 + seed, 64 << 10));
}

/// If this fails, a program that has a file open loses its bytes, or the file takes room for ever.
#[test]
fn a_file_without_names_stays_until_the_kernel_forgets_it() {
    let served = Served::new(1 << 20, &[]);
    let root = served.zfs.node(served.zfs.root()).expect("the root");
    let new = NewNode { mode: 0o100_644, ..NewNode::default() };
    for name in [b"a", b"b"] {
        Zfs::keep(&served.zfs.create_node(&root, name, &new).expect("made"));
    }
    served.pool.sync().expect("synced");
    let object = |name: &[u8]| served.zfs.lookup(&root, name).expect("a name").object();
    let (open, forgotten) = (object(b"a"), object(b"b"));
    served.zfs.unlink(&root, b"a").expect("removed");
    served.zfs.unlink(&root, b"b").expect("removed");
    served.zfs.release(forgotten, 1);
    let next = Served::taken_over(served.killed());
    assert_eq!(next.zfs.node(forgotten).err(), Some(zpl::ZplError::NotFound), "the kernel forgot it before");
    let node = next.zfs.node(open).expect("it is open");
    Zfs::keep(&node);
    drop(node);
    // The kernel has more references than this process gave it.
    next.zfs.release(open, 2);
    assert_eq!(next.zfs.node(open).err(), Some(zpl::ZplError::NotFound));
    next.end("at the end");
}

/// If this fails, what a mount deletes at its beginning is there again after a death, and takes room until it is unmounted; or its number is given to
/// another file before it is free on disk, and all that programs were told is done since is lost, since the next one cannot take over.
#[test]
fn what_a_mount_deletes_first_is_told() {
    let served = Served::new(1 << 20, &[]);
    let root = served.zfs.node(served.zfs.root()).expect("the root");
    let made = served.zfs.create_node(&root, b"a", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("made");
    let object = made.object();
    Zfs::keep(&made);
    drop(made);
    served.zfs.unlink(&root, b"a").expect("removed");
    drop(root);
    served.pool.sync().expect("synced");
    let served = served.mounted_again();
    assert!(served.zfs.node(object).is_err(), "nobody has it open");
    let next = Served::taken_over(served.killed());
    assert!(next.zfs.node(object).is_err(), "nobody has it open");
    next.end("at the end");
}

/// If this fails, somebody who looks a node up while the kernel forgets it has one that is deleted under him.
#[test]
fn what_the_kernel_forgets_stays_with_who_uses_it() {
    let served = Served::new(1 << 20, &[]);
    let root = served.zfs.node(served.zfs.root()).expect("the root");
    let made = served.zfs.create_node(&root, b"a", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("made");
    let object = made.object();
    Zfs::keep(&made);
    served.zfs.release(object, 5);
    served.zfs.unlink(&root, b"a").expect("removed");
    assert_eq!(served.zfs.node(object).expect("somebody has it").fields().links, 0);
    drop(made);
    assert!(served.zfs.node(object).is_err());
    drop(root);
    served.end("at the end");
}

/// If this fails, what a program made durable is gone when a daemon dies right after something that no entry tells of.
#[test]
fn what_is_durable_is_not_behind_a_gap() {
    let served = Served::new(1 << 20, &[]);
    let root = served.zfs.node(served.zfs.root()).expect("the root");
    let new = NewNode { mode: 0o100_644, ..NewNode::default() };
    let other = served.zfs.create_node(&root, b"other", &new).expect("made");
    for size in 0..3 {
        // The log begins, so that a commit needs no txg.
        served.zfs.truncate(&other, size).expect("resized");
        served.zfs.fsync(&other).expect("durable");
    }
    served.zfs.set_xattr(&other, b"user.empty", b"", zpl::SetMode::Any).expect("set");
    assert!(!served.arena().is_settled(), "no entry tells of it");
    let made = served.zfs.create_node(&root, b"durable", &new).expect("made");
    // Whoever serves it may not ask the arena: of a mount that is not kept.
    served.zfs.fsync(&made).expect("durable");
    let next = Served::taken_over(served.killed());
    let root = next.zfs.node(next.zfs.root()).expect("the root");
    assert!(next.zfs.lookup(&root, b"durable").is_ok());
    let after = Served::opened(served.images(), None);
    assert!(after.zfs.lookup(&after.zfs.node(after.zfs.root()).expect("the root"), b"durable").is_ok(), "without the arena too");
}

/// If this fails, a pool whose arena is broken cannot be opened, or programs go on with something else than they had.
#[test]
fn what_does_not_prove_itself_is_as_none() {
    let served = Served::new(1 << 20, &[]);
    let root = served.zfs.node(served.zfs.root()).expect("the root");
    served.zfs.create_node(&root, b"lost", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("made");
    let killed = served.killed();
    let arena = copied(&killed.arena);
    rustix::io::pwrite(&arena, &[0; 4096], 0).expect("written");
    let refused = Served::opened(killed.images.clone(), Some(arena));
    assert!(matches!(refused.pool.arena_outcome(), ArenaOutcome::Refused(_)) && refused.pool.arena().is_none());
    assert!(refused.zfs.lookup(&refused.zfs.node(refused.zfs.root()).expect("the root"), b"lost").is_err());
    // A sound one of which a record makes no sense there: nothing of it counts.
    let (txgs, other) = (served.pool.txgs(), served.arena());
    let remove = zil::Record::Remove(zil::Remove { directory: ObjectId(999), name: b"x", is_directory: false }).encode();
    let noted =
        zil::Noted { kind: zil::EntryKind::Record, objset: served.objset, time: (0, 0), done: zil::Done::default(), payload: &[&remove] };
    other.note(&noted, &txgs.assign(0).expect("a transaction"));
    let Killed { images, arena } = served.killed();
    let refused = Served::opened(images, Some(arena));
    assert!(matches!(refused.pool.arena_outcome(), ArenaOutcome::Refused(_)), "{:?}", refused.pool.arena_outcome());
    assert!(refused.zfs.lookup(&refused.zfs.node(refused.zfs.root()).expect("the root"), b"lost").is_err(), "all or nothing");
    refused.end("at the end");
}
