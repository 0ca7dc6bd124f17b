//! Prints what the latency promise is worth on the models of devices: tables with the throttle off, with OpenZFS's credit and with the
//! promise, of each figure the worst of eight seeds. `cargo run -p vdev-queue --example latency [part of a name]`.

#[path = "../tests/it/world/mod.rs"]
mod world;

use world::table::{Table, Throttle, hdd_scans, hdd_scenarios, nvme_scenarios, print, print_ceiling, print_rows, print_targets};

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if "HDD".contains(&wanted) {
        print_ceiling();
        print_targets(&hdd_scenarios()[4]);
    }
    if "records".contains(&wanted) {
        print_rows();
    }
    let scenarios = hdd_scenarios().into_iter().chain(hdd_scans()).chain(nvme_scenarios());
    for scenario in scenarios.filter(|scenario| scenario.name.contains(&wanted)) {
        let tables: Vec<Table> = (1..=8).map(|seed| scenario.with_seed(seed).table(&[Throttle::Off, Throttle::Credit])).collect();
        print(scenario.name, &tables);
        for (seed, table) in (1..).zip(&tables) {
            for broken in table.broken(&scenario.bounds) {
                println!("  seed {seed}: {broken}");
            }
        }
    }
}
