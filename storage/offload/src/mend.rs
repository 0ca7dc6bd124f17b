//! What leaves lack of a block, computed and written beside the devices: the provider reads what the others have, and the host sees a checksum.
//!
//! ```text
//! {load what is there, reconstruct, checksum} ─► the pointer's? ─► {store what leaves lack} ─► now and then read back by the host ─► true
//!       anything else ─────────────────────────────────────────────────────────────────────────────────────────────► false: the host does it
//! ```
//! The provider does not know the checksum of the pointer, so it has the block when it says that. That it wrote what it has, and parity, nothing says:
//! both are judged by what the host reads, of the first blocks and of those that are picked. When it fails, the host does it all again, with the same bytes. What it may then still
//! write is of the block, whose space nobody else gets before that is over.

use crate::accelerator::Accelerator;
use crate::submit::{reason, submit};
use abd::Abd;
use device::{DeviceError, DeviceOp};
use dpusm::{Claim, Device, FallbackReason, Feature, Graph, NodeId, OpError, OpKind, RaidContext, Report, Store, Straggler, View, verify};
use metaslab::{Allocator, Hold};
use ondisk::{ByteOrder, Checksum, Guid};
use std::sync::Arc;
use vdev::MendingColumn;
use zio::{Answer, AnswerThen, Mend, PoolView, sum_of};

/// Stores of one column.
struct Sides {
    from: Option<Store>,
    to: Vec<Store>,
    /// Leaves that have it now or will, as the host calls them.
    guids: Vec<Guid>,
}

/// A block on its way.
struct Mender {
    accelerator: Accelerator,
    device: Device,
    block: Mend,
    sides: Vec<Sides>,
    is_verified: bool,
    /// Allocator of the block's space.
    allocator: Arc<Allocator>,
}

/// Graph that finds the columns, and where they will be.
struct Solved {
    graph: Graph,
    sum: NodeId,
    columns: Vec<View>,
}

/// Has the provider do it; false when it can't, or it failed.
pub(crate) fn mend(accelerator: &Accelerator, view: &PoolView, block: Mend) -> Answer<bool> {
    let Some(mender) = Mender::new(accelerator, view, block) else { return Answer::Now(false) };
    Answer::later(move |then| mender.solve(then))
}

impl Mender {
    fn new(accelerator: &Accelerator, view: &PoolView, block: Mend) -> Option<Mender> {
        let policy = accelerator.policy();
        let is_wished = policy.raidz_rec.get(block.mending.parities.checked_sub(1)?) == Some(&true);
        if !is_wished || !accelerator.has_stores() || block.bp.psize() < policy.bytes_min {
            return None;
        }
        let device = accelerator.device()?;
        let open = accelerator.stores().read();
        let store = |guid: &Guid| open.stores.get(guid).filter(|store| device.has(&Feature::Load { kind: store.kind() })).cloned();
        let sides = |column: &MendingColumn| -> Option<Sides> {
            let guids: Vec<Guid> = column.from.iter().chain(&column.to).map(|leaf| view.tree.leaf(*leaf).guid).collect();
            let mut stores = guids.iter().map(store).collect::<Option<Vec<Store>>>()?;
            let to = stores.split_off(usize::from(column.from.is_some()));
            Some(Sides { from: stores.pop(), to, guids })
        };
        let sides = block.mending.columns.iter().map(sides).collect::<Option<Vec<Sides>>>()?;
        drop(open);
        // What cannot be read back is not begun.
        let is_whole = |(column, sides): (&MendingColumn, &Sides)| column.length == 0 || !sides.guids.is_empty();
        if !block.mending.columns.iter().zip(&sides).skip(block.mending.parities).all(is_whole) {
            return None;
        }
        let is_verified = accelerator.picks() || device.wants_proof(OpKind::RaidReconstruct) || device.wants_proof(OpKind::Store);
        let allocator = view.allocator.clone();
        Some(Mender { accelerator: accelerator.clone(), device, block, sides, is_verified, allocator })
    }

    fn graph(&self) -> Result<Solved, OpError> {
        let (parity, data) = self.block.mending.columns.split_at(self.block.mending.parities);
        let whole = self.device.alloc(data.iter().map(|column| column.length).sum())?.whole();
        let mut columns =
            parity.iter().map(|column| Ok(self.device.alloc(column.length)?.whole())).collect::<Result<Vec<View>, OpError>>()?;
        let mut at = 0;
        for column in data {
            columns.push(whole.slice(at..at + column.length)?);
            at += column.length;
        }
        let row = RaidContext::new(columns[..parity.len()].to_vec(), columns[parity.len()..].to_vec())?;
        let mut graph = Graph::new();
        let mut targets = Vec::new();
        for (index, (column, sides)) in self.block.mending.columns.iter().zip(&self.sides).enumerate() {
            match &sides.from {
                Some(store) => {
                    graph.load(&columns[index], store, column.offset);
                }
                None if column.length > 0 => targets.push(index),
                None => {}
            }
        }
        graph.raid_reconstruct(&row, &targets);
        let sum = graph.checksum(&whole.slice(0..self.block.bp.psize())?, Checksum::FLETCHER_4, ByteOrder::Little);
        Ok(Solved { graph, sum, columns })
    }

