//! One allocator shard: which vdev and which metaslabs it uses now (OpenZFS: `metaslab_class_allocator_t`).

use crate::metaslab::{Balance, Lanes, Metaslab, Offer};
use crate::{AllocRequest, Copies, Preference, VdevSpace};
use ondisk::{Dva, Txg, VdevId};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vdev::{Bias, TopKind, TopVdev};

/// Bytes that a shard allocates from one leaf's worth of a vdev before it moves on (OpenZFS: `metaslab_aliquot`).
const ALIQUOT_BYTES: u64 = 1 << 20;
const COPIES_MAX: usize = 3;

/// Class of vdevs, by what lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Any blocks of the pool.
    Normal,
    /// Blocks of intent logs.
    Log,
    /// Blocks of intent logs, in the metaslabs that vdevs of [`Class::Normal`] set aside.
    EmbeddedLog,
    /// Metadata, and small blocks.
    Special,
    /// Tables of deduplication.
    Dedup,
}

/// Number of classes.
const CLASSES: usize = 5;

impl Class {
    /// Class of the blocks that a vdev is for.
    fn of(top: &TopVdev) -> Class {
        match top.bias {
            _ if top.is_log => Class::Log,
            Bias::None => Class::Normal,
            Bias::Special => Class::Special,
            Bias::Dedup => Class::Dedup,
        }
    }

    /// True where somebody waits for each block: the next one lies on the next vdev.
    fn is_of_logs(self) -> bool {
        matches!(self, Class::Log | Class::EmbeddedLog)
    }
}

/// Number that no metaslab has.
const NO_METASLAB: u32 = u32::MAX;

/// Counters of a vdev that stay when it grows, and what it set aside.
#[derive(Clone, Debug)]
struct Lasting {
    allocated: Arc<AtomicU64>,
    deferred: Arc<AtomicU64>,
    /// Number of the metaslab for intent logs, or [`NO_METASLAB`].
    aside: Arc<AtomicU32>,
}

impl Lasting {
    fn new() -> Lasting {
        Lasting { allocated: Arc::default(), deferred: Arc::default(), aside: Arc::new(AtomicU32::new(NO_METASLAB)) }
    }
}

/// A top-level vdev with its metaslabs. One that grew shares the metaslabs that it had, and the counters.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) top: TopVdev,
    pub(crate) metaslabs: Vec<Arc<Metaslab>>,
    /// Class of the new blocks that may lie here; None for a vdev that is being emptied or is not there.
    pub(crate) class: Option<Class>,
    /// Bytes of the metaslabs.
    pub(crate) capacity: u64,
    pub(crate) allocated: Arc<AtomicU64>,
    pub(crate) deferred: Arc<AtomicU64>,
    /// Number of the metaslab for intent logs, or [`NO_METASLAB`].
    aside: Arc<AtomicU32>,
    /// Balance of the children of a dRAID.
    balance: Option<Arc<Balance>>,
}

/// All top-level vdevs, by number.
pub(crate) type Spaces = Arc<Vec<Arc<Space>>>;

