//! What is redacted from a stream must not be in it, in any form; all else must.

use super::*;
use crate::redact;
use dsl::{RedactedRun, Redaction};
use nvlist::NvList;
use stream::Features;

const BLOCK: u64 = 4096;

fn file(pool: &Pool, blocks: u64, seed: u64) -> ObjectId {
    let made = object(pool, NewObject { block_size: BLOCK as usize, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) });
    write(pool, made, 0, &noise(seed, (blocks * BLOCK) as usize));
    made
}

/// A clone of a snapshot after some changes, as a snapshot of it.
fn cloned(pool: &Pool, name: &str, origin: &str, changes: impl FnOnce(&dmu::Objset, &dmu::Tx)) -> DatasetHandle {
    pool.dsl().clone_snapshot(name, origin, Vec::new()).expect("cloned");
    let handle = pool.dsl().hold(name).expect("held");
    let (objset, tx) = (handle.objset().expect("objset"), handle.assign(TxSpace::Writes(16 << 20)).expect("assigned"));
    changes(&objset, &tx);
    drop(tx);
    pool.dsl().snapshot(&[format!("{name}@s")], Vec::new()).expect("taken");
    pool.dsl().hold(&format!("{name}@s")).expect("held")
}

fn overwrite(objset: &dmu::Objset, object: ObjectId, blocks: std::ops::Range<u64>, tx: &dmu::Tx) {
    let data = noise(99, ((blocks.end - blocks.start) * BLOCK) as usize);
    objset.hold(object).expect("there").write(blocks.start * BLOCK, &data, tx).expect("written");
}

fn list(pool: &Pool, bookmark: &str) -> (Redaction, Vec<RedactedRun>) {
    let list = pool.dsl().redaction_list(bookmark).expect("opens").expect("redacts");
    (list.facts().clone(), list.runs(0, u64::MAX).expect("reads"))
}

fn run(object: ObjectId, block: u64, count: u64) -> RedactedRun {
    RedactedRun { object: object.0, block, count, block_bytes: BLOCK }
}

fn in_order<const N: usize>(mut runs: [RedactedRun; N]) -> [RedactedRun; N] {
    runs.sort_by_key(|run| (run.object, run.block));
    runs
}

fn redacted(to: &DatasetHandle, from: Option<Base>, bookmark: &str, options: &SendOptions) -> Vec<u8> {
    let sending = Sending::new(to.clone(), from, options.clone()).expect("it can be sent");
    stream_of(&sending.redacted(bookmark).expect("it can be redacted"))
}

/// Places in a stream: blocks of the object with contents, and those that it says are left out.
fn places(stream: &[u8], object: ObjectId) -> (Vec<u64>, Vec<u64>) {
    let (mut sent, mut left_out) = (Vec::new(), Vec::new());
    for (record, _) in records(stream) {
        match record {
            Record::Write(write) if write.object == object.0 => sent.push(write.offset / BLOCK),
            Record::Redact(redact) if redact.object == object.0 => {
                left_out.extend(redact.offset / BLOCK..(redact.offset + redact.length) / BLOCK);
            }
            _ => {}
        }
    }
    (sent, left_out)
}

/// Features of a stream, and the list in front of it.
fn head_of(stream: &[u8]) -> (Features, NvList) {
    let all = records(stream);
    let Some((Record::Begin(begin), list)) = all.first() else { panic!("no head") };
    (Features::of_versioninfo(begin.versioninfo), NvList::decode_prefix(list).expect("a list").0)
}

/// If this fails, a list that is for nobody leaves nothing out, and who takes it for one gets all that is there.
#[test]
fn a_list_of_no_clones_has_everything() {
    let pool = pool();
    let objects = [file(&pool, 8, 1), file(&pool, 2, 2)];
    let to = snapshot(&pool, "a");
    redact(&to, "r", &[]).expect("made");
    let (facts, runs) = list(&pool, "tank#r");
    assert_eq!((facts.snapshots, runs), (vec![], in_order([run(objects[0], 0, 8), run(objects[1], 0, 2)]).to_vec()));
    let sending = Sending::new(to, None, SendOptions::default()).and_then(|sending| sending.redacted("tank#r")).expect("it can be");
    let sent = records(&stream_of(&sending));
    assert!(!sent.iter().any(|(record, _)| matches!(record, Record::Write(_) | Record::WriteEmbedded(_))));
}

