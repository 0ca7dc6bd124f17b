//! The vdev tree as an immutable snapshot: top-level vdevs, their interior nodes and the numbered leaves.
//!
//! Geometry sees a top-level vdev as *slots*: a mirror has one slot with every leaf in it, RAID-Z one slot a column.
//! A replacing or spare node inside RAID-Z is a slot with several leaves, all of which hold the column. dRAID has one slot a
//! child; a distributed spare in a slot is a leaf without a device: what it holds lies on other children, by offset.

use crate::bias::Bias;
use crate::build::finished;
use crate::error::TreeError;
use crate::expansion::{Scratch, Widths};
use crate::leaf::{Leaf, LeafId, LeafKind, LeafState};
use crate::mapping::{Mapping, Piece, RemovalObjects};
use crate::raidz::RaidzMap;
use crate::size::metaslab_shift;
use crate::spread::Shape;
use crate::{DraidConfig, DraidLayout};
use ondisk::{Dva, Guid, ObjectId, Txg, Uberblock, VdevId, reflow_state};
use std::ops::Range;
use std::sync::Arc;

/// The type of an interior node, or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A leaf.
    Leaf(LeafId),
    /// A mirror.
    Mirror,
    /// RAID-Z with this many parity columns.
    Raidz(u8),
    /// dRAID.
    Draid(DraidConfig),
    /// A device and its replacement.
    Replacing,
    /// A device and the hot spare in its place.
    Spare,
}

/// A node of the tree as the configuration shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Type of the node.
    pub kind: NodeKind,
    /// Index within the parent.
    pub id: u64,
    /// Guid of the node.
    pub guid: Guid,
    /// Txg that added it, 0 when unknown.
    pub create_txg: Txg,
    /// Children, empty for a leaf.
    pub children: Vec<Node>,
}

/// The type of a top-level vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TopKind {
    /// One device (or a replacing pair).
    #[default]
    Leaf,
    /// A mirror.
    Mirror,
    /// RAID-Z with this many parity columns.
    Raidz(u8),
    /// dRAID.
    Draid(DraidConfig),
    /// A vdev of which nothing is known.
    Missing,
    /// A place that is empty: the vdev was removed, and no block has an address there.
    Hole,
    /// A vdev that was removed: what was there lies elsewhere (OpenZFS: `indirect`).
    Indirect,
}

/// A top-level vdev.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopVdev {
    /// Index in the tree.
    pub id: VdevId,
    /// Guid of the vdev.
    pub guid: Guid,
    /// Type of the vdev.
    pub kind: TopKind,
    /// log2 of the sector size.
    pub ashift: u32,
    /// Allocatable bytes (of all columns).
    pub asize: u64,
    /// The MOS object with the space map objects of the metaslabs.
    pub ms_array: ObjectId,
    /// log2 of the metaslab size.
    pub ms_shift: u32,
    /// The vdev's ZAP (`com.delphix:vdev_zap_top`), 0 for none.
    pub zap: ObjectId,
    /// True for a separate intent log device.
    pub is_log: bool,
    /// Class of blocks that it is for.
    pub bias: Bias,
    /// True when nothing new is allocated here.
    pub nonallocating: bool,
    /// True when that is so for a removal, which did not begin yet or begins with this txg: nobody is told, so that a crash ends it.
    pub is_emptying: bool,
    /// True while what lies here is copied elsewhere.
    pub is_leaving: bool,
    /// Objects of a vdev that was removed, or is being removed.
    pub objects: RemovalObjects,
    /// New places of what was here, of a vdev that was removed, or as far as they are known of one that is being removed.
    pub mapping: Option<Arc<Mapping>>,
    /// The tree below, None for a vdev that is missing or was removed.
    pub node: Option<Node>,
    /// The leaves of each slot (see the file's header).
    pub slots: Vec<Vec<LeafId>>,
    /// 512-byte sectors of data in a 128 KiB block per allocated sector, × 2⁹ (OpenZFS: `vdev_deflate_ratio`).
    pub deflate_ratio: u64,
    /// Groups and permutations of a dRAID vdev.
    pub draid: Option<Arc<DraidLayout>>,
    /// Expansions of a RAID-Z vdev.
    pub widths: Widths,
}

