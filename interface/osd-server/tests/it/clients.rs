//! Clients that keep to the protocol: bytes, keys and attributes, what they hear of transactions, and their end at any moment.

use crate::bed::{OBJECTS, pattern};
use crate::house::{House, PAGE, create, fid, piece, say};
use exec::OperationHandle;
use osd_client::{Change, ClientError, Committed, Memory, Operation, Request, VERSION, send_frame};
use std::os::fd::AsFd;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const ENOENT: Option<u32> = Some(2);
const EEXIST: Option<u32> = Some(17);

fn errno<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Option<u32> {
    result.expect_err("refused").errno()
}

/// If this fails, a program that stores objects gets other bytes back than it gave, in the way that the devices see them.
#[test]
fn vectors_of_pages_are_moved_between_memory_and_objects() {
    let house = House::new(&[("recordsize", "128K"), ("compression", "off")]);
    let mut client = house.client();
    let (source, target) = (Memory::new(4 * MIB).expect("memory"), Memory::new(4 * MIB).expect("memory"));
    let bytes = pattern(MIB as usize, 3);
    source.put(0, &bytes).expect("put");
    for is_direct in [false, true] {
        let number = 1 + u32::from(is_direct);
        client.share(0, &source, is_direct).expect("shared");
        // Pages from the end of the memory to its beginning are an object from its beginning to its end.
        let pages: Vec<_> = (0..MIB / PAGE).map(|page| piece(page * PAGE, MIB - (page + 1) * PAGE, PAGE)).collect();
        let before = house.device.counts();
        client.transact(vec![create(number), (fid(number), Operation::Write(pages.clone()))]).expect("written");
        let after = house.device.counts();
        assert_eq!((after.asked - before.asked, after.direct - before.direct), (MIB, MIB), "all of it goes past memory");
        assert_eq!(after.lent - before.lent, if is_direct { 0 } else { MIB }, "a copy only of what has to be one");
        client.unshare(0).expect("unshared");
        client.share(0, &target, false).expect("shared");
        let counts = client.read(fid(number), pages).expect("read");
        assert!(counts.iter().all(|count| *count == PAGE));
        let mut back = vec![0; MIB as usize];
        target.take(0, &mut back).expect("taken");
        assert!(back == bytes, "each page where it came from");
        let short = client.read(fid(number), vec![piece(MIB - 100, 0, PAGE), piece(MIB + PAGE, PAGE, PAGE)]).expect("read");
        assert_eq!(short, [100, 0], "an object ends");
        client.unshare(0).expect("unshared");
    }
    drop(client);
    house.check("vectors");
}

/// If this fails, a program finds attributes, keys or names that it did not store, or a part of a transaction is not in it.
#[test]
fn everything_of_objects_is_to_be_had() {
    let house = House::new(&[("recordsize", "16K")]);
    let mut client = house.client();
    let index = (fid(2), Operation::Create { mode: 0o600, uid: 0, gid: 0, is_index: true });
    let put = |offset: u64, bytes: &[u8]| (fid(1), Operation::Put { offset, bytes: bytes.to_vec() });
    let set = Operation::SetXattr { name: b"trusted.x".to_vec(), value: b"value".to_vec() };
    let change = Change { uid: Some(9), times: [None, Some((77, 5)), None], ..Change::default() };
    let insert = |key: &[u8]| (fid(2), Operation::Insert { key: key.to_vec(), record: [key, b"!"].concat() });
    client
        .transact(vec![create(1), index, put(5, b"hello"), (fid(1), set), (fid(1), Operation::Change(change)), insert(b"a"), insert(b"b")])
        .expect("done");
    let attributes = client.attributes(fid(1)).expect("attributes");
    assert_eq!((attributes.size, attributes.mode, attributes.uid, attributes.gid), (10, 0o100_640, 9, 6));
    assert_eq!((attributes.times[1], attributes.is_index), ((77, 5), false));
    assert!(client.attributes(fid(2)).expect("attributes").is_index);
    assert_eq!(client.xattr(fid(1), b"trusted.x").expect("a value"), b"value");
    assert!(client.xattrs(fid(1)).expect("names").contains(&b"trusted.x".to_vec()));
    assert_eq!(client.lookup(fid(2), b"a").expect("a record"), b"a!");
    assert_eq!(errno(client.lookup(fid(2), b"c")), ENOENT);
    let first = client.entries(fid(2), 0, 1).expect("listed");
    let rest = client.entries(fid(2), first.next.expect("there is more"), 10).expect("listed");
    let mut keys: Vec<_> = first.entries.into_iter().chain(rest.entries).collect();
    keys.sort_unstable();
    assert_eq!(keys, [(b"a".to_vec(), b"a!".to_vec()), (b"b".to_vec(), b"b!".to_vec())]);
    // What stands before the one that fails is done.
    let punch = (fid(1), Operation::Punch { start: 7, end: u64::MAX });
    let delete = (fid(2), Operation::Delete { key: b"a".to_vec() });
    match client.transact(vec![punch, create(1), delete]) {
        Err(ClientError::Failed { errno, done }) => assert_eq!((Some(errno), done), (EEXIST, 1)),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.attributes(fid(1)).expect("attributes").size, 7);
    assert_eq!(client.lookup(fid(2), b"a").expect("a record"), b"a!");
    let remove = (fid(1), Operation::RemoveXattr { name: b"trusted.x".to_vec() });
    client.transact(vec![remove, (fid(2), Operation::Destroy)]).expect("done");
    assert_eq!(client.xattr(fid(1), b"trusted.x").expect_err("gone").errno(), Some(61));
    assert_eq!(errno(client.attributes(fid(2))), ENOENT);
    let space = client.space().expect("space");
    assert!(space.block_size == 16 << 10 && space.free > 0 && space.free < space.total, "{space:?}");
    drop(client);
    house.check("objects");
}

