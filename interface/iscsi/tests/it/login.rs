//! Who comes in, as whom, and what is said to the others.

use crate::initiator::{Initiator, text};
use crate::world::{TARGET, World};
use iscsi::{Account, Chap, Grant, Options, Waiting};
use md5::Md5;
use sha2::{Digest, Sha256};

const SECRET: &str = "a secret of twenty!!";
const OTHER: &str = "another one of these";

fn chap() -> Grant {
    let account = |name: &str, secret: &str| Account { name: name.into(), secret: secret.into() };
    Grant { chap: Some(Chap { initiator: account("user", SECRET), target: Some(account("target", OTHER)) }), is_read_only: false }
}

fn names(initiator: &str) -> Vec<(&str, &str)> {
    vec![("InitiatorName", initiator), ("TargetName", TARGET)]
}

/// If this fails, somebody without a right comes in, or somebody learns of targets that are none of theirs.
#[test]
fn a_login_that_cannot_be_is_refused_with_its_status() {
    let world = World::new();
    for (flags, keys, status) in [
        (0x87, vec![("InitiatorName", "x"), ("TargetName", TARGET)], 0x0203),
        (0x87, vec![("InitiatorName", "a"), ("TargetName", "iqn.2026-11.example:none")], 0x0203),
        (0x87, vec![("TargetName", TARGET)], 0x0207),
        (0x87, vec![("InitiatorName", "a")], 0x0207),
        (0x87, vec![("InitiatorName", "x"), ("SessionType", "Discovery")], 0x0203),
        (0x87, vec![("InitiatorName", "a"), ("SessionType", "Odd")], 0x0209),
        (0x8B, names("a"), 0x0200),
        (0x86, names("a"), 0x0200),
        (0x85, names("a"), 0x0200),
        (0xC7, names("a"), 0x0200),
    ] {
        let mut initiator = Initiator::connect(&world);
        let answer = initiator.log_in_with(flags, &text(&keys), 1);
        assert_eq!(answer.login_status(), status, "{flags:02x} {keys:?}");
        assert!(initiator.is_closed(), "{keys:?}");
    }
    for bad in [&b"InitiatorName"[..], b"=\0", b"\xff=1\0", b"InitiatorName=a\0InitiatorName=a\0"] {
        assert_eq!(Initiator::connect(&world).log_in_with(0x87, bad, 1).login_status(), 0x0200);
    }
    Initiator::session(&world, "a");
}

/// Text of several PDUs is one text; initiators with long names send it so.
#[test]
fn text_goes_on_over_several_requests() {
    let world = World::new();
    let mut initiator = Initiator::connect(&world);
    let whole = text(&names("a"));
    let answer = initiator.log_in_with(0x44, &whole[..20], 1);
    assert_eq!((answer.login_status(), answer.header[1] & 0x80, answer.data.len()), (0, 0, 0));
    let answer = initiator.log_in_with(0x87, &whole[20..], 1);
    assert_eq!((answer.login_status(), answer.header[1]), (0, 0x87));
    assert_eq!(answer.key("TargetPortalGroupTag").as_deref(), Some("1"));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".into(), |text, byte| format!("{text}{byte:02x}"))
}