impl TopVdev {
    /// True for a vdev whose room is for all blocks (OpenZFS: `spa_normal_class`).
    pub fn is_normal(&self) -> bool {
        self.is_concrete() && !self.is_log && self.bias == Bias::None
    }
    /// Parity columns of a row: 0 unless RAID-Z or dRAID.
    pub fn parity(&self) -> usize {
        match self.kind {
            TopKind::Raidz(parity) => usize::from(parity),
            TopKind::Draid(config) => config.parity(),
            _ => 0,
        }
    }
    /// Children of RAID-Z and dRAID; 1 otherwise.
    pub fn columns(&self) -> usize {
        self.slots.len()
    }
    /// Children that a RAID-Z vdev had when it was made; those that it has where it never got one.
    pub fn original_width(&self) -> usize {
        self.columns().saturating_sub(self.widths.count())
    }
    /// Columns of blocks that are born in `birth` (OpenZFS: `vdev_raidz_get_logical_width`).
    pub fn width_at(&self, birth: Txg) -> usize {
        self.original_width() + self.widths.txgs.iter().filter(|txg| **txg <= birth).count()
    }
    /// Children whose room the vdev's space is made of: all but one that it is just getting.
    pub fn filled_width(&self) -> usize {
        self.columns() - usize::from(self.widths.reflow.is_some())
    }
    /// True when the vdev got a device, or gets one: not all blocks on it are laid out alike.
    pub fn is_expanded(&self) -> bool {
        self.widths.count() > 0
    }
    /// True while the vdev gets a device.
    pub fn is_expanding(&self) -> bool {
        self.widths.reflow.is_some()
    }
    /// True when a block that was born in `birth` is narrower than the vdev.
    pub(crate) fn is_spread(&self, birth: Txg) -> bool {
        self.is_expanded() && self.width_at(birth) != self.columns()
    }
    /// Number of leaves that a read of a large block waits for: the data columns of a row.
    pub fn read_width(&self) -> usize {
        match self.kind {
            TopKind::Raidz(parity) => self.columns().saturating_sub(usize::from(parity)).max(1),
            TopKind::Draid(config) => config.data(),
            _ => 1,
        }
    }
    /// Bytes that an I/O of `psize` bytes takes on a leaf: a whole number of sectors.
    pub fn padded_psize(&self, psize: usize) -> usize {
        psize.next_multiple_of(1 << self.ashift)
    }
    /// Bytes allocated for `psize` bytes at most, parity and padding included: those of blocks that were born before the vdev got devices, if it did
    /// (OpenZFS: `vdev_psize_to_asize`).
    pub fn asize_for_psize(&self, psize: u64) -> u64 {
        self.asize_at(psize, Txg::ZERO)
    }
    /// Bytes allocated for `psize` bytes that are born in `birth` (OpenZFS: `vdev_psize_to_asize_txg`).
    pub fn asize_at(&self, psize: u64, birth: Txg) -> u64 {
        let sectors = psize.div_ceil(1 << self.ashift).max(1);
        if let TopKind::Draid(config) = self.kind {
            return config.asize_for_sectors(sectors, self.ashift);
        }
        let TopKind::Raidz(parity) = self.kind else { return sectors << self.ashift };
        let parity = u64::from(parity);
        let data_columns = self.width_at(birth) as u64 - parity;
        let total = sectors + parity * sectors.div_ceil(data_columns);
        total.next_multiple_of(parity + 1) << self.ashift
    }
    /// Bytes of user data that `asize` allocated bytes stand for (OpenZFS: `dva_get_dsize_sync`).
    pub fn dsize(&self, asize: u64) -> u64 {
        (asize >> 9) * self.deflate_ratio
    }
    /// Allocatable bytes that each leaf must have for this vdev to be whole (OpenZFS: `vdev_get_min_asize`).
    pub fn min_leaf_asize(&self) -> u64 {
        let least = if self.ms_shift == 0 { self.asize } else { self.metaslab_count() << self.ms_shift };
        match self.kind {
            TopKind::Draid(config) => config.min_child_asize(least),
            TopKind::Raidz(_) => least.div_ceil(self.filled_width().max(1) as u64),
            _ => least,
        }
    }
    /// Number of metaslabs.
    pub fn metaslab_count(&self) -> u64 {
        if self.ms_shift == 0 { 0 } else { self.asize >> self.ms_shift }
    }
    /// Range of metaslab number `index` in bytes of the vdev: on dRAID whole stripes of its part of it (OpenZFS: `metaslab_init`,
    /// `vdev_draid_metaslab_init`).
    pub fn metaslab_range(&self, index: u32) -> Range<u64> {
        let start = u64::from(index) << self.ms_shift;
        let end = start + (1 << self.ms_shift);
        let TopKind::Draid(config) = self.kind else { return start..end };
        let stripe = config.stripe_bytes(self.ashift);
        let start = start.next_multiple_of(stripe);
        start..(end / stripe * stripe).max(start)
    }
    /// True when a block of `psize` bytes that was born in `birth` may begin at `offset`: it fits, and it begins with a sector (dRAID: a stripe).
    pub fn accepts(&self, offset: u64, psize: u64, birth: Txg) -> bool {
        let unit = if let TopKind::Draid(config) = self.kind { config.stripe_bytes(self.ashift) } else { 1 << self.ashift };
        offset.is_multiple_of(unit) && offset.checked_add(self.asize_at(psize, birth)).is_some_and(|end| end <= self.asize)
    }
    /// Smallest amount of data worth an allocation (OpenZFS: `vdev_get_min_alloc`).
    pub fn min_alloc(&self) -> u64 {
        if let TopKind::Draid(config) = self.kind { (config.data() as u64) << self.ashift } else { 1 << self.ashift }
    }
    /// True when a block of `psize` bytes at `offset` that is born in `birth` has one row of columns, whose parity covers all of it.
    pub fn is_one_row(&self, offset: u64, psize: u64, birth: Txg) -> bool {
        !self.is_spread(birth) && self.draid.as_ref().is_none_or(|draid| !draid.spans_groups(offset, self.asize_for_psize(psize)))
    }
    /// Calls `each` for the leaves that hold `offset` of a slot: with the leaf that has the device, and every leaf whose
    /// state and dirty time log count (OpenZFS: `vdev_draid_spare_get_child`, `vdev_draid_missing`).
    pub(crate) fn each_holder(&self, tree: &VdevTree, slot: usize, offset: u64, each: &mut dyn FnMut(LeafId, &[LeafId])) {
        for &id in &self.slots[slot] {
            if tree.leaf(id).kind == LeafKind::DraidSpare {
                self.each_stand_in(tree, offset, &mut vec![id], each);
            } else {
                each(id, &[id]);
            }
        }
    }
    /// Calls `each` for the leaves that the distributed spare at the end of `chain` stands for.
    fn each_stand_in(&self, tree: &VdevTree, offset: u64, chain: &mut Vec<LeafId>, each: &mut dyn FnMut(LeafId, &[LeafId])) {
        let spare = chain.last().and_then(|&id| tree.leaf(id).draid_spare);
        let child = self.draid.as_ref().zip(spare).and_then(|(draid, spare)| draid.spare_child(spare.id, offset));
        for &id in child.map_or(&[][..], |child| &self.slots[child]) {
            // A damaged configuration could send a spare to itself.
            if chain.contains(&id) {
                continue;
            }
            chain.push(id);
            if tree.leaf(id).kind == LeafKind::DraidSpare {
                self.each_stand_in(tree, offset, chain, each);
            } else {
                each(id, chain);
            }
            chain.pop();
        }
    }
    /// True when blocks can be read and written here: a real vdev, neither missing nor removed.
    pub fn is_concrete(&self) -> bool {
        !matches!(self.kind, TopKind::Hole | TopKind::Missing | TopKind::Indirect)
    }
    /// True for a vdev that was removed, and on which nothing lies any more.
    pub fn is_removed(&self) -> bool {
        self.kind == TopKind::Indirect
    }
    /// Every leaf below.
    pub fn leaves(&self) -> impl Iterator<Item = LeafId> + '_ {
        self.slots.iter().flatten().copied()
    }
}