/// Two files of which two clones replaced some blocks, each other ones: the snapshot, and the clones' snapshots.
fn furnished(pool: &Pool) -> ([ObjectId; 3], DatasetHandle, [DatasetHandle; 2]) {
    let objects = [file(pool, 8, 1), file(pool, 2, 2), file(pool, 3, 3)];
    let [long, gone, kept] = objects;
    let to = snapshot(pool, "a");
    let one = cloned(pool, "tank/one", "tank@a", |objset, tx| {
        overwrite(objset, long, 1..3, tx);
        objset.hold(long).expect("there").free_range(6 * BLOCK, 2 * BLOCK, tx).expect("freed");
        objset.free_object(gone, tx).expect("freed");
        overwrite(objset, kept, 0..1, tx);
    });
    let other = cloned(pool, "tank/other", "tank@a", |objset, tx| {
        overwrite(objset, long, 2..4, tx);
        overwrite(objset, long, 7..9, tx);
        objset.free_object(gone, tx).expect("freed");
        overwrite(objset, kept, 1..2, tx);
    });
    (objects, to, [one, other])
}

/// If this fails, the customer gets what was taken out of all copies for that.
#[test]
fn what_all_clones_replaced_is_left_out() {
    let pool = pool();
    let ([long, gone, kept], to, clones) = furnished(&pool);
    redact(&to, "r", &clones).expect("made");
    let guids: Vec<u64> = clones.iter().map(DatasetHandle::guid).collect();
    let (facts, runs) = list(&pool, "tank#r");
    assert_eq!((&facts.snapshots, facts.is_whole), (&guids, true));
    assert_eq!(runs, in_order([run(long, 2, 1), run(long, 7, 1), run(gone, 0, 2)]));
    for options in every_form() {
        let stream = redacted(&to, None, "tank#r", &options);
        assert_eq!(places(&stream, long), (vec![0, 1, 3, 4, 5, 6], vec![2, 7]), "{options:?}");
        assert_eq!(places(&stream, gone), (vec![], vec![0, 1]));
        assert_eq!(places(&stream, kept), (vec![0, 1, 2], vec![]));
        let (features, head) = head_of(&stream);
        assert!(features.has(Features::REDACTED));
        assert_eq!(head.get_u64_array("redact_snaps"), Some(&guids[..]));
    }
    redact(&to, "all", &clones[..1]).expect("made");
    let (_, runs) = list(&pool, "tank#all");
    assert_eq!(runs, in_order([run(long, 1, 2), run(long, 6, 2), run(gone, 0, 2), run(kept, 0, 1)]));
    let sending = Sending::new(to, None, SendOptions::default()).and_then(|sending| sending.redacted("tank#r")).expect("it can be");
    let (told, real) = (sending.estimate().expect("known"), stream_of(&sending).len() as u64);
    assert!(told > real / 2 && told < 2 * real, "{told} bytes told of {real}");
}