/// If this fails, a program is told that something is on disk which is not, is never told, or of an older change after a newer one.
#[test]
fn transactions_are_told_of_in_their_order_before_who_waits_goes_on() {
    let house = House::new(&[("recordsize", "16K")]);
    let mut client = house.client();
    let first = client.transact(vec![create(1)]).expect("done");
    let mut expected = vec![Committed { transaction: first, is_on_disk: true }];
    for number in 0..100u64 {
        let put = Operation::Put { offset: number, bytes: vec![number as u8] };
        expected.push(Committed { transaction: client.transact(vec![(fid(1), put)]).expect("done"), is_on_disk: true });
        if number % 30 == 29 {
            client.sync().expect("synced");
            let told: Vec<Committed> = std::iter::from_fn(|| client.committed()).collect();
            assert_eq!(told, expected, "all of them, each once");
            expected.clear();
        }
    }
    // One that cannot be is told of, too.
    assert!(client.transact(vec![(fid(1), Operation::Write(vec![piece(0, 0, PAGE)]))]).is_err());
    let refused = expected.last().expect("some").transaction + 1;
    client.sync().expect("synced");
    let (on_disk, never): (Vec<_>, Vec<_>) = std::iter::from_fn(|| client.committed()).partition(|told| told.is_on_disk);
    assert_eq!((on_disk, never), (expected, vec![Committed { transaction: refused, is_on_disk: false }]));
    drop(client);
    house.check("told");
}

/// If this fails, clients that work at the same time lose each other's bytes.
#[test]
fn clients_beside_each_other_keep_all_bytes() {
    let house = House::new(&[("recordsize", "128K"), ("compression", "off")]);
    house.client().transact(vec![create(1)]).expect("made");
    let bytes = Arc::new(pattern(MIB as usize, 8));
    let workers: Vec<OperationHandle> = (0..4u64)
        .map(|worker| {
            let (mut client, bytes) = (house.client(), bytes.clone());
            let work = move || {
                let memory = Memory::new(MIB).expect("memory");
                memory.put(0, &bytes).expect("put");
                client.share(0, &memory, worker % 2 == 0).expect("shared");
                for at in (worker * (32 << 10)..MIB).step_by(128 << 10) {
                    client.transact(vec![(fid(1), Operation::Write(vec![piece(at, at, 32 << 10)]))]).expect("written");
                }
                client.sync().expect("synced");
                assert_eq!(std::iter::from_fn(|| client.committed()).filter(|told| told.is_on_disk).count(), 8);
            };
            house.bed.exec.spawn_operation(&format!("client-{worker}"), Box::new(work))
        })
        .collect();
    workers.into_iter().for_each(OperationHandle::join);
    let object = house.device.object(osd::Fid::new(crate::bed::SEQUENCE, 1)).expect("an object");
    assert!(object.read(0, u64::MAX).expect("read").to_vec() == *bytes);
    drop(object);
    house.check("clients");
}

/// If this fails, a client that dies in the middle of what it says leaves a part of a transaction, keeps space that it was granted, or the daemon keeps
/// its memory and its place for ever.
#[test]
fn a_client_that_is_cut_off_anywhere_has_done_all_or_nothing() {
    let house = House::new(&[("recordsize", "16K")]);
    let memory = Memory::new(PAGE).expect("memory");
    memory.put(0, &[7; PAGE as usize]).expect("put");
    let operations = vec![create(1), (fid(1), Operation::Write(vec![piece(0, 0, PAGE)]))];
    let requests = [
        (Request::Hello(VERSION), false),
        (Request::Open(OBJECTS.to_string()), false),
        (Request::Grant(1 << 20), false),
        (Request::Share { memory: 0, is_direct: true, bytes: PAGE }, true),
        (Request::Transact { tells: true, spends: true, operations }, false),
    ];
    let frames: Vec<(Vec<u8>, bool)> =
        requests.iter().zip(1..).map(|((request, has_file), tag)| (request.encode(tag).expect("it fits"), *has_file)).collect();
    let length: usize = frames.iter().map(|(frame, _)| frame.len()).sum();
    let object = house.device.object(osd::Fid::new(crate::bed::SEQUENCE, 1)).expect("an object");
    for cut in 0..length {
        let socket = house.socket();
        let mut left = cut;
        for (frame, has_file) in &frames {
            let part = &frame[..left.min(frame.len())];
            left -= part.len();
            if !part.is_empty() {
                send_frame(&socket, part, has_file.then(|| memory.as_fd())).expect("sent");
            }
        }
        say(&socket, b"");
        house.wait_for_nobody();
        assert_eq!((object.exists(), house.device.space().granted), (Ok(false), 0), "after {cut} bytes of {length}");
    }
    let mut client = house.client();
    client.share(0, &memory, false).expect("shared");
    client.transact(vec![create(1), (fid(1), Operation::Write(vec![piece(0, 0, PAGE)]))]).expect("the device goes on");
    // Whoever has the dataset is found, and ends when it is taken away.
    assert_eq!(house.server.used(|name| name.starts_with("tank")), Some(OBJECTS.to_string()));
    assert!(house.server.cut(u64::MAX, |name| name == OBJECTS));
    assert!(client.sync().is_err() && house.server.used(|_| true).is_none());
    assert!(object.read(0, PAGE).expect("read").to_vec() == [7; PAGE as usize]);
    drop((object, client));
    house.check("cut off");
}