impl RaidzMap {
    /// The map of `length` bytes (a whole number of sectors) at `offset` of the RAID-Z or dRAID vdev `top`, of a block that was born in `birth`.
    pub fn new(top: &TopVdev, offset: u64, length: usize, birth: Txg) -> RaidzMap {
        match &top.draid {
            Some(draid) => draid.block_map(top.ashift, offset, length),
            None if top.is_spread(birth) => {
                let (parity, ashift, width) = (top.parity(), top.ashift, top.width_at(birth));
                let moved = top.widths.reflow.as_ref().map(|reflow| reflow.moved(ashift));
                let shape = Shape { parity, ashift, width, columns: top.columns(), original: top.original_width(), moved };
                RaidzMap::of_spread(&shape, offset, length)
            }
            None => RaidzMap::of_raidz((top.parity(), top.columns(), top.ashift), offset, length),
        }
    }
}

/// The pool's vdevs: an immutable snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VdevTree {
    /// Guid of the root vdev: the pool's guid.
    pub guid: Guid,
    /// Top-level vdevs by [`VdevId`].
    pub tops: Vec<TopVdev>,
    /// Leaves by [`LeafId`].
    pub leaves: Vec<Leaf>,
    /// Txg that created the root vdev.
    pub create_txg: Txg,
    /// The root vdev's ZAP (feature `com.klarasystems:vdev_zaps_v2`), 0 for none.
    pub root_zap: ObjectId,
}

