//! Somebody on the link, after the handshake: what he changes, says again, leaves out, or takes from elsewhere is refused, and he reads nothing.

use crate::channels;
use abd::Abd;
use exec::SplitMix;
use target_wire::{
    Challenge, Channel, Header, Hello, Initiator, Kind, Limits, NoiseError, ReadError, Secret, respond, sealed_bytes, write_frame,
};

fn header(op: u64) -> Header {
    Header { kind: Kind::Execute, epoch: 5, op, floor: 4 }
}

/// A frame as it is on the link.
fn frame(from: &mut Channel, op: u64, message: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut link = Vec::new();
    let (head, tail) = payload.split_at(payload.len() / 3);
    let payload = Abd::gang(&[Abd::from_slice(head), Abd::from_slice(tail)]);
    let bytes = from.sealer.write(&mut link, &header(op), message, &payload).unwrap();
    assert_eq!((bytes, sealed_bytes(message.len(), payload.len())), (link.len() as u64, bytes));
    link
}

/// Frames of some lengths, in their order, with what is in them.
fn frames(from: &mut Channel) -> Vec<Vec<u8>> {
    let lengths = [(0, 0), (30, 0), (0, 1), (300, 5000), (7, 4096)];
    (1..).zip(lengths).map(|(op, (message, payload))| frame(from, op, &vec![op as u8; message], &vec![op as u8; payload])).collect()
}

fn read(to: &mut Channel, link: &[u8]) -> Result<u64, ReadError> {
    to.opener.read(&mut &link[..], &Limits::SESSION).map(|frame| {
        let is_whole = |bytes: &[u8]| bytes.iter().all(|byte| u64::from(*byte) == frame.header.op);
        assert!(frame.header == header(frame.header.op) && is_whole(&frame.message) && is_whole(&frame.payload.to_vec()));
        frame.header.op
    })
}

fn is_refused(outcome: &Result<u64, ReadError>) -> bool {
    matches!(outcome, Err(ReadError::NotAuthentic))
}

/// Programs and records come out as they went in, in both directions.
#[test]
fn frames_come_back_as_they_were() {
    let (mut host, mut target) = channels();
    for _ in 0..3 {
        for (op, link) in (1..).zip(frames(&mut host)) {
            assert_eq!(read(&mut target, &link).unwrap(), op);
        }
        for (op, link) in (1..).zip(frames(&mut target)) {
            assert_eq!(read(&mut host, &link).unwrap(), op);
        }
    }
}

/// A bit that somebody flips would be another place on a disk, or other bytes there; a checksum he could have made right again.
#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let count = frames(&mut channels().0).concat().len();
    let mut random = SplitMix::new(6);
    for at in (0..count).filter(|at| at % 7 == 0 || at % 1000 < 200) {
        let (mut host, mut target) = channels();
        let mut link = frames(&mut host).concat();
        link[at] ^= 1 << random.below(8);
        let mut rest = &link[..];
        let mut before = 0;
        let error = loop {
            match target.opener.read(&mut rest, &Limits::SESSION) {
                Ok(_) => before = link.len() - rest.len(),
                Err(error) => break error,
            }
        };
        assert!(before <= at, "byte {at}");
        // At once: a length that grew is not waited for.
        assert!(matches!(error, ReadError::NotAuthentic), "byte {at}: {error:?}");
        // From then on nothing is believed, were it right.
        assert!(is_refused(&read(&mut target, &frame(&mut host, 6, &[6], &[]))), "byte {at}");
    }
}

/// Said again, a write would undo a later one.
#[test]
fn a_replayed_frame_is_refused() {
    for again in 0..5 {
        let (mut host, mut target) = channels();
        let all = frames(&mut host);
        for link in &all {
            read(&mut target, link).unwrap();
        }
        assert!(is_refused(&read(&mut target, &all[again])), "frame {again}");
    }
}

/// A record before its place, or without the one before it, is not what the host wanted.
#[test]
fn frames_in_another_order_are_refused() {
    for (first, then) in [(0, 2), (0, 4), (1, 3)] {
        let (mut host, mut target) = channels();
        let all = frames(&mut host);
        for link in &all[..=first] {
            read(&mut target, link).unwrap();
        }
        assert!(is_refused(&read(&mut target, &all[then])), "{then} after {first}");
    }
    let (mut host, mut target) = channels();
    let all = frames(&mut host);
    assert!(is_refused(&read(&mut target, &all[1])), "the first one is left out");
    // The head of one frame with the payload of another.
    let (mut host, mut target) = channels();
    let one = frame(&mut host, 1, &[1; 40], &[1; 512]);
    let other = frame(&mut host, 2, &[2; 40], &[2; 512]);
    let spliced = [&one[..one.len() - 528], &other[other.len() - 528..]].concat();
    assert!(is_refused(&read(&mut target, &spliced)));
}

