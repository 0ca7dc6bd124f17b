//! Implementations that somebody chose, alone in a process: the choice is the process's.

use kernels::{ByteOrder, checksum, fused, raidz};

/// A pool written with one choice is read with another: every pair must give the same checksum and parity, also where one loop does both.
#[test]
fn every_choice_gives_the_same_bytes() {
    let block: Vec<u8> = (0..600_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let columns: Vec<&[u8]> = block.chunks(block.len() / 6).collect();
    let run = || {
        let mut parity = vec![vec![0; columns[0].len()]; 2];
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
        let sum = fused::generate_with_fletcher4(&columns, &mut targets).expect("a row");
        (sum, parity)
    };
    let right = run();
    for math in raidz::ALL.iter().filter(|one| one.is_supported()) {
        for sums in checksum::ALL.iter().filter(|one| one.is_supported()) {
            assert!(raidz::choose(Some(math.name)) && checksum::choose(Some(sums.name)));
            assert_eq!((raidz::chosen().name, checksum::chosen().name), (math.name, sums.name));
            assert!(run() == right, "{} {}", math.name, sums.name);
            assert_eq!(checksum::fletcher4(&[&block], ByteOrder::Little), right.0, "{}", sums.name);
        }
    }
    assert!(!raidz::choose(Some("no such")) && raidz::choose(None) && checksum::choose(None));
    assert_eq!(raidz::chosen().name, raidz::fastest().name);
}
