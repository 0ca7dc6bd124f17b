//! Devices that are slow or err among their siblings while their pool is in use: told once, and known for as long as it is so.
//!
//! What leaves did between two looks is compared ([`qualify`]). OpenZFS compares children of one RAID-Z only, by their means (2.4: `autosit`, module
//! `vdev_raidz.c`); here all devices of a pool that are of one kind are siblings, and the 99th percentile counts, too.

use ondisk::Guid;
use std::collections::{BTreeMap, BTreeSet};
use zio::{Defect, Sample, qualify};

/// Looks that make a window, at least.
const LOOKS_MIN: u32 = 5;
/// Looks after which a window in which some leaf did too little is given up.
const LOOKS_MAX: u32 = 60;
/// Direction of reads.
const READS: usize = 0;
/// Windows in which a leaf is slow before that is told, and in which it is not before it is forgotten. An error is told at once.
const TIMES: u32 = 3;

/// Leaf as it is at a look.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// Guid of the leaf.
    pub guid: Guid,
    /// Number that siblings have in common.
    pub group: u32,
    /// Figures of reads, and of writes, since the pool was opened.
    pub samples: [Sample; 2],
}

/// Stretch of time in which a group is compared in one direction.
#[derive(Debug, Default)]
struct Window {
    looks: u32,
    before: BTreeMap<Guid, Sample>,
}

/// Memory of a leaf in one direction.
#[derive(Clone, Copy, Debug)]
struct Record {
    times: u32,
    defect: Defect,
    is_told: bool,
}

/// Memory of a pool's leaves.
#[derive(Debug, Default)]
pub(crate) struct Siblings {
    windows: BTreeMap<(u32, usize), Window>,
    records: BTreeMap<(Guid, usize), Record>,
}

/// Figures of what was done since `before`.
fn since(now: &Sample, before: &Sample) -> Sample {
    let earlier = before.latencies.iter().copied().chain(std::iter::repeat(0));
    let latencies = now.latencies.iter().zip(earlier).map(|(now, before)| now.saturating_sub(before)).collect();
    Sample { latencies, errors: now.errors.saturating_sub(before.errors) }
}

impl Window {
    /// Looks once more; at the end of a window in which all did enough gives the defects, in the order of the members. Who comes or goes begins it anew.
    fn look(&mut self, members: &[(Guid, &Sample)]) -> Option<Vec<Option<Defect>>> {
        let is_known = |(guid, _): &(Guid, &Sample)| self.before.contains_key(guid);
        if self.before.len() != members.len() || !members.iter().all(is_known) {
            self.begin(members);
            return None;
        }
        self.looks += 1;
        if self.looks <= LOOKS_MIN {
            return None;
        }
        let done = |(guid, now): &(Guid, &Sample)| self.before.get(guid).map_or_else(Sample::default, |before| since(now, before));
        let did: Vec<Sample> = members.iter().map(done).collect();
        let is_enough = did.iter().all(Sample::is_telling);
        if !is_enough && self.looks < LOOKS_MAX {
            return None;
        }
        self.begin(members);
        is_enough.then(|| qualify(&did))
    }

    fn begin(&mut self, members: &[(Guid, &Sample)]) {
        self.looks = 1;
        self.before = members.iter().map(|(guid, now)| (*guid, (*now).clone())).collect();
    }
}

impl Siblings {
    /// Takes the leaves as they are now; gives those that stand out from now on.
    pub(crate) fn look(&mut self, leaves: &[Look]) -> Vec<(Guid, Defect)> {
        self.records.retain(|(guid, _), _| leaves.iter().any(|leaf| leaf.guid == *guid));
        let groups: BTreeSet<u32> = leaves.iter().map(|leaf| leaf.group).collect();
        let mut told = Vec::new();
        for (group, direction) in groups.into_iter().flat_map(|group| [(group, 0), (group, 1)]) {
            let own = leaves.iter().filter(|leaf| leaf.group == group);
            let members: Vec<(Guid, &Sample)> = own.map(|leaf| (leaf.guid, &leaf.samples[direction])).collect();
            let found = self.windows.entry((group, direction)).or_default().look(&members).unwrap_or_default();
            for ((guid, _), defect) in members.iter().zip(found) {
                told.extend(self.note((*guid, direction), defect).map(|defect| (*guid, defect)));
            }
        }
        told
    }