impl Space {
    pub(crate) fn new(top: &TopVdev) -> Space {
        let balance = Balance::of(top).map(Arc::new);
        Space::with(top, Vec::new(), Lasting::new(), balance)
    }
    /// Makes the same vdev as `top` has it now: with more metaslabs, or with none when it left.
    pub(crate) fn changed(&self, top: &TopVdev) -> Space {
        let kept = if top.is_concrete() { self.metaslabs.clone() } else { Vec::new() };
        let lasting = || Lasting { allocated: self.allocated.clone(), deferred: self.deferred.clone(), aside: self.aside.clone() };
        let balance = self.balance.clone().or_else(|| Balance::of(top).map(Arc::new));
        Space::with(top, kept, if top.is_concrete() { lasting() } else { Lasting::new() }, balance)
    }
    fn with(top: &TopVdev, mut metaslabs: Vec<Arc<Metaslab>>, lasting: Lasting, balance: Option<Arc<Balance>>) -> Space {
        let count = if top.is_concrete() { u32::try_from(top.metaslab_count()).unwrap_or(u32::MAX) } else { 0 };
        metaslabs.extend((metaslabs.len() as u32..count).map(|index| {
            let range = top.metaslab_range(index);
            let lanes = Lanes::of(top, &range).zip(balance.clone());
            Arc::new(Metaslab::new((top.id, index), range, lanes))
        }));
        let capacity = metaslabs.iter().map(|metaslab| metaslab.range.end - metaslab.range.start).sum();
        let class = (top.is_concrete() && !top.nonallocating).then_some(Class::of(top));
        let Lasting { allocated, deferred, aside } = lasting;
        Space { top: top.clone(), metaslabs, class, capacity, allocated, deferred, aside, balance }
    }
    /// Sets the emptiest of the metaslabs from `first` on aside for intent logs, unless the vdev is not for all blocks, has too few of them, or one
    /// aside already (OpenZFS: `vdev_metaslab_init`).
    pub(crate) fn set_aside(&self, first: usize) {
        if Class::of(&self.top) != Class::Normal || self.aside().is_some() || !vdev::has_log_metaslab(self.metaslabs.len()) {
            return;
        }
        let usable = self.metaslabs.iter().enumerate().skip(first).filter(|(_, metaslab)| metaslab.free_bytes.load(Ordering::Relaxed) > 0);
        // Of equals the first.
        let emptiest = usable.rev().max_by_key(|(_, metaslab)| metaslab.free_bytes.load(Ordering::Relaxed));
        if let Some((index, _)) = emptiest {
            self.aside.store(index as u32, Ordering::Relaxed);
        }
    }
    /// The metaslab that is set aside for intent logs, with its number.
    pub(crate) fn aside(&self) -> Option<(u32, &Metaslab)> {
        let index = self.aside.load(Ordering::Relaxed);
        Some((index, self.metaslabs.get(index as usize)?))
    }
    fn is_aside(&self, index: u32) -> bool {
        index == self.aside.load(Ordering::Relaxed)
    }
    /// Space of the metaslab that is set aside, in bytes; what is lent to somebody counts as allocated, deferred frees are not told apart.
    pub(crate) fn usage_aside(&self) -> VdevSpace {
        self.aside().map_or_else(VdevSpace::default, |(_, metaslab)| {
            let capacity = metaslab.range.end - metaslab.range.start;
            VdevSpace { allocated: capacity.saturating_sub(metaslab.free_bytes.load(Ordering::Relaxed)), capacity, deferred: 0 }
        })
    }
    /// Space that the vdev holds now, in bytes.
    pub(crate) fn usage(&self) -> VdevSpace {
        let (allocated, deferred) = (self.allocated.load(Ordering::Relaxed), self.deferred.load(Ordering::Relaxed));
        VdevSpace { allocated, capacity: self.capacity, deferred }
    }
    /// Metaslabs whose blocks are of the vdev's own class (OpenZFS: those of `vdev_mg`).
    fn own_metaslabs(&self) -> impl Iterator<Item = &Arc<Metaslab>> {
        let numbered = (0_u32..).zip(&self.metaslabs);
        numbered.filter(move |(index, _)| !self.is_aside(*index)).map(|(_, metaslab)| metaslab)
    }
    /// Bytes of the metaslabs of the vdev's own class (OpenZFS: `metaslab_group_get_space`).
    pub(crate) fn own_capacity(&self) -> u64 {
        self.own_metaslabs().map(|metaslab| metaslab.range.end - metaslab.range.start).sum()
    }
    /// Fragmentation of the vdev in percent: that of its metaslabs, weighted by their free space. None where more than half of them have none, or
    /// nothing is free (OpenZFS: `metaslab_group_fragmentation`).
    pub(crate) fn fragmentation(&self) -> Option<u64> {
        let (mut weighted, mut total, mut known, mut all) = (0_u128, 0_u128, 0_u64, 0_u64);
        for metaslab in self.own_metaslabs() {
            all += 1;
            if let Some((percent, free)) = metaslab.fragmentation() {
                known += 1;
                weighted += u128::from(percent) * u128::from(free);
                total += u128::from(free);
            }
        }
        let percent = weighted.checked_div(total)?;
        (known >= all.div_ceil(2)).then_some(percent as u64)
    }
    /// True when `top` says something else of where blocks may lie.
    pub(crate) fn differs(&self, top: &TopVdev) -> bool {
        let told = |top: &TopVdev| (top.is_concrete(), top.asize, top.nonallocating, top.is_log, top.bias);
        told(&self.top) != told(top) || self.top.widths != top.widths
    }
    /// The metaslab that holds `offset`.
    pub(crate) fn metaslab_at(&self, offset: u64) -> Option<(u32, &Metaslab)> {
        let index = offset >> self.top.ms_shift;
        Some((u32::try_from(index).ok()?, self.metaslabs.get(usize::try_from(index).ok()?)?))
    }
}

