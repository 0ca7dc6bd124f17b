//! Where blocks lie of a pool that has vdevs for some of them.

use crate::common::{Rig, TXG, bookmark, inline, noise, request};
use metaslab::Allocator;
use ondisk::{BlockPtr, ObjectType, VdevId};
use std::ops::Range;
use vdev::{Bias, TopKind, VdevTree};
use zio::{ErrorKind, FailMode, WriteRequest};

/// Bytes of a free piece.
const PIECE: u64 = 32_768;
const SPECIAL: VdevId = VdevId(1);

/// A pool whose vdev for data is full, and whose vdev for metadata has room in pieces only.
fn nearly_full() -> Rig {
    let layout = [(TopKind::Leaf, 1), (TopKind::Leaf, 1)];
    Rig::with(inline(), &layout, 12, FailMode::Never, &|tree: &VdevTree, allocator: &Allocator| {
        let mut told = tree.clone();
        told.tops[SPECIAL.0 as usize].bias = Bias::Special;
        for top in &tree.tops {
            for metaslab in 0..allocator.metaslab_count(top.id) {
                let whole = top.metaslab_range(metaslab);
                let allocated: Vec<Range<u64>> = match top.id {
                    SPECIAL => whole.step_by(4 * PIECE as usize).map(|start| start + PIECE..start + 4 * PIECE).collect(),
                    _ => Vec::from([whole]),
                };
                allocator.load(top.id, metaslab, &allocated).expect("sorted segments load");
            }
        }
        allocator.follow(&told);
    })
}

/// If this fails, a pool has no room for metadata, and stops, while there is room on the vdev for metadata, though in pieces.
#[test]
fn metadata_lies_in_pieces_where_metadata_may_lie() {
    let rig = nearly_full();
    let taken = || [VdevId(0), SPECIAL].map(|vdev| rig.allocator.vdev_space(vdev).allocated);
    let before = taken();
    let data = noise(1, 131_072);
    assert_eq!(rig.write(request(data.clone(), 1)).map_err(|error| error.kind), Err(ErrorKind::NoSpace), "data may not lie there");
    assert_eq!(taken(), before);
    let bp: BlockPtr = rig.write(WriteRequest::new(TXG, data.clone(), bookmark(1), ObjectType::DIRECTORY_CONTENTS)).expect("there is room");
    let used = taken()[1] - before[1];
    assert!(bp.is_gang() && used >= 131_072, "{bp:?}");
    assert!(rig.read(&bp).is_ok_and(|back| back == data));
    rig.zio.free(TXG, &bp);
    rig.zio.wait_frees();
    let freed: u64 = rig.allocator.take_deltas(TXG).iter().flat_map(|delta| delta.frees.clone()).map(|range| range.end - range.start).sum();
    assert!(freed == used || taken() == before, "{freed} of {used} are freed");
}
