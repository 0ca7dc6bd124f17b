//! Users who change their buffers while a request uses them: whatever is written must have been in the buffer at some time,
//! reads must not fail, and no device may be blamed. When the change happens, the seed decides.

use super::{BLOCK, Dice, Failure, PAGE, Run, expected, overlay};
use abd::SharedPages;
use exec::TaskClass;
use std::ops::Range;
use zpl::WriteData;
use zpl::direct::Access;

impl Run {
    /// Makes pages with these bytes, and somebody who is about to change a part of them to others.
    fn shared(&mut self, before: &[u8], changes: &Range<usize>, after: &[u8]) -> SharedPages {
        let pages = SharedPages::new(before.len());
        pages.write(0, before);
        let (guest, at, bytes) = (pages.clone(), changes.start, after[changes.clone()].to_vec());
        // Behind so many jobs of others, so that it meets the request here and there.
        let hops = self.dice.below(12);
        hop(&self.machine.exec, hops, Box::new(move || guest.write(at, &bytes)));
        pages
    }

    /// Writes directly from such pages: each byte on disk is one that was there before or after the change.
    pub(super) fn write_mutated(&mut self, file: usize) -> Result<(), Failure> {
        let unit = [PAGE, BLOCK][self.dice.below(2) as usize];
        let range = self.dice.range(unit);
        let length = (range.end - range.start) as usize;
        let (before, after) = (self.dice.bytes(length as u64), self.dice.bytes(length as u64));
        let changes = part(&mut self.dice, length);
        let (zfs, node) = self.file(file).map_err(|trouble| trouble.to_string())?;
        let pages = self.shared(&before, &changes, &after);
        let write = WriteData { offset: range.start, data: pages.abd(0..length), may_keep: false, kill_suid: false, synchronous: false };
        let written = zfs.write_with(&node, write, Access::DIRECT).map_err(|error| format!("mutated write of {range:?}: {error}"))?;
        let access = Access { flagged: self.dice.below(2) == 0, ..Access::default() };
        let found =
            zfs.read_with(&node, range.start, written, access).map_err(|error| format!("mutated write of {range:?}, read: {error}"))?;
        let found = found.to_vec();
        let was_there = |at: usize| found[at] == before[at] || (changes.contains(&at) && found[at] == after[at]);
        match (0..length).find(|at| found.len() != length || !was_there(*at)) {
            Some(at) => Err(format!("mutated write of {range:?}: at {at} a byte that the buffer never held")),
            None => {
                overlay(&mut self.models[file], range.start, &found);
                Ok(())
            }
        }
    }

    /// Reads directly into such pages: what was not scribbled over is the file's.
    pub(super) fn read_mutated(&mut self, file: usize) -> Result<(), Failure> {
        let range = self.dice.range(PAGE);
        let length = (range.end - range.start) as usize;
        let (before, scribble) = (vec![0; length], self.dice.bytes(length as u64));
        let changes = part(&mut self.dice, length);
        let wanted = expected(&self.models[file], &range);
        let (zfs, node) = self.file(file).map_err(|trouble| trouble.to_string())?;
        let pages = self.shared(&before, &changes, &scribble);
        let read = zfs.read_pages(&node, range.start, &pages, 0..length, Access::DIRECT);
        let read = read.map_err(|error| format!("mutated read of {range:?}: {error}"))?;
        let mut found = vec![0; length];
        pages.read(0, &mut found);
        let is_right = |at: usize| found[at] == wanted[at] || (changes.contains(&at) && found[at] == scribble[at]);
        match (0..read).find(|at| read != wanted.len() || !is_right(*at)) {
            Some(at) => Err(format!("mutated read of {range:?}: another byte at {at}")),
            None if read != wanted.len() => Err(format!("mutated read of {range:?}: {read} bytes")),
            None => Ok(()),
        }
    }
}

fn part(dice: &mut Dice, length: usize) -> Range<usize> {
    let start = dice.below(length as u64) as usize;
    start..start + 1 + dice.below((length - start) as u64) as usize
}

/// Runs `job` after `hops` turns of the executor.
fn hop(exec: &exec::Exec, hops: u64, job: exec::Job) {
    let again = exec.clone();
    let next: exec::Job = if hops == 0 { job } else { Box::new(move || hop(&again, hops - 1, job)) };
    exec.spawn(TaskClass::Write, next);
}
