//! Reads from memory alone, for who must not wait: what they give, when they give nothing, and that they never see half of a write.

use crate::bed::{BLOCK, Bed, CACHED, VOLUME_BYTES, pattern, write};
use abd::Abd;
use direct_io::Property;
use exec::{Mutex, TaskClass};
use sim::Latency;
use std::sync::Arc;
use zvol::{Access, Settings, Volume};

/// Place of writes that begin and end within blocks: their edges go through the cache, what is between them perhaps past it.
const PLACE: u64 = BLOCK / 2;
/// Bytes that were seen at each look, in the order of the looks.
type Seen = Arc<Mutex<Vec<Option<Vec<u8>>>>>;

/// Bytes of a range that are at hand.
fn at_hand(volume: &Arc<Volume>, offset: u64, length: u64) -> Option<Vec<u8>> {
    volume.read_at_hand(offset, length).map(|data| data.to_vec())
}

/// If this fails, a thread that serves a whole connection waits for a disk, or a guest reads other bytes than those of its volume.
#[test]
fn what_has_to_be_read_is_not_at_hand() {
    let bed = Bed::new(&[("compression", "off")]);
    let volume = bed.open();
    assert_eq!(at_hand(&volume, 100, 1000), Some(vec![0; 1000]), "a hole");
    let data = pattern(4 * BLOCK as usize, 1);
    write(&volume, 0, &data).expect("written");
    assert!(at_hand(&volume, 0, 4 * BLOCK) == Some(data.clone()), "dirty");
    bed.pool.sync().expect("synced");
    assert!(at_hand(&volume, 0, 4 * BLOCK) == Some(data.clone()), "kept as it was written");
    drop(volume);
    let bed = bed.again();
    let volume = bed.open();
    let before = bed.sim.operations();
    assert_eq!(at_hand(&volume, 0, BLOCK), None);
    assert_eq!((bed.sim.operations(), volume.counts()), (before, [0; 4]), "nothing is read or counted");
    assert!(volume.read(0, BLOCK, CACHED).expect("read").to_vec() == data[..BLOCK as usize]);
    assert!(at_hand(&volume, 100, 1000).as_deref() == Some(&data[100..1100]));
    assert_eq!(volume.counts(), [0, 0, 2, BLOCK + 1000], "it counts as a read");
    assert_eq!(at_hand(&volume, VOLUME_BYTES, 10), Some(Vec::new()), "short at the end, as every read");
}

/// If this fails, `direct` and `primarycache` are not kept for small reads of an initiator.
#[test]
fn what_goes_past_the_cache_or_stays_not_in_it_is_not_at_hand() {
    let bed = Bed::new(&[("compression", "off")]);
    let volume = bed.open();
    write(&volume, 0, &pattern(BLOCK as usize, 2)).expect("written");
    assert!(volume.read_at_hand(0, BLOCK).is_some());
    volume.set_settings(Settings { direct: Property::Always, ..Settings::default() });
    assert!(volume.read_at_hand(0, BLOCK).is_none());
    volume.set_settings(Settings::default());
    volume.dataset().set_props(&[("primarycache".to_string(), "metadata".to_string())]).expect("set");
    assert!(volume.read_at_hand(0, BLOCK).is_none());
}

/// Looks at a range at many moments of what is done meanwhile; what is seen is added in the order in which it is.
fn watch(bed: &Bed, volume: &Arc<Volume>, seen: &Seen) {
    for step in 0..400 {
        let (own, seen) = (volume.clone(), seen.clone());
        let look = move || {
            let found = at_hand(&own, PLACE, 2 * BLOCK);
            seen.lock().push(found);
        };
        bed.exec.spawn_after(step * 10_000, TaskClass::Read, Box::new(look));
    }
}

/// If this fails, an initiator reads half of a write that is under way, or old bytes after a write to the same place was acknowledged.
#[test]
fn what_is_at_hand_is_never_half_of_a_write() {
    let bed = Bed::new(&[("compression", "off")]);
    let volume = bed.open();
    write(&volume, PLACE, &vec![1; 4 * BLOCK as usize]).expect("written");
    bed.pool.sync().expect("synced");
    bed.sim.set_latency(Latency { least_ns: 50_000, most_ns: 500_000 });
    let (mut waited, mut found) = (0, 0);
    for round in 2..12u8 {
        let access = if round % 2 == 0 { CACHED } else { Access::DIRECT };
        let seen: Seen = Arc::default();
        watch(&bed, &volume, &seen);
        let data = Abd::from_slice(&vec![round; 4 * BLOCK as usize]);
        volume.write(PLACE, data, access, round % 3 == 0).expect("written");
        // Acknowledged: what is seen from here on is new.
        let before = seen.lock().len();
        bed.pool.sync().expect("synced");
        // It is in memory again for the next round.
        assert!(volume.read(PLACE, 4 * BLOCK, CACHED).expect("read").to_vec() == vec![round; 4 * BLOCK as usize]);
        let all = seen.lock().clone();
        let mut newest = round - 1;
        for (number, bytes) in all.iter().enumerate() {
            let Some(bytes) = bytes else {
                waited += 1;
                continue;
            };
            found += 1;
            let first = bytes[0];
            assert!(bytes.len() as u64 == 2 * BLOCK && bytes.iter().all(|byte| *byte == first), "round {round}: a part of a write");
            let is_right = if number < before { first == round || first == newest } else { first == round };
            assert!(is_right, "round {round}, look {number} of {before} before the end: {first}");
            newest = first;
        }
    }
    assert!(waited > 0 && found > 0, "some looks came while a write had its range ({waited}), some did not ({found})");
}
