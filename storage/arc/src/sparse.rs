//! Indirect blocks with few pointers. Each file system has a tree of objects of six levels, of which each block of 128 KiB has one pointer as long as
//! there are few objects: of such blocks the cache holds the first bytes, and whoever asks for one gets all of it.

use crate::shard::Lookup;
use abd::{Abd, PAGE_BYTES};
use ondisk::{BlockPtr, Compression};

/// First bytes of an indirect block that alone are held where all behind them are zeros: sixteen pointers.
const START_BYTES: usize = 16 * BlockPtr::BYTES;

/// True for a block that may be held without its end. Of one that is not compressed the bytes are those on disk, which a second level may want.
fn may_be_short(bp: &BlockPtr) -> bool {
    bp.level() > 0 && bp.compression() != Compression::OFF && !zio::is_sealed(bp) && bp.lsize() > PAGE_BYTES
}

/// Logical bytes of a block as the cache holds them.
pub(crate) fn shortened(bp: &BlockPtr, data: Abd) -> Abd {
    if !may_be_short(bp) || data.len() != bp.lsize() || !data.slice(START_BYTES..data.len()).is_zero() {
        return data;
    }
    let mut start = [0; START_BYTES];
    data.peek(0, &mut start);
    Abd::from_slice(&start)
}

/// Logical bytes of a block of which the cache holds these.
pub(crate) fn whole(bp: &BlockPtr, data: Abd) -> Abd {
    if data.len() >= bp.lsize() || !may_be_short(bp) {
        return data;
    }
    let mut whole = Abd::zeroed(bp.lsize());
    data.copy_to(0, &mut whole.make_mut()[..data.len()]);
    whole
}

impl Lookup {
    /// Result of the look with all bytes of the block.
    pub(crate) fn whole(self, bp: &BlockPtr) -> Lookup {
        match self {
            Lookup::Hit(data) => Lookup::Hit(whole(bp, data)),
            other => other,
        }
    }
}
