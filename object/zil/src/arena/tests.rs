//! Arenas by themselves: what is in one comes back, as far as it proves itself, whatever somebody did to the file.

use super::{Arena, ArenaError, Done, EntryKind, Heritage, Noted, RequestScope};
use dmu::testing::{MemBlockIo, TestPool};
use dmu::{ObjsetProps, Tx};
use ondisk::{ObjsetType, Txg};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;

const GUID: u64 = 77;
const OBJSET: u64 = 54;
const SMALL: u64 = 64 << 10;
const BEFORE_RING: usize = 4096;

fn pool() -> TestPool {
    let pool = TestPool::create(MemBlockIo::inline(3), ObjsetType::ZFS, ObjsetProps::default()).expect("an object set");
    pool.sync().expect("synced");
    pool
}

fn arena(pool: &TestPool) -> Arc<Arena> {
    let arena = Arena::create(SMALL).expect("memory");
    arena.attach(GUID, &pool.txgs);
    arena
}

fn bytes_of(file: impl AsFd) -> Vec<u8> {
    let mut bytes = vec![0; rustix::fs::fstat(&file).expect("a file").st_size as usize];
    assert_eq!(rustix::io::pread(&file, &mut bytes[..], 0), Ok(bytes.len()));
    bytes
}

fn file_of(bytes: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("copy", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    rustix::fs::ftruncate(&file, bytes.len() as u64).expect("room");
    assert_eq!(rustix::io::pwrite(&file, bytes, 0), Ok(bytes.len()));
    file
}

fn noted<'a>(payload: &'a [&'a [u8]]) -> Noted<'a> {
    let bytes = payload.iter().map(|part| part.len() as u64).sum();
    Noted { kind: EntryKind::Record, objset: OBJSET, time: (5, 6), done: Done { object: 9, bytes }, payload }
}

fn note(arena: &Arc<Arena>, unique: u64, payload: &[u8], tx: &Tx) {
    let _request = RequestScope::enter(unique);
    arena.note(&noted(&[payload]), tx);
}

/// Arena that the next process took, with the payloads that it is to do again.
type Taken = (Arc<Arena>, Heritage, Vec<Vec<u8>>);

fn payloads(bytes: &[u8], synced: Txg) -> Result<Taken, ArenaError> {
    let (arena, heritage) = Arena::adopt(file_of(bytes), GUID, synced)?;
    let payloads = heritage.entries.iter().map(|entry| arena.payload(entry)).collect::<Result<_, _>>()?;
    Ok((arena, heritage, payloads))
}

/// If this fails, the next process does again what is on disk, or leaves out what is not.
#[test]
fn what_is_not_on_disk_comes_back_in_its_order() {
    let pool = pool();
    let arena = arena(&pool);
    let tx = pool.txgs.assign(0).expect("a transaction");
    note(&arena, 1, b"old", &tx);
    drop(tx);
    let unanswered = arena.begin(1);
    arena.left();
    pool.sync().expect("synced");
    let tx = pool.txgs.assign(0).expect("a transaction");
    note(&arena, 2, b"new", &tx);
    arena.note(&noted(&[b"in ", b"", b"three ", b"parts"]), &tx);
    let (next, heritage, found) = payloads(&bytes_of(&*arena), pool.txgs.synced_txg()).expect("sound");
    assert_eq!((found, heritage.is_cut), (vec![b"new".to_vec(), b"in three parts".to_vec()], false));
    let known: Vec<_> = (0..4).map(|unique| next.was_done(OBJSET, unique).map(|done| done.bytes)).collect();
    assert_eq!(known, [None, Some(3), Some(3), None], "what was not answered is known, on disk or not");
    assert_eq!(next.was_done(OBJSET + 1, 1), None, "of its own file system alone");
    drop((tx, unanswered));
}

/// If this fails, what is told of requests that were answered takes all the room, or a request that was not is done twice.
#[test]
fn a_request_is_known_until_it_was_answered() {
    let pool = pool();
    let arena = arena(&pool);
    let request = arena.begin(7);
    let once = |payload: &[u8]| arena.note(&noted(&[payload]), &pool.txgs.assign(0).expect("a transaction"));
    once(b"first");
    let known = || payloads(&bytes_of(&*arena), pool.txgs.synced_txg()).expect("sound").0.was_done(OBJSET, 7).map(|done| done.bytes);
    let mut used = 0;
    for txg in 0..200 {
        pool.sync().expect("synced");
        assert_eq!(known(), Some(if txg == 0 { 5 } else { 9 }), "txg {txg}");
        if txg == 0 {
            once(b"more");
        }
        let _other = RequestScope::enter(0);
        once(&[1; 300]);
        assert!(txg < 40 || arena.used_bytes() <= used, "it grows no more");
        used = used.max(arena.used_bytes());
    }
    arena.left();
    drop(request);
    once(b"");
    pool.sync().expect("synced");
    once(b"");
    assert_eq!(known(), None);
}

/// If this fails, a program is told that something is done which a kill undoes, or the pool stops.
#[test]
fn what_has_no_room_is_answered_when_it_is_on_disk() {
    let pool = pool();
    let arena = arena(&pool);
    let tx = pool.txgs.assign(0).expect("a transaction");
    let mut count = 0u64;
    while arena.is_settled() {
        count += 1;
        note(&arena, count, &[count as u8; 1000], &tx);
    }
    note(&arena, count + 1, b"small, but after what is missing", &tx);
    let killed = bytes_of(&*arena);
    let (next, heritage, found) = payloads(&killed, pool.txgs.synced_txg()).expect("sound");
    assert_eq!((found.len() as u64, heritage.is_cut), (count - 1, true));
    assert_eq!((next.was_done(OBJSET, count), next.was_done(OBJSET, count + 1)), (None, None), "nobody was answered");
    assert!(next.was_done(OBJSET, count - 1).is_some());
    let (next, heritage, _) = payloads(&killed, tx.txg()).expect("sound");
    assert_eq!((heritage.entries.len(), heritage.is_cut), (0, false));
    assert!(next.was_done(OBJSET, count).is_some(), "on disk it is done");
    drop(tx);
    (1..=count + 1).for_each(|unique| drop(arena.begin(unique)));
    arena.left();
    arena.wait_settled().expect("synced");
    assert!(arena.is_settled());
    let tx = pool.txgs.assign(0).expect("a transaction");
    note(&arena, count + 2, &[3; 1000], &tx);
    assert!(arena.is_settled(), "there is room again");
}

/// If this fails, the log of a takeover does not say that changes were left out, by which a loss would be traced.
#[test]
fn what_is_left_out_behind_a_gap_is_counted() {
    let pool = pool();
    let arena = arena(&pool);
    let tx = pool.txgs.assign(0).expect("a transaction");
    note(&arena, 1, b"before", &tx);
    arena.note_gap(OBJSET, Done::default(), &tx);
    note(&arena, 2, b"after", &tx);
    let killed = bytes_of(&*arena);
    for (synced, counts) in [(pool.txgs.synced_txg(), (1, true, 1)), (tx.txg(), (0, false, 0))] {
        let (_, heritage, found) = payloads(&killed, synced).expect("sound");
        assert_eq!((found.len(), heritage.is_cut, heritage.left_out), counts);
    }
    drop(tx);
}

/// If this fails, what programs were told is done after a gap is left out by the next process, where the gap's txg was not written in the end.
#[test]
fn a_gap_that_was_waited_for_cuts_nothing_off() {
    let pool = pool();
    let arena = arena(&pool);
    let synced = pool.txgs.synced_txg();
    let tx = pool.txgs.assign(0).expect("a transaction");
    let (told, heard) = std::sync::mpsc::channel();
    let own = arena.clone();
    // Whoever waits is told before the arena is.
    tx.on_commit(Box::new(move |_| {
        own.wait_settled().expect("synced");
        told.send(bytes_of(&*own)).expect("heard");
    }));
    arena.note_gap(OBJSET, Done::default(), &tx);
    drop(tx);
    pool.sync().expect("synced");
    let answered = heard.recv().expect("told");
    assert!(!payloads(&answered, synced).expect("sound").1.is_cut);
    assert!(arena.is_settled());
}

/// If this fails, what a killed process left unanswered before something without a record is lost to the next.
#[test]
fn marks_behind_a_gap_are_kept() {
    let pool = pool();
    let arena = arena(&pool);
    let request = arena.begin(3);
    arena.left();
    note(&arena, 3, b"done", &pool.txgs.assign(0).expect("a transaction"));
    // The next txg has a gap before the first is known to be on disk.
    let (done, gap) = (arena.clone(), pool.txgs.clone());
    pool.txgs.before_told(
        pool.txgs.open_txg(),
        Box::new(move || done.note_gap(OBJSET, Done::default(), &gap.assign(0).expect("a transaction"))),
    );
    pool.sync().expect("synced");
    let (next, heritage, found) = payloads(&bytes_of(&*arena), pool.txgs.synced_txg()).expect("sound");
    assert_eq!((found.len(), heritage.is_cut), (0, true));
    assert!(next.was_done(OBJSET, 3).is_some());
    let third = payloads(&bytes_of(&*next), pool.txgs.synced_txg()).expect("sound").0;
    assert!(third.was_done(OBJSET, 3).is_some(), "the one after that knows it too");
    drop(request);
}

/// If this fails, a write that was done is done once more after a death, over what others wrote since: what tells of it counts twice.
#[test]
fn what_is_told_once_more_counts_once() {
    let pool = pool();
    let arena = arena(&pool);
    let request = arena.begin(7);
    arena.note(&noted(&[b"first"]), &pool.txgs.assign(0).expect("a transaction"));
    arena.left();
    let before = bytes_of(&*arena);
    pool.sync().expect("synced");
    // Killed when the mark was there, and the header still had the entry.
    let mut killed = bytes_of(&*arena);
    killed[..BEFORE_RING].copy_from_slice(&before[..BEFORE_RING]);
    for bytes in [killed, bytes_of(&*arena)] {
        let (next, ..) = payloads(&bytes, pool.txgs.synced_txg()).expect("sound");
        assert_eq!(next.was_done(OBJSET, 7).map(|done| done.bytes), Some(5));
    }
    drop(request);
}

/// If this fails, a process that is killed while it takes over leaves less than it found.
#[test]
fn an_arena_is_taken_over_again_and_again() {
    let pool = pool();
    let arena = arena(&pool);
    let synced = pool.txgs.synced_txg();
    let tx = pool.txgs.assign(0).expect("a transaction");
    (1..=20).for_each(|unique| note(&arena, unique, &[unique as u8; 500], &tx));
    let (second, heritage, found) = payloads(&bytes_of(&*arena), synced).expect("sound");
    assert_eq!(found.len(), 20);
    // Txgs of the next process have the same numbers, and are synced with nothing of it.
    for later in 1..5 {
        let (_, _, again) = payloads(&bytes_of(&*second), Txg(synced.0 + later)).expect("sound");
        assert_eq!(again, found);
    }
    let next = self::pool();
    second.attach(GUID, &next.txgs);
    let tx = next.txgs.assign(0).expect("a transaction");
    second.inherit(&heritage, &tx);
    let stamped = bytes_of(&*second);
    assert_eq!(payloads(&stamped, next.txgs.synced_txg()).expect("sound").2, found, "its txg is not on disk");
    note(&second, 21, b"more", &tx);
    let both = payloads(&bytes_of(&*second), next.txgs.synced_txg()).expect("sound").2;
    assert_eq!((both.len(), &both[20][..]), (21, &b"more"[..]));
    assert_eq!(payloads(&stamped, tx.txg()).expect("sound").2.len(), 0, "its txg is on disk");
    drop(tx);
    next.sync().expect("synced");
    let after = payloads(&bytes_of(&*second), next.txgs.synced_txg()).expect("sound");
    assert!(after.2.is_empty() && after.0.was_done(OBJSET, 5).is_some(), "who asks again is known");
    second.forget_inherited();
    let after = payloads(&bytes_of(&*second), next.txgs.synced_txg()).expect("sound");
    assert_eq!((after.0.was_done(OBJSET, 5), second.was_done(OBJSET, 5)), (None, None));
    assert!(second.used_bytes() < SMALL / 4, "its room is free");
}

/// If this fails, a request that the next process was sent again is done twice when that one is killed before it answered it; or what the process
/// before left takes the room of what this one changes.
#[test]
fn what_was_asked_for_is_known_until_it_was_answered() {
    let pool = pool();
    let arena = arena(&pool);
    let tx = pool.txgs.assign(0).expect("a transaction");
    (1..=20).for_each(|unique| note(&arena, unique, &[unique as u8; 500], &tx));
    let (second, heritage, _) = payloads(&bytes_of(&*arena), pool.txgs.synced_txg()).expect("sound");
    drop(tx);
    let next = self::pool();
    second.attach(GUID, &next.txgs);
    second.inherit(&heritage, &next.txgs.assign(0).expect("a transaction"));
    assert_eq!(second.take_done(OBJSET, 5).map(|done| done.bytes), Some(500));
    assert_eq!(second.take_done(OBJSET, 99), None);
    let request = second.begin(5);
    second.left();
    next.sync().expect("synced");
    let before = second.used_bytes();
    second.forget_inherited();
    assert!(second.used_bytes() < before / 10, "{} of {before} bytes", second.used_bytes());
    let known = |unique| {
        let third = payloads(&bytes_of(&*second), next.txgs.synced_txg()).expect("sound").0;
        third.was_done(OBJSET, unique).map(|done| done.bytes)
    };
    assert_eq!((known(5), known(6)), (Some(500), None));
    drop(request);
    note(&second, 0, b"later", &next.txgs.assign(0).expect("a transaction"));
    next.sync().expect("synced");
    assert_eq!(known(5), None, "it was answered");
}

/// If this fails, whoever broke the memory, or was killed while it wrote, has the next process do what nobody did, or end.
#[test]
fn whatever_is_in_the_file_the_beginning_counts_or_nothing() {
    let pool = pool();
    let arena = arena(&pool);
    let tx = pool.txgs.assign(0).expect("a transaction");
    (1..=6).for_each(|unique| note(&arena, unique, &[unique as u8; 45], &tx));
    let (sound, synced) = (bytes_of(&*arena), pool.txgs.synced_txg());
    let whole = payloads(&sound, synced).expect("sound").2;
    let used = BEFORE_RING + arena.used_bytes() as usize;
    let check = |bytes: &[u8], what: &str| match payloads(bytes, synced) {
        Ok((_, _, found)) => assert!(whole.starts_with(&found), "{what}: {found:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    };
    for at in (0..used).filter(|at| *at < 200 || (2000..2300).contains(at) || *at >= BEFORE_RING) {
        for bit in [1, 0x80] {
            let mut bytes = sound.clone();
            bytes[at] ^= bit;
            check(&bytes, &format!("bit {bit:x} of byte {at}"));
        }
    }
    for length in BEFORE_RING..used {
        let mut torn = sound.clone();
        torn[length..].fill(0);
        check(&torn, &format!("torn at {length}"));
    }
    for length in [0, 1, 100, BEFORE_RING, sound.len() - 1, sound.len() + 4096] {
        let mut cut = sound.clone();
        cut.resize(length, 0);
        assert!(payloads(&cut, synced).is_err(), "a length of {length}");
    }
    assert!(Arena::adopt(file_of(&sound), GUID + 1, synced).is_err(), "another pool's");
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    assert!(Arena::adopt(reader, GUID, synced).is_err() && Arena::adopt(writer, GUID, synced).is_err(), "no file at all");
}

/// If this fails, what programs were told is done is gone behind their backs, when something in the middle of the memory is not what it was: they
/// are to be cut off.
#[test]
fn what_comes_after_a_hole_is_not_left_out() {
    let pool = pool();
    let arena = arena(&pool);
    let tx = pool.txgs.assign(0).expect("a transaction");
    (1..=6).for_each(|unique| note(&arena, unique, &[unique as u8; 45], &tx));
    let (sound, synced) = (bytes_of(&*arena), pool.txgs.synced_txg());
    let entry = arena.used_bytes() as usize / 6;
    for hole in 0..6 {
        let mut bytes = sound.clone();
        bytes[BEFORE_RING + hole * entry..][..entry].fill(0);
        assert_eq!(payloads(&bytes, synced).is_err(), hole < 5, "entry {hole}");
    }
    // What one process found whole, the next one has to.
    let mut bytes = bytes_of(&*payloads(&sound, synced).expect("sound").0);
    assert_eq!(payloads(&bytes, synced).expect("sound").2.len(), 6);
    bytes[BEFORE_RING + 5 * entry..][..entry].fill(0);
    assert!(payloads(&bytes, synced).is_err());
    drop(tx);
}

/// If this fails, what lies around the end of the ring is lost.
#[test]
fn entries_go_around_the_end() {
    let pool = pool();
    let arena = arena(&pool);
    for round in 0..300u64 {
        let payload: Vec<u8> = (0..(round * 37) % 3000).map(|byte| (byte ^ round) as u8).collect();
        note(&arena, 0, &payload, &pool.txgs.assign(0).expect("a transaction"));
        let found = payloads(&bytes_of(&*arena), pool.txgs.synced_txg()).expect("sound").2;
        assert_eq!(found.last(), Some(&payload), "round {round}");
        assert!(arena.is_settled(), "round {round}");
        if round % 5 == 4 {
            pool.sync().expect("synced");
        }
    }
}

/// If this fails, somebody who has the arena's file makes it shorter under the next reader.
#[test]
fn nobody_makes_it_shorter() {
    let arena = Arena::create(SMALL).expect("memory");
    assert!(rustix::fs::ftruncate(&*arena, 0).is_err() && rustix::fs::ftruncate(&*arena, 2 * SMALL).is_err());
}
