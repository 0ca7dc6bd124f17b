//! Lives of pools whose devices come and go. What the user loses when these fail: data that every device still had, or the
//! redundancy that a resilver said it restored.

use torture::lives::{Report, live, shapes};

/// Lives of each shape, and how long they are: healed often, and seldom.
const LIVES: [(u64, u64); 2] = [(12, 16), (3, 40)];

#[test]
fn whatever_happens_to_devices_nothing_promised_is_lost() {
    let mut total = Report::default();
    for shape in shapes() {
        for (seed, steps) in LIVES.into_iter().flat_map(|(count, steps)| (0..count).map(move |seed| (seed, steps))) {
            match live(shape, seed, steps) {
                Ok(ended) => total.add(&ended.report),
                Err(error) => panic!("{shape} seed {seed}, {steps} steps: {error}"),
            }
        }
    }
    let devices = ["failures", "corruptions", "wipes", "offline", "attaches", "replacements", "rebuilds", "detaches", "losses"];
    let spares = ["spares resilvered", "spares rebuilt", "distributed spares", "spares returned", "left to spares"];
    for what in devices.into_iter().chain(spares).chain(["sweeps", "exports", "crashes", "power cuts"]) {
        assert!(total.of(what) > 0, "no {what}: {total}");
    }
}
