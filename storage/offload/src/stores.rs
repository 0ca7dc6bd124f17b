//! Writes by the accelerator: the columns of a block go from its memory to the devices, and the host moves none of them.
//!
//! A provider that cannot reach a device writes through the host ([`LeafStore`]): then the I/O scheduler sees the write as any other. What
//! reaches a device by itself does so past the scheduler, the statistics and the simulated faults; the devices are still flushed with the
//! transaction group.

use crate::accelerator::{Accelerator, OpenStores};
use crate::block::Offloaded;
use abd::Abd;
use device::{DeviceError, DeviceOp};
use dpusm::{Feature, Graph, HostDone, HostRead, HostStore, NodeId, OpError, Store, StoreKind, StoreTarget, View};
use ondisk::{Dva, Guid, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::{LeafId, LeafKind, Part, VdevTree, WriteOutcome, WritePlan};
use zio::{LeafPort, PoolView};

/// Errnos of a write that fails: EIO and ENODEV.
const EIO: i32 = 5;
const ENODEV: i32 = 19;

/// The host's way to a leaf's device.
struct LeafStore {
    leaves: Arc<dyn LeafPort>,
    leaf: Guid,
}

impl LeafStore {
    fn issue(&self, offset: u64, op: DeviceOp, done: HostDone) {
        let then = move |results: Vec<Result<Abd, DeviceError>>| {
            let error = results.into_iter().find_map(Result::err);
            done(error.map_or(Ok(()), |error| Err(if error == DeviceError::Gone { ENODEV } else { EIO })));
        };
        self.leaves.issue(vec![(self.leaf, offset, op)], Box::new(then));
    }
}

impl HostStore for LeafStore {
    fn read(&self, offset: u64, bytes: usize, done: HostRead) {
        let then = move |results: Vec<Result<Abd, DeviceError>>| {
            let read = results.into_iter().next().unwrap_or(Err(DeviceError::Gone));
            done(read.map_err(|error| if error == DeviceError::Gone { ENODEV } else { EIO }));
        };
        self.leaves.issue(vec![(self.leaf, offset, DeviceOp::read(bytes))], Box::new(then));
    }

    fn write(&self, offset: u64, data: Abd, done: HostDone) {
        self.issue(offset, DeviceOp::Write(data), done);
    }

    fn flush(&self, done: HostDone) {
        self.issue(0, DeviceOp::Flush, done);
    }
}

fn kind_of(kind: LeafKind) -> StoreKind {
    if kind == LeafKind::Disk { StoreKind::Disk } else { StoreKind::File }
}

/// Opens the devices of the view for the provider's own writes, where it is asked for them and able to; those that it does not open are written by
/// the host.
pub(crate) fn open(accelerator: &Accelerator, view: &PoolView, leaves: Arc<dyn LeafPort>) {
    let Some(device) = accelerator.device() else { return };
    let wanted = |kind| match kind {
        StoreKind::File => accelerator.policy().file_write,
        StoreKind::Disk => accelerator.policy().disk_write,
    };
    let mut stores = BTreeMap::new();
    for leaf in &view.tree.leaves {
        let kind = kind_of(leaf.kind);
        if !leaf.state.is_usable() || !wanted(kind) || !device.has(&Feature::Store { kind }) {
            continue;
        }
        let host = Arc::new(LeafStore { leaves: leaves.clone(), leaf: leaf.guid });
        let target = StoreTarget { kind, path: leaf.path.clone().into(), host };
        if let Ok(store) = device.open(&target) {
            stores.insert(leaf.guid, store);
        }
    }
    *accelerator.stores().write() = OpenStores { stores, leaves: Some(leaves) };
}

/// One write of one leaf.
struct Write {
    store: Store,
    leaf: Guid,
    offset: u64,
    part: Part,
}

/// The writes of one copy.
struct Copy {
    dva: Dva,
    plan: WritePlan,
    writes: Vec<Write>,
}

/// All writes of a block.
pub(crate) struct Writes(Vec<Copy>);

/// The writes of a block, when the provider can do all of them: `parity` are the copies whose parity it computes.
pub(crate) fn plan(tree: &VdevTree, offloaded: &Offloaded, dvas: &[Dva; 3], parity: &[(Dva, WritePlan)]) -> Option<Writes> {
    let open = offloaded.accelerator.stores().read();
    let stores = &open.stores;
    if stores.is_empty() || offloaded.is_per_op() {
        return None;
    }
    let mut copies = Vec::new();
    for dva in dvas.iter().filter(|dva| !dva.is_empty()) {
        // Blocks of vdevs that got devices are cut into sectors: those are the host's.
        let top = tree.top(dva.vdev).filter(|top| !top.is_expanded())?;
        let plan = WritePlan::new(tree, top, dva.offset, offloaded.psize, Txg::ZERO);
        let is_whole = plan.length == offloaded.psize && (top.parity() == 0 || parity.iter().any(|(of, _)| of == dva));
        // What the vdev can't hold any more is for the host to say.
        let is_lost = plan.assess(&vec![true; plan.ios.len()]) == WriteOutcome::Lost;
        if !is_whole || is_lost || plan.ios.is_empty() {
            return None;
        }
        let mut writes = Vec::new();
        for io in &plan.ios {
            // Zeros behind a column are the host's.
            let is_full = !matches!(&io.part, Part::Data(range) if range.len() < io.length);
            let leaf = tree.leaf(io.leaf).guid;
            let store = stores.get(&leaf).filter(|_| is_full)?;
            writes.push(Write { store: store.clone(), leaf, offset: io.offset, part: io.part.clone() });
        }
        copies.push(Copy { dva: *dva, plan, writes });
    }
    Some(Writes(copies))
}

impl Writes {
    /// Adds the writes of the block `whole`, whose `parity` columns are found by address and number.
    pub(crate) fn add(
        &self,
        graph: &mut Graph,
        whole: &View,
        parity: &dyn Fn(&Dva, usize) -> Option<View>,
    ) -> Result<Vec<NodeId>, OpError> {
        let mut nodes = Vec::new();
        for copy in &self.0 {
            for write in &copy.writes {
                let source = match &write.part {
                    Part::Data(range) => whole.slice(range.clone())?,
                    Part::Parity(index) => parity(&copy.dva, *index).ok_or(OpError::Invalid)?,
                };
                nodes.push(graph.store(source, &write.store, write.offset));
            }
        }
        Ok(nodes)
    }

    /// Reads what the provider says that it wrote of `data` and `parity`; `then` gets whether it is there, and None when nobody can say.
    pub(crate) fn read_back<F>(self, leaves: &dyn LeafPort, data: &Abd, parity: &[(Dva, Vec<Abd>)], then: F)
    where
        F: FnOnce(Writes, Option<bool>) + Send + 'static,
    {
        let (mut ops, mut wanted) = (Vec::new(), Vec::new());
        for (copy, write) in self.0.iter().flat_map(|copy| copy.writes.iter().map(move |write| (copy, write))) {
            let bytes = match &write.part {
                Part::Data(range) => Some(data.slice(range.clone())),
                Part::Parity(index) => {
                    parity.iter().find(|(dva, _)| *dva == copy.dva).and_then(|(_, columns)| columns.get(*index).cloned())
                }
            };
            let Some(bytes) = bytes else { return then(self, None) };
            ops.push((write.leaf, write.offset, DeviceOp::read(bytes.len())));
            wanted.push(bytes);
        }
        let compare = move |results: Vec<Result<Abd, DeviceError>>| {
            let read = results.into_iter().collect::<Result<Vec<Abd>, _>>().ok();
            then(self, read.map(|read| read == wanted));
        };
        leaves.issue(ops, Box::new(compare));
    }

    /// The leaves that could not be written and so lack the block.
    pub(crate) fn skipped(&self) -> Vec<LeafId> {
        self.0.iter().flat_map(|copy| copy.plan.skipped.iter().copied()).collect()
    }
}