/// A metaslab that was dirtied for the first time since the last take.
pub(crate) type Dirtied = (VdevId, u32);

/// One shard of the allocator.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) spaces: Spaces,
    /// The vdevs that get first copies now, by class.
    rotors: [Rotor; CLASSES],
    /// The metaslabs in use, by vdev.
    active: Vec<Active>,
}

/// The vdev of a class that gets first copies now.
#[derive(Clone, Copy, Debug)]
struct Rotor {
    vdev: usize,
    /// Bytes allocated there since the rotor moved.
    used: u64,
}

/// The metaslabs in use on one vdev, by copy: one set of them, or of dRAID as many as it takes to give all children work.
#[derive(Clone, Debug)]
struct Active {
    sets: Vec<[Option<u32>; COPIES_MAX]>,
    /// There are at least and at most so many sets.
    limits: RangeInclusive<usize>,
    now: usize,
    /// Bytes allocated since the turn changed.
    used: u64,
}

/// Most sets that are there from the beginning where a metaslab reaches a part of the children only.
const SETS_FIRST_MAX: u64 = 4;
/// Most sets; more do not help.
const SETS_MAX: usize = 8;
/// Bytes that are allocated from one set before the next one has its turn: a few turns of its metaslab's lanes.
const SET_TURN_BYTES: u64 = 2 << 20;
/// A child that is to be given so much before others has nothing to do.
const IDLE_BYTES: u64 = 2 << 20;

impl Active {
    fn new(top: &TopVdev) -> Active {
        let limits = match (top.kind, Lanes::of(top, &top.metaslab_range(0))) {
            (TopKind::Draid(config), Some(lanes)) => (config.groups() as u64).div_ceil(lanes.count).min(SETS_FIRST_MAX) as usize..=SETS_MAX,
            _ => 1..=1,
        };
        Active { sets: vec![[None; COPIES_MAX]; *limits.start()], limits, now: 0, used: 0 }
    }

    fn set(&mut self) -> &mut [Option<u32>; COPIES_MAX] {
        &mut self.sets[self.now]
    }

    /// True when a set has its turn: after enough bytes.
    fn is_turn_over(&self) -> bool {
        *self.limits.end() > 1 && self.used >= SET_TURN_BYTES
    }
}

/// Distance that a further copy on the same vdev must have from the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distance {
    /// A place on another vdev.
    OtherVdev,
    /// A place at least an eighth of the vdev away.
    Eighth,
    /// A place in another metaslab.
    Metaslab,
    /// Any place.
    Any,
}

impl Shard {
    pub(crate) fn new(spaces: Spaces, number: usize) -> Shard {
        let active: Vec<Active> = spaces.iter().map(|space| Active::new(&space.top)).collect();
        Shard { rotors: [Rotor { vdev: number % active.len().max(1), used: 0 }; CLASSES], spaces, active }
    }

