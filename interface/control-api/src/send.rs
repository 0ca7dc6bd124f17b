//! `zfs send`: what is to be sent, what that comes to, and how a stream travels: as frames in the body of the answer.

use crate::Failure;
use serde::{Deserialize, Serialize};

/// `zfs send`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SendRequest {
    /// Full name of the snapshot, or of the dataset as it is now; empty with `token`.
    pub name: String,
    /// `-i`, `-I`: full name of the snapshot or bookmark to start from.
    pub from: Option<String>,
    /// `-I`: with all snapshots in between.
    #[serde(default)]
    pub all: bool,
    /// `-R`: with everything below, all snapshots and properties.
    #[serde(default)]
    pub replicate: bool,
    /// `-s`: pass over datasets that have no such snapshot.
    #[serde(default)]
    pub skip_missing: bool,
    /// `-p`: with properties.
    #[serde(default)]
    pub props: bool,
    /// `-b`: with properties as they were received.
    #[serde(default)]
    pub backup: bool,
    /// `-h`: with holds.
    #[serde(default)]
    pub holds: bool,
    /// `-L`: blocks above 128 KiB stay whole.
    #[serde(default)]
    pub large_blocks: bool,
    /// `-e`: contents that lie in block pointers are sent as they are.
    #[serde(default)]
    pub embedded: bool,
    /// `-c`: blocks are sent as they are compressed.
    #[serde(default)]
    pub compressed: bool,
    /// `-w`: what is encrypted is sent as it is stored, and never as programs see it.
    #[serde(default)]
    pub raw: bool,
    /// `--redact`: full name of the bookmark by whose list the stream is redacted.
    #[serde(default)]
    pub redact: Option<String>,
    /// `-X`: names of datasets that are left out of a package, with everything below.
    #[serde(default)]
    pub excluded: Vec<String>,
    /// `-S`: what came of an interrupted receive into the dataset of this name.
    #[serde(default)]
    pub saved: bool,
    /// `-t`: token of a stream that broke off, with which the other end goes on.
    #[serde(default)]
    pub token: Option<String>,
}

/// Stream of one snapshot, of those that a request comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SendStep {
    /// Snapshot or bookmark that it starts from, as messages name it.
    pub from: Option<String>,
    /// Full name of the snapshot.
    pub to: String,
    /// Size of the stream in bytes, about.
    pub bytes: u64,
}

/// Plan of a request to send: what it comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SendPlan {
    /// Streams, in their order.
    pub steps: Vec<SendStep>,
    /// Lines about what is left out.
    pub warnings: Vec<String>,
    /// Contents of the token, as lists are shown; empty without one.
    pub token: String,
}

/// Message between the data of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "kebab-case")]
pub enum SendNote {
    /// The stream of a snapshot begins.
    Begins {
        /// Full name of the snapshot.
        name: String,
    },
    /// A line for the user.
    Warning {
        /// The line.
        text: String,
    },
    /// All was sent.
    Ended,
    /// The stream ends before its end.
    Failed(Failure),
}

/// Content type of an answer that is a stream.
pub const STREAM_TYPE: &str = "application/x-zfs-stream";
/// Bytes in front of a frame: its kind, and its length, least significant byte first.
pub const FRAME_HEAD_BYTES: usize = 5;
const DATA: u8 = 0;
const NOTE: u8 = 1;

/// Head of a frame with so many bytes of the stream.
pub fn data_head(bytes: u32) -> [u8; FRAME_HEAD_BYTES] {
    head(DATA, bytes)
}

/// Frame with a message.
pub fn note_frame(note: &SendNote) -> Vec<u8> {
    let body = serde_json::to_vec(note).unwrap_or_default();
    let mut frame = head(NOTE, body.len() as u32).to_vec();
    frame.extend_from_slice(&body);
    frame
}

fn head(kind: u8, bytes: u32) -> [u8; FRAME_HEAD_BYTES] {
    let [a, b, c, d] = bytes.to_le_bytes();
    [kind, a, b, c, d]
}

/// Piece of a stream that arrived.
#[derive(Debug, PartialEq)]
pub enum Piece<'a> {
    /// Bytes of the stream.
    Data(&'a [u8]),
    /// A message.
    Note(SendNote),
    /// Nothing came for a while.
    Idle,
}

/// Reader of frames that come in pieces of any length.
#[derive(Debug, Default)]
pub struct Frames {
    head: Vec<u8>,
    is_note: bool,
    left: usize,
    note: Vec<u8>,
}

impl Frames {
    /// Takes the next bytes, and hands on what is in them.
    ///
    /// # Errors
    /// Those of `take`; a message that is none.
    pub fn push(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(Piece<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        while !bytes.is_empty() {
            if self.left == 0 {
                let (some, rest) = bytes.split_at(bytes.len().min(FRAME_HEAD_BYTES - self.head.len()));
                self.head.extend_from_slice(some);
                bytes = rest;
                if let [kind, a, b, c, d] = self.head[..] {
                    (self.is_note, self.left) = (kind == NOTE, u32::from_le_bytes([a, b, c, d]) as usize);
                    self.head.clear();
                }
                continue;
            }
            let (some, rest) = bytes.split_at(bytes.len().min(self.left));
            (self.left, bytes) = (self.left - some.len(), rest);
            if !self.is_note {
                take(Piece::Data(some))?;
                continue;
            }
            self.note.extend_from_slice(some);
            if self.left == 0 {
                let note = serde_json::from_slice(&std::mem::take(&mut self.note));
                let note = note.map_err(|error| Failure::new(crate::ErrorKind::Io, "cannot talk to the daemon", error.to_string()))?;
                take(Piece::Note(note))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, bytes of a stream are lost, or take messages for themselves, where the connection cuts it.
    #[test]
    fn frames_arrive_whatever_the_pieces_are() {
        let notes = [SendNote::Begins { name: "tank@a".into() }, SendNote::Ended];
        let data: Vec<u8> = (0..=255).collect();
        let sent = [&note_frame(&notes[0])[..], &data_head(256), &data, &data_head(1), &data[..1], &note_frame(&notes[1])].concat();
        for length in [1, 2, 5, 7, 100, 1000] {
            let (mut frames, mut got, mut told) = (Frames::default(), Vec::new(), Vec::new());
            for piece in sent.chunks(length) {
                let mut take = |piece: Piece<'_>| {
                    match piece {
                        Piece::Data(bytes) => got.extend_from_slice(bytes),
                        Piece::Note(note) => told.push(note),
                        Piece::Idle => {}
                    }
                    Ok(())
                };
                frames.push(piece, &mut take).expect("whole frames");
            }
            assert_eq!((got, &told[..]), ([&data[..], &data[..1]].concat(), &notes[..]), "pieces of {length}");
        }
    }
}