/// A part of a frame is none, wherever it ends.
#[test]
fn a_truncated_frame_is_refused() {
    let length = frame(&mut channels().0, 1, &[1; 20], &[1; 100]).len();
    for cut in 0..length {
        let (mut host, mut target) = channels();
        let link = frame(&mut host, 1, &[1; 20], &[1; 100]);
        let outcome = read(&mut target, &link[..cut]);
        assert!(matches!(outcome, Err(ReadError::Closed)) == (cut == 0) && outcome.is_err(), "{cut} bytes: {outcome:?}");
        // The rest of it, or the next one in its place, is nothing either.
        assert!(is_refused(&read(&mut target, &link[cut..])), "{cut} bytes");
    }
    // Cut, and the next frame moved up.
    let (mut host, mut target) = channels();
    let (one, other) = (frame(&mut host, 1, &[1; 20], &[1; 100]), frame(&mut host, 2, &[2; 200], &[2; 100]));
    assert!(is_refused(&read(&mut target, &[&one[..one.len() - 16], &other[..]].concat())));
}

/// Frames of another connection, of the other direction, or of nobody, sealed with the same secret or not at all.
#[test]
fn frames_from_elsewhere_are_refused() {
    let (mut host, mut target) = channels();
    let (mut other, _) = channels();
    assert!(is_refused(&read(&mut target, &frames(&mut other)[0])));
    assert!(is_refused(&read(&mut host, &frames(&mut channels().0)[0])));
    let (mut host, _) = channels();
    let own = frames(&mut host);
    assert!(is_refused(&read(&mut host, &own[0])), "what it said itself");
    let (_, mut target) = channels();
    let mut plain = Vec::new();
    write_frame(&mut plain, &header(1), &[1; 30], &Abd::default()).unwrap();
    assert!(is_refused(&read(&mut target, &plain)), "a frame of the first version");
}

/// Who holds the port open with a huge length gets no memory for it, before he has shown that he has the keys.
#[test]
fn long_frames_are_refused_before_they_are_read() {
    let (mut host, mut target) = channels();
    let link = frame(&mut host, 1, &[0; 20 << 10], &[]);
    assert!(matches!(target.opener.read(&mut &link[..16], &Limits::HANDSHAKE), Err(ReadError::TooLong)));
    let (mut host, mut target) = channels();
    let link = frame(&mut host, 1, &[], &[1]);
    assert!(matches!(target.opener.read(&mut &link[..16], &Limits::HANDSHAKE), Err(ReadError::TooLong)));
}

/// Nothing of a program or a record can be seen on the link, not even that the same one was sent twice.
#[test]
fn nothing_can_be_read_on_the_link() {
    let (mut host, _) = channels();
    let text = b"a line of a file that nobody else is to read, on /dev/disk/by-id/disk-1, many times over. ".repeat(40);
    let one = frame(&mut host, 1, &text[..90], &text);
    let other = frame(&mut host, 1, &text[..90], &text);
    for link in [&one, &other] {
        let seen = text[..200].windows(5).find(|part| link.windows(5).any(|other| other == *part));
        assert_eq!(seen, None);
    }
    let same = one[16..].iter().zip(&other[16..]).filter(|(left, right)| left == right).count();
    assert!(same < one.len() / 50, "{same} of {} bytes are the same", one.len());
}

/// Without the secret nobody is let in, and nobody is taken for a target; who says again what a host once said does not get its keys.
#[test]
fn only_who_has_the_secret_has_the_keys() {
    let secret = Secret::new(b"correct horse battery staple").unwrap();
    let wrong = Secret::new(b"incorrect horse battery staple").unwrap();
    let (initiator, hello) = Initiator::new(&secret).unwrap();
    assert_eq!(respond(&wrong, &hello).err(), Some(NoiseError::Secret));
    let (_, other) = Initiator::new(&wrong).unwrap();
    let (challenge, _) = respond(&wrong, &other).unwrap();
    assert_eq!(initiator.finish(&challenge).err(), Some(NoiseError::Secret), "an impostor");
    for at in 0..hello.noise.len() {
        let mut changed = hello;
        changed.noise[at] ^= 1;
        // The top bit of a public key says nothing, but it is under the tag.
        assert!(respond(&secret, &changed).is_err(), "byte {at}");
    }
    for at in 0..hello.noise.len() {
        let (initiator, hello) = Initiator::new(&secret).unwrap();
        let (mut challenge, _) = respond(&secret, &hello).unwrap();
        challenge.noise[at] ^= 0x80;
        assert!(initiator.finish(&challenge).is_err(), "byte {at}");
    }
    // The same Hello twice: other keys, and an answer to one is none to the other.
    let (initiator, hello) = Initiator::new(&secret).unwrap();
    let (first, mut heard) = respond(&secret, &hello).unwrap();
    let (_, mut again) = respond(&secret, &hello).unwrap();
    let mut host = initiator.finish(&first).unwrap();
    let proof = frame(&mut host, 1, &[1], &[]);
    assert_eq!(read(&mut heard, &proof).unwrap(), 1);
    assert!(is_refused(&read(&mut again, &proof)), "a recorded handshake");
    let (initiator, _) = Initiator::new(&secret).unwrap();
    assert_eq!(initiator.finish(&first).err(), Some(NoiseError::Secret), "an answer to somebody else");
    // Keys that lead to zeros, whatever the other one is.
    let zeros = Hello { noise: [0; 48], ..hello };
    assert!(respond(&secret, &zeros).is_err());
    let (initiator, _) = Initiator::new(&secret).unwrap();
    assert!(initiator.finish(&Challenge { noise: [0; 48] }).is_err());
}
