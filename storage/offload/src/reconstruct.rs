//! Lost columns of RAID-Z and dRAID rows, computed by the accelerator: data in degraded reads, data and parity in scrubs, resilvers, sequential
//! rebuilds and where a whole copy of a block is written again.
//!
//! Data that come back are judged by the block's checksum, as everything that is read; a block that does not verify with them is solved again in
//! software, from what was read. Parity, and what a rebuild computes, have no checksum: these are always held against the columns that they
//! were computed from.

use crate::accelerator::Accelerator;
use crate::submit::{reason, submit};
use abd::{Abd, AbdPart};
use dpusm::{Claim, Device, FallbackReason, Feature, Graph, NodeId, OpError, OpKind, RaidContext, Report, View, verify};
use vdev::{ComputedRow, LostRow};
use zio::Answer;

/// Nodes of a graph that have its results.
struct Nodes {
    copies_in: Vec<NodeId>,
    solve: NodeId,
    copies_out: Vec<NodeId>,
    parity_out: Vec<NodeId>,
}

/// The lost columns of `rows`: of those that went well, and are right where that is looked at, which is everywhere but for data that are `judged` by a
/// checksum.
pub(crate) fn reconstruct(accelerator: &Accelerator, rows: Vec<LostRow>, judged: bool) -> Answer<Vec<ComputedRow>> {
    let nothing = || Answer::Now(Vec::new());
    let Some(device) = accelerator.device() else { return nothing() };
    let rows: Vec<LostRow> = rows.into_iter().filter(|row| is_offered(accelerator, &device, row)).collect();
    if rows.is_empty() {
        return nothing();
    }
    let is_verified = !judged || accelerator.picks() || device.wants_proof(OpKind::RaidReconstruct);
    let mut graph = Graph::new();
    let built: Result<Vec<Nodes>, OpError> = rows.iter().map(|row| add(&device, &mut graph, row)).collect();
    let nodes = match built {
        Ok(nodes) => nodes,
        Err(error) => {
            device.note_fallback(OpKind::RaidReconstruct, reason(error));
            return nothing();
        }
    };
    let deadline_ns = accelerator.policy().deadline_ns;
    Answer::later(move |then| {
        let owner = device.clone();
        submit(&device, graph, deadline_ns, (rows, then), move |(rows, then), report| {
            let mut report = match report {
                Ok(report) => report,
                Err(error) => {
                    owner.note_fallback(OpKind::RaidReconstruct, reason(error));
                    return then(Vec::new());
                }
            };
            let is_verified = is_verified || report.is_probe;
            let mut computed = Vec::new();
            for (row, nodes) in rows.into_iter().zip(nodes) {
                match columns(&mut report, &row, &nodes) {
                    Ok(columns) if !is_verified && !owner.is_distrusted() => computed.push(columns),
                    Ok(columns) => computed.extend(Some(columns).filter(|columns| is_right(&owner, &row, columns))),
                    Err(error) => owner.note_fallback(OpKind::RaidReconstruct, reason(error)),
                }
            }
            then(computed);
        });
    })
}

/// True when the columns solve the row.
fn is_right(device: &Device, row: &LostRow, computed: &ComputedRow) -> bool {
    let claim = Claim::Rebuilt {
        parities: row.parities,
        known: &row.parity,
        lost: row.data.iter().filter(|column| column.is_none()).count(),
        data: &computed.data,
        parity: &computed.parity,
    };
    let is_right = verify(&claim);
    device.note_verified(OpKind::RaidReconstruct, is_right);
    if !is_right {
        device.note_fallback(OpKind::RaidReconstruct, FallbackReason::Wrong);
    }
    is_right
}

fn is_offered(accelerator: &Accelerator, device: &Device, row: &LostRow) -> bool {
    let policy = accelerator.policy();
    if policy.raidz_rec.get(row.parities - 1) != Some(&true) {
        return false;
    }
    let offers = |capability: &dpusm::Capability| match capability.feature {
        Feature::RaidReconstruct { parity, data_columns_max } => {
            let fits = |bytes: &usize| *bytes == 0 || capability.sizes.admit(0, *bytes);
            usize::from(parity) == row.parities && row.data.len() <= usize::from(data_columns_max) && row.lengths.iter().all(fits)
        }
        _ => false,
    };
    let why_not = if row.lengths.iter().sum::<usize>() < policy.bytes_min {
        FallbackReason::TooSmall
    } else if !device.capabilities().list.iter().any(offers) {
        FallbackReason::NotSupported
    } else {
        return true;
    };
    device.note_fallback(OpKind::RaidReconstruct, why_not);
    false
}

/// {copy in what is known, solve, copy out what was lost}. Parity that did not come back is one of the columns to be computed.
fn add(device: &Device, graph: &mut Graph, row: &LostRow) -> Result<Nodes, OpError> {
    let longest = row.lengths.iter().copied().max().unwrap_or(0);
    let mut copies_in = Vec::new();
    let mut column = |bytes: usize, known: Option<&Abd>| -> Result<View, OpError> {
        let view = device.alloc(bytes.max(1))?.view(0..bytes)?;
        if let Some(known) = known.filter(|known| !known.is_empty()) {
            copies_in.push(graph.copy_in(known, &view));
        }
        Ok(view)
    };
    let given = |number: usize| row.parity.iter().find(|(of, _)| *of == number).map(|(_, bytes)| bytes);
    let parity = (0..row.parities).map(|number| column(longest, given(number))).collect::<Result<Vec<_>, _>>()?;
    let data = row.lengths.iter().zip(&row.data).map(|(&bytes, known)| column(bytes, known.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let lost = row.data.iter().enumerate().filter(|(_, known)| known.is_none()).map(|(index, _)| index);
    let lost: Vec<usize> = lost.collect();
    let absent = (0..row.parities).filter(|number| given(*number).is_none());
    let targets: Vec<usize> = absent.chain(lost.iter().map(|index| row.parities + index)).collect();
    let solve = graph.raid_reconstruct(&RaidContext::new(parity.clone(), data.clone())?, &targets);
    let mut out = |view: &View| graph.copy_out(view, vec![AbdPart::scratch(view.len())]);
    let copies_out = lost.iter().map(|&index| out(&data[index])).collect();
    let parity_out = row.wanted_parity.iter().map(|&number| out(&parity[number])).collect();
    Ok(Nodes { copies_in, solve, copies_out, parity_out })
}

/// All data columns of a row, those that were lost from the report, and the parity that was wanted.
fn columns(report: &mut Report, row: &LostRow, nodes: &Nodes) -> Result<ComputedRow, OpError> {
    nodes.copies_in.iter().try_for_each(|node| report.status(*node))?;
    report.status(nodes.solve)?;
    let mut made = nodes.copies_out.iter();
    let column = |known: &Option<Abd>| match known {
        Some(bytes) => Ok(bytes.clone()),
        None => report.take_bytes(*made.next().ok_or(OpError::Invalid)?),
    };
    let data = row.data.iter().map(column).collect::<Result<Vec<Abd>, OpError>>()?;
    let mut parity = Vec::new();
    for (number, node) in row.wanted_parity.iter().zip(&nodes.parity_out) {
        parity.push((*number, report.take_bytes(*node)?));
    }
    Ok(ComputedRow { row: row.row, data, parity })
}
