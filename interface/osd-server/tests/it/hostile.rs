//! Clients that keep to nothing: none of them ends the daemon, gets at memory that is not shared, or keeps others from their work.

use crate::bed::OBJECTS;
use crate::house::{House, PAGE, create, fid, piece, say};
use exec::SplitMix;
use osd_client::{Client, Header, Memory, Operation, Request, VERSION, send_frame};
use osd_server::Options;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

const EPERM: Option<u32> = Some(1);
const E2BIG: Option<u32> = Some(7);
const EBADF: Option<u32> = Some(9);
const ENOMEM: Option<u32> = Some(12);
const EEXIST: Option<u32> = Some(17);
const EINVAL: Option<u32> = Some(22);

/// If this fails, one frame of anybody's takes the daemon down, and every pool with it; or it is taken for something that was not said.
#[test]
fn frames_that_cannot_be_end_the_connection_and_nothing_else() {
    let house = House::new(&[("recordsize", "16K")]);
    let mut other = house.client();
    other.transact(vec![create(1)]).expect("made");
    let hello = Request::Hello(VERSION).encode(1).expect("it fits");
    let open = Request::Open(OBJECTS.to_string()).encode(2).expect("it fits");
    let operations = vec![(fid(2), Operation::Create { mode: 0, uid: 0, gid: 0, is_index: false })];
    let transact = Request::Transact { tells: true, spends: false, operations }.encode(3).expect("it fits");
    let mut wrong = vec![
        Header { length: u32::MAX, kind: 1, tag: 1 }.encode().to_vec(),
        Header { length: 0, kind: 99, tag: 1 }.encode().to_vec(),
        Header { length: 0, kind: 5, tag: 1 }.encode().to_vec(),
        [&Header { length: 8, kind: 5, tag: 1 }.encode()[..], &[0, 0, 0, 0, 255, 255, 255, 255]].concat(),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
    ];
    let mut random = SplitMix::new(5);
    for _ in 0..300 {
        // Of what is right, a byte is not.
        let mut changed = transact.clone();
        let at = random.next_u64() as usize % changed.len();
        changed[at] ^= 1u8 << (random.next_u64() % 8);
        wrong.push(changed);
    }
    for bytes in &wrong {
        let heard = say(&house.socket(), &[&hello[..], &open, bytes].concat());
        assert!(heard.len() > hello.len(), "it was greeted");
        house.wait_for(1);
    }
    // Nothing comes before the greeting.
    let heard = say(&house.socket(), &transact);
    assert_eq!(heard.get(16..20), Some(&71u32.to_le_bytes()[..]), "EPROTO");
    let put = Operation::Put { offset: 0, bytes: b"fine".to_vec() };
    other.transact(vec![(fid(1), put)]).expect("others go on");
    drop(other);
    house.check("frames");
}

