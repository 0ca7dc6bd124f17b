//! Walks over an object set that pause and go on.

use super::{TestPool, filesystem, write};
use crate::traverse::Walk;
use ondisk::BlockPtr;
use std::sync::Arc;

/// A device that is slow or busy with others must not hold up a txg because something was destroyed: a walk that ran out of time pauses
/// after one block, and goes on there.
#[test]
fn a_walk_that_runs_out_of_time_goes_on_where_it_paused() {
    let pool = TestPool::create(5);
    pool.dsl.create_dataset("tank/fs", filesystem()).expect("created");
    for _ in 0..3 {
        write(&pool, "tank/fs", 0, 0, &[7; 200_000]).expect("written");
    }
    pool.sync();
    let (object, root) = {
        let head = pool.dsl.tree.find("tank/fs").expect("there");
        (head.object, head.phys().ds_bp)
    };
    let io: Arc<dyn dmu::BlockIo> = Arc::new(pool.io.clone());
    let all = Walk::all(&*io, object, &root, 0);
    let mut at_once = Vec::new();
    let visit = |seen: &mut Vec<u64>, bp: &BlockPtr| {
        if !bp.is_embedded() {
            seen.push(bp.dva(0).offset);
        }
        Ok(())
    };
    all.run(&mut |bp| visit(&mut at_once, bp)).expect("walks");
    let (mut in_steps, mut resume, mut steps) = (Vec::new(), None, 0);
    loop {
        let step = Walk { resume, until_ns: 0, destroyed: true, ..Walk::all(&*io, object, &root, 0) };
        resume = step.run(&mut |bp| visit(&mut in_steps, bp)).expect("walks");
        steps += 1;
        if resume.is_none() {
            break;
        }
    }
    assert!(steps > 100, "{steps} steps");
    assert_eq!(in_steps, at_once);
}