    /// Goes on with these vdevs.
    pub(crate) fn take_spaces(&mut self, spaces: &Spaces) {
        for (old, (new, active)) in self.spaces.iter().zip(spaces.iter().zip(&mut self.active)) {
            let used = active.sets.iter_mut().flatten();
            for used in used.filter(|used| used.is_some_and(|index| index as usize >= new.metaslabs.len())) {
                if let Some(metaslab) = used.take().and_then(|index| old.metaslabs.get(index as usize)) {
                    metaslab.leave();
                }
            }
        }
        self.active.truncate(spaces.len());
        self.active.extend(spaces.iter().skip(self.active.len()).map(|space| Active::new(&space.top)));
        self.spaces = spaces.clone();
    }

    /// Allocates where the block is best, else among all blocks; every copy or none, and all in one class.
    pub(crate) fn alloc_preferring(
        &mut self,
        preference: Preference,
        request: &AllocRequest,
        dirtied: &mut Vec<Dirtied>,
    ) -> Option<Copies> {
        let special = is_below(&self.spaces, preference.special_percent);
        let wanted = [(preference.dedup, Class::Dedup), (special, Class::Special), (true, Class::Normal)];
        wanted.into_iter().filter(|(is_wanted, _)| *is_wanted).find_map(|(_, class)| self.alloc(request, class, dirtied))
    }

    /// Allocates every copy or none. `dirtied` gets the metaslabs that must go on the txg's dirty list.
    pub(crate) fn alloc(&mut self, request: &AllocRequest, class: Class, dirtied: &mut Vec<Dirtied>) -> Option<Copies> {
        let mut copies = Copies::default();
        let spaces = self.spaces.clone();
        for index in 0..usize::from(request.copies).clamp(1, COPIES_MAX) {
            let (earlier, rest) = copies.split_at_mut(index);
            let Some(dva) = self.alloc_copy(&spaces, (request, class), earlier, dirtied) else {
                for dva in earlier {
                    undo(&spaces, request.txg, dva);
                }
                return None;
            };
            rest[0] = dva;
        }
        self.turn(&spaces, class, &copies[0]);
        Some(copies)
    }

    /// Allocates one copy in a metaslab that a data vdev set aside for intent logs, of each vdev in its turn.
    pub(crate) fn alloc_aside(&mut self, request: &AllocRequest, dirtied: &mut Vec<Dirtied>) -> Option<Copies> {
        let spaces = self.spaces.clone();
        let first = self.rotors[Class::EmbeddedLog as usize].vdev;
        for vdev in (0..spaces.len()).map(|step| (first + step) % spaces.len()) {
            let space: &Space = &spaces[vdev];
            let Some((index, metaslab)) = space.aside().filter(|_| space.class == Some(Class::Normal)) else { continue };
            let asize = space.top.asize_at(request.psize, request.txg);
            let Some(found) = metaslab.alloc(asize, request.txg) else { continue };
            let dva = address((vdev, space), index, found, asize, dirtied);
            self.turn(&spaces, Class::EmbeddedLog, &dva);
            return Some([dva, Dva::default(), Dva::default()]);
        }
        None
    }

    /// Moves the rotor on after enough bytes; those of logs after each block, since somebody waits for it.
    fn turn(&mut self, spaces: &[Arc<Space>], class: Class, first: &Dva) {
        let vdev = first.vdev.0 as usize;
        let rotor = &mut self.rotors[class as usize];
        if vdev != rotor.vdev {
            *rotor = Rotor { vdev, used: 0 };
        }
        rotor.used += first.asize;
        if class.is_of_logs() || rotor.used >= ALIQUOT_BYTES * spaces[vdev].top.columns().max(1) as u64 {
            *rotor = Rotor { vdev: (vdev + 1) % spaces.len(), used: 0 };
        }
    }

