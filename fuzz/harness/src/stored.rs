//! Frames of clients of object storage devices, and what a client hears of a server.

use osd_client::{Attributes, Change, Entries, Fid, HEADER_BYTES, Header, Limits, Operation, Piece, Place, Reply, Request, Space};

/// Requests of every kind, and replies.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let (object, piece) = (Fid::new(0x2_0000_0401, 7), Piece { offset: 4096, place: Place { memory: 3, offset: 8192, bytes: 4096 } });
    let operations = vec![
        (object, Operation::Create { mode: 0o644, uid: 1, gid: 2, is_index: true }),
        (object, Operation::Write(vec![piece; 3])),
        (object, Operation::Put { offset: 1, bytes: b"few".to_vec() }),
        (object, Operation::Punch { start: 5, end: u64::MAX }),
        (object, Operation::Change(Change { mode: Some(1), times: [None, Some((1, 2)), None], ..Change::default() })),
        (object, Operation::SetXattr { name: b"trusted.x".to_vec(), value: vec![0, 1] }),
        (object, Operation::RemoveXattr { name: b"trusted.x".to_vec() }),
        (object, Operation::Insert { key: b"key".to_vec(), record: b"record".to_vec() }),
        (object, Operation::Delete { key: b"key".to_vec() }),
        (object, Operation::Destroy),
    ];
    let requests = [
        Request::Hello(1),
        Request::Open("tank/ost".to_string()),
        Request::Share { memory: 3, is_direct: true, bytes: 1 << 20 },
        Request::Transact { tells: true, spends: true, operations },
        Request::Read { object, is_direct: true, pieces: vec![piece; 2] },
        Request::Xattr(object, b"trusted.x".to_vec()),
        Request::Entries { object, from: 9, count: 10 },
        Request::Sync,
    ];
    let entries = Entries { entries: vec![(b"key".to_vec(), b"record".to_vec())], next: Some(7) };
    let replies = [Limits::default().encode(), Attributes::default().encode(), entries.encode(), Space::default().encode()];
    let replies = replies.into_iter().filter_map(|content| Reply::of(content).encode(7, 1).ok());
    requests.iter().filter_map(|request| request.encode(1).ok()).chain(replies).collect()
}

/// Decodes a frame, or its body as everything that a body can be; what decodes can be said again, and is the same then.
pub fn frame(data: &[u8]) {
    let Some((head, body)) = data.split_first_chunk::<HEADER_BYTES>() else { return };
    if let Ok(header) = Header::decode(head) {
        assert_eq!(header.encode(), *head, "a header that was read is written as it was");
        request(header.kind, body.get(..header.length as usize).unwrap_or(body));
        request(header.kind & 15, body);
    }
    let Ok(reply) = Reply::decode(body) else { return };
    macro_rules! said_again {
        ($($kind:ty),*) => {
            $(if let Ok(message) = <$kind>::decode(&reply.content) {
                assert_eq!(<$kind>::decode(&message.encode()), Ok(message), stringify!($kind));
            })*
        };
    }
    said_again!(Limits, Attributes, Entries, Space);
}

fn request(kind: u16, body: &[u8]) {
    if let Ok(request) = Request::decode(kind, body)
        && let Ok(again) = request.encode(1)
    {
        assert_eq!(Request::decode(kind, &again[HEADER_BYTES..]), Ok(request));
    }
}
