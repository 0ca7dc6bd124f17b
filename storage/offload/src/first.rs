//! The first round of a write: what has to be known before a block gets an address, its physical size and its checksum.

use crate::accelerator::Accelerator;
use crate::block::{Offloaded, Original, Wishes};
use crate::claimed::{PROOF, can_prove, copy_is_right};
use crate::submit::{reason, submit};
use crate::{look, second};
use abd::{Abd, AbdPart};
use dpusm::{Compress, Compressed, Device, FallbackReason, Feature, Graph, NodeId, OpError, OpKind, Report, View};
use kernels::checksum::needs_salt;
use ondisk::{ByteOrder, Checksum, Compression, EMBEDDED_PAYLOAD_BYTES};
use zio::transform::{Units, effective_compression, effective_level, may_embed};
use zio::{Answer, FirstRound, Physical, PoolView, Shape, Software, WriteRequest};

/// A write of which stages go to a provider.
pub(crate) struct Begun {
    accelerator: Accelerator,
    device: Device,
    wishes: Wishes,
}

/// First round of a write; None when the provider has no part in it.
pub(crate) fn write(accelerator: &Accelerator, view: &PoolView, request: &WriteRequest) -> Option<Begun> {
    let device = accelerator.device()?;
    let wishes = wishes(accelerator, &device, view, request);
    let writes = request.data.len() >= accelerator.policy().bytes_min && accelerator.has_stores();
    let has_part = wishes.compress || wishes.checksum || wishes.parity || writes;
    has_part.then(|| Begun { accelerator: accelerator.clone(), device, wishes })
}

/// Stages of a write that go to the provider.
fn wishes(accelerator: &Accelerator, device: &Device, view: &PoolView, request: &WriteRequest) -> Wishes {
    let policy = accelerator.policy();
    let compression = effective_compression(request);
    let is_compressed = !matches!(compression, Compression::OFF | Compression::EMPTY | Compression::ON | Compression::INHERIT);
    let parity = |parity: usize| policy.raidz_gen.get(parity.wrapping_sub(1)) == Some(&true);
    let wished = Wishes {
        compress: policy.compress && is_compressed,
        checksum: policy.checksum && request.checksum != Checksum::OFF && !needs_salt(request.checksum),
        parity: view.tree.tops.iter().any(|top| parity(top.parity())),
    };
    let note = |is_wished: bool, kind: OpKind, reason: Option<FallbackReason>| match reason {
        Some(reason) if is_wished => {
            device.note_fallback(kind, reason);
            false
        }
        _ => is_wished,
    };
    let too_small = (request.data.len() < policy.bytes_min).then_some(FallbackReason::TooSmall);
    let unless = |has: bool| too_small.or((!has).then_some(FallbackReason::NotSupported));
    let (offered, bytes) = (device.capabilities(), request.data.len());
    let sum = Feature::Checksum { kind: request.checksum, order: ByteOrder::Little };
    let compresses = offered.compresses_block(compression, effective_level(request), bytes);
    Wishes {
        compress: note(wished.compress, OpKind::Compress, unless(compresses)),
        checksum: note(wished.checksum, OpKind::Checksum, unless(offered.serves_block(&sum, bytes))),
        parity: note(wished.parity, OpKind::RaidGenerate, too_small),
    }
}

/// Nodes of a graph that have its results.
struct Nodes {
    copy_in: NodeId,
    packed: Option<Compressed>,
    padding: Option<NodeId>,
    sum: Option<NodeId>,
    /// Checksum of what was copied in, when what is made of it is not verified.
    proof: Option<NodeId>,
    copy_out: Option<NodeId>,
}

