//! Replies: whether it was done, and what was asked for.

use crate::fields::{Body, Fields, Malformed};
use crate::frame::{REPLY, frame};

/// Reply to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Error number of Linux; 0 for none.
    pub status: u32,
    /// Number of the operations of a transaction that were performed; 0 for anything else.
    pub done: u32,
    /// Answer, as the request's kind has it; nothing with an error.
    pub content: Vec<u8>,
}

impl Reply {
    /// Reply that has what was asked for.
    pub fn of(content: Vec<u8>) -> Reply {
        Reply { status: 0, done: 0, content }
    }

    /// Reply to a request that failed.
    pub fn failed(status: u32) -> Reply {
        Reply { status, ..Reply::default() }
    }

    /// Frame of a reply to a request of this kind and number.
    ///
    /// # Errors
    /// [`Malformed::Length`] for what fits into no frame.
    pub fn encode(&self, kind: u16, tag: u64) -> Result<Vec<u8>, Malformed> {
        frame(kind | REPLY, tag, &Body::default().u32(self.status).u32(self.done).bytes(&self.content).done())
    }

    /// Decodes the body of a reply.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(body: &[u8]) -> Result<Reply, Malformed> {
        let mut from = Fields::of(body);
        Ok(Reply { status: from.u32()?, done: from.u32()?, content: from.rest().to_vec() })
    }
}

/// Numbers as a content.
pub(crate) fn numbers(content: &[u8]) -> Result<Vec<u64>, Malformed> {
    let (words, rest) = content.as_chunks::<8>();
    if rest.is_empty() { Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect()) } else { Err(Malformed::Length) }
}

/// Texts as a content, each behind its length.
pub(crate) fn texts(content: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut from = Fields::of(content);
    let mut found = Vec::new();
    while from.end().is_err() {
        let length = from.u32()?;
        found.push(from.bytes(length)?.to_vec());
    }
    Ok(found)
}

impl Reply {
    /// Reply of one number, or several.
    pub fn of_numbers(numbers: &[u64]) -> Reply {
        Reply::of(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    /// Reply of texts.
    pub fn of_texts(texts: &[Vec<u8>]) -> Reply {
        let mut to = Body::default();
        for text in texts {
            to.u32(text.len() as u32).bytes(text);
        }
        Reply::of(to.done())
    }
}

/// Limits of a server, which its reply to the first request says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Version that the server speaks.
    pub version: u32,
    /// Number of operations of a transaction.
    pub operations: u32,
    /// Number of pieces of a vector.
    pub pieces: u32,
    /// Number of memories that a connection shares; their numbers are below it.
    pub memories: u32,
    /// Bytes of all memories that a connection shares.
    pub memory_bytes: u64,
    /// Bytes of all pieces of one request.
    pub request_bytes: u64,
}

impl Limits {
    /// Content of a reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Body::default();
        to.u32(self.version).u32(self.operations).u32(self.pieces).u32(self.memories).u64(self.memory_bytes).u64(self.request_bytes).done()
    }

    /// Decodes a content; later versions may say more.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(content: &[u8]) -> Result<Limits, Malformed> {
        let mut from = Fields::of(content);
        let (version, operations, pieces, memories) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
        Ok(Limits { version, operations, pieces, memories, memory_bytes: from.u64()?, request_bytes: from.u64()? })
    }
}

/// Attributes of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Size in bytes.
    pub size: u64,
    /// Type and permissions.
    pub mode: u32,
    /// User who is charged for it.
    pub uid: u32,
    /// Group that is charged for it.
    pub gid: u32,
    /// True for one that has keys.
    pub is_index: bool,
    /// Access, modification, change and birth times, in seconds and nanoseconds.
    pub times: [(i64, u32); 4],
}

