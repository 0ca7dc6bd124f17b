//! What comes over wires: requests of the kernel, frames of targets, requests of commands, and what people type.

use crate::objects::Files;
use control_api::{Request, Response};
use dsl::{names, prop::table};
use std::cell::{Cell, RefCell};
use target_wire::{
    Challenge, Frame, Header, Hello, Kind, Limits, Proof, Received, Refused, Welcome, WireCompletion, WireProgram, read_frame, write_frame,
};
use zpl::ZplFuse;

/// Number of requests that share a file system.
const REQUESTS_PER_POOL: u64 = 500;
/// Bytes of the header of a request: length, operation, number, node, user, group, process.
const FUSE_HEADER_BYTES: usize = 40;
const OPERATIONS: u32 = 60;

thread_local! {
    static MOUNT: RefCell<Option<(Files, ZplFuse)>> = const { RefCell::new(None) };
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
}

fn fuse_header(operation: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(((FUSE_HEADER_BYTES + body.len()) as u32).to_le_bytes());
    bytes.extend(operation.to_le_bytes());
    bytes.extend(7u64.to_le_bytes());
    bytes.extend(node.to_le_bytes());
    bytes.resize(FUSE_HEADER_BYTES, 0);
    bytes.extend(body);
    bytes
}

/// Seeds of every operation on the root and on a file, with a body of zeros and a name, or of words.
pub fn fuse_seeds() -> Vec<Vec<u8>> {
    let words: Vec<u8> = (0..16u64).flat_map(|word| (word * 512).to_le_bytes()).collect();
    let named = [&[0; 64][..], b"a\0b\0"].concat();
    let bodies: [&[u8]; 4] = [&[], b"a\0b\0", &named, &words];
    let operations = (0..OPERATIONS).flat_map(|operation| bodies.map(|body| [1, 8].map(|node| fuse_header(operation, node, body))));
    operations.flatten().collect()
}

/// Serves two requests, one behind the other, split where the first says that it ends.
pub fn fuse_request(data: &[u8]) {
    REQUESTS.set(REQUESTS.get() + 1);
    let begins = REQUESTS.get().is_multiple_of(REQUESTS_PER_POOL);
    MOUNT.with_borrow_mut(|slot| {
        if begins {
            *slot = None;
        }
        let (_, mount) = slot.get_or_insert_with(|| {
            let files = Files::new();
            let mount = ZplFuse::new(files.zfs.clone(), None);
            (files, mount)
        });
        let first = data.first_chunk::<4>().map_or(0, |raw| u32::from_le_bytes(*raw) as usize);
        let (head, rest) = data.split_at(first.clamp(FUSE_HEADER_BYTES, data.len().max(FUSE_HEADER_BYTES)).min(data.len()));
        fuse::testing::serve(mount, head);
        fuse::testing::serve(mount, rest);
    });
}

pub fn frame_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (length, payload) in [(0usize, 0usize), (64, 0), (200, 512)] {
        let message: Vec<u8> = (0..length).map(|at| (at % 5) as u8).collect();
        let mut bytes = Vec::new();
        if write_frame(&mut bytes, &Header::of(Kind::Execute), &message, &abd::Abd::zeroed(payload)).is_ok() {
            seeds.push(bytes);
        }
    }
    seeds.push((0..64u32).flat_map(u32::to_le_bytes).collect());
    seeds.push(vec![0; 300]);
    seeds
}

/// Decodes a frame, or (where its sum does not fit) the messages that could be in it.
pub fn frame(data: &[u8]) {
    let limits = Limits { message_bytes_max: 1 << 16, payload_bytes_max: 1 << 20 };
    if let Ok(Received::Whole(Frame { header, message, payload })) = read_frame(&mut &data[..], &limits) {
        let mut again = Vec::new();
        write_frame(&mut again, &header, &message, &payload).expect("memory takes it");
        assert_eq!(again, data[..again.len()], "a frame that was read is written as it was");
        messages(&message);
    }
    messages(data);
}

