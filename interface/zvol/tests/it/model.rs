//! Volumes against a model that is an array of bytes: random operations, some of them past the cache, between syncs, imports and new sizes.

use crate::bed::{BLOCK, Bed, CACHED, VOLUME_BYTES, contents, import, open, pattern};
use abd::Abd;
use exec::SplitMix;
use std::sync::Arc;
use zvol::{Access, Volume};

const STEPS: usize = 120;

struct Run {
    volume: Arc<Volume>,
    model: Vec<u8>,
    random: SplitMix,
}

impl Run {
    /// Draws a range within the volume: of any alignment, of sectors or of blocks.
    fn range(&mut self) -> (u64, u64) {
        let unit = [1, 512, 4096, BLOCK][self.random.below(4)];
        let units = self.model.len() as u64 / unit;
        let start = self.random.next_u64() % units;
        let length = 1 + self.random.next_u64() % (units - start).min(40 * BLOCK / unit);
        (start * unit, length * unit)
    }

    fn step(&mut self, step: usize) {
        let (offset, length) = self.range();
        let bytes = offset as usize..(offset + length) as usize;
        let access = if self.random.chance(2) { Access::DIRECT } else { CACHED };
        match self.random.below(10) {
            0..5 => {
                let data = pattern(bytes.len(), step as u64);
                let is_durable = self.random.chance(4);
                self.volume.write(offset, Abd::from_slice(&data), access, is_durable).expect("written");
                self.model[bytes].copy_from_slice(&data);
            }
            5 => {
                self.volume.write_zeroes(offset, length).expect("zeroed");
                self.model[bytes].fill(0);
            }
            6 => {
                self.volume.discard(offset, length).expect("discarded");
                let (first, last) = (offset.next_multiple_of(BLOCK) as usize, (bytes.end as u64 / BLOCK * BLOCK) as usize);
                if first < last {
                    self.model[first..last].fill(0);
                }
            }
            7 => self.volume.flush().expect("flushed"),
            8 => {
                let blocks = 1 + self.random.next_u64() % (2 * VOLUME_BYTES / BLOCK);
                self.volume.resize(blocks * BLOCK).expect("resized");
                self.model.resize((blocks * BLOCK) as usize, 0);
            }
            _ => {
                if let Some(found) = self.volume.read_at_hand(offset, length) {
                    assert!(found.to_vec() == self.model[bytes.clone()], "step {step}: {offset}+{length} at hand");
                }
                let read = self.volume.read(offset, length, access).expect("read").to_vec();
                assert!(read == self.model[bytes], "step {step}: {offset}+{length}");
            }
        }
    }
}

/// If this fails, a disk of a virtual machine gives other bytes than were written to it.
#[test]
fn a_volume_is_an_array_of_bytes() {
    for seed in 0..6 {
        let properties: &[(&str, &str)] = match seed % 3 {
            0 => &[("compression", "off")],
            1 => &[("compression", "lz4"), ("logbias", "throughput")],
            _ => &[("compression", "zstd"), ("sync", "always"), ("primarycache", "metadata")],
        };
        let mut bed = Bed::new(properties);
        let mut run = Run { volume: bed.open(), model: vec![0; VOLUME_BYTES as usize], random: SplitMix::new(seed) };
        for step in 0..STEPS {
            run.step(step);
            if run.random.chance(12) {
                bed.pool.sync().expect("synced");
            }
            if run.random.chance(25) {
                let Run { volume, model, random } = run;
                drop(volume);
                bed = bed.again();
                run = Run { volume: bed.open(), model, random };
            }
            assert_eq!(run.volume.size(), run.model.len() as u64);
        }
        assert!(contents(&run.volume) == run.model, "seed {seed}");
        bed.check_space(&format!("seed {seed}"));
        let Run { volume, model, .. } = run;
        drop(volume);
        let Bed { exec, device, pool, .. } = bed;
        pool.export().expect("exported");
        let pool = import(&exec, device, true).expect("imported read-only");
        let volume = open(&pool);
        assert!(volume.is_read_only() && contents(&volume) == model, "seed {seed}, from the disks");
    }
}
