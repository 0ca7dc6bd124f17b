//! The entries of a txg against a model: what is written once, who shares it, and how many refer to it.

use super::*;
use ondisk::{Compression, Dva, ObjectType, VdevId};

/// A block of the model: by its contents.
fn asked(contents: u64, copies: u8) -> Asked {
    let key = DdtKey::new([contents, 1, 2, 3], (4096, 4096), Compression::OFF);
    Asked { txg: Txg(7), checksum: Checksum::SHA256, key, copies }
}

/// Pointer of such a block at an address.
fn pointer(asked: &Asked, offset: u64, birth: Txg) -> BlockPtr {
    let mut phys = DdtPhysTrad::default();
    for (copy, words) in phys.ddp_dva.chunks_exact_mut(2).take(usize::from(asked.copies)).enumerate() {
        let dva = Dva { vdev: VdevId(0), offset: offset + ((copy as u64) << 30), asize: 4096, gang: false };
        words.copy_from_slice(&dva.to_words());
    }
    phys.ddp_phys_birth = birth.0;
    let mut bp = asked.key.pointer(asked.checksum, &phys);
    bp.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
    bp
}

/// Verdict that a write was given.
enum Told {
    Plain,
    List(ListedThen),
    Share(Stored),
}

fn ask(dedup: &Arc<Dedup>, asked: &Asked) -> Arc<Mutex<Option<Told>>> {
    let told: Arc<Mutex<Option<Told>>> = Arc::default();
    let kept = told.clone();
    let then: VerdictThen = Box::new(move |verdict| {
        *kept.lock() = Some(match verdict {
            Verdict::Plain => Told::Plain,
            Verdict::List(listed) => Told::List(listed),
            Verdict::Share(stored) => Told::Share(stored),
        });
    });
    dedup.look_up(asked.clone(), then);
    told
}

fn answer(dedup: &Dedup, found: Option<InTable>) {
    dedup.take_asked().into_iter().for_each(|key| dedup.looked_up(key, found.clone()));
}

fn take(told: &Mutex<Option<Told>>) -> Option<Told> {
    told.lock().take()
}

/// If this fails, equal blocks of one txg are written twice, or one is shared that never reached a device.
#[test]
fn equal_blocks_of_a_txg_wait_for_the_first_and_take_over_when_it_fails() {
    let dedup = Dedup::new();
    let block = asked(1, 1);
    let told: Vec<_> = (0..4).map(|_| ask(&dedup, &block)).collect();
    assert!(dedup.is_asked() && told.iter().all(|told| told.lock().is_none()));
    answer(&dedup, Some(None));
    let Some(Told::List(first)) = take(&told[0]) else { panic!("the first is written") };
    assert!(told[1..].iter().all(|told| told.lock().is_none()));
    assert!(!first(None), "it could not be written");
    let Some(Told::List(second)) = take(&told[1]) else { panic!("the next is written") };
    assert!(second(Some(pointer(&block, 8192, Txg(7)))));
    for told in &told[2..] {
        assert!(matches!(take(told), Some(Told::Share(stored)) if stored.dvas[0].offset == 8192 && stored.birth == Txg(7)));
    }
    let changed = dedup.take_changed();
    assert_eq!((changed.len(), changed[0].now.references(), changed[0].before.is_none()), (1, 3, true));
}

/// If this fails, a block is freed that others refer to, or never.
#[test]
fn references_follow_random_writes_and_frees() {
    let mut random = exec::SplitMix::new(33);
    let dedup = Dedup::new();
    let mut tables: BTreeMap<BlockKey, (u8, DdtTradEntry)> = BTreeMap::new();
    let mut held: Vec<BlockPtr> = Vec::new();
    let mut next_offset = 1 << 20;
    for txg in 10..60 {
        for _ in 0..random.below(20) {
            let block = Asked { txg: Txg(txg), ..asked(random.below(6) as u64, 1 + random.below(3) as u8) };
            let told = ask(&dedup, &block);
            for key in dedup.take_asked() {
                dedup.looked_up(key, Some(tables.get(&key).cloned()));
            }
            match take(&told) {
                Some(Told::List(listed)) => {
                    next_offset += 4096;
                    let bp = pointer(&block, next_offset, Txg(txg));
                    assert!(listed(Some(bp)));
                    held.push(bp);
                }
                Some(Told::Share(stored)) => held.push(pointer(&block, stored.dvas[0].offset, stored.birth)),
                _ => panic!("nothing is plain here"),
            }
        }
        for _ in 0..random.below(20).min(held.len()) {
            let bp = held.swap_remove(random.below(held.len()));
            for key in dedup.unknown_of([key_of(&bp)].into_iter()) {
                dedup.looked_up(key, Some(tables.get(&key).cloned()));
            }
            assert_eq!(dedup.release(&bp), Counted::Yes);
        }
        for Changed { key, mut now, .. } in dedup.take_changed() {
            now.ddp_trad.iter_mut().filter(|phys| phys.ddp_refcnt == 0).for_each(|phys| *phys = DdtPhysTrad::default());
            if now.references() == 0 {
                tables.remove(&key)
            } else {
                tables.insert(key, (1, now))
            };
        }
        let counted: u64 = tables.values().map(|(_, entry)| entry.references()).sum();
        assert_eq!(counted, held.len() as u64, "txg {txg}");
    }
}