/// Decodes a message as each kind; what decodes encodes to itself.
fn messages(data: &[u8]) {
    macro_rules! decoded {
        ($($kind:ty),*) => {
            $(if let Ok(message) = <$kind>::decode(data) {
                let packed = message.encode();
                let again = <$kind>::decode(&packed).expect("what was encoded decodes");
                assert_eq!(again.encode(), packed, stringify!($kind));
            })*
        };
    }
    decoded!(Hello, Challenge, Proof, Refused, Welcome, WireProgram, WireCompletion);
}

pub fn request_seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"op":"info"}"#,
        r#"{"op":"pool-create","args":{"pool":"tank","vdevs":[{"kind":{"mirror":null},"children":["/a","/b"]}],"properties":{"ashift":"12"}}}"#,
        r#"{"op":"pool-import","args":{"pool":"tank","search":{"folders":["/dev"],"destroyed":false},"read_only":true,"force":true}}"#,
        r#"{"op":"dataset-list","args":{"names":["tank"],"depth":3,"kinds":["filesystem"],"columns":["name","used"]}}"#,
        r#"{"op":"dataset-create","args":{"name":"tank/a","properties":{"compression":"lz4"},"parents":true}}"#,
        r#"{"op":"snapshot","args":{"names":["tank@a"],"recursive":true}}"#,
        r#"{"kind":"done","data":{"remarks":[{"to":"output","text":"a"},{"to":"warning","text":"b"}]}}"#,
        r#"{"kind":"failed","data":{"kind":"busy","what":"cannot","why":"busy"}}"#,
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Decodes a request or a response as JSON; what is understood can be said again.
pub fn request(data: &[u8]) {
    macro_rules! understood {
        ($($kind:ty),*) => {
            $(if let Ok(message) = serde_json::from_slice::<$kind>(data) {
                let said = serde_json::to_vec(&message).expect("it can be said");
                let again = serde_json::from_slice::<$kind>(&said).expect("what was said is understood");
                assert_eq!(serde_json::to_vec(&again).ok(), Some(said));
            })*
        };
    }
    understood!(Request, Response);
}

pub fn value_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "1.5G",
        "18446744073709551615",
        "0x10",
        "16E",
        "none",
        "lz4",
        "gzip-9",
        "zstd-fast-10",
        "tank/a@b",
        "/mnt/x",
        "compression=lz4",
        "userquota@root",
        "com.example:name",
        "feature@lz4_compress",
        "tcp:127.0.0.1:4420",
        "unix:/run/target",
        "5",
        "10",
        "-1",
        "1e400G",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Parses a word that somebody typed as every kind of value.
pub fn values(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    let _ = (table::parse_bytes(&text), table::find(&text), table::native(&text));
    for name in ["quota", "recordsize", "compression", "mountpoint", "copies", "refreservation", "atime", "version", "snapdir", &text] {
        let _ = (table::objection(name, &text, table::FILESYSTEM, true), table::objection(name, &text, table::VOLUME, false));
    }
    let _ = (names::check_component(&text), names::split(&text).is_ok(), names::split_parent(&text).is_ok());
    let _ = (pool::feature_by_name(&text).is_some(), pool::feature_by_guid(&text).is_some(), zap::parse_int_name(data));
    let words: Vec<String> = text.split(' ').map(str::to_string).collect();
    let _ = (cli::assignments(&words).is_ok(), cli::repeat::Repeat::split(&words).is_ok(), cli::absolute(&text));
    if let Ok(number) = text.parse::<u64>() {
        let _ = (cli::number::nice_bytes(number), cli::number::nice_count(number), cli::number::nice_time_ns(number));
        let _ = (cli::number::duration(number), cli::time::short(number as i64), cli::time::long(number as i64));
    }
    let _ = text.parse::<target_wire::Address>().map(|address| address.to_string());
}
