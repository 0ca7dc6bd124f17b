//! The stages on the host: the reference, and what every block falls back to.

use crate::stage::{Answer, FirstRound, LeafPort, Made, Packed, Physical, Ready, SecondRound, Shape, Stage};
use crate::transform::{Prepared, prepare};
use crate::verify::decompress_into;
use crate::view::PoolView;
use crate::{ErrorKind, Landed, WriteRequest};
use ondisk::Dva;
use std::sync::Arc;
use vdev::{ComputedRow, LostRow};

/// The stages in software. Parity and Fletcher-4 are one pass over the bytes there, so that the pipeline computes both when it plans what goes to the
/// devices; lost columns are the vdev's to solve.
#[derive(Clone, Copy, Debug, Default)]
pub struct Software;

impl FirstRound for Software {
    fn looks_once(&self) -> bool {
        true
    }

    fn compress(self: Box<Self>, view: &PoolView, request: &WriteRequest) -> Answer<Shape> {
        Answer::Now(match prepare(view, request) {
            Err(kind) => Shape::Failed(kind),
            Ok(Prepared::Hole(bp)) => Shape::Hole(bp),
            Ok(Prepared::Embedded(bp)) => Shape::Embedded(bp),
            Ok(Prepared::Physical(data, compression)) => {
                Shape::Physical(Physical { psize: data.len(), data: Some(data), compression, round: self })
            }
        })
    }
}

impl SecondRound for Software {
    fn is_hosts(&self) -> bool {
        true
    }

    fn parity(self: Box<Self>, _: &PoolView, _: &[Dva; 3]) -> Answer<Made> {
        Answer::Now(Made::Ready(Ready::default()))
    }

    fn retrieve(self: Box<Self>) -> Answer<Made> {
        Answer::Now(Made::Ready(Ready::default()))
    }
}

impl Stage for Software {
    fn write(&self, _: &PoolView, _: &WriteRequest) -> Option<Box<dyn FirstRound>> {
        Some(Box::new(Software))
    }

    fn decompress(&self, block: Packed) -> Answer<Result<Landed, ErrorKind>> {
        Answer::Now(decompress_into(&block.bp, &block.physical, block.near))
    }

    fn reconstructs(&self) -> bool {
        false
    }

    fn reconstruct(&self, _: Vec<LostRow>, _: bool) -> Answer<Vec<ComputedRow>> {
        Answer::Now(Vec::new())
    }

    fn open_stores(&self, _: &PoolView, _: Arc<dyn LeafPort>) {}
}
