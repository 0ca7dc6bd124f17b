//! Reads on an accelerator: decompression of blocks that were verified on the host.

use super::claimed::{PROOF, can_prove, copy_is_right, may_leave};
use super::{Accelerator, reason};
use crate::core::Core;
use crate::verify::decompress_into;
use crate::{ErrorKind, Landed};
use abd::{Abd, AbdPart};
use dpusm::{Claim, Device, FallbackReason, Feature, Graph, NodeId, OpError, OpKind, Report, verify};
use ondisk::{BlockPtr, Bookmark, ByteOrder, Compression};
use std::sync::Arc;

/// Receives the logical bytes.
type UnpackedThen = Box<dyn FnOnce(Result<Landed, ErrorKind>) + Send>;

/// A block on its way.
struct Packed {
    accelerator: Arc<Accelerator>,
    device: Device,
    bp: BlockPtr,
    physical: Abd,
    near: Vec<AbdPart>,
    then: UnpackedThen,
    is_verified: bool,
}

/// Where the results of a graph are.
#[derive(Clone, Copy)]
struct Nodes {
    copy_out: NodeId,
    /// Checksum of what was copied in, when the provider can say it: one that got other bytes may fail at them.
    source: Option<NodeId>,
    /// Checksum of what was made of it, when that is not verified.
    made: Option<NodeId>,
}

/// Delivers the logical bytes of a block whose `physical` bytes are right: by the accelerator where it is asked to and able to, else, or when it
/// fails, in software, perhaps into `near`.
pub(crate) fn decompress<F>(core: &Core, (bp, bookmark): (&BlockPtr, &Bookmark), physical: Abd, near: Vec<AbdPart>, then: F)
where
    F: FnOnce(Result<Landed, ErrorKind>) + Send + 'static,
{
    let wished = || core.zia.current().filter(|(accelerator, _)| accelerator.policy.decompress);
    let is_hosts = bp.compression() == Compression::OFF || !may_leave(bookmark, bp.level(), bp.object_type());
    let current = if is_hosts { None } else { wished() };
    let Some((accelerator, device)) = current else { return then(decompress_into(bp, &physical, near)) };
    let is_offered = device.has(&Feature::Decompress { kind: bp.compression() });
    let why_not = match (bp.lsize() < accelerator.policy.bytes_min, is_offered) {
        (true, _) => Some(FallbackReason::TooSmall),
        (_, false) => Some(FallbackReason::NotSupported),
        _ => None,
    };
    if let Some(reason) = why_not {
        device.note_fallback(OpKind::Decompress, reason);
        return then(decompress_into(bp, &physical, near));
    }
    let is_verified = accelerator.sampler.pick() || device.wants_proof(OpKind::Decompress) || !can_prove(&device);
    Packed { accelerator, device, bp: *bp, physical, near, then: Box::new(then), is_verified }.submit();
}

impl Packed {
    fn graph(&self) -> Result<(Graph, Nodes), OpError> {
        let source = self.device.alloc(self.physical.len())?.whole();
        let target = self.device.alloc(self.bp.lsize())?.whole();
        let mut graph = Graph::new();
        graph.copy_in(&self.physical, &source);
        graph.decompress(&source, &target, self.bp.compression());
        let proof = can_prove(&self.device).then(|| graph.checksum(&source, PROOF, ByteOrder::Little));
        let made = (!self.is_verified).then(|| graph.checksum(&target, PROOF, ByteOrder::Little));
        let copy_out = graph.copy_out(&target, vec![AbdPart::scratch(self.bp.lsize())]);
        Ok((graph, Nodes { copy_out, source: proof, made }))
    }

    fn submit(self) {
        let (graph, nodes) = match self.graph() {
            Ok(built) => built,
            Err(error) => return self.in_software(error),
        };
        let (device, deadline_ns) = (self.device.clone(), self.accelerator.policy.deadline_ns);
        super::submit(&device, graph, deadline_ns, self, move |packed, report| match report {
            Ok(report) => packed.landed(report, nodes),
            Err(error) => packed.in_software(error),
        });
    }

    fn landed(self, mut report: Report, nodes: Nodes) {
        // First, and also of what failed: other bytes than were given may be why.
        let source = nodes.source.and_then(|source| report.checksum(source).ok());
        let source_is_right = source.is_none_or(|sum| copy_is_right(&self.device, OpKind::CopyIn, &self.physical, sum));
        let made = nodes.made.map(|made| report.checksum(made)).transpose();
        let bytes = report.all().and(made).and_then(|made| Ok((report.take_bytes(nodes.copy_out)?, made)));
        let (output, made) = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return self.in_software(error),
        };
        let copies_are_right = source_is_right && made.is_none_or(|sum| copy_is_right(&self.device, OpKind::CopyOut, &output, sum));
        let is_verified = self.is_verified || report.is_probe || self.device.is_distrusted();
        if !copies_are_right || (is_verified && !self.is_right(&output)) {
            return (self.then)(decompress_into(&self.bp, &self.physical, self.near));
        }
        (self.then)(Ok(Landed::Elsewhere(output)));
    }

    /// True when software decompresses to the same.
    fn is_right(&self, output: &Abd) -> bool {
        let claim = Claim::Decompress { kind: self.bp.compression(), source: &self.physical, output };
        let is_right = verify(&claim);
        self.device.note_verified(OpKind::Decompress, is_right);
        if !is_right {
            self.device.note_fallback(OpKind::Decompress, FallbackReason::Wrong);
        }
        is_right
    }

    fn in_software(self, error: OpError) {
        self.device.note_fallback(OpKind::Decompress, reason(error));
        (self.then)(decompress_into(&self.bp, &self.physical, self.near));
    }
}
