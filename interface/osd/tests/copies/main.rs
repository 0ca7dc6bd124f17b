//! Copies of data between buffers, which are counted for the whole process: a program of its own.

#[path = "../it/bed.rs"]
#[expect(dead_code, reason = "the other program uses all of it")]
mod bed;

use bed::{Bed, make, pattern};

const MIB: u64 = 1 << 20;
const REQUESTS: u64 = 24;
/// Bytes of copies that metadata take.
const METADATA: u64 = 4 * MIB;

/// If this fails, a server copies each byte that it gets from the network, or sends to it.
#[test]
fn what_is_lent_is_not_copied() {
    let bed = Bed::new(&[("recordsize", "1M"), ("compression", "off")]);
    let device = bed.open();
    let object = make(&device, 1);
    let bytes = pattern(MIB as usize, 3);
    let before = abd::copied();
    for index in 0..REQUESTS {
        let (start, end) = (4096 + index * MIB, 4096 + (index + 1) * MIB);
        let mut loans = object.lend(&[start..start + 8192, start + 8192..end]).expect("lent");
        for loan in &mut loans {
            let from = (loan.offset() - start) as usize;
            let length = loan.len();
            loan.copy_from_slice(&bytes[from..from + length]);
        }
        let running = device.begin().write(&object, start..end).start().expect("started");
        running.commit(&object, loans).expect("written");
        running.stop();
    }
    let written = abd::copied() - before;
    assert!(written < METADATA, "{written} bytes were copied for {REQUESTS} MiB");
    device.sync().expect("synced");
    let before = abd::copied();
    let read = object.read(4096, REQUESTS * MIB).expect("read");
    let copied = abd::copied() - before;
    // A simulated device copies what is read from it.
    assert!(copied < REQUESTS * MIB + METADATA, "{copied} bytes were copied to read {REQUESTS} MiB");
    assert!(read.slice(MIB as usize..2 * MIB as usize).to_vec() == bytes);
    assert_eq!(device.counts().lent, REQUESTS * MIB);
}
