//! Persistent reservations between sessions, and through a restart: what clusters rely on.

use crate::initiator::{Initiator, Reply, read10, write10};
use crate::world::World;
use iscsi::{Kept, Options, UnitError};

/// PERSISTENT RESERVE OUT.
fn out(initiator: &mut Initiator, action: u8, kind: u8, key: u64, second: u64, flags: u8) -> Reply {
    let list = [&key.to_be_bytes()[..], &second.to_be_bytes(), &[0, 0, 0, 0, flags, 0, 0, 0]].concat();
    initiator.command(&[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], &list, 0)
}

/// PERSISTENT RESERVE IN.
fn read(initiator: &mut Initiator, action: u8) -> Vec<u8> {
    initiator.command(&[0x5E, action, 0, 0, 0, 0, 0, 1, 0, 0], &[], 256).data
}

/// If this fails, two nodes of a cluster write to the same disk.
#[test]
fn a_reservation_keeps_others_out_until_it_is_preempted() {
    let world = World::new();
    let (mut a, mut b) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    assert!(out(&mut a, 0, 0, 0, 0xA, 0).is_good() && out(&mut b, 0, 0, 0, 0xB, 0).is_good());
    assert_eq!(read(&mut a, 0), [&[0, 0, 0, 2, 0, 0, 0, 16][..], &0xAu64.to_be_bytes(), &0xBu64.to_be_bytes()].concat());
    assert!(out(&mut a, 1, 5, 0xA, 0, 0).is_good());
    assert_eq!(out(&mut b, 1, 5, 0xB, 0, 0).status, 0x18);
    assert!(b.command(&write10(0, 1), &[1; 512], 0).is_good(), "registrants may write");
    assert!(out(&mut b, 0, 0, 0xB, 0, 0).is_good());
    let refused = b.command(&write10(0, 1), &[2; 512], 0);
    assert_eq!((refused.status, refused.sense.len()), (0x18, 0));
    assert!(b.command(&read10(0, 1), &[], 512).is_good());
    assert!(out(&mut b, 6, 0, 0, 0xB, 0).is_good());
    let full = read(&mut b, 3);
    assert!(String::from_utf8_lossy(&full).contains("a,i,0x") && full[8 + 12] == 1 && full[8 + 13] == 5, "{full:?}");
    // The other one takes it, with everything that was under way.
    assert!(out(&mut b, 5, 1, 0xB, 0xA, 0).is_good());
    assert_eq!(a.command(&[0; 6], &[], 0).sense(), (6, 0x2A, 0x05));
    assert_eq!(a.command(&write10(0, 1), &[3; 512], 0).status, 0x18);
    assert_eq!(out(&mut a, 2, 1, 0xA, 0, 0).status, 0x18, "it is not registered any more");
    assert_eq!(read(&mut b, 1)[8..], [0, 0, 0, 0, 0, 0, 0, 0xB, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(out(&mut b, 2, 3, 0xB, 0, 0).sense(), (5, 0x26, 0x04), "it is released as the type that it is");
    assert!(out(&mut b, 2, 1, 0xB, 0, 0).is_good());
    assert!(a.command(&write10(0, 1), &[3; 512], 0).is_good());
    assert!(out(&mut b, 3, 0, 0xB, 0, 0).is_good());
    assert_eq!(read(&mut b, 0)[4..], [0, 0, 0, 0]);
}

/// A holder that unregisters tells the others that the reservation is gone, and is told nothing itself.
#[test]
fn only_the_others_are_told_of_a_release() {
    let world = World::new();
    let (mut a, mut b) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    assert!(out(&mut a, 0, 0, 0, 0xA, 0).is_good() && out(&mut b, 0, 0, 0, 0xB, 0).is_good());
    assert!(out(&mut a, 1, 6, 0xA, 0, 0).is_good());
    assert!(out(&mut a, 0, 0, 0xA, 0, 0).is_good());
    assert!(a.command(&[0; 6], &[], 0).is_good());
    assert_eq!(b.command(&[0; 6], &[], 0).sense(), (6, 0x2A, 0x04));
}

/// If this fails, a restart of the target lets the node in that the cluster had locked out.
#[test]
fn what_is_to_survive_a_restart_does() {
    let kept = {
        let world = World::new();
        let mut a = Initiator::session(&world, "a");
        assert!(out(&mut a, 0, 0, 0, 0xA, 0).is_good());
        assert_eq!(*world.store.0.lock(), None, "nobody asked for it");
        assert!(out(&mut a, 0, 0, 0xA, 0xA1, 1).is_good());
        assert!(out(&mut a, 1, 1, 0xA1, 0, 0).is_good());
        assert_eq!(read(&mut a, 2)[3] & 1, 1);
        world.store.0.lock().clone()
    };
    let kept = kept.expect("it was kept before the command was answered");
    assert_eq!((kept.registrations.len(), kept.generation), (1, 2));
    let world = World::with(Options::default(), Some(kept));
    let (mut a, mut b) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    assert_eq!(b.command(&write10(0, 1), &[1; 512], 0).status, 0x18);
    assert!(a.command(&write10(0, 1), &[1; 512], 0).is_good());
    assert!(out(&mut a, 0, 0, 0xA1, 0xA1, 0).is_good());
    assert_eq!(*world.store.0.lock(), None, "it is no longer to be kept");
}

#[test]
fn lists_and_types_that_are_wrong_are_refused() {
    let world = World::new();
    let mut a = Initiator::session(&world, "a");
    assert_eq!(out(&mut a, 1, 2, 0, 0, 0).sense(), (5, 0x24, 0));
    assert_eq!(out(&mut a, 1, 0x11, 0, 0, 0).sense(), (5, 0x24, 0));
    assert_eq!(out(&mut a, 7, 1, 0, 0, 0).sense(), (5, 0x24, 0));
    assert_eq!(out(&mut a, 0, 0, 0, 1, 8).sense(), (5, 0x26, 0));
    assert_eq!(a.command(&[0x5F, 0, 0, 0, 0, 0, 0, 0, 23, 0], &[0; 23], 0).sense(), (5, 0x1A, 0));
    assert_eq!(a.command(&[0x5E, 9, 0, 0, 0, 0, 0, 1, 0, 0], &[], 256).sense(), (5, 0x24, 0));
    assert!(out(&mut a, 0, 0, 0, 1, 0).is_good());
    assert_eq!(a.command(&[0x16, 0, 0, 0, 0, 0], &[], 0).status, 0x18, "the old way is closed meanwhile");
}

/// If this fails, a right that is taken away leaves a reservation behind that locks out everybody else, also after a restart.
#[test]
fn reservations_go_with_the_right_of_who_has_them() {
    let world = World::new();
    let (mut a, mut b) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    assert!(out(&mut a, 0, 0, 0, 0xA, 1).is_good() && out(&mut a, 1, 1, 0xA, 0, 0).is_good());
    assert_eq!(world.runtime.block_on(world.disk.strip("b")), Ok(false));
    assert_eq!(b.command(&write10(0, 1), &[1; 512], 0).status, 0x18);
    assert_eq!(world.runtime.block_on(world.disk.strip("a")), Ok(true));
    assert!(b.command(&write10(0, 1), &[1; 512], 0).is_good());
    let kept = world.store.0.lock().clone().expect("they are to be kept");
    assert_eq!((kept.registrations.len(), kept.reservation), (0, None));
}

/// If this fails, reservations that were taken away where they are kept go on, and what is shown there is not true.
#[test]
fn what_is_kept_counts_as_it_is_now() {
    let world = World::new();
    let (mut a, mut b) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    let follow = |kept: Option<Kept>| world.runtime.block_on(world.disk.follow(move || Ok(kept)));
    assert!(out(&mut a, 0, 0, 0, 0xA, 1).is_good() && out(&mut a, 1, 1, 0xA, 0, 0).is_good());
    let kept = world.store.0.lock().clone();
    assert!(!follow(kept.clone()));
    assert!(!world.runtime.block_on(world.disk.follow(|| Err(UnitError::Gone))));
    assert_eq!(b.command(&write10(0, 1), &[1; 512], 0).status, 0x18);
    assert!(follow(None));
    assert!(b.command(&write10(0, 1), &[1; 512], 0).is_good());
    assert_eq!(a.command(&[0; 6], &[], 0).sense(), (6, 0x2A, 0x03), "it is told");
    assert!(follow(kept));
    assert_eq!(b.command(&write10(0, 1), &[1; 512], 0).status, 0x18);
    assert!(out(&mut a, 0, 0, 0xA, 0xA, 0).is_good());
    assert!(!follow(None), "nothing is kept any more, and nobody asked for that");
    assert_eq!(b.command(&write10(0, 1), &[1; 512], 0).status, 0x18);
}