    fn gives_up(&self, kind: OpKind, error: OpError) -> bool {
        self.device.note_fallback(kind, reason(error));
        false
    }

    fn solve(self, then: AnswerThen<bool>) {
        let Solved { graph, sum, columns } = match self.graph() {
            Ok(solved) => solved,
            Err(error) => return then(self.gives_up(OpKind::RaidReconstruct, error)),
        };
        let (device, deadline_ns) = (self.device.clone(), self.accelerator.policy().deadline_ns);
        submit(&device, graph, deadline_ns, (self, then), move |(mut mender, then), report| {
            match report.and_then(|report| report.all().and_then(|()| Ok((report.checksum(sum)?, report.is_probe)))) {
                Ok((words, is_probe)) if words == mender.block.bp.checksum() => {
                    mender.is_verified |= is_probe;
                    mender.store(&columns, then);
                }
                // A column is wrong on its device, or somebody lies: the host finds out which.
                Ok(_) => then(false),
                Err(error) => then(mender.gives_up(OpKind::RaidReconstruct, error)),
            }
        });
    }

    fn store(self, columns: &[View], then: AnswerThen<bool>) {
        let mut graph = Graph::new();
        for ((column, sides), view) in self.block.mending.columns.iter().zip(&self.sides).zip(columns) {
            for store in &sides.to {
                graph.store(view, store, column.offset);
            }
        }
        let (device, deadline_ns) = (self.device.clone(), self.accelerator.policy().deadline_ns);
        submit(&device, graph, deadline_ns, (self, then), move |(mender, then), report| {
            if let Some(straggler) = report.as_ref().ok().and_then(Report::straggler) {
                mender.keep_space(&straggler);
            }
            match report.and_then(|report: Report| report.all().map(|()| report.is_probe)) {
                Ok(is_probe) if mender.is_verified || is_probe => mender.prove(then),
                // Of one that was caught lying meanwhile nobody knows what it wrote.
                Ok(_) => then(!mender.device.is_distrusted()),
                Err(error) => then(mender.gives_up(OpKind::Store, error)),
            }
        });
    }

    /// Has the block's space used by nobody else, should it be freed, while something may still write there.
    fn keep_space(&self, straggler: &Straggler) {
        let holds: Vec<Hold> = self.block.bp.dvas().filter_map(|dva| self.allocator.hold_at(&dva)).collect();
        straggler.then(Box::new(move || drop(holds)));
    }

    /// Reads the block as it is on the devices now, what was written and what was there.
    fn prove(self, then: AnswerThen<bool>) {
        let Some(leaves) = self.accelerator.stores().read().leaves.clone() else { return then(false) };
        let (mut ops, mut numbers) = (Vec::new(), Vec::new());
        for (number, (column, sides)) in self.block.mending.columns.iter().zip(&self.sides).enumerate() {
            for guid in &sides.guids {
                ops.push((*guid, column.offset, DeviceOp::read(column.length)));
                numbers.push(number);
            }
        }
        let judge = move |results: Vec<Result<Abd, DeviceError>>| {
            let Ok(read) = results.into_iter().collect::<Result<Vec<Abd>, DeviceError>>() else { return then(false) };
            let is_right = self.is_right(&numbers, &read);
            for kind in [OpKind::RaidReconstruct, OpKind::Store] {
                self.device.note_verified(kind, is_right);
            }
            if !is_right {
                self.device.note_fallback(OpKind::Store, FallbackReason::Wrong);
            }
            then(is_right && !self.device.is_distrusted());
        };
        leaves.issue(ops, Box::new(judge));
    }

    /// True when what was read of the columns of these numbers is the block and its parity, on every leaf.
    fn is_right(&self, numbers: &[usize], read: &[Abd]) -> bool {
        let of = |number: usize| numbers.iter().zip(read).filter(move |(own, _)| **own == number).map(|(_, bytes)| bytes);
        let parities = self.block.mending.parities;
        let count = self.block.mending.columns.len();
        if (0..count).any(|number| of(number).zip(of(number).skip(1)).any(|(one, other)| one != other)) {
            return false;
        }
        let data: Vec<Abd> = (parities..count).map(|number| of(number).next().cloned().unwrap_or_default()).collect();
        let whole = Abd::gang(&data);
        let psize = self.block.bp.psize();
        if whole.len() < psize || sum_of(Checksum::FLETCHER_4, &whole.slice(0..psize)) != Ok(self.block.bp.checksum()) {
            return false;
        }
        let parity: Vec<(usize, Abd)> = (0..parities).filter_map(|number| Some((number, of(number).next()?.clone()))).collect();
        verify(&Claim::Rebuilt { parities, known: &[], lost: 0, data: &data, parity: &parity })
    }
}