/// If this fails, tables grow beyond what `dedup_table_quota` says, or blocks that they have are not shared any more.
#[test]
fn tables_above_their_quota_get_no_new_entries() {
    let dedup = Dedup::new();
    dedup.set_tables(vec![DedupTable { disk_bytes: 4096, ..DedupTable::default() }]);
    let verdicts = |contents: u64| {
        let (new, known) = (ask(&dedup, &asked(contents, 1)), ask(&dedup, &asked(contents + 1, 1)));
        let mut entry = DdtTradEntry::default();
        entry.ddp_trad[1] = DdtPhysTrad::of(&pointer(&asked(contents + 1, 1), 4096, Txg(5)));
        for key in dedup.take_asked() {
            dedup.looked_up(key, Some((key.1[0] == contents + 1).then(|| (2, entry.clone()))));
        }
        let (new, known) = (take(&new), take(&known));
        (matches!(new, Some(Told::List(_))), matches!(known, Some(Told::Share(_))))
    };
    assert_eq!(verdicts(10), (true, true), "auto, without vdevs for tables");
    dedup.set_quota(4095);
    assert_eq!(verdicts(20), (false, true));
    dedup.set_quota(4096);
    assert_eq!(verdicts(30), (true, true));
    dedup.set_class_full(true);
    assert_eq!(verdicts(40), (true, true), "the quota says how much");
    dedup.set_quota(u64::MAX);
    assert_eq!(verdicts(50), (false, true));
    dedup.set_quota(0);
    assert_eq!(verdicts(60), (true, true));
}

/// If this fails, a damaged table stops a pool, a block is freed whose entry nobody could read, or a resilver loses a block.
#[test]
fn what_is_not_known_is_neither_shared_nor_freed() {
    let dedup = Dedup::new();
    let block = asked(1, 1);
    let told = ask(&dedup, &block);
    answer(&dedup, None);
    assert!(matches!(take(&told), Some(Told::Plain)));
    assert_eq!(dedup.release(&pointer(&block, 4096, Txg(5))), Counted::Unknown);
    assert!(dedup.take_changed().is_empty(), "it stays as it is");
    // An entry with another block: this one is nobody's.
    let mut entry = DdtTradEntry::default();
    entry.ddp_trad[1] = DdtPhysTrad::of(&pointer(&block, 4096, Txg(5)));
    let told = ask(&dedup, &block);
    dedup.set_resilvering(true);
    answer(&dedup, Some(Some((2, entry))));
    assert!(matches!(take(&told), Some(Told::Plain)), "what is older than the resilver is not shared");
    assert_eq!(dedup.release(&pointer(&block, 8192, Txg(5))), Counted::NoEntry);
    assert_eq!(dedup.release(&pointer(&block, 4096, Txg(5))), Counted::Yes);
    assert_eq!(dedup.release(&pointer(&block, 4096, Txg(5))), Counted::Unknown, "there is none left");
}

/// If this fails, `zpool list` shows a ratio that divides by nothing, or datasets see less room than there is.
#[test]
fn what_is_saved_is_what_is_referred_to_beyond_what_is_stored() {
    let space = DedupSpace { stored_bytes: 1000, referenced_bytes: 2550, ..DedupSpace::default() };
    assert_eq!((space.ratio_percent(), space.saved_bytes()), (255, 1550));
    assert_eq!((DedupSpace::default().ratio_percent(), DedupSpace::default().saved_bytes()), (100, 0));
}

/// If this fails, a block is freed that the newest txg on disk refers to: after an outage it is gone.
#[test]
fn what_a_later_txg_gives_up_waits_for_it() {
    let dedup = Dedup::new();
    let bp = pointer(&asked(1, 1), 4096, Txg(5));
    [8, 9].into_iter().for_each(|txg| dedup.give_up(Txg(txg), &bp));
    assert!(!dedup.is_touched(Txg(7)) && dedup.is_touched(Txg(8)));
    let taken = [8, 8, 9].map(|txg| dedup.take_given_up(Txg(txg)).len());
    assert_eq!(taken, [1, 0, 1]);
}
