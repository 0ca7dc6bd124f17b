//! The first round of a write: what has to be known before a block gets an address, its physical size and its checksum.

use super::claimed::{PROOF, can_prove, copy_is_right};
use super::{Accelerator, Offloaded, Wishes, look, reason};
use crate::core::Core;
use crate::snapshot::Snapshot;
use crate::transform::{compress_limit, effective_compression, effective_level, may_embed, physical_bytes};
use crate::write::{Job, run_in_software};
use crate::{WriteRequest, WriteThen};
use abd::AbdPart;
use dpusm::{Claim, Compress, Compressed, Device, FallbackReason, Graph, NodeId, OpError, OpKind, Report, View, verify};
use ondisk::{ByteOrder, Compression, EMBEDDED_PAYLOAD_BYTES};
use std::sync::Arc;

/// A write that has no address yet; its request has the original bytes.
pub(super) struct Block {
    pub(super) core: Arc<Core>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) request: WriteRequest,
    pub(super) then: WriteThen,
    pub(super) again: bool,
}

impl Block {
    /// Begins again, without the accelerator.
    fn in_software(self) {
        run_in_software(&self.core, &self.snapshot, self.request, self.then, self.again);
    }

    fn with(self, offloaded: Offloaded) {
        let Block { core, snapshot, request, then, again } = self;
        super::second::go_on(Job::new(core, snapshot, request, then, again, offloaded.psize, offloaded.compression), offloaded);
    }
}

/// Where the results of a graph are.
struct Nodes {
    copy_in: NodeId,
    packed: Option<Compressed>,
    padding: Option<NodeId>,
    sum: Option<NodeId>,
    /// Of what was copied in, when what is made of it is not verified.
    proof: Option<NodeId>,
    copy_out: Option<NodeId>,
}

/// Starts with the stages that are wished for.
pub(super) fn begin(mut block: Block, accelerator: Arc<Accelerator>, device: Device, mut wishes: Wishes) {
    let compression = effective_compression(&block.request);
    if compression != Compression::OFF && block.request.data.is_zero() {
        return block.in_software();
    }
    // Others may change the buffer: all stages must see the same bytes.
    block.request.data = block.request.data.to_stable();
    let is_verified = is_picked(&accelerator, &device, &wishes);
    let is_hopeless = wishes.compress && {
        let limit_bytes = compress_limit(&block.snapshot, compression, block.request.data.len());
        look::is_hopeless(compression, &block.request.data, limit_bytes)
    };
    if is_hopeless {
        device.note_fallback(OpKind::Compress, FallbackReason::Incompressible);
        wishes.compress = false;
    }
    let data = block.request.data.clone();
    let offloaded = Offloaded {
        accelerator,
        device,
        wishes,
        is_verified,
        on_device: None,
        psize: data.len(),
        on_host: Some(data),
        compression: Compression::OFF,
        is_packed_there: false,
        sum: None,
    };
    let compresses_here = compression != Compression::OFF && compression != Compression::EMPTY && !wishes.compress && !is_hopeless;
    if compresses_here {
        return compressed_in_software(block, offloaded);
    }
    if wishes.compress || wishes.checksum {
        submit(block, offloaded);
    } else {
        block.with(offloaded);
    }
}

/// Whether all results for a block are to be verified: by chance, because the provider has still to prove itself, or because it has no way to say what
/// it got.
fn is_picked(accelerator: &Accelerator, device: &Device, wishes: &Wishes) -> bool {
    let stores = !accelerator.stores.read().is_empty();
    let operations = [(wishes.compress, OpKind::Compress), (wishes.parity, OpKind::RaidGenerate), (stores, OpKind::Store)];
    let is_new = operations.iter().any(|(is_wished, kind)| *is_wished && device.wants_proof(*kind));
    let is_mute = (wishes.compress || !wishes.checksum) && !can_prove(device);
    accelerator.sampler.pick() || is_new || is_mute
}

