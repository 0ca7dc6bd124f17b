//! Power cuts at the writes and flushes of a program of transactions: each is there as a whole or not at all, and those of which somebody was told are.

use crate::bed::{Bed, after_crash, check_space, make, open, write};
use crate::model::{Program, STEPS, State, difference, found};
use exec::{Mutex, SplitMix};
use osd::Device;
use sim::cuts_every;
use std::sync::Arc;

/// If this fails, a client forgets what it was told is on disk and is not, or finds a part of a transaction.
#[test]
fn transactions_are_whole_or_absent_and_callbacks_never_early() {
    for seed in [21, 22] {
        let bed = Bed::new(&[("recordsize", "16K"), ("compression", if seed == 21 { "off" } else { "lz4" })]);
        let device = bed.open();
        let mut program = Program::new(seed);
        let mut random = SplitMix::new(seed);
        let mut states: Vec<State> = vec![State::new()];
        let told: Arc<Mutex<Vec<u64>>> = Arc::default();
        // The folders are there: those of the sequence are made in transactions of their own.
        program.step(&device, |transaction| transaction);
        states.push(program.state.clone());
        device.sync().expect("synced");
        bed.sim.start_recording();
        bed.sim.mark(1);
        for number in 2..=STEPS as u64 {
            let (sim, heard) = (bed.sim.clone(), told.clone());
            program.step(&device, |transaction| {
                transaction.on_commit(Box::new(move |is_committed| {
                    assert!(is_committed);
                    heard.lock().push(number);
                    sim.mark(number);
                }))
            });
            states.push(program.state.clone());
            if random.chance(12) {
                device.sync().expect("synced");
                assert_eq!(told.lock().last(), Some(&number), "who waited is told");
            }
        }
        device.sync().expect("synced");
        let recording = bed.sim.take_recording();
        assert!(told.lock().iter().copied().eq(2..=STEPS as u64), "each is called once, in their order");
        drop(device);
        bed.pool.export().expect("exported");
        recording.each_cut((cuts_every(61), 0), &mut |cut| {
            let least = cut.mark.unwrap_or(0) as usize;
            cut.each_image(seed, &mut |choice, images| {
                let what = format!("seed {seed}, cut {} {choice:?}", cut.events);
                let pool = after_crash(images);
                let device = open(&pool);
                let now = found(&device);
                let is_one = states[least..].contains(&now);
                assert!(is_one, "{what}: no state from transaction {least} on: {:?}", difference(&now, &states[least]));
                use_again(&device);
                drop(device);
                check_space(&pool, &what);
                pool.export().expect("exported");
            });
        });
    }
}

/// Makes an object as after any crash.
fn use_again(device: &Arc<Device>) {
    let object = make(device, 99);
    write(&object, device, 0, &[5; 70_000]);
    assert!(object.read(0, 70_000).expect("read").to_vec() == [5; 70_000]);
}

/// If this fails, objects that were destroyed right before a crash keep their space for ever.
#[test]
fn what_was_destroyed_before_a_crash_is_freed_after_it() {
    let bed = Bed::new(&[("recordsize", "16K"), ("compression", "off")]);
    let device = bed.open();
    let object = make(&device, 1);
    write(&object, &device, 0, &vec![1; 1 << 20]);
    device.sync().expect("synced");
    bed.sim.start_recording();
    let running = device.begin().destroy(&object).start().expect("started");
    running.destroy(&object).expect("destroyed");
    running.stop();
    assert_eq!(object.exists(), Ok(false));
    bed.pool.sync().expect("synced");
    bed.sim.take_recording().each_cut((1, 0), &mut |cut| {
        cut.each_image(1, &mut |choice, images| {
            let pool = after_crash(images);
            let device = open(&pool);
            let is_there = device.object(object.fid()).expect("an object").exists().expect("looked");
            drop(device);
            check_space(&pool, &format!("cut {} {choice:?}", cut.events));
            let referenced = pool.dsl().hold(crate::bed::OBJECTS).expect("held").space().referenced;
            assert_eq!(referenced > 1 << 20, is_there, "cut {} {choice:?}: {referenced} bytes", cut.events);
        });
    });
}
