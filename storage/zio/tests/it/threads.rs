//! Many operations at once on a pool whose devices come and go, under interleavings that a seed chooses and under real threads.

use crate::common::*;
use device::DeviceError;
use exec::{Exec, Lockstep, Mutex, OperationHandle};
use ondisk::{BlockPtr, Compression};
use std::sync::Arc;
use vdev::TopKind;
use zio::ReadRequest;

/// Three writers that read back what they wrote, while the same two leaves fail and come back: what misses a write is never more than what may.
fn storm(exec: &Exec, steps: u64) {
    let rig = Arc::new(Rig::new(exec.clone(), &[(TopKind::Raidz(2), 5)], 9));
    let written: Arc<Mutex<Vec<(u64, BlockPtr)>>> = Arc::default();
    let mut operations: Vec<OperationHandle> = (0..3u64)
        .map(|worker| {
            let (rig, written) = (rig.clone(), written.clone());
            exec.spawn_operation(
                "writer",
                Box::new(move || {
                    for step in 0..steps {
                        let seed = worker * 1000 + step + 1;
                        let mut wanted = request(text(seed, 16384), seed);
                        wanted.compression = if seed.is_multiple_of(2) { Compression::LZ4 } else { Compression::OFF };
                        let bp = rig.write(wanted).expect("two leaves may be lost");
                        assert!(rig.read(&bp).is_ok_and(|back| back == text(seed, 16384)), "{bp:?}");
                        if seed.is_multiple_of(5) {
                            rig.zio.free(TXG, &bp);
                        } else {
                            written.lock().push((seed, bp));
                        }
                    }
                }),
            )
        })
        .collect();
    let flapping = rig.clone();
    operations.push(exec.spawn_operation(
        "flap",
        Box::new(move || {
            for step in 0..steps as usize {
                let error = if step % 2 == 0 { DeviceError::Io } else { DeviceError::Gone };
                flapping.kill(if step % 3 == 0 { &[1, 3] } else { &[3] }, error);
                flapping.zio.set_view(flapping.zio.view());
                flapping.exec.sleep_ns(10_000);
                flapping.revive();
            }
        }),
    ));
    operations.into_iter().for_each(OperationHandle::join);
    let written = std::mem::take(&mut *written.lock());
    for (seed, bp) in &written {
        assert!(rig.scrub(bp).is_ok(), "{bp:?}");
        let back = rig.zio.read_wait(ReadRequest::new(*bp, bookmark(*seed)));
        assert!(back.is_ok_and(|back| back == text(*seed, 16384)), "{bp:?}");
    }
    // After the scrub every column is right: any two leaves may go.
    rig.kill(&[0, 1], DeviceError::Gone);
    written.iter().for_each(|(seed, bp)| assert!(rig.read(bp).is_ok_and(|back| back == text(*seed, 16384)), "{bp:?}"));
}

/// Blocks written while leaves fail must be readable, and a scrub must make them whole.
#[test]
fn blocks_survive_flapping_leaves_under_threads() {
    storm(&threads(), 120);
}

/// The same, with races between operations and completions chosen by the seed.
#[test]
fn blocks_survive_flapping_leaves_under_chosen_interleavings() {
    for seed in 0..10 {
        Lockstep::run(seed, |exec| storm(exec, 12));
    }
}