impl FirstRound for Begun {
    /// Starts with the stages that are wished for.
    fn compress(self: Box<Self>, view: &PoolView, request: &WriteRequest) -> Answer<Shape> {
        let Begun { accelerator, device, mut wishes } = *self;
        let original = Original {
            data: request.data.clone(),
            checksum: request.checksum,
            compression: effective_compression(request),
            level: effective_level(request),
            may_embed: may_embed(view, request),
            units: Units::of(view),
            salt: view.facts.salt.clone(),
        };
        let compression = original.compression;
        if compression != Compression::OFF && original.data.is_zero() {
            return Answer::Now(Shape::Again);
        }
        let is_verified = is_picked(&accelerator, &device, &wishes);
        let is_hopeless = wishes.compress && {
            let limit_bytes = original.units.compress_limit(compression, original.data.len());
            look::is_hopeless(compression, &original.data, limit_bytes)
        };
        if is_hopeless {
            device.note_fallback(OpKind::Compress, FallbackReason::Incompressible);
            wishes.compress = false;
        }
        let mut offloaded = Offloaded::new(accelerator, device, (original, wishes), is_verified);
        let compresses_here = compression != Compression::OFF && compression != Compression::EMPTY && !wishes.compress && !is_hopeless;
        if compresses_here && !compressed_in_software(&mut offloaded, view, request) {
            return Answer::Now(Shape::Again);
        }
        if wishes.compress || wishes.checksum { first_round(offloaded) } else { Answer::Now(shape(offloaded)) }
    }
}

/// True when all results for a block are to be verified: by chance, because the provider has still to prove itself, or because it has no way to say what
/// it got.
fn is_picked(accelerator: &Accelerator, device: &Device, wishes: &Wishes) -> bool {
    let stores = accelerator.has_stores();
    let operations = [(wishes.compress, OpKind::Compress), (wishes.parity, OpKind::RaidGenerate), (stores, OpKind::Store)];
    let is_new = operations.iter().any(|(is_wished, kind)| *is_wished && device.wants_proof(*kind));
    let is_mute = (wishes.compress || wishes.parity || !wishes.checksum) && !can_prove(device);
    accelerator.picks() || is_new || is_mute
}

/// The block is compressed on the host, and goes on from there; false when nothing is left of it to go on with.
fn compressed_in_software(offloaded: &mut Offloaded, view: &PoolView, request: &WriteRequest) -> bool {
    match Box::new(Software).compress(view, request) {
        Answer::Now(Shape::Physical(Physical { data: Some(data), compression, .. })) => {
            (offloaded.psize, offloaded.compression) = (data.len(), compression);
            offloaded.on_host = Some(data);
            true
        }
        _ => false,
    }
}

/// Shape of a block that goes on to an address.
fn shape(offloaded: Offloaded) -> Shape {
    let (psize, compression) = (offloaded.psize, offloaded.compression);
    Shape::Physical(Physical { data: None, psize, compression, round: second::round(offloaded) })
}

/// Way in which the block is to be compressed there.
fn how(original: &Original) -> Compress {
    let Original { data, compression, level, units, .. } = original;
    let limit_bytes = units.compress_limit(*compression, data.len());
    Compress { kind: *compression, level: *level, limit_bytes, round_to_bytes: units.step }
}

/// {copy in, compress, pad, checksum}, of which one at a time where nothing stays on the device.
fn first_round(offloaded: Offloaded) -> Answer<Shape> {
    let how = offloaded.wishes.compress.then(|| how(&offloaded.original));
    let (graph, nodes, source, target) = match build(&offloaded, how.as_ref()) {
        Ok(built) => built,
        Err(error) => return Answer::Now(refused(&offloaded, error)),
    };
    let (device, deadline_ns) = (offloaded.device.clone(), offloaded.deadline_ns());
    Answer::later(move |then| {
        submit(&device, graph, deadline_ns, (offloaded, then), move |(offloaded, then), report| match report {
            Ok(report) => landed(offloaded, report, &nodes, (source, target), how.as_ref()).deliver(then),
            Err(error) => then(refused(&offloaded, error)),
        });
    })
}

type Built = (Graph, Nodes, View, Option<View>);

fn build(offloaded: &Offloaded, how: Option<&Compress>) -> Result<Built, OpError> {
    let host = offloaded.on_host.as_ref().unwrap_or(&offloaded.original.data);
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
        let (kind, order) = (offloaded.original.checksum, ByteOrder::Little);
        nodes.sum = Some(match nodes.packed {
            Some(packed) => graph.checksum(packed.result(), kind, order),
            None => graph.checksum(&source, kind, order),
        });
    }
    Ok((graph, nodes, source, target))
}