    fn alloc_copy(
        &mut self,
        spaces: &[Arc<Space>],
        (request, class): (&AllocRequest, Class),
        earlier: &[Dva],
        dirtied: &mut Vec<Dirtied>,
    ) -> Option<Dva> {
        let first = earlier.last().map_or(self.rotors[class as usize].vdev, |dva| dva.vdev.0 as usize + 1);
        let rounds: &[Distance] = match earlier.len() {
            0 => &[Distance::Any],
            _ => &[Distance::OtherVdev, Distance::Eighth, Distance::Metaslab, Distance::Any],
        };
        for &distance in rounds {
            for step in 0..spaces.len() {
                let vdev = (first + step) % spaces.len();
                let space = &spaces[vdev];
                if space.class != Some(class) {
                    continue;
                }
                let asize = space.top.asize_at(request.psize, request.txg);
                if let Some(dva) = self.alloc_on(vdev, space, asize, request.txg, (earlier, distance), dirtied) {
                    return Some(dva);
                }
            }
        }
        None
    }

    fn alloc_on(
        &mut self,
        vdev: usize,
        space: &Space,
        asize: u64,
        txg: Txg,
        (earlier, distance): (&[Dva], Distance),
        dirtied: &mut Vec<Dirtied>,
    ) -> Option<Dva> {
        let allowed = |index: u32| !space.is_aside(index) && is_far_enough(space, vdev, index, earlier, distance);
        let copy = earlier.len();
        if copy == 0 && self.active[vdev].is_turn_over() {
            self.next_set(vdev, space, asize);
        }
        let mut candidate = self.active[vdev].set()[copy].filter(|&index| allowed(index));
        loop {
            let index = match candidate {
                Some(index) => index,
                None => choose(space, asize, &allowed)?,
            };
            let metaslab = &space.metaslabs[index as usize];
            if let Some(found) = metaslab.alloc(asize, txg) {
                self.activate(vdev, space, copy, index);
                self.active[vdev].used += asize;
                return Some(address((vdev, space), index, found, asize, dirtied));
            }
            // Its bound on the largest segment is exact now, so it is not chosen again for this size.
            candidate = None;
        }
    }

    /// Gives the set its turn whose children have the least to do. A set whose metaslab has no room leaves; one comes while there are
    /// fewer than at first, or a child has nothing to do in any of them.
    fn next_set(&mut self, vdev: usize, space: &Space, asize: u64) {
        let Some(behind) = space.balance.as_ref().map(|balance| balance.behind_now()) else { return };
        let limits = self.active[vdev].limits.clone();
        let (mut best, mut set, mut added) = (None::<(Offer, usize)>, 0, 0);
        loop {
            let sets = &mut self.active[vdev].sets;
            if set == sets.len() {
                let is_idle = best.is_none_or(|(best, _)| best.left_out >= IDLE_BYTES);
                let wanted = set < *limits.end() && (is_idle || set < *limits.start());
                if !wanted || added == *limits.end() || !self.add_set(vdev, space, asize) {
                    break;
                }
                added += 1;
                continue;
            }
            match sets[set][0].and_then(|index| space.metaslabs[index as usize].offer(asize, &behind)) {
                Some(offer) => {
                    if best.is_none_or(|(best, _)| offer.arrears > best.arrears) {
                        best = Some((offer, set));
                    }
                    set += 1;
                }
                None => sets.remove(set).into_iter().flatten().for_each(|index| space.metaslabs[index as usize].leave()),
            }
        }
        let active = &mut self.active[vdev];
        if active.sets.is_empty() {
            active.sets.push([None; COPIES_MAX]);
        }
        (active.now, active.used) = (best.map_or(0, |(_, set)| set), 0);
    }

    /// Adds a set with a metaslab that no other set has; false when there is none.
    fn add_set(&mut self, vdev: usize, space: &Space, asize: u64) -> bool {
        let sets = &mut self.active[vdev].sets;
        let is_other = |index: u32| !space.is_aside(index) && sets.iter().all(|set| set[0] != Some(index));
        let Some(index) = choose(space, asize, &is_other) else { return false };
        space.metaslabs[index as usize].join();
        sets.push([Some(index), None, None]);
        true
    }

