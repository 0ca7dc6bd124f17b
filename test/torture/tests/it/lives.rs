//! Lives of pools whose devices come and go. What the user loses when these fail: data that every device still had, or the
//! redundancy that a resilver said it restored.

use torture::lives::{Report, left_behind, live, shapes};
use vdev::TopKind;

/// Number of lives of each shape, and of their steps: healed often, and seldom.
const LIVES: [(u64, u64); 2] = [(20, 16), (3, 40)];

/// A disk whose replacement was about to take its guid when the power went off, twice: labels of two minds made a stranger of it.
#[test]
fn a_device_is_known_by_any_of_its_labels() {
    let shape = shapes().into_iter().find(|shape| shape.kind == TopKind::Leaf).expect("a disk");
    live(shape, 21_000_420, 16).expect("it comes back");
}

/// A distributed spare was filled while another device, on which a part of it lies, was away: nobody knew afterwards that the part was missing.
#[test]
fn what_a_distributed_spare_has_on_a_device_that_is_away_comes_with_the_device() {
    let shape = shapes().into_iter().find(|shape| shape.to_string() == "draid2:2d:6c:1s").expect("a shape with a distributed spare");
    for seed in [41_002_948, 41_006_168, 41_006_598, 41_007_618] {
        live(shape, seed, 16).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// A device failed, then the one that was to take its place, beside a distributed spare: the resilver left out whom it had asked in vain.
#[test]
fn a_replacement_that_fails_beside_its_spare_gets_everything_in_the_end() {
    let shape = shapes().into_iter().find(|shape| shape.to_string() == "draid2:2d:6c:1s").expect("a shape with a distributed spare");
    live(shape, 1_005_208, 16).expect("all is there without any two devices");
}

/// A spare whose device had been declared good left the pool while it was brought back: who did that was told that there is no such device.
#[test]
fn a_spare_that_goes_as_it_comes_back_was_there() {
    let shape = shapes().into_iter().find(|shape| shape.kind == TopKind::Leaf).expect("a disk");
    for seed in [1_019_770, 1_032_090, 1_039_080] {
        live(shape, seed, 16).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

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

/// What keeps itself alive fills the memory of whoever opens and closes pools.
#[test]
fn nothing_of_a_pool_outlives_it() {
    for shape in shapes() {
        for seed in 0..6 {
            let (left, report) = left_behind(shape, seed, 16).expect("lived");
            assert_eq!(left, 0, "{shape} seed {seed}: {report}");
        }
    }
}