/// The provider did not take the first round: all in software.
fn refused(offloaded: &Offloaded, error: OpError) -> Shape {
    let wished = [(offloaded.wishes.compress, OpKind::Compress), (offloaded.wishes.checksum, OpKind::Checksum)];
    wished.iter().filter(|(is_wished, _)| *is_wished).for_each(|(_, kind)| offloaded.fell_back(*kind, reason(error)));
    Shape::Again
}

/// The first round ended: goes on with what it gave.
fn landed(
    mut offloaded: Offloaded,
    mut report: Report,
    nodes: &Nodes,
    (source, target): (View, Option<View>),
    how: Option<&Compress>,
) -> Answer<Shape> {
    offloaded.note_report(&report);
    let proven = report.status(nodes.copy_in).and_then(|()| nodes.proof.map(|node| report.checksum(node)).transpose());
    match proven {
        Err(error) => return Answer::Now(refused(&offloaded, error)),
        Ok(Some(words)) if !copy_is_right(&offloaded.device, OpKind::CopyIn, &offloaded.original.data, words) => {
            return Answer::Now(Shape::Again);
        }
        Ok(_) => {}
    }
    if let (Some(packed), Some(how), Some(target)) = (nodes.packed, how, target) {
        let padded = nodes.padding.map_or(Ok(()), |node| report.status(node));
        let length = match report.compressed(packed).and_then(|length| padded.map(|()| length)) {
            Ok(length) => length,
            Err(error) => {
                offloaded.fell_back(OpKind::Compress, reason(error));
                offloaded.device.note_restart(OpKind::Compress);
                return Answer::Now(Shape::Again);
            }
        };
        if !take_compressed(&mut offloaded, length, (&source, &target), how) {
            return Answer::Now(Shape::Again);
        }
        if let Some(node) = nodes.copy_out {
            let words = nodes.sum.map(|node| report.checksum(node)).transpose();
            let bytes = words.and_then(|words| Ok((report.take_bytes(node)?, words)));
            return per_op(offloaded, bytes);
        }
    } else if !offloaded.is_per_op() {
        offloaded.on_device = Some(source);
    }
    if let Some(node) = nodes.sum {
        match report.checksum(node) {
            Ok(sum) if offloaded.wishes.checksum => offloaded.sum = Some((offloaded.original.checksum, sum)),
            Ok(sum) => offloaded.sum = Some((PROOF, sum)),
            Err(error) => {
                offloaded.fell_back(OpKind::Checksum, reason(error));
                offloaded.is_verified = true;
            }
        }
    }
    Answer::Now(shape(offloaded))
}

/// Notes what a compression made; false when the block is one of those that only the host makes: in the pointer, or of a size that is not a
/// multiple of what vdevs allocate.
fn take_compressed(offloaded: &mut Offloaded, length: Option<usize>, (source, target): (&View, &View), how: &Compress) -> bool {
    let Some(length) = length else {
        offloaded.on_device = Some(source.clone());
        return true;
    };
    let psize = how.stored_bytes(length);
    let is_hosts = length <= EMBEDDED_PAYLOAD_BYTES && offloaded.original.may_embed;
    if is_hosts || offloaded.original.units.physical_bytes(length) != psize {
        return false;
    }
    let Ok(view) = target.slice(0..psize) else { return false };
    (offloaded.psize, offloaded.compression, offloaded.is_packed_there) = (psize, how.kind, true);
    (offloaded.on_device, offloaded.on_host) = (Some(view), None);
    true
}

/// One stage at a time: what it gave is on the host again, and the device forgets it.
fn per_op(mut offloaded: Offloaded, bytes: Result<(Abd, Option<[u64; 4]>), OpError>) -> Answer<Shape> {
    offloaded.on_device = None;
    match bytes {
        Ok((bytes, Some(words))) if !copy_is_right(&offloaded.device, OpKind::CopyOut, &bytes, words) => return Answer::Now(Shape::Again),
        Ok((bytes, _)) => {
            // What did not shrink is there as it was.
            offloaded.on_host.get_or_insert(bytes);
        }
        Err(error) => {
            offloaded.fell_back(OpKind::Compress, reason(error));
            offloaded.device.note_restart(OpKind::CopyOut);
            return Answer::Now(Shape::Again);
        }
    }
    offloaded.wishes.compress = false;
    if offloaded.wishes.checksum { first_round(offloaded) } else { Answer::Now(shape(offloaded)) }
}