    fn activate(&mut self, vdev: usize, space: &Space, copy: usize, index: u32) {
        let active = &mut self.active[vdev].set()[copy];
        if *active != Some(index) {
            if let Some(old) = active.replace(index) {
                space.metaslabs[old as usize].leave();
            }
            space.metaslabs[index as usize].join();
        }
    }
}

/// Address of what was found in a metaslab, and counted; `dirtied` gets the metaslab if it must go on the txg's dirty list.
fn address((vdev, space): (usize, &Space), index: u32, (offset, clean): (u64, bool), asize: u64, dirtied: &mut Vec<Dirtied>) -> Dva {
    let id = VdevId(vdev as u32);
    if clean {
        dirtied.push((id, index));
    }
    space.allocated.fetch_add(asize, Ordering::Relaxed);
    Dva { vdev: id, offset, asize, gang: false }
}

/// True when there are vdevs for metadata of which no more than so many percent are taken; of 100 and more nobody needs to count.
fn is_below(spaces: &[Arc<Space>], percent: u8) -> bool {
    let mut special = spaces.iter().filter(|space| space.class == Some(Class::Special)).peekable();
    if percent == 0 || special.peek().is_none() {
        return false;
    }
    if percent >= 100 {
        return true;
    }
    let sum = |(allocated, capacity): (u64, u64), space: &Arc<Space>| (allocated + space.usage().allocated, capacity + space.capacity);
    let (allocated, capacity) = special.fold((0, 0), sum);
    u128::from(allocated) * 100 < u128::from(capacity) * u128::from(percent)
}

fn undo(spaces: &[Arc<Space>], txg: Txg, dva: &Dva) {
    let Some(space) = spaces.get(dva.vdev.0 as usize) else { return };
    if let Some((_, metaslab)) = space.metaslab_at(dva.offset)
        && metaslab.unalloc(dva.offset, dva.asize, txg)
    {
        space.allocated.fetch_sub(dva.asize, Ordering::Relaxed);
    }
}

fn is_far_enough(space: &Space, vdev: usize, index: u32, earlier: &[Dva], distance: Distance) -> bool {
    let least = match distance {
        Distance::Any => return true,
        Distance::OtherVdev => u32::MAX,
        Distance::Eighth => (space.metaslabs.len() as u32 / 8).max(1),
        Distance::Metaslab => 1,
    };
    let same_vdev = earlier.iter().filter(|dva| dva.vdev.0 as usize == vdev);
    same_vdev.map(|dva| (dva.offset >> space.top.ms_shift) as u32).all(|other| other.abs_diff(index) >= least)
}

/// Free space is told apart in so many parts (log2) of a metaslab of dRAID.
const NEARLY_SHIFT: u32 = 4;

/// The metaslab with the most free space that can hold `asize`, preferring those that no shard uses, then low offsets.
fn choose(space: &Space, asize: u64, allowed: &dyn Fn(u32) -> bool) -> Option<u32> {
    let mut best: Option<(bool, u64, u32)> = None;
    for (index, metaslab) in space.metaslabs.iter().enumerate() {
        let index = index as u32;
        if metaslab.largest.load(Ordering::Relaxed) < asize || !allowed(index) {
            continue;
        }
        let idle = metaslab.owners.load(Ordering::Relaxed) == 0;
        let mut free = metaslab.free_bytes.load(Ordering::Relaxed);
        if matches!(space.top.kind, TopKind::Draid(_)) {
            // Nearly as much is as much: neighbours lie on different children, metaslabs anywhere may lie on the same.
            free >>= space.top.ms_shift.saturating_sub(NEARLY_SHIFT);
        }
        if best.is_none_or(|(best_idle, best_free, _)| (idle, free) > (best_idle, best_free)) {
            best = Some((idle, free, index));
        }
    }
    best.map(|(_, _, index)| index)
}
