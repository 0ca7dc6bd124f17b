//! The second round of a write: what needs the block's address, its parity, and the way back to the host.

use super::claimed::PROOF;
use super::stores::{self, Writes};
use super::{Offloaded, first, reason};
use crate::store::{Placement, Store, hint};
use crate::sum::sum_of;
use crate::transform::rewrites;
use crate::write::Job;
use abd::{Abd, AbdPart};
use dpusm::{Claim, FallbackReason, Feature, Graph, NodeId, OpError, OpKind, RaidContext, Report, View, verify};
use metaslab::AllocRequest;
use ondisk::{ByteOrder, Dva};
use vdev::WritePlan;

/// Where a block goes.
struct Address {
    dvas: [Dva; 3],
    allocated: Vec<Dva>,
}

/// One row whose parity the provider computes.
struct Row {
    generate: NodeId,
    /// The parity columns in device memory.
    views: Vec<View>,
    /// Copies of them to the host.
    copies: Vec<NodeId>,
}

/// The rows of one copy of the block.
struct Copy {
    dva: Dva,
    rows: Vec<Row>,
}

/// Where the results of the graph are.
struct Nodes {
    copy_in: Option<NodeId>,
    /// Of what was copied in, when what is made of it is not verified.
    proof: Option<NodeId>,
    copies: Vec<Copy>,
    copy_out: Option<NodeId>,
    /// Writes of the provider, when it writes all of the block.
    stores: Vec<NodeId>,
}

/// Gives the block an address, and goes on with its parity.
pub(super) fn go_on(job: Job, offloaded: Offloaded) {
    if rewrites(&job.request, job.psize) {
        let previous = &job.request.previous;
        if previous.is_gang() {
            return bring_back(job, offloaded, Job::rewrite_gang);
        }
        let dvas = [previous.dva(0), previous.dva(1), previous.dva(2)];
        job.core.stats.rewrites.bump();
        return submit(job, offloaded, Address { dvas, allocated: Vec::new() });
    }
    let request = &job.request;
    let (psize, copies, txg) = (job.psize as u64, request.copies, request.txg);
    match job.snapshot.view.allocator.alloc(&AllocRequest { psize, copies, txg, hint: hint(&request.bookmark) }) {
        Ok(dvas) => {
            let allocated = dvas.iter().copied().filter(|dva| !dva.is_empty()).collect();
            submit(job, offloaded, Address { dvas, allocated });
        }
        // No room in one piece: pieces are made on the host.
        Err(_) => bring_back(job, offloaded, Job::allocate),
    }
}

/// Calls `onward` when the physical bytes are on the host.
fn bring_back(mut job: Job, mut offloaded: Offloaded, onward: fn(Job)) {
    let resume = move |mut job: Job, mut offloaded: Offloaded| {
        if !first::judge(&job.request, &offloaded) {
            return job.restart(&[]);
        }
        job.take(&mut offloaded, Vec::new());
        onward(job);
    };
    let Some(view) = offloaded.on_device.take().filter(|_| offloaded.on_host.is_none()) else { return resume(job, offloaded) };
    let mut graph = Graph::new();
    let node = graph.copy_out(&view, vec![AbdPart::scratch(view.len())]);
    job.data = Abd::default();
    with_report(job, offloaded, graph, move |job, mut offloaded, report| match report.and_then(|mut report| report.take_bytes(node)) {
        Ok(bytes) => {
            offloaded.on_host = Some(bytes);
            resume(job, offloaded);
        }
        Err(error) => {
            offloaded.fell_back(OpKind::CopyOut, reason(error));
            offloaded.device.note_restart(OpKind::CopyOut);
            job.restart(&[]);
        }
    });
}

/// Submits a graph; `then` gets its report, or why there is none.
fn with_report<F>(job: Job, offloaded: Offloaded, graph: Graph, then: F)
where
    F: FnOnce(Job, Offloaded, Result<Report, OpError>) + Send + 'static,
{
    let (device, deadline_ns) = (offloaded.device.clone(), offloaded.deadline_ns());
    super::submit(&device, graph, deadline_ns, (job, offloaded), move |(job, mut offloaded), report| {
        report.iter().for_each(|report| offloaded.note_report(report));
        then(job, offloaded, report);
    });
}