impl VdevTree {
    /// A tree of `tops`, whose nodes' leaf numbers index `leaves`; everything derived is computed here.
    pub fn assemble(guid: Guid, tops: Vec<TopVdev>, leaves: Vec<Leaf>) -> Result<VdevTree, TreeError> {
        let mut tree = VdevTree { guid, tops, leaves, ..VdevTree::default() };
        for index in 0..tree.tops.len() {
            tree.tops[index].id = VdevId(index as u32);
            let top = finished(&tree.tops[index])?;
            for leaf in top.leaves() {
                let leaf = tree.leaves.get_mut(leaf.0 as usize).ok_or(TreeError::Geometry("leaf number"))?;
                leaf.top = top.id;
            }
            tree.tops[index] = top;
        }
        Ok(tree)
    }

    /// A tree for tests and benchmarks: `layout` is a list of (kind, leaf count); every leaf is a file `d00`, `d01` … with
    /// `leaf_asize` allocatable bytes.
    pub fn simple(layout: &[(TopKind, usize)], ashift: u32, leaf_asize: u64) -> Result<VdevTree, TreeError> {
        let mut leaves = Vec::new();
        let mut tops = Vec::new();
        for (top_index, &(kind, count)) in layout.iter().enumerate() {
            let mut children = Vec::new();
            for id in 0..count as u64 {
                let number = leaves.len() as u32;
                let guid = Guid(0x1000 + u64::from(number));
                leaves.push(Leaf { guid, path: format!("d{number:02}"), ..Leaf::default() });
                children.push(Node { kind: NodeKind::Leaf(LeafId(number)), id, guid, create_txg: Txg(4), children: Vec::new() });
            }
            let guid = Guid(0x100 + top_index as u64);
            let (node, factor) = match kind {
                TopKind::Mirror => (Node { kind: NodeKind::Mirror, id: 0, guid, create_txg: Txg(4), children }, 1),
                TopKind::Raidz(parity) => (Node { kind: NodeKind::Raidz(parity), id: 0, guid, create_txg: Txg(4), children }, count),
                TopKind::Draid(config) => (Node { kind: NodeKind::Draid(config), id: 0, guid, create_txg: Txg(4), children }, 0),
                _ => (children.into_iter().next().ok_or(TreeError::Geometry("a leaf"))?, 1),
            };
            let asize = if let TopKind::Draid(config) = kind { config.asize(leaf_asize) } else { leaf_asize * factor as u64 };
            let ms_shift = metaslab_shift(kind, asize);
            let guid = node.guid;
            tops.push(TopVdev { guid, kind, ashift, asize, ms_shift, node: Some(node), ..TopVdev::default() });
        }
        VdevTree::assemble(Guid(1), tops, leaves)
    }