/// A clone of a snapshot, as a snapshot of it, in which these objects are gone, and one of so many slots has the number of the first.
fn renewed(pool: &Pool, origin: &str, gone: &[ObjectId], slots: u8, fill: impl FnOnce(&dmu::Objset, &dmu::Tx)) -> DatasetHandle {
    pool.dsl().clone_snapshot("tank/clone", origin, Vec::new()).expect("cloned");
    let handle = pool.dsl().hold("tank/clone").expect("held");
    let objset = handle.objset().expect("objset");
    let assigned = || handle.assign(TxSpace::Writes(16 << 20)).expect("assigned");
    let tx = assigned();
    gone.iter().for_each(|object| objset.free_object(*object, &tx).expect("freed"));
    drop(tx);
    // Their numbers can be used again then.
    pool.sync().expect("synced");
    let tx = assigned();
    let new = NewObject { block_size: BLOCK as usize, slots, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    objset.claim_object(gone[0], new, &tx).expect("made");
    fill(&objset, &tx);
    drop(tx);
    pool.dsl().snapshot(&["tank/clone@s".to_string()], Vec::new()).expect("taken");
    pool.dsl().hold("tank/clone@s").expect("held")
}

/// If this fails, what was deleted from all copies goes out where another file has its number, and a hole in its place.
#[test]
fn a_file_whose_number_another_one_has_is_left_out_as_a_whole() {
    let pool = pool();
    let gone = file(&pool, 8, 1);
    let to = snapshot(&pool, "a");
    let clone = renewed(&pool, "tank@a", &[gone], 1, |objset, tx| {
        overwrite(objset, gone, 0..1, tx);
        overwrite(objset, gone, 7..8, tx);
    });
    redact(&to, "r", &[clone]).expect("made");
    assert_eq!(list(&pool, "tank#r").1, [run(gone, 0, 8)]);
    assert_eq!(places(&redacted(&to, None, "tank#r", &SendOptions::default()), gone), (vec![], (0..8).collect::<Vec<u64>>()));
}

/// If this fails, what was deleted from all copies goes out where a larger dnode lies in its place.
#[test]
fn a_file_in_whose_slot_a_larger_dnode_lies_is_left_out() {
    let pool = pool();
    let gone = [1, 2, 3].map(|seed| file(&pool, 2, seed));
    assert_eq!(gone.map(|object| object.0 - gone[0].0), [0, 1, 2], "neighbours");
    let to = snapshot(&pool, "a");
    let clone = renewed(&pool, "tank@a", &gone[..2], 2, |objset, tx| overwrite(objset, gone[0], 0..2, tx));
    redact(&to, "r", &[clone]).expect("made");
    assert_eq!(list(&pool, "tank#r").1, [run(gone[0], 0, 2), run(gone[1], 0, 2)]);
}

/// If this fails, who may see it all by now does not get what was left out before.
#[test]
fn what_was_left_out_comes_with_the_next_stream() {
    let pool = pool();
    let ([long, gone, _], first, clones) = furnished(&pool);
    redact(&first, "r", &clones).expect("made");
    write(&pool, long, 5 * BLOCK, &noise(7, BLOCK as usize));
    change(&pool, |objset, tx| objset.hold(gone).expect("there").free_range(BLOCK, BLOCK, tx).expect("freed"));
    let second = snapshot(&pool, "b");
    let bookmark = pool.dsl().bookmarks("tank").expect("listed").remove(0);
    let base = || Base::bookmark(&second, "tank", &bookmark).expect("an earlier one");
    let stream = sent(&second, Some(base()), &SendOptions::default());
    assert_eq!(places(&stream, long), (vec![2, 5, 7], vec![]));
    assert_eq!(places(&stream, gone), (vec![0], vec![]));
    let before = received(Model::new(), &redacted(&first, None, "tank#r", &SendOptions::default()));
    assert_ne!(before, model_of(&first), "something is left out");
    assert_eq!(received(before, &stream), model_of(&second));
    let guids: Vec<u64> = clones.iter().map(DatasetHandle::guid).collect();
    assert_eq!(head_of(&stream).1.get_u64_array("redact_from_snaps"), Some(&guids[..]));
    let later = cloned(&pool, "tank/later", "tank@b", |objset, tx| overwrite(objset, long, 5..8, tx));
    redact(&second, "s", &[later]).expect("made");
    let stream = redacted(&second, Some(base()), "tank#s", &SendOptions::default());
    assert_eq!(places(&stream, long), (vec![2], vec![5, 6]), "block 7 is lacking there already");
    assert_eq!(pool.dsl().destroy_bookmark("tank#r"), Ok(()), "nobody reads it any more");
}

/// Whoever goes on where a redacted stream broke off gets what is missing, and nothing that is redacted.
#[test]
fn a_redacted_stream_goes_on_at_any_write() {
    let pool = pool();
    let (_, to, clones) = furnished(&pool);
    redact(&to, "r", &clones).expect("made");
    let whole = redacted(&to, None, "tank#r", &SendOptions::default());
    let (expected, records) = (received(Model::new(), &whole), records(&whole));
    let (mut model, mut tried) = (Model::new(), 0);
    for (record, payload) in &records {
        apply(&mut model, record, payload);
        let Record::Write(write) = record else { continue };
        let options = SendOptions { resume: Some((write.object, write.offset)), ..SendOptions::default() };
        let rest = redacted(&to, None, "tank#r", &options);
        assert_eq!(received(model.clone(), &rest), expected, "from {write:?}");
        tried += 1;
    }
    assert!(tried > 5, "{tried} places");
}

/// If this fails, a bookmark is made of what says nothing of the snapshot, or a stream goes out whole that should not.
#[test]
fn what_cannot_be_redacted_is_refused() {
    let pool = pool();
    let (_, to, clones) = furnished(&pool);
    let later = snapshot(&pool, "b");
    assert!(matches!(redact(&later, "r", &clones), Err(SendError::NotEarlier)), "clones of an earlier one");
    assert!(matches!(redact(&to, "r", std::slice::from_ref(&to)), Err(SendError::NotEarlier)));
    let head = pool.dsl().hold("tank/one").expect("held");
    assert!(matches!(redact(&to, "r", &[head]), Err(SendError::NotEarlier)), "it changes");
    redact(&to, "r", &clones).expect("made");
    assert!(matches!(redact(&to, "r", &clones), Err(SendError::Source(DslError::Exists))));
    pool.dsl().create_bookmark("tank#plain", "tank@a").expect("made");
    for name in ["tank#plain", "tank#missing"] {
        let sending = Sending::new(to.clone(), None, SendOptions::default()).expect("it can be sent");
        assert!(matches!(sending.redacted(name), Err(SendError::NoRedactionList)), "{name}");
    }
}
