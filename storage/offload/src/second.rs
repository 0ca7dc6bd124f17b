//! The second round of a write: what needs the block's address, its parity, and the way back to the host.

use crate::block::Offloaded;
use crate::claimed::{PROOF, copy_is_right};
use crate::stores::{self, Writes};
use crate::submit::{reason, submit};
use abd::{Abd, AbdPart};
use dpusm::{Claim, Device, FallbackReason, Feature, Graph, NodeId, OpError, OpKind, RaidContext, Report, View, verify};
use ondisk::{ByteOrder, Dva, Txg};
use std::sync::Arc;
use vdev::{VdevTree, WritePlan};
use zio::{Answer, Claims, Made, PoolView, Ready, SecondRound, salted_sum_of};

/// One row whose parity the provider computes.
struct Row {
    generate: NodeId,
    /// The parity columns in device memory.
    views: Vec<View>,
    /// Copies of them to the host.
    copies: Vec<NodeId>,
    /// Checksums of them there, in the same order, when they are not verified.
    proofs: Vec<NodeId>,
}

/// The rows of one copy of the block.
struct Copy {
    dva: Dva,
    rows: Vec<Row>,
}

/// Nodes of the graph that have its results.
struct Nodes {
    copy_in: Option<NodeId>,
    /// Checksum of what was copied in, when what is made of it is not verified.
    proof: Option<NodeId>,
    copies: Vec<Copy>,
    copy_out: Option<NodeId>,
    /// Writes of the provider, when it writes all of the block.
    stores: Vec<NodeId>,
}

/// Round that goes on with a block after its first one.
pub(crate) fn round(offloaded: Offloaded) -> Box<dyn SecondRound> {
    Box::new(offloaded)
}

impl SecondRound for Offloaded {
    /// {copy in, parity of each row, copy out}.
    fn parity(self: Box<Self>, view: &PoolView, dvas: &[Dva; 3]) -> Answer<Made> {
        let plans = if self.wishes.parity { plans(&view.tree, &self, dvas) } else { Vec::new() };
        let writes = stores::plan(&view.tree, &self, dvas, &plans);
        if plans.is_empty() && writes.is_none() && self.on_host.is_some() {
            return Answer::Now(finish(*self, Vec::new()));
        }
        let (graph, nodes, writes) = match build(&self, &plans, writes.as_ref()) {
            Ok((graph, nodes)) => (graph, nodes, writes),
            // Without parity from there, the bytes may still be had back.
            Err(error) => {
                self.fell_back(OpKind::RaidGenerate, reason(error));
                match build(&self, &[], None) {
                    Ok((graph, _)) if graph.is_empty() => return Answer::Now(finish(*self, Vec::new())),
                    Ok((graph, nodes)) => (graph, nodes, None),
                    Err(_) => return Answer::Now(Made::Again),
                }
            }
        };
        let tree = view.tree.clone();
        with_report(*self, graph, move |offloaded, report| match writes {
            Some(writes) => written(&tree, offloaded, report, &nodes, writes),
            None => Answer::Now(landed(offloaded, report, &nodes)),
        })
    }

    fn retrieve(mut self: Box<Self>) -> Answer<Made> {
        let brought = |offloaded: Offloaded| if offloaded.judge() { ready(offloaded, Vec::new()) } else { Made::Again };
        let Some(view) = self.on_device.take().filter(|_| self.on_host.is_none()) else { return Answer::Now(brought(*self)) };
        let mut graph = Graph::new();
        let node = graph.copy_out(&view, vec![AbdPart::scratch(view.len())]);
        with_report(*self, graph, move |mut offloaded, report| {
            Answer::Now(match report.and_then(|mut report| report.take_bytes(node)) {
                Ok(bytes) => {
                    offloaded.on_host = Some(bytes);
                    brought(offloaded)
                }
                Err(error) => {
                    offloaded.fell_back(OpKind::CopyOut, reason(error));
                    offloaded.device.note_restart(OpKind::CopyOut);
                    Made::Again
                }
            })
        })
    }
}

/// Submits a graph; `then` makes something of its report, or of why there is none.
fn with_report<F>(offloaded: Offloaded, graph: Graph, then: F) -> Answer<Made>
where
    F: FnOnce(Offloaded, Result<Report, OpError>) -> Answer<Made> + Send + 'static,
{
    Answer::later(move |answer| {
        let (device, deadline_ns) = (offloaded.device.clone(), offloaded.deadline_ns());
        submit(&device, graph, deadline_ns, (offloaded, answer), move |(mut offloaded, answer), report| {
            report.iter().for_each(|report| offloaded.note_report(report));
            then(offloaded, report).deliver(answer);
        });
    })
}

