//! Logs of pools from before version 23.

use super::{Bench, inline, removal, writes_are_whole};
use exec::Exec;
use ondisk::Checksum;

/// In pools from before version 23 the link to the next block is at the end of each: if this fails, nothing is replayed there, or half of it.
#[test]
fn a_write_is_whole_in_blocks_of_the_old_form_and_where_it_changes() {
    let old = |exec: &Exec| {
        let bench = Bench::new(exec);
        bench.store.disk.lock().is_old = true;
        for _ in 0..2 {
            bench.note(removal(0, None));
            bench.commit();
        }
        bench
    };
    writes_are_whole(&old(&inline()));
    let bench = old(&inline());
    bench.note(removal(1, None));
    bench.commit();
    assert_eq!(bench.header().zh_log.checksum_kind(), Checksum::ZILOG);
    // The block that waits is of the form that the pool had.
    bench.store.disk.lock().is_old = false;
    for object in 2..5 {
        bench.note(removal(object, None));
        bench.commit();
    }
    assert_eq!(bench.removed(), [1, 2, 3, 4]);
}