/// If this fails, a client has the daemon look behind the end of its memory, which ends it; or at memory that is not there.
#[test]
fn memory_that_is_not_sealed_or_not_there_is_refused() {
    let house = House::with(
        &[("recordsize", "16K")],
        Options { memory_bytes_max: 1 << 20, request_bytes_max: 64 << 10, touched_bytes_max: 64 << 10, ..Options::default() },
    );
    let mut client = house.client();
    client.transact(vec![create(1)]).expect("made");
    let memory = |bytes: u64, seals: SealFlags| {
        let file = File::from(memfd_create("m", MemfdFlags::ALLOW_SEALING).expect("a file"));
        file.set_len(bytes).expect("long");
        fcntl_add_seals(&file, seals).expect("sealed");
        file
    };
    let disk = File::open("/proc/self/exe").expect("a file");
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let (open, long, short) = (memory(PAGE, SealFlags::GROW), memory(PAGE, SealFlags::SHRINK), memory(PAGE, sealed));
    let mut share =
        |file: &File, bytes: u64, number: u32| client.share_file(number, file.as_fd(), bytes, true).err().and_then(|why| why.errno());
    assert_eq!(share(&open, PAGE, 0), EPERM, "it can be made shorter");
    assert_eq!(share(&long, PAGE, 0), EPERM, "it can be made longer");
    assert_eq!(share(&short, 2 * PAGE, 0), EINVAL, "it is shorter");
    assert_eq!(share(&short, 100, 0), EINVAL, "no page");
    assert!(share(&disk, PAGE, 0).is_some(), "no memory");
    assert_eq!(share(&short, PAGE, 64), EINVAL, "a number that none has");
    assert_eq!(share(&memory(2 << 20, sealed), 2 << 20, 0), ENOMEM, "too much");
    assert_eq!((share(&short, PAGE, 0), share(&short, PAGE, 0)), (None, EEXIST));
    let long = Memory::new(128 << 10).expect("memory");
    client.share(1, &long, false).expect("shared");
    let mut write = |pieces| client.transact(vec![(fid(1), Operation::Write(pieces))]).err().and_then(|why| why.errno());
    assert_eq!(write(vec![piece(0, 1, PAGE)]), EINVAL, "behind its end");
    assert_eq!(write(vec![piece(0, u64::MAX, 2)]), EINVAL, "behind all numbers");
    assert_eq!(write(vec![piece(0, 0, 0)]), EINVAL, "nothing");
    let mut other = piece(0, 0, 128 << 10);
    other.place.memory = 1;
    assert_eq!(write(vec![other]), E2BIG);
    other.place.memory = 2;
    assert_eq!(write(vec![other]), EBADF);
    let spread = |count: u64| (0..count).map(|number| piece(number * (16 << 10) + 1, 0, 1)).collect::<Vec<_>>();
    assert_eq!((write(spread(5)), write(spread(0))), (E2BIG, None), "a byte in each of many blocks");
    assert_eq!(client.read(fid(1), vec![piece(0, 1, PAGE)]).err().and_then(|why| why.errno()), EINVAL);
    assert_eq!(write_far(&mut client), Some(27), "EFBIG");
    assert_eq!(client.attributes(fid(1)).expect("attributes").size, 0);
    // A file with what is no request for one.
    let socket = house.socket();
    let hello = Request::Hello(VERSION).encode(1).expect("it fits");
    send_frame(&socket, &hello, Some(short.as_fd())).expect("sent");
    let heard = say(&socket, &hello);
    assert_eq!(heard.get(4..6), Some(&0xc002u16.to_le_bytes()[..]), "refused");
    drop(client);
    house.check("memory");
}

fn write_far(client: &mut Client) -> Option<u32> {
    client.transact(vec![(fid(1), Operation::Write(vec![piece(u64::MAX - PAGE, 0, PAGE)]))]).err().and_then(|why| why.errno())
}

/// If this fails, clients that connect and say nothing, or ask and do not listen, take the daemon's memory, or keep others out for good.
#[test]
fn silent_and_deaf_clients_hold_up_nobody_else() {
    let house = House::with(&[("recordsize", "16K")], Options { connections_max: 4, ..Options::default() });
    let mut client = house.client();
    client.transact(vec![create(1)]).expect("made");
    let deaf = house.socket();
    deaf.set_write_timeout(Some(std::time::Duration::from_millis(200))).expect("set");
    let ask = Request::Attributes(fid(1)).encode(1).expect("it fits");
    let mut writing = &deaf;
    let asked = (0..100_000).take_while(|_| writing.write_all(&ask).is_ok()).count();
    assert!(asked < 100_000, "no more is taken of who does not listen");
    let silent = [house.socket(), house.socket()];
    house.wait_for(4);
    assert_eq!(say(&house.socket(), b""), b"", "there is no place");
    client.transact(vec![(fid(1), Operation::Put { offset: 0, bytes: vec![1] })]).expect("others go on");
    client.sync().expect("synced");
    drop((deaf, silent));
    house.wait_for(1);
    drop(house.client());
    drop(client);
    house.check("silent");
}