/// {copy in, parity of each row, copy out}.
fn submit(job: Job, offloaded: Offloaded, address: Address) {
    let plans = if offloaded.wishes.parity { plans(&job, &offloaded, &address.dvas) } else { Vec::new() };
    let writes = stores::plan(&job, &offloaded, &address.dvas, &plans);
    if plans.is_empty() && writes.is_none() && offloaded.on_host.is_some() {
        return finish(job, offloaded, address, Vec::new());
    }
    let (graph, nodes, writes) = match build(&offloaded, &plans, writes.as_ref()) {
        Ok((graph, nodes)) => (graph, nodes, writes),
        // Without parity from there, the bytes may still be had back.
        Err(error) => {
            offloaded.fell_back(OpKind::RaidGenerate, reason(error));
            match build(&offloaded, &[], None) {
                Ok((graph, _)) if graph.is_empty() => return finish(job, offloaded, address, Vec::new()),
                Ok((graph, nodes)) => (graph, nodes, None),
                Err(_) => return job.restart(&address.allocated),
            }
        }
    };
    with_report(job, offloaded, graph, move |job, offloaded, report| match writes {
        Some(writes) => written(job, offloaded, address, report, &nodes, writes),
        None => landed(job, offloaded, address, report, &nodes),
    });
}

/// The copies whose parity goes to the provider.
fn plans(job: &Job, offloaded: &Offloaded, dvas: &[Dva; 3]) -> Vec<(Dva, WritePlan)> {
    let tree = &job.snapshot.view.tree;
    let mut plans = Vec::new();
    for dva in dvas.iter().filter(|dva| !dva.is_empty()) {
        let Some(top) = tree.top(dva.vdev).filter(|top| top.parity() > 0) else { continue };
        if offloaded.accelerator.policy.raidz_gen.get(top.parity() - 1) != Some(&true) {
            continue;
        }
        let plan = WritePlan::new(tree, top, dva.offset, job.psize);
        let offers = |capability: &dpusm::Capability| match capability.feature {
            Feature::RaidGenerate { parity, data_columns_max } => {
                usize::from(parity) == top.parity() && plan.rows().all(|row| row.data.len() <= usize::from(data_columns_max))
            }
            _ => false,
        };
        // Padding to whole sectors of the vdev is the host's.
        if plan.length == job.psize && offloaded.device.capabilities().list.iter().any(offers) {
            plans.push((*dva, plan));
        } else {
            offloaded.fell_back(OpKind::RaidGenerate, FallbackReason::NotSupported);
        }
    }
    plans
}

fn build(offloaded: &Offloaded, plans: &[(Dva, WritePlan)], writes: Option<&Writes>) -> Result<(Graph, Nodes), OpError> {
    let mut graph = Graph::new();
    let mut nodes = Nodes { copy_in: None, proof: None, copies: Vec::new(), copy_out: None, stores: Vec::new() };
    let whole = match (&offloaded.on_device, &offloaded.on_host) {
        (Some(view), _) => view.clone(),
        (None, Some(_)) if plans.is_empty() && writes.is_none() => return Ok((graph, nodes)),
        (None, Some(data)) => {
            let view = offloaded.device.alloc(data.len())?.whole();
            nodes.copy_in = Some(graph.copy_in(data, &view));
            if !offloaded.is_verified {
                nodes.proof = Some(graph.checksum(&view, PROOF, ByteOrder::Little));
            }
            view
        }
        (None, None) => return Err(OpError::Invalid),
    };
    for (dva, plan) in plans {
        let rows = plan
            .rows()
            .map(|row| add_row(offloaded, &mut graph, (&whole, writes.is_none() || offloaded.is_verified), &row))
            .collect::<Result<Vec<_>, _>>()?;
        nodes.copies.push(Copy { dva: *dva, rows });
    }
    if let Some(writes) = writes {
        let parity = |dva: &Dva, index: usize| {
            let copy = nodes.copies.iter().find(|copy| copy.dva == *dva)?;
            copy.rows.iter().flat_map(|row| &row.views).nth(index).cloned()
        };
        nodes.stores = writes.add(&mut graph, &whole, &parity)?;
    }
    // What the provider writes by itself comes back too: its checksum is not believed.
    if offloaded.on_host.is_none() {
        nodes.copy_out = Some(graph.copy_out(&whole, vec![AbdPart::scratch(whole.len())]));
    }
    Ok((graph, nodes))
}