/// The copies whose parity goes to the provider.
fn plans(tree: &VdevTree, offloaded: &Offloaded, dvas: &[Dva; 3]) -> Vec<(Dva, WritePlan)> {
    let mut plans = Vec::new();
    for dva in dvas.iter().filter(|dva| !dva.is_empty()) {
        let Some(top) = tree.top(dva.vdev).filter(|top| top.parity() > 0 && !top.is_expanded()) else { continue };
        if offloaded.accelerator.policy().raidz_gen.get(top.parity() - 1) != Some(&true) {
            continue;
        }
        let plan = WritePlan::new(tree, top, dva.offset, offloaded.psize, Txg::ZERO);
        let fits = |sizes: &dpusm::Sizes| {
            let mut columns = plan.rows().flat_map(|row| row.data);
            columns.all(|column| column.is_empty() || sizes.admit(column.start, column.len()))
        };
        let offers = |capability: &dpusm::Capability| match capability.feature {
            Feature::RaidGenerate { parity, data_columns_max } => {
                let is_it = usize::from(parity) == top.parity() && plan.rows().all(|row| row.data.len() <= usize::from(data_columns_max));
                is_it && fits(&capability.sizes)
            }
            _ => false,
        };
        // Padding to whole sectors of the vdev is the host's.
        if plan.length == offloaded.psize && offloaded.device.capabilities().list.iter().any(offers) {
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
    let back: Vec<&View> = parity.iter().filter(|_| comes_back).collect();
    let unproven = back.iter().filter(|_| !offloaded.is_verified);
    let proofs = unproven.map(|column| graph.checksum(*column, PROOF, ByteOrder::Little)).collect();
    let copies = back.iter().map(|column| graph.copy_out(*column, vec![AbdPart::scratch(column.len())])).collect();
    Ok(Row { generate, views: parity, copies, proofs })
}

/// The second round ended.
fn landed(mut offloaded: Offloaded, report: Result<Report, OpError>, nodes: &Nodes) -> Made {
    let mut report = match report {
        Ok(report) => report,
        Err(error) => return without(offloaded, error),
    };
    if let Some(node) = nodes.copy_out {
        match report.take_bytes(node) {
            Ok(bytes) => offloaded.on_host = Some(bytes),
            Err(error) => return without(offloaded, error),
        }
    }
    let copied = nodes.copy_in.map_or(Ok(()), |node| report.status(node)).and_then(|()| prove(&mut offloaded, &report, nodes));
    let mut made = Vec::new();
    for copy in &nodes.copies {
        match copied.and_then(|()| columns(&offloaded.device, &mut report, copy)) {
            Ok(parity) => made.push((copy.dva, parity)),
            Err(error) => offloaded.fell_back(OpKind::RaidGenerate, reason(error)),
        }
    }
    finish(offloaded, made)
}

/// Takes what the provider says that it was given.
fn prove(offloaded: &mut Offloaded, report: &Report, nodes: &Nodes) -> Result<(), OpError> {
    if let Some(node) = nodes.proof {
        offloaded.sum = Some((PROOF, report.checksum(node)?));
    }
    Ok(())
}

/// The parity columns of one copy, row after row, as the provider has them. That they are right is shown where the block is verified.
fn columns(device: &Device, report: &mut Report, copy: &Copy) -> Result<Vec<Abd>, OpError> {
    let mut parity = Vec::new();
    for row in &copy.rows {
        report.status(row.generate)?;
        for (index, node) in row.copies.iter().enumerate() {
            let column = report.take_bytes(*node)?;
            if let Some(proof) = row.proofs.get(index)
                && !copy_is_right(device, OpKind::CopyOut, &column, report.checksum(*proof)?)
            {
                return Err(OpError::BadResult);
            }
            parity.push(column);
        }
    }
    Ok(parity)
}

/// The provider wrote the block, or was to: what it did not write, all of it, the host writes; elsewhere when the provider may still be at it.
fn written(tree: &Arc<VdevTree>, mut offloaded: Offloaded, report: Result<Report, OpError>, nodes: &Nodes, writes: Writes) -> Answer<Made> {
    let straggler = report.as_ref().ok().and_then(Report::straggler);
    let outcome = report.and_then(|mut report| {
        report.all()?;
        nodes.stores.iter().try_for_each(|node| report.status(*node))?;
        prove(&mut offloaded, &report, nodes)?;
        if let Some(node) = nodes.copy_out {
            offloaded.on_host = Some(report.take_bytes(node)?);
        }
        nodes.copies.iter().map(|copy| Ok((copy.dva, columns(&offloaded.device, &mut report, copy)?))).collect::<Result<Vec<_>, OpError>>()
    });
    let (made, data) = match (outcome, &offloaded.on_host) {
        (Ok(made), Some(data)) => (made, data.clone()),
        (Err(error), _) => {
            offloaded.fell_back(OpKind::Store, reason(error));
            // Where it may still write nothing is put, also not by the host.
            let Some(straggler) = straggler else { return retrieve(offloaded) };
            offloaded.device.note_restart(OpKind::Store);
            return Answer::Now(Made::Astray(Box::new(move |onward| straggler.then(onward))));
        }
        (Ok(_), None) => return Answer::Now(Made::Again),
    };
    let kind = offloaded.original.checksum;
    let Ok(sum) = salted_sum_of(offloaded.original.salt.as_deref(), kind, &data) else { return Answer::Now(Made::Again) };
    let claims = offloaded.claims();
    if !offloaded.judge() || !claims.are_borne_out(kind, sum, &data) {
        return Answer::Now(Made::Again);
    }
    let parity_is_right = made.iter().all(|(dva, parity)| parity.is_empty() || is_right(tree, &offloaded, dva, parity));
    // Of one that was caught lying meanwhile nobody knows what it wrote.
    if !parity_is_right || offloaded.device.is_distrusted() {
        return Answer::Now(finish(offloaded, Vec::new()));
    }
    if !offloaded.is_verified {
        return Answer::Now(Made::Written { sum, skipped: writes.skipped() });
    }
    Answer::later(move |answer| {
        let Some(leaves) = offloaded.accelerator.stores().read().leaves.clone() else { return answer(finish(offloaded, Vec::new())) };
        writes.read_back(leaves.as_ref(), &data, &made, move |writes, is_there| {
            if let Some(is_there) = is_there {
                offloaded.device.note_verified(OpKind::Store, is_there);
            }
            if is_there == Some(true) {
                return answer(Made::Written { sum, skipped: writes.skipped() });
            }
            offloaded.fell_back(OpKind::Store, if is_there.is_none() { FallbackReason::Failed } else { FallbackReason::Wrong });
            answer(finish(offloaded, Vec::new()));
        });
    })
}

/// Gets the bytes back for the host to write them.
fn retrieve(offloaded: Offloaded) -> Answer<Made> {
    let Some(view) = offloaded.on_device.clone().filter(|_| offloaded.on_host.is_none()) else {
        return Answer::Now(finish(offloaded, Vec::new()));
    };
    let mut graph = Graph::new();
    let copy_out = Some(graph.copy_out(&view, vec![AbdPart::scratch(view.len())]));
    let nodes = Nodes { copy_in: None, proof: None, copies: Vec::new(), copy_out, stores: Vec::new() };
    with_report(offloaded, graph, move |offloaded, report| Answer::Now(landed(offloaded, report, &nodes)))
}

/// Nothing came of the second round: parity in software; from the original when the bytes are not on the host.
fn without(offloaded: Offloaded, error: OpError) -> Made {
    if offloaded.wishes.parity {
        offloaded.fell_back(OpKind::RaidGenerate, reason(error));
    }
    if offloaded.on_host.is_some() {
        return finish(offloaded, Vec::new());
    }
    offloaded.fell_back(OpKind::CopyOut, reason(error));
    offloaded.device.note_restart(OpKind::CopyOut);
    Made::Again
}

/// All is on the host: judges what was compressed; the rest is judged with what the host computes when it writes.
fn finish(offloaded: Offloaded, made: Vec<(Dva, Vec<Abd>)>) -> Made {
    if offloaded.judge() {
        return ready(offloaded, made);
    }
    offloaded.device.note_restart(OpKind::Compress);
    Made::Again
}

/// The bytes, their parity, and what the provider says of them.
fn ready(mut offloaded: Offloaded, parity: Vec<(Dva, Vec<Abd>)>) -> Made {
    let claims = Some(Box::new(offloaded.claims()) as Box<dyn Claims>);
    Made::Ready(Ready { data: offloaded.on_host.take(), parity, claims })
}

/// True when software computes the same parity.
fn is_right(tree: &VdevTree, offloaded: &Offloaded, dva: &Dva, parity: &[Abd]) -> bool {
    let (Some(top), Some(data)) = (tree.top(dva.vdev), &offloaded.on_host) else { return false };
    let plan = WritePlan::new(tree, top, dva.offset, offloaded.psize, Txg::ZERO);
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