impl Attributes {
    /// Content of a reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Body::default();
        to.u64(self.size).u32(self.mode).u32(self.uid).u32(self.gid).flag(self.is_index);
        for (seconds, nanoseconds) in self.times {
            to.i64(seconds).u32(nanoseconds).u32(0);
        }
        to.done()
    }

    /// Decodes a content.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(content: &[u8]) -> Result<Attributes, Malformed> {
        let mut from = Fields::of(content);
        let (size, mode, uid, gid, is_index) = (from.u64()?, from.u32()?, from.u32()?, from.u32()?, from.flag()?);
        let mut attributes = Attributes { size, mode, uid, gid, is_index, ..Attributes::default() };
        for time in &mut attributes.times {
            *time = (from.i64()?, from.u32()?);
            from.zero()?;
        }
        from.end()?;
        Ok(attributes)
    }
}

/// Keys with their records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Keys and records.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Cookie of what comes next; none at the end.
    pub next: Option<u64>,
}

impl Entries {
    /// Content of a reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Body::default();
        to.flag(self.next.is_some()).u32(self.entries.len() as u32).u64(self.next.unwrap_or(0));
        for (key, record) in &self.entries {
            to.u32(key.len() as u32).u32(record.len() as u32).bytes(key).bytes(record);
        }
        to.done()
    }

    /// Decodes a content.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(content: &[u8]) -> Result<Entries, Malformed> {
        let mut from = Fields::of(content);
        let (goes_on, count, next) = (from.flag()?, from.u32()?, from.u64()?);
        let mut found = Entries { next: goes_on.then_some(next), ..Entries::default() };
        for _ in 0..count {
            let (key, record) = (from.u32()?, from.u32()?);
            found.entries.push((from.bytes(key)?.to_vec(), from.bytes(record)?.to_vec()));
        }
        from.end()?;
        Ok(found)
    }
}

/// Space of a device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the largest block of an object.
    pub block_size: u64,
    /// Bytes in use and available.
    pub total: u64,
    /// Bytes available to somebody without a grant.
    pub free: u64,
    /// Bytes that clients count on.
    pub granted: u64,
    /// Number of objects in use.
    pub objects: u64,
}

impl Space {
    /// Content of a reply.
    pub fn encode(&self) -> Vec<u8> {
        Reply::of_numbers(&[self.block_size, self.total, self.free, self.granted, self.objects]).content
    }

    /// Decodes a content.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(content: &[u8]) -> Result<Space, Malformed> {
        match numbers(content)?[..] {
            [block_size, total, free, granted, objects] => Ok(Space { block_size, total, free, granted, objects }),
            _ => Err(Malformed::Length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a client takes something else for an answer than what the device said.
    #[test]
    fn contents_come_out_as_they_went_in() {
        let limits = Limits { version: 1, operations: 2, pieces: 3, memories: 4, memory_bytes: 5, request_bytes: 6 };
        assert_eq!(Limits::decode(&limits.encode()), Ok(limits));
        let attributes =
            Attributes { size: 1 << 40, mode: 0o100_644, uid: 1, gid: 2, is_index: true, times: [(-1, 2), (3, 4), (5, 6), (7, 8)] };
        assert_eq!(Attributes::decode(&attributes.encode()), Ok(attributes));
        let entries = Entries { entries: vec![(b"key".to_vec(), b"record".to_vec()), (b"k".to_vec(), vec![0])], next: Some(0) };
        assert_eq!(Entries::decode(&entries.encode()), Ok(entries));
        let space = Space { block_size: 1, total: 2, free: 3, granted: 4, objects: 5 };
        assert_eq!(Space::decode(&space.encode()), Ok(space));
        assert_eq!(texts(&Reply::of_texts(&[b"a".to_vec(), Vec::new()]).content), Ok(vec![b"a".to_vec(), Vec::new()]));
        assert_eq!(texts(&[9, 0, 0, 0, 1]), Err(Malformed::Length), "it claims more than there is");
        let reply = Reply { status: 28, done: 2, content: Vec::new() };
        let bytes = reply.encode(5, 9).expect("it fits");
        assert_eq!((&bytes[4..6], Reply::decode(&bytes[16..])), (&[5, 0x80][..], Ok(reply)));
    }
}