    /// The top-level vdev `id`, or None when a block pointer names one that does not exist or has no storage.
    pub fn top(&self, id: VdevId) -> Option<&TopVdev> {
        self.tops.get(id.0 as usize).filter(|top| top.is_concrete())
    }
    /// The top-level vdev `id` if blocks have addresses there: one that is there, or one that was removed. None when a block pointer names one that does not
    /// exist or has no storage.
    pub fn addressed(&self, id: VdevId) -> Option<&TopVdev> {
        self.tops.get(id.0 as usize).filter(|top| top.is_concrete() || top.is_removed())
    }

    /// Parts of the bytes at an address, where they are now: one of those on a vdev that is there. `passed` is called for each range of a removed vdev on
    /// the way. None when an address leads nowhere.
    pub fn places(&self, dva: &Dva, passed: &mut dyn FnMut(VdevId, Range<u64>)) -> Option<Vec<Piece>> {
        let mut found = Vec::new();
        let mut open = vec![(Piece { at: 0, place: *dva, birth: Txg::ZERO }, 0)];
        while let Some((piece, depth)) = open.pop() {
            let place = piece.place;
            let top = self.addressed(place.vdev)?;
            let end = place.offset.checked_add(place.asize).filter(|end| *end <= top.asize)?;
            if !top.is_removed() {
                found.push(piece);
                continue;
            }
            // In a damaged mapping a range could lead to itself.
            if depth > self.tops.len() {
                return None;
            }
            passed(top.id, place.offset..end);
            let parts = top.mapping.as_ref()?.pieces(place.offset, place.asize)?;
            open.extend(parts.into_iter().rev().map(|part| (Piece { at: piece.at + part.at, ..part }, depth + 1)));
        }
        Some(found)
    }

    /// Parts of a block of `psize` bytes that has an address on the removed vdev `top`. Each is of whole sectors of a vdev without parity; None when an
    /// address leads nowhere.
    pub(crate) fn pieces_of(&self, top: &TopVdev, offset: u64, psize: usize) -> Option<Vec<Piece>> {
        let dva = Dva { vdev: top.id, offset, asize: top.padded_psize(psize) as u64, gang: false };
        let pieces = self.places(&dva, &mut |_, _| ())?;
        let is_whole = |piece: &Piece| {
            let sector = |top: &TopVdev| 1u64 << top.ashift;
            self.top(piece.place.vdev).is_some_and(|top| {
                top.parity() == 0 && piece.place.offset.is_multiple_of(sector(top)) && piece.place.asize.is_multiple_of(sector(top))
            })
        };
        pieces.iter().all(is_whole).then_some(pieces)
    }

    /// The top-level vdev that is being expanded.
    pub fn expanding(&self) -> Option<&TopVdev> {
        self.tops.iter().find(|top| top.widths.reflow.is_some())
    }

    /// Goes on with an expansion where an uberblock says that it is.
    pub fn resume_reflow(&self, ub: &Uberblock) {
        for reflow in self.tops.iter().filter_map(|top| top.widths.reflow.as_ref()) {
            let is_in_scratch = ub.raidz_reflow_state() == reflow_state::SCRATCH_VALID;
            reflow.set_scratch(if is_in_scratch { Scratch::Valid } else { Scratch::Unused });
            reflow.set_synced(ub.raidz_reflow_offset());
        }
    }