fn add_row(offloaded: &Offloaded, graph: &mut Graph, (whole, comes_back): (&View, bool), row: &vdev::ParityRow) -> Result<Row, OpError> {
    let column = |_| Ok(offloaded.device.alloc(row.parity_bytes)?.whole());
    let parity = (0..row.parity).map(column).collect::<Result<Vec<View>, OpError>>()?;
    let data = row.data.iter().map(|range| whole.slice(range.clone())).collect::<Result<Vec<View>, OpError>>()?;
    let context = RaidContext::new(parity.clone(), data)?;
    let generate = graph.raid_generate(&context);
    let back = parity.iter().filter(|_| comes_back);
    let copies = back.map(|column| graph.copy_out(column, vec![AbdPart::scratch(column.len())])).collect();
    Ok(Row { generate, views: parity, copies })
}

/// The second round ended.
fn landed(job: Job, mut offloaded: Offloaded, address: Address, report: Result<Report, OpError>, nodes: &Nodes) {
    let mut report = match report {
        Ok(report) => report,
        Err(error) => return without(job, offloaded, address, error),
    };
    if let Some(node) = nodes.copy_out {
        match report.take_bytes(node) {
            Ok(bytes) => offloaded.on_host = Some(bytes),
            Err(error) => return without(job, offloaded, address, error),
        }
    }
    let copied = nodes.copy_in.map_or(Ok(()), |node| report.status(node)).and_then(|()| prove(&mut offloaded, &report, nodes));
    let mut made = Vec::new();
    for copy in &nodes.copies {
        match copied.and_then(|()| columns(&mut report, copy)) {
            Ok(parity) => made.push((copy.dva, parity)),
            Err(error) => offloaded.fell_back(OpKind::RaidGenerate, reason(error)),
        }
    }
    finish(job, offloaded, address, made);
}

/// Takes what the provider says that it was given.
fn prove(offloaded: &mut Offloaded, report: &Report, nodes: &Nodes) -> Result<(), OpError> {
    if let Some(node) = nodes.proof {
        offloaded.sum = Some((PROOF, report.checksum(node)?));
    }
    Ok(())
}

/// The parity columns of one copy, row after row.
fn columns(report: &mut Report, copy: &Copy) -> Result<Vec<Abd>, OpError> {
    let mut parity = Vec::new();
    for row in &copy.rows {
        report.status(row.generate)?;
        for node in &row.copies {
            parity.push(report.take_bytes(*node)?);
        }
    }
    Ok(parity)
}