/// The block is compressed on the host, and goes on from there.
fn compressed_in_software(block: Block, mut offloaded: Offloaded) {
    use crate::transform::{Prepared, prepare};
    match prepare(&block.snapshot, &block.request) {
        Ok(Prepared::Physical(data, compression)) => {
            (offloaded.psize, offloaded.compression) = (data.len(), compression);
            offloaded.on_host = Some(data);
            if offloaded.wishes.checksum { submit(block, offloaded) } else { block.with(offloaded) }
        }
        _ => block.in_software(),
    }
}

/// How the block is to be compressed there.
fn how(block: &Block) -> Compress {
    let kind = effective_compression(&block.request);
    let (_, step) = block.snapshot.view.tree.alloc_units();
    let limit_bytes = compress_limit(&block.snapshot, kind, block.request.data.len());
    Compress { kind, level: effective_level(&block.request), limit_bytes, round_to_bytes: step as usize }
}

/// {copy in, compress, pad, checksum}, of which one at a time where nothing stays on the device.
fn submit(block: Block, offloaded: Offloaded) {
    let how = offloaded.wishes.compress.then(|| how(&block));
    let (graph, nodes, source, target) = match build(&block, &offloaded, how.as_ref()) {
        Ok(built) => built,
        Err(error) => return refused(block, &offloaded, error),
    };
    let (device, deadline_ns) = (offloaded.device.clone(), offloaded.deadline_ns());
    super::submit(&device, graph, deadline_ns, (block, offloaded), move |(block, offloaded), report| match report {
        Ok(report) => landed(block, offloaded, report, &nodes, source, target, how.as_ref()),
        Err(error) => refused(block, &offloaded, error),
    });
}

type Built = (Graph, Nodes, View, Option<View>);

fn build(block: &Block, offloaded: &Offloaded, how: Option<&Compress>) -> Result<Built, OpError> {
    let host = offloaded.on_host.as_ref().unwrap_or(&block.request.data);
    let source = offloaded.device.alloc(host.len())?.whole();
    let mut graph = Graph::new();
    let copy_in = graph.copy_in(host, &source);
    let mut nodes = Nodes { copy_in, packed: None, padding: None, sum: None, proof: None, copy_out: None };
    let mut target = None;
    if let Some(how) = how {
        let room = how.stored_bytes(how.limit_bytes).min(host.len());
        let view = offloaded.device.alloc(room)?.whole();
        let packed = graph.compress(&source, &view, *how);
        nodes.padding = Some(graph.zero_fill(packed.padding()));
        nodes.packed = Some(packed);
        target = Some(view);
        if !offloaded.is_verified {
            nodes.proof = Some(graph.checksum(&source, PROOF, ByteOrder::Little));
            if offloaded.is_per_op() || !offloaded.wishes.checksum {
                nodes.sum = Some(graph.checksum(packed.result(), PROOF, ByteOrder::Little));
            }
        }
        if offloaded.is_per_op() {
            nodes.copy_out = Some(graph.copy_out(packed.result(), vec![AbdPart::scratch(host.len())]));
            return Ok((graph, nodes, source, target));
        }
    }
    if offloaded.wishes.checksum {
        let (kind, order) = (block.request.checksum, ByteOrder::Little);
        nodes.sum = Some(match nodes.packed {
            Some(packed) => graph.checksum(packed.result(), kind, order),
            None => graph.checksum(&source, kind, order),
        });
    }
    Ok((graph, nodes, source, target))
}

/// The provider did not take the first round: all in software.
fn refused(block: Block, offloaded: &Offloaded, error: OpError) {
    let wished = [(offloaded.wishes.compress, OpKind::Compress), (offloaded.wishes.checksum, OpKind::Checksum)];
    wished.iter().filter(|(is_wished, _)| *is_wished).for_each(|(_, kind)| offloaded.fell_back(*kind, reason(error)));
    block.in_software();
}

