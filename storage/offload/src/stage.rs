//! The accelerator as the pipeline has it: whose part in a block is which.

use crate::accelerator::Accelerator;
use crate::{first, mend, reading, reconstruct, stores};
use std::sync::Arc;
use vdev::{ComputedRow, LostRow};
use zio::{Answer, ErrorKind, FirstRound, Landed, LeafPort, Mend, Packed, PoolView, Stage, WriteRequest};

impl Stage for Accelerator {
    fn write(&self, view: &PoolView, request: &WriteRequest) -> Option<Box<dyn FirstRound>> {
        first::write(self, view, request).map(|begun| Box::new(begun) as Box<dyn FirstRound>)
    }

    fn decompress(&self, block: Packed) -> Answer<Result<Landed, ErrorKind>> {
        reading::decompress(self, block)
    }

    fn reconstructs(&self) -> bool {
        self.policy().raidz_rec.contains(&true) && self.device().is_some()
    }

    fn reconstruct(&self, rows: Vec<LostRow>, judged: bool) -> Answer<Vec<ComputedRow>> {
        reconstruct::reconstruct(self, rows, judged)
    }

    fn mend(&self, view: &PoolView, block: Mend) -> Answer<bool> {
        mend::mend(self, view, block)
    }

    fn open_stores(&self, view: &PoolView, leaves: Arc<dyn LeafPort>) {
        stores::open(self, view, leaves);
    }
}

impl Accelerator {
    /// Makes a stage of the accelerator, for [`zio::Zio::set_stage`].
    pub fn into_stage(self) -> Arc<dyn Stage> {
        Arc::new(self)
    }
}
