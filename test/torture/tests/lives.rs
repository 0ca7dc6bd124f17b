//! Lives of pools whose devices come and go. What the user loses when these fail: data that every device still had, or the
//! redundancy that a resilver said it restored.

use torture::lives::{Report, live, shapes};

const PROGRAMS_EACH: u64 = 8;
const STEPS: u64 = 16;

#[test]
fn whatever_happens_to_devices_nothing_promised_is_lost() {
    let mut total = Report::default();
    for shape in shapes() {
        for seed in 0..PROGRAMS_EACH {
            match live(shape, seed, STEPS) {
                Ok(ended) => total.add(&ended.report),
                Err(error) => panic!("{shape} seed {seed}: {error}"),
            }
        }
    }
    for what in ["failures", "corruptions", "wipes", "offline", "attaches", "replacements", "rebuilds", "detaches", "crashes", "losses"] {
        assert!(total.of(what) > 0, "no {what}: {total}");
    }
}