/// The first round ended: goes on with what it gave.
fn landed(
    block: Block,
    mut offloaded: Offloaded,
    mut report: Report,
    nodes: &Nodes,
    source: View,
    target: Option<View>,
    how: Option<&Compress>,
) {
    offloaded.note_report(&report);
    let proven = report.status(nodes.copy_in).and_then(|()| nodes.proof.map(|node| report.checksum(node)).transpose());
    match proven {
        Err(error) => return refused(block, &offloaded, error),
        Ok(Some(words)) if !copy_is_right(&offloaded.device, OpKind::CopyIn, &block.request.data, words) => return block.in_software(),
        Ok(_) => {}
    }
    if let (Some(packed), Some(how), Some(target)) = (nodes.packed, how, target) {
        let padded = nodes.padding.map_or(Ok(()), |node| report.status(node));
        let length = match report.compressed(packed).and_then(|length| padded.map(|()| length)) {
            Ok(length) => length,
            Err(error) => {
                offloaded.fell_back(OpKind::Compress, reason(error));
                offloaded.device.note_restart(OpKind::Compress);
                return block.in_software();
            }
        };
        if !take_compressed(&block, &mut offloaded, length, (&source, &target), how) {
            return block.in_software();
        }
        if let Some(node) = nodes.copy_out {
            let words = nodes.sum.map(|node| report.checksum(node)).transpose();
            let bytes = words.and_then(|words| Ok((report.take_bytes(node)?, words)));
            return per_op(block, offloaded, bytes);
        }
    } else if !offloaded.is_per_op() {
        offloaded.on_device = Some(source);
    }
    if let Some(node) = nodes.sum {
        match report.checksum(node) {
            Ok(sum) if offloaded.wishes.checksum => offloaded.sum = Some((block.request.checksum, sum)),
            Ok(sum) => offloaded.sum = Some((PROOF, sum)),
            Err(error) => {
                offloaded.fell_back(OpKind::Checksum, reason(error));
                offloaded.is_verified = true;
            }
        }
    }
    block.with(offloaded);
}

/// Notes what a compression made; false when the block is one of those that only the host makes: in the pointer, or of a size that is not a
/// multiple of what vdevs allocate.
fn take_compressed(
    block: &Block,
    offloaded: &mut Offloaded,
    length: Option<usize>,
    (source, target): (&View, &View),
    how: &Compress,
) -> bool {
    let Some(length) = length else {
        offloaded.on_device = Some(source.clone());
        return true;
    };
    let psize = how.stored_bytes(length);
    let is_hosts = length <= EMBEDDED_PAYLOAD_BYTES && may_embed(&block.snapshot, &block.request);
    if is_hosts || physical_bytes(&block.snapshot, length) != psize {
        return false;
    }
    let Ok(view) = target.slice(0..psize) else { return false };
    (offloaded.psize, offloaded.compression, offloaded.is_packed_there) = (psize, how.kind, true);
    (offloaded.on_device, offloaded.on_host) = (Some(view), None);
    true
}

/// One stage at a time: what it gave is on the host again, and the device forgets it.
fn per_op(block: Block, mut offloaded: Offloaded, bytes: Result<(abd::Abd, Option<[u64; 4]>), OpError>) {
    offloaded.on_device = None;
    match bytes {
        Ok((bytes, Some(words))) if !copy_is_right(&offloaded.device, OpKind::CopyOut, &bytes, words) => return block.in_software(),
        Ok((bytes, _)) => {
            // What did not shrink is there as it was.
            offloaded.on_host.get_or_insert(bytes);
        }
        Err(error) => {
            offloaded.fell_back(OpKind::Compress, reason(error));
            offloaded.device.note_restart(OpKind::CopyOut);
            return block.in_software();
        }
    }
    offloaded.wishes.compress = false;
    if offloaded.wishes.checksum { submit(block, offloaded) } else { block.with(offloaded) }
}

/// Judges what the provider compressed, once it is on the host, where that is verified: false when its bytes are wrong. What it says of them is for
/// [`super::Claimed`].
pub(super) fn judge(request: &WriteRequest, offloaded: &Offloaded) -> bool {
    let Some(data) = &offloaded.on_host else { return false };
    if !offloaded.is_packed_there || !offloaded.is_verified() {
        return true;
    }
    let claim = Claim::Compress { kind: offloaded.compression, source: &request.data, output: data };
    let is_right = verify(&claim);
    offloaded.device.note_verified(OpKind::Compress, is_right);
    if !is_right {
        offloaded.fell_back(OpKind::Compress, FallbackReason::Wrong);
    }
    is_right
}