    /// Notes what a window found of a leaf; gives it where it is news.
    fn note(&mut self, key: (Guid, usize), found: Option<Defect>) -> Option<Defect> {
        let Some(defect) = found else {
            let record = self.records.get_mut(&key)?;
            record.times = record.times.saturating_sub(1);
            if record.times == 0 {
                self.records.remove(&key);
            }
            return None;
        };
        let record = self.records.entry(key).or_insert(Record { times: 0, defect, is_told: false });
        record.defect = defect;
        record.times = if matches!(defect, Defect::Errs(_)) { TIMES } else { (record.times + 1).min(TIMES) };
        let is_news = record.times == TIMES && !record.is_told;
        record.is_told |= is_news;
        is_news.then_some(defect)
    }

    /// Forgets what was found of a leaf.
    pub(crate) fn forget(&mut self, leaf: Guid) {
        self.records.retain(|(guid, _), _| *guid != leaf);
    }

    /// Defects that were told and are there still, by the leaf's guid.
    pub(crate) fn defects(&self) -> BTreeMap<Guid, Defect> {
        let told = self.records.iter().filter(|(_, record)| record.is_told);
        told.map(|((guid, _), record)| (*guid, record.defect)).collect()
    }

    /// Leaves of which it was told that their reads are slow, and are still.
    pub(crate) fn slow_readers(&self) -> Vec<(Guid, Defect)> {
        let is_slow = |record: &Record| record.is_told && !matches!(record.defect, Defect::Errs(_));
        let slow = self.records.iter().filter(|((_, direction), record)| *direction == READS && is_slow(record));
        slow.map(|((guid, _), record)| (*guid, record.defect)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pool of six devices, of which each look sees so many more reads of so many times 100 µs.
    #[derive(Default)]
    struct Bed {
        siblings: Siblings,
        latencies: [[u64; 24]; 6],
    }

    impl Bed {
        /// Looks so many times, with the third device so many times slower; gives the devices that were told.
        fn look(&mut self, looks: u32, ios: u64, slower: u64) -> Vec<u64> {
            let mut told = Vec::new();
            for _ in 0..looks {
                for (number, latencies) in self.latencies.iter_mut().enumerate() {
                    let ns = 100_000 * if number == 3 { slower } else { 1 };
                    latencies[ns.ilog2() as usize] += ios;
                }
                let look = |(number, latencies): (u64, &[u64; 24])| {
                    let sample = Sample { latencies: latencies.to_vec(), errors: 0 };
                    Look { guid: Guid(number), group: 0, samples: [sample, Sample::default()] }
                };
                let looks: Vec<Look> = (0..).zip(&self.latencies).map(look).collect();
                told.extend(self.siblings.look(&looks).into_iter().map(|(guid, _)| guid.0));
            }
            told
        }
    }

    /// If this fails, a drive that got slow makes a whole pool slow, and nobody is told; or mail about it comes every ten seconds.
    #[test]
    fn a_slow_device_is_told_once_and_shown_while_it_is_slow() {
        let mut bed = Bed::default();
        assert!(bed.look(40, 100, 1).is_empty() && bed.siblings.defects().is_empty(), "all alike");
        assert!(bed.look(6, 100, 5).is_empty(), "for a moment");
        assert!(bed.look(20, 100, 1).is_empty() && bed.siblings.records.is_empty(), "that is over");
        assert_eq!(bed.look(40, 100, 5), [3], "once");
        assert_eq!(bed.siblings.defects().keys().collect::<Vec<_>>(), [&Guid(3)]);
        assert!(matches!(bed.siblings.slow_readers()[..], [(Guid(3), Defect::Slow(_))]));
        assert!(bed.look(40, 100, 1).is_empty() && bed.siblings.defects().is_empty(), "it is as the others again");
        assert_eq!(bed.look(40, 100, 5), [3], "and slow again");
    }

    /// If this fails, a pool with next to nothing to do names devices by chance.
    #[test]
    fn few_ios_say_nothing() {
        let mut bed = Bed::default();
        assert!(bed.look(400, 1, 50).is_empty());
    }
}
