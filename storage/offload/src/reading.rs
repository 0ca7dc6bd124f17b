//! Reads on an accelerator: decompression of blocks that were verified on the host.

use crate::accelerator::Accelerator;
use crate::claimed::{PROOF, can_prove, copy_is_right};
use crate::submit::{reason, submit};
use abd::{Abd, AbdPart};
use dpusm::{Claim, Device, FallbackReason, Feature, Graph, NodeId, OpError, OpKind, Report, verify};
use ondisk::ByteOrder;
use zio::{Answer, ErrorKind, Landed, Packed, Software, Stage};

/// Logical bytes of a block, or why there are none.
type Unpacked = Result<Landed, ErrorKind>;

/// A block on its way.
struct Offered {
    accelerator: Accelerator,
    device: Device,
    block: Packed,
    is_verified: bool,
}

/// Nodes of a graph that have its results.
#[derive(Clone, Copy)]
struct Nodes {
    copy_out: NodeId,
    /// Checksum of what was copied in, when the provider can say it: one that got other bytes may fail at them.
    source: Option<NodeId>,
    /// Checksum of what was made of it, when that is not verified.
    made: Option<NodeId>,
}

/// The logical bytes of a block that was verified: by the provider where it is asked to and able to, else, or when it fails, in software.
pub(crate) fn decompress(accelerator: &Accelerator, block: Packed) -> Answer<Unpacked> {
    let wished = accelerator.policy().decompress.then(|| accelerator.device()).flatten();
    let Some(device) = wished else { return Software.decompress(block) };
    let is_offered = device.capabilities().serves_block(&Feature::Decompress { kind: block.bp.compression() }, block.bp.lsize());
    let why_not = match (block.bp.lsize() < accelerator.policy().bytes_min, is_offered) {
        (true, _) => Some(FallbackReason::TooSmall),
        (_, false) => Some(FallbackReason::NotSupported),
        _ => None,
    };
    if let Some(reason) = why_not {
        device.note_fallback(OpKind::Decompress, reason);
        return Software.decompress(block);
    }
    let is_verified = accelerator.picks() || device.wants_proof(OpKind::Decompress) || !can_prove(&device);
    Offered { accelerator: accelerator.clone(), device, block, is_verified }.unpack()
}

impl Offered {
    fn graph(&self) -> Result<(Graph, Nodes), OpError> {
        let source = self.device.alloc(self.block.physical.len())?.whole();
        let target = self.device.alloc(self.block.bp.lsize())?.whole();
        let mut graph = Graph::new();
        graph.copy_in(&self.block.physical, &source);
        graph.decompress(&source, &target, self.block.bp.compression());
        let proof = can_prove(&self.device).then(|| graph.checksum(&source, PROOF, ByteOrder::Little));
        let made = (!self.is_verified).then(|| graph.checksum(&target, PROOF, ByteOrder::Little));
        let copy_out = graph.copy_out(&target, vec![AbdPart::scratch(self.block.bp.lsize())]);
        Ok((graph, Nodes { copy_out, source: proof, made }))
    }

    fn unpack(self) -> Answer<Unpacked> {
        let (graph, nodes) = match self.graph() {
            Ok(built) => built,
            Err(error) => return self.in_software(error),
        };
        Answer::later(move |then| {
            let (device, deadline_ns) = (self.device.clone(), self.accelerator.policy().deadline_ns);
            submit(&device, graph, deadline_ns, (self, then), move |(offered, then), report| {
                let unpacked = match report {
                    Ok(report) => offered.landed(report, nodes),
                    Err(error) => offered.in_software(error),
                };
                unpacked.deliver(then);
            });
        })
    }

    fn landed(self, mut report: Report, nodes: Nodes) -> Answer<Unpacked> {
        // First, and also of what failed: other bytes than were given may be why.
        let source = nodes.source.and_then(|source| report.checksum(source).ok());
        let source_is_right = source.is_none_or(|sum| copy_is_right(&self.device, OpKind::CopyIn, &self.block.physical, sum));
        let made = nodes.made.map(|made| report.checksum(made)).transpose();
        let bytes = report.all().and(made).and_then(|made| Ok((report.take_bytes(nodes.copy_out)?, made)));
        let (output, made) = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return self.in_software(error),
        };
        let copies_are_right = source_is_right && made.is_none_or(|sum| copy_is_right(&self.device, OpKind::CopyOut, &output, sum));
        let is_verified = self.is_verified || report.is_probe || self.device.is_distrusted();
        if !copies_are_right || (is_verified && !self.is_right(&output)) {
            return Software.decompress(self.block);
        }
        Answer::Now(Ok(Landed::Elsewhere(output)))
    }

    /// True when software decompresses to the same.
    fn is_right(&self, output: &Abd) -> bool {
        let claim = Claim::Decompress { kind: self.block.bp.compression(), source: &self.block.physical, output };
        let is_right = verify(&claim);
        self.device.note_verified(OpKind::Decompress, is_right);
        if !is_right {
            self.device.note_fallback(OpKind::Decompress, FallbackReason::Wrong);
        }
        is_right
    }

    fn in_software(self, error: OpError) -> Answer<Unpacked> {
        self.device.note_fallback(OpKind::Decompress, reason(error));
        Software.decompress(self.block)
    }
}