    /// Takes over what `from`, the same pool, knows of where the contents of removed vdevs are.
    pub fn take_mappings(&mut self, from: &VdevTree) {
        for (top, known) in self.tops.iter_mut().zip(&from.tops) {
            if top.objects.mapping == known.objects.mapping {
                top.mapping = known.mapping.clone();
            }
        }
    }
    /// The leaf `id`. Panics on an id of another tree.
    pub fn leaf(&self, id: LeafId) -> &Leaf {
        &self.leaves[id.0 as usize]
    }
    /// Bytes of user data that a block pointer's copies stand for (OpenZFS: `bp_get_dsize`).
    pub fn dsize(&self, bp: &ondisk::BlockPtr) -> u64 {
        bp.dvas().map(|dva| self.addressed(dva.vdev).map_or(0, |top| top.dsize(dva.asize))).sum()
    }
    /// Smallest sector size of the vdevs that are for all blocks, as log2 (OpenZFS: `spa_min_ashift`).
    pub fn min_ashift(&self) -> u32 {
        self.tops.iter().filter(|top| top.is_normal()).map(|top| top.ashift).min().unwrap_or(9)
    }
    /// The least amount of data worth an allocation where all blocks may lie, and the step in which more is (OpenZFS: `spa_min_alloc`,
    /// `spa_gcd_alloc`).
    pub fn alloc_units(&self) -> (u64, u64) {
        let units = self.tops.iter().filter(|top| top.is_normal()).map(TopVdev::min_alloc);
        let gcd = |mut left: u64, mut right: u64| {
            while right != 0 {
                (left, right) = (right, left % right);
            }
            left
        };
        let (least, step) = units.fold((u64::MAX, 0), |(least, step), unit| (least.min(unit), gcd(unit, step)));
        if step == 0 { (512, 512) } else { (least, step) }
    }
    /// Largest sector size, as log2 (OpenZFS: `spa_max_ashift`).
    pub fn max_ashift(&self) -> u32 {
        self.tops.iter().filter(|top| top.is_concrete()).map(|top| top.ashift).max().unwrap_or(9)
    }
    /// True when every block of the pool can be read: no top-level vdev has lost more than its redundancy. Logs have no blocks of it.
    pub fn is_readable(&self) -> bool {
        self.lost_tops() == 0
    }
    /// Top-level vdevs that have lost more than their redundancy.
    pub fn lost_tops(&self) -> usize {
        let is_lost = |top: &&TopVdev| match top.kind {
            TopKind::Hole | TopKind::Indirect => false,
            TopKind::Missing => !top.is_log,
            _ => !top.is_log && self.lost_slots(top) > top.parity(),
        };
        self.tops.iter().filter(is_lost).count()
    }
    /// Slots of `top` without a usable leaf.
    pub fn lost_slots(&self, top: &TopVdev) -> usize {
        top.slots.iter().filter(|slot| !slot.iter().any(|&leaf| self.leaf(leaf).state.is_usable())).count()
    }
    /// True when reads can do without the leaf and those that `sits` picks, cannot be used or lack blocks: one of a mirror is left, and as many columns
    /// of RAID-Z and dRAID as data needs (OpenZFS: `vdev_prop_set`, `VDEV_PROP_SIT_OUT`, which knows no mirrors).
    pub fn can_sit_out(&self, leaf: LeafId, sits: &dyn Fn(LeafId) -> bool) -> bool {
        let own = self.leaf(leaf);
        let Some(top) = self.top(own.top).filter(|_| own.kind != LeafKind::DraidSpare) else { return false };
        let is_out = |id: &LeafId| {
            let other = self.leaf(*id);
            *id == leaf || sits(*id) || !other.state.is_usable() || !other.missing_txgs.is_empty()
        };
        top.slots.iter().filter(|slot| slot.iter().all(is_out)).count() <= top.parity()
    }
    /// Makes the same tree with the state of one leaf changed.
    #[must_use]
    pub fn with_leaf_state(&self, id: LeafId, state: LeafState) -> VdevTree {
        let mut tree = self.clone();
        tree.leaves[id.0 as usize].state = state;
        tree
    }
}
