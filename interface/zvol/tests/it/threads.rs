//! Requests that nobody waits for, many at a time, under threads.

use crate::bed::{BLOCK, Bed, CACHED, VOLUME_BYTES, contents, open, pattern};
use abd::Abd;
use exec::{Pool, completion};
use std::sync::Arc;
use zvol::Access;

/// If this fails, a guest with a deep queue gets other bytes than it wrote, or waits for ever.
#[test]
fn many_requests_at_a_time_end_and_keep_their_bytes() {
    let bed = Bed::under(Arc::new(Pool::new(2)), &[("compression", "off")]);
    let volume = bed.open();
    let mut model = vec![0; VOLUME_BYTES as usize];
    for round in 0..4 {
        let mut waiters = Vec::new();
        for block in 0..VOLUME_BYTES / BLOCK {
            let access = if block % 2 == 0 { Access::DIRECT } else { CACHED };
            let data = pattern(BLOCK as usize, round * 1000 + block);
            let (done, waiter) = completion();
            let data_copy = Abd::from_slice(&data);
            volume.write_then(block * BLOCK, data_copy, access, block % 5 == 0, Box::new(move |result| done.complete(result)));
            model[(block * BLOCK) as usize..][..BLOCK as usize].copy_from_slice(&data);
            waiters.push(waiter);
        }
        for waiter in waiters {
            assert_eq!(waiter.wait(&bed.exec), Ok(()));
        }
        let mut reads = Vec::new();
        for block in 0..VOLUME_BYTES / BLOCK {
            let access = if block % 3 == 0 { Access::DIRECT } else { CACHED };
            let (done, waiter) = completion();
            volume.read_then(block * BLOCK, BLOCK, access, Box::new(move |result| done.complete(result.map(|data| data.to_vec()))));
            reads.push(waiter);
        }
        for (block, waiter) in reads.into_iter().enumerate() {
            let read = waiter.wait(&bed.exec).expect("read");
            assert!(read == model[block * BLOCK as usize..][..BLOCK as usize], "round {round}, block {block}");
        }
    }
    drop(volume);
    let bed = bed.again();
    assert!(contents(&open(&bed.pool)) == model);
}