fn unhex(text: &str) -> Vec<u8> {
    (2..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal")).collect()
}

/// Begins CHAP with the algorithms `offered`; identifier and challenge of the target.
fn challenge(initiator: &mut Initiator, offered: &str) -> Option<(u8, Vec<u8>, String)> {
    let mut keys = names("a");
    keys.push(("AuthMethod", "CHAP,None"));
    let answer = initiator.log_in_with(0x81, &text(&keys), 1);
    assert_eq!((answer.login_status(), answer.header[1] & 0x80, answer.key("AuthMethod").as_deref()), (0, 0, Some("CHAP")));
    let answer = initiator.log_in_with(0x00, &text(&[("CHAP_A", offered)]), 1);
    let id = answer.key("CHAP_I")?.parse().expect("a number");
    Some((id, unhex(&answer.key("CHAP_C")?), answer.key("CHAP_A")?))
}

fn response(algorithm: &str, id: u8, secret: &str, challenge: &[u8]) -> String {
    let bytes = [&[id], secret.as_bytes(), challenge].concat();
    hex(&if algorithm == "5" { Md5::digest(&bytes).to_vec() } else { Sha256::digest(&bytes).to_vec() })
}

/// If this fails, a target with a secret is open to who does not know it, or closed to who does.
#[test]
fn chap_lets_in_who_knows_the_secret_and_nobody_else() {
    let world = World::new();
    world.access.allow("a", TARGET, chap());
    for (offered, chosen) in [("5", "5"), ("7,5", "7"), ("55,5", "5"), ("6,8", "")] {
        let mut initiator = Initiator::connect(&world);
        let Some((id, sent, algorithm)) = challenge(&mut initiator, offered) else {
            assert_eq!(chosen, "", "{offered}");
            assert!(initiator.is_closed());
            continue;
        };
        assert_eq!(algorithm, chosen);
        let proof = response(chosen, id, SECRET, &sent);
        let answer = initiator.log_in_with(0x81, &text(&[("CHAP_N", "user"), ("CHAP_R", &proof)]), 1);
        assert_eq!((answer.login_status(), answer.header[1]), (0, 0x81), "{offered}");
        assert_eq!(initiator.log_in_with(0x87, &[], 1).header[1], 0x87);
    }
    for (name, secret) in [("user", OTHER), ("other", SECRET), ("", "")] {
        let mut initiator = Initiator::connect(&world);
        let (id, sent, _) = challenge(&mut initiator, "5").expect("a challenge");
        let proof = response("5", id, secret, &sent);
        let answer = initiator.log_in_with(0x81, &text(&[("CHAP_N", name), ("CHAP_R", &proof)]), 1);
        assert_eq!(answer.login_status(), 0x0201, "{name}");
        assert!(initiator.is_closed());
    }
    for proof in ["0x", "0x00", "0x0", "none", &hex(&[0; 1000])] {
        let mut initiator = Initiator::connect(&world);
        challenge(&mut initiator, "5").expect("a challenge");
        let answer = initiator.log_in_with(0x81, &text(&[("CHAP_N", "user"), ("CHAP_R", proof)]), 1);
        assert_eq!(answer.login_status(), 0x0201, "{proof}");
    }
}

#[test]
fn what_is_to_be_proved_cannot_be_skipped() {
    let world = World::new();
    world.access.allow("a", TARGET, chap());
    let with = |method| [&names("a")[..], &[("AuthMethod", method)]].concat();
    for (flags, keys, status) in
        [(0x87, names("a"), 0x0201), (0x83, names("a"), 0x0201), (0x81, with("None"), 0x0201), (0x81, with("SRP"), 0x0201)]
    {
        assert_eq!(Initiator::connect(&world).log_in_with(flags, &text(&keys), 1).login_status(), status, "{keys:?}");
    }
    // An answer to no challenge.
    let mut initiator = Initiator::connect(&world);
    initiator.log_in_with(0x00, &text(&with("CHAP")), 1);
    assert_eq!(initiator.log_in_with(0x81, &text(&[("CHAP_N", "user"), ("CHAP_R", "0x00")]), 1).login_status(), 0x0201);
}

/// The target proves itself, too, and never answers a challenge of its own: that would let in who knows no secret.
#[test]
fn the_target_proves_itself_but_not_with_its_own_challenge() {
    let world = World::new();
    world.access.allow("a", TARGET, chap());
    let mut initiator = Initiator::connect(&world);
    let (id, sent, _) = challenge(&mut initiator, "5").expect("a challenge");
    let proof = response("5", id, SECRET, &sent);
    let keys = [("CHAP_N", "user"), ("CHAP_R", &*proof), ("CHAP_I", "9"), ("CHAP_C", "0x00112233445566778899aabbccddeeff")];
    let answer = initiator.log_in_with(0x83, &text(&keys), 1);
    assert_eq!((answer.login_status(), answer.key("CHAP_N").as_deref()), (0, Some("target")));
    assert_eq!(answer.key("CHAP_R"), Some(response("5", 9, OTHER, &unhex("0x00112233445566778899aabbccddeeff"))));
    // The challenge of this connection, and that of another one which waits for its answer.
    let mut other = Initiator::connect(&world);
    let (_, outstanding, _) = challenge(&mut other, "5").expect("a challenge");
    for own in [true, false] {
        let mut initiator = Initiator::connect(&world);
        let (id, sent, _) = challenge(&mut initiator, "5").expect("a challenge");
        let proof = response("5", id, SECRET, &sent);
        let reflected = hex(if own { &sent } else { &outstanding });
        let keys = [("CHAP_N", "user"), ("CHAP_R", &*proof), ("CHAP_I", "9"), ("CHAP_C", &*reflected)];
        let answer = initiator.log_in_with(0x83, &text(&keys), 1);
        assert_eq!((answer.login_status(), answer.key("CHAP_R")), (0x0201, None), "own: {own}");
    }
}

/// If this fails, initiators give up for good on a target that is there a second later, or learn of those that are none of theirs.
#[test]
fn targets_that_are_still_coming_are_unavailable_to_who_may_use_them() {
    let world = World::new();
    let late = "iqn.2026-11.example:late";
    let status = |initiator: &str, target: &str| {
        let keys = [("InitiatorName", initiator), ("TargetName", target)];
        Initiator::connect(&world).log_in_with(0x87, &text(&keys), 1).login_status()
    };
    let discovery = || {
        let keys = [("InitiatorName", "a"), ("SessionType", "Discovery")];
        Initiator::connect(&world).log_in_with(0x87, &text(&keys), 1).login_status()
    };
    world.access.allow("a", late, Grant::default());
    world.targets.set_coming(true);
    assert_eq!((status("a", late), status("b", late), status("x", TARGET), status("a", TARGET)), (0x0301, 0x0203, 0x0203, 0));
    assert_eq!(discovery(), 0, "there is something to list");
    world.runtime.block_on(world.targets.remove(TARGET));
    assert_eq!((status("a", TARGET), discovery()), (0x0301, 0x0301));
    world.targets.set_coming(false);
    assert_eq!((status("a", late), status("a", TARGET), discovery()), (0x0203, 0x0203, 0));
}

/// If this fails, who is in the middle of a login when a right is taken away, or changed, has it nevertheless.
#[test]
fn a_right_that_goes_during_a_login_is_gone() {
    let read_only = Grant { chap: None, is_read_only: true };
    for now in [None, Some(read_only), Some(chap())] {
        let world = World::new();
        let mut initiator = Initiator::connect(&world);
        assert_eq!(initiator.log_in_with(0x04, &text(&names("a")), 1).login_status(), 0);
        match now {
            Some(grant) => world.access.allow("a", TARGET, grant),
            None => world.access.0.lock().clear(),
        }
        assert_eq!(initiator.log_in_with(0x87, &[], 1).login_status(), 0x0203);
        assert!(initiator.is_closed());
        assert!(world.targets.get(TARGET).expect("it is there").sessions().is_empty());
    }
}

/// Without a limit, connections that never log in take all there are; if it counts against all alike, they lock out who wants to log in.
#[test]
fn connections_that_do_not_log_in_are_few_and_the_silent_ones_go() {
    let world = World::with(Options { logins_per_address_max: 2, ..Options::default() }, None);
    let mut waiting: Vec<Initiator> = (0..2).map(|_| Initiator::connect(&world)).collect();
    for initiator in &mut waiting {
        assert_eq!(initiator.log_in_with(0x04, &text(&names("a")), 1).login_status(), 0);
    }
    assert_eq!(world.targets.waiting(), Waiting { connections: 2, turned_away: 0 });
    Initiator::session(&world, "b");
    assert!(waiting[0].is_closed());
    assert_eq!(waiting[1].log_in_with(0x87, &[], 1).header[1], 0x87);
    assert_eq!(world.targets.waiting(), Waiting { connections: 0, turned_away: 1 });
}

/// If this fails, connections that say nothing, from however many addresses, keep everybody else from their disks.
#[test]
fn a_full_server_has_room_for_who_says_something() {
    let world = World::with(Options { connections_max: 2, logins_per_address_max: 8, ..Options::default() }, None);
    let mut silent = [Initiator::connect(&world), Initiator::connect(&world)];
    let sessions = [Initiator::session(&world, "a"), Initiator::session(&world, "b")];
    assert!(silent.iter_mut().all(Initiator::is_closed));
    assert!(Initiator::connect(&world).is_closed(), "nobody who has a session goes for it");
    drop(sessions);
}

/// Discovery shows what may be used, in pieces when it is long.
#[test]
fn discovery_lists_what_the_initiator_may_use() {
    let world = World::new();
    for number in 0..40 {
        let name = format!("iqn.2026-11.example:another-disk-with-a-long-name-{number}");
        world.targets.add(&name).expect("the name is free");
        if number % 2 == 0 {
            world.access.allow("a", &name, Grant::default());
        }
    }
    let mut initiator = Initiator::connect(&world);
    let keys = [("InitiatorName", "a"), ("SessionType", "Discovery"), ("MaxRecvDataSegmentLength", "512")];
    assert_eq!(initiator.log_in_with(0x87, &text(&keys), 1).header[1], 0x87);
    let mut ask = |words: &[u8], tag: u32| {
        let mut request = initiator.request(0x04, 0x80);
        crate::initiator::set(&mut request, 20, tag);
        initiator.send(request, words);
        initiator.receive().expect("text is answered")
    };
    let mut answer = ask(&text(&[("SendTargets", "All")]), u32::MAX);
    let mut whole = answer.data.clone();
    while answer.header[1] & 0x80 == 0 {
        assert_eq!(answer.data.len(), 512);
        answer = ask(&[], answer.word(20));
        whole.extend(&answer.data);
    }
    let listed = String::from_utf8(whole).expect("text");
    assert_eq!(listed.matches("TargetName=").count(), 21);
    assert!(listed.contains(&format!("TargetName={TARGET}\0TargetAddress={},1\0", world.address)) && !listed.contains("name-1\0"));
    for wrong in [("SendTargets", "Alle"), ("SendTargets", "A"), ("SendTargetsPlease", "All"), ("sendtargets", "All")] {
        let answer = ask(&text(&[wrong]), u32::MAX);
        assert!(matches!(answer.key(wrong.0).as_deref(), Some("Reject" | "NotUnderstood")), "{wrong:?}");
    }
    assert_eq!(ask(&text(&[("SendTargets", TARGET)]), u32::MAX).key("TargetName").as_deref(), Some(TARGET));
}