/// The provider wrote the block, or was to: what it did not write, all of it, the host writes.
fn written(job: Job, mut offloaded: Offloaded, address: Address, report: Result<Report, OpError>, nodes: &Nodes, writes: Writes) {
    let outcome = report.and_then(|mut report| {
        report.all()?;
        nodes.stores.iter().try_for_each(|node| report.status(*node))?;
        prove(&mut offloaded, &report, nodes)?;
        if let Some(node) = nodes.copy_out {
            offloaded.on_host = Some(report.take_bytes(node)?);
        }
        nodes.copies.iter().map(|copy| Ok((copy.dva, columns(&mut report, copy)?))).collect::<Result<Vec<_>, OpError>>()
    });
    let (made, data) = match (outcome, &offloaded.on_host) {
        (Ok(made), Some(data)) => (made, data.clone()),
        (Err(error), _) => {
            offloaded.fell_back(OpKind::Store, reason(error));
            return retrieve(job, offloaded, address);
        }
        (Ok(_), None) => return job.restart(&address.allocated),
    };
    let Ok(sum) = sum_of(job.request.checksum, &data) else { return job.restart(&address.allocated) };
    let (_, claimed) = offloaded.take();
    offloaded.on_host = Some(data.clone());
    if !first::judge(&job.request, &offloaded) || !claimed.is_borne_out(job.request.checksum, sum, &data) {
        return job.restart(&address.allocated);
    }
    let parity_is_right = made.iter().all(|(dva, parity)| parity.is_empty() || is_right(&job, &offloaded, dva, parity));
    // Of one that was caught lying meanwhile nobody knows what it wrote.
    if !parity_is_right || offloaded.device.is_distrusted() {
        return finish(job, offloaded, address, Vec::new());
    }
    if !offloaded.is_verified {
        writes.note_skipped(&job);
        return job.stored(&address.dvas, sum);
    }
    let (core, snapshot) = (job.core.clone(), job.snapshot.clone());
    writes.read_back(&core, &snapshot, &data, &made, move |writes, is_there| {
        if let Some(is_there) = is_there {
            offloaded.device.note_verified(OpKind::Store, is_there);
        }
        if is_there == Some(true) {
            writes.note_skipped(&job);
            return job.stored(&address.dvas, sum);
        }
        offloaded.fell_back(OpKind::Store, if is_there.is_none() { FallbackReason::Failed } else { FallbackReason::Wrong });
        finish(job, offloaded, address, Vec::new());
    });
}

/// Gets the bytes back for the host to write them.
fn retrieve(job: Job, offloaded: Offloaded, address: Address) {
    let Some(view) = offloaded.on_device.clone().filter(|_| offloaded.on_host.is_none()) else {
        return finish(job, offloaded, address, Vec::new());
    };
    let mut graph = Graph::new();
    let copy_out = Some(graph.copy_out(&view, vec![AbdPart::scratch(view.len())]));
    let nodes = Nodes { copy_in: None, proof: None, copies: Vec::new(), copy_out, stores: Vec::new() };
    with_report(job, offloaded, graph, move |job, offloaded, report| landed(job, offloaded, address, report, &nodes));
}

/// Nothing came of the second round: parity in software; from the original when the bytes are not on the host.
fn without(job: Job, offloaded: Offloaded, address: Address, error: OpError) {
    if offloaded.wishes.parity {
        offloaded.fell_back(OpKind::RaidGenerate, reason(error));
    }
    if offloaded.on_host.is_some() {
        return finish(job, offloaded, address, Vec::new());
    }
    offloaded.fell_back(OpKind::CopyOut, reason(error));
    offloaded.device.note_restart(OpKind::CopyOut);
    job.restart(&address.allocated);
}

/// All is on the host: judges what was compressed, and writes; the rest is judged with what the host computes for that.
fn finish(mut job: Job, mut offloaded: Offloaded, address: Address, made: Vec<(Dva, Vec<Abd>)>) {
    if !first::judge(&job.request, &offloaded) {
        offloaded.device.note_restart(OpKind::Compress);
        return job.restart(&address.allocated);
    }
    let Address { dvas, allocated } = address;
    job.take(&mut offloaded, made);
    let stores = vec![Store { data: job.data.clone(), dvas }];
    job.store(Placement { dvas, stores, allocated });
}

/// True when software computes the same parity.
fn is_right(job: &Job, offloaded: &Offloaded, dva: &Dva, parity: &[Abd]) -> bool {
    let tree = &job.snapshot.view.tree;
    let (Some(top), Some(data)) = (tree.top(dva.vdev), &offloaded.on_host) else { return false };
    let plan = WritePlan::new(tree, top, dva.offset, job.psize);
    let agrees = plan.rows().zip(parity.chunks(top.parity())).all(|(row, parity)| {
        let data: Vec<Abd> = row.data.iter().map(|range| data.slice(range.clone())).collect();
        verify(&Claim::Row { parity, data: &data })
    });
    offloaded.device.note_verified(OpKind::RaidGenerate, agrees);
    if !agrees {
        offloaded.fell_back(OpKind::RaidGenerate, FallbackReason::Wrong);
    }
    agrees
}
