//! Images after a power cut: what was flushed, plus a seeded choice of the rest, torn at sectors.

use crate::SECTOR_BYTES;
use crate::pages::Image;
use crate::record::{Event, Recording, WriteId};
use abd::Abd;
use exec::SplitMix;

/// Writes that reach the medium, of those that no flush covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashChoice {
    /// No such write: the cache is lost.
    Lost,
    /// Every such write: the cache was written back just in time.
    Applied,
    /// A choice of this seed for each: to be lost, written, or torn at 512-byte sectors (a prefix, a suffix, or any subset);
    /// later ones may survive earlier ones.
    Random(u64),
}

/// A write that is not durable yet.
#[derive(Debug)]
struct Pending {
    id: WriteId,
    /// Index of its `Done` event.
    done: Option<usize>,
    offset: usize,
    data: Abd,
}

/// Visits the moments of a recording in ascending order and builds their crash images.
#[derive(Debug)]
pub struct CrashWalker<'a> {
    recording: &'a Recording,
    position: usize,
    /// Image of what is durable, per device.
    durable: Vec<Image>,
    pending: Vec<Vec<Pending>>,
}

impl<'a> CrashWalker<'a> {
    pub(crate) fn new(recording: &'a Recording) -> CrashWalker<'a> {
        let pending = recording.initial.iter().map(|_| Vec::new()).collect();
        CrashWalker { recording, position: 0, durable: recording.initial.clone(), pending }
    }

    /// Goes on to the moment after the first `cut` events; panics when that lies behind.
    pub fn advance(&mut self, cut: usize) {
        assert!(cut >= self.position && cut <= self.recording.events.len(), "cut {cut} after {}", self.position);
        for index in self.position..cut {
            match &self.recording.events[index] {
                Event::Write { id, device, offset, data } => {
                    self.pending[*device].push(Pending { id: *id, done: None, offset: *offset as usize, data: data.clone() });
                }
                Event::Done { id } => {
                    let mut all = self.pending.iter_mut().flatten();
                    if let Some(pending) = all.find(|pending| pending.id == *id) {
                        pending.done = Some(index);
                    }
                }
                Event::Flushed { device, covers } => {
                    let image = &mut self.durable[*device];
                    self.pending[*device].retain(|pending| {
                        let covered = pending.done.is_some_and(|done| done < *covers);
                        if covered {
                            image.write_abd(pending.offset, &pending.data);
                        }
                        !covered
                    });
                }
                Event::Durable { id } => {
                    for (image, all) in self.durable.iter_mut().zip(&mut self.pending) {
                        let Some(at) = all.iter().position(|pending| pending.id == *id) else { continue };
                        let bytes = all[at].offset..all[at].offset + all[at].data.len();
                        // What the cache has of the same bytes from before does not come after it.
                        let is_older = |pending: &mut Pending| {
                            let is_done = pending.id <= *id && pending.done.is_some();
                            is_done && pending.offset < bytes.end && bytes.start < pending.offset + pending.data.len()
                        };
                        all.extract_if(..=at, is_older).for_each(|pending| image.write_abd(pending.offset, &pending.data));
                    }
                }
                Event::Mark(_) => {}
            }
        }
        self.position = cut;
    }

    /// Number of writes that no flush covers at this moment.
    pub fn undecided(&self) -> usize {
        self.pending.iter().map(Vec::len).sum()
    }

    /// The image of every device if the power went off at this moment.
    pub fn images(&self, choice: CrashChoice) -> Vec<Image> {
        let mut random = SplitMix::new(if let CrashChoice::Random(seed) = choice { seed } else { 0 });
        let mut images = self.durable.clone();
        for (image, pending) in images.iter_mut().zip(&self.pending) {
            for write in pending {
                match choice {
                    CrashChoice::Lost => {}
                    CrashChoice::Applied => image.write_abd(write.offset, &write.data),
                    CrashChoice::Random(_) => tear(image, write, &mut random),
                }
            }
        }
        images
    }
}

/// Applies what the generator chooses of one write.
fn tear(image: &mut Image, write: &Pending, random: &mut SplitMix) {
    let sectors = write.data.len().div_ceil(SECTOR_BYTES);
    let mut put = |from: usize, to: usize| {
        let (start, end) = (from * SECTOR_BYTES, (to * SECTOR_BYTES).min(write.data.len()));
        image.write_abd(write.offset + start, &write.data.slice(start..end));
    };
    match random.below(5) {
        0 => {}
        1 => put(0, sectors),
        2 => put(0, random.below(sectors)),
        3 => put(random.below(sectors), sectors),
        _ => (0..sectors).for_each(|sector| {
            if random.chance(2) {
                put(sector, sector + 1);
            }
        }),
    }
}
