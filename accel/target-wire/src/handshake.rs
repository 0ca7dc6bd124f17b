//! The four frames that begin a connection, and what ends one: who speaks, with which session, and what the target offers.
//!
//! ```text
//! host   ── Hello {version, key} ───────────────────────────────────►
//!        ◄───────────────────────────────────── Challenge {key} ──  target      or Refused {version, secret, protocol}
//!        ══ Proof {session to go on with} ═════════════════════════►
//!        ◄═ Welcome {session, lease, memory, capabilities} ════════             or Refused {session, busy}
//! ```
//! Double lines are sealed. The target proves itself too: a host sends nothing of its own to one that does not have the secret.

use crate::bytes::{Decoder, Encoder, Malformed};
use dpusm::{Capabilities, Capability, Feature, QueueLimits, Sizes, StoreKind};
use ondisk::{ByteOrder, Checksum, Compression};
use std::fmt;

/// The version of the protocol. The first one had frames that anybody on the link could read and change.
pub const VERSION: u16 = 2;

/// Bytes of a public key.
pub(crate) const KEY_BYTES: usize = 32;
/// Bytes of each side's first words: a public key and a tag.
pub const NOISE_BYTES: usize = KEY_BYTES + 16;

/// The host's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version that it speaks.
    pub version: u16,
    /// First message of the handshake ([`crate::Initiator`]).
    pub noise: [u8; NOISE_BYTES],
}

/// The target's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Answer of the handshake ([`crate::respond`]).
    pub noise: [u8; NOISE_BYTES],
}

/// The host's first sealed words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The session that it goes on with: number and epoch; none for a new one.
    pub session: Option<(u64, u64)>,
}

/// The session that was begun, or goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The session's number.
    pub session: u64,
    /// Epoch of the session: random, so that a target that lost the session cannot take its frames for another's.
    pub epoch: u64,
    /// Time without a frame after which the target frees all of the session, in nanoseconds.
    pub lease_ns: u64,
    /// Most bytes of buffers.
    pub memory_bytes_max: u64,
    /// The target's program and version, for people.
    pub about: String,
    /// Capabilities of the target.
    pub capabilities: Capabilities,
}

/// Reason why a target refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The target speaks another version.
    Version = 1,
    /// The first words were not sealed with the target's secret.
    Secret = 2,
    /// The target has no such session (any more): the lease ran out, or it is another process now.
    Session = 3,
    /// The target has as many sessions as it takes.
    Busy = 4,
    /// The target did not understand.
    Protocol = 5,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Version => "the target speaks another version of the protocol",
            Refusal::Secret => "the target refused the secret",
            Refusal::Session => "the target does not have the session any more",
            Refusal::Busy => "the target takes no more sessions",
            Refusal::Protocol => "the target did not understand",
        })
    }
}

/// A refusal on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Reason of the refusal.
    pub why: Refusal,
}

impl Hello {
    /// The message, in the form of the first version with a session to go on with: who speaks that one only finds the version in it, and says so.
    pub fn encode(&self) -> Vec<u8> {
        let (key, tag) = self.noise.split_at(KEY_BYTES);
        let mut to = Encoder::default();
        to.number(u64::from(self.version));
        to.byte(1);
        to.raw(tag);
        to.raw(key);
        to.done()
    }

    /// The version in a message of any version.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn version(message: &[u8]) -> Result<u16, Malformed> {
        Decoder::new(message).small()
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<Hello, Malformed> {
        let mut from = Decoder::new(message);
        let version = from.small()?;
        if !from.flag()? {
            return Err(Malformed::Tag(0));
        }
        let mut noise = [0; NOISE_BYTES];
        let (key, tag) = noise.split_at_mut(KEY_BYTES);
        tag.copy_from_slice(from.take(tag.len())?);
        key.copy_from_slice(from.take(key.len())?);
        from.end()?;
        Ok(Hello { version, noise })
    }
}

impl Challenge {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        self.noise.to_vec()
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<Challenge, Malformed> {
        let mut from = Decoder::new(message);
        let noise = from.array()?;
        from.end()?;
        Ok(Challenge { noise })
    }
}

impl Proof {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.byte(u8::from(self.session.is_some()));
        if let Some((session, epoch)) = self.session {
            to.word(session);
            to.word(epoch);
        }
        to.done()
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<Proof, Malformed> {
        let mut from = Decoder::new(message);
        let session = if from.flag()? { Some((from.word()?, from.word()?)) } else { None };
        from.end()?;
        Ok(Proof { session })
    }
}

impl Refused {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        vec![self.why as u8]
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<Refused, Malformed> {
        let mut from = Decoder::new(message);
        let tag = from.byte()?;
        from.end()?;
        let all = [Refusal::Version, Refusal::Secret, Refusal::Session, Refusal::Busy, Refusal::Protocol];
        let why = all.into_iter().find(|why| *why as u8 == tag).ok_or(Malformed::Tag(tag))?;
        Ok(Refused { why })
    }
}

fn put_feature(to: &mut Encoder, feature: &Feature) {
    let mut bytes = |bytes: &[u8]| to.raw(bytes);
    match *feature {
        Feature::CopyIn { scatter } => bytes(&[0, u8::from(scatter)]),
        Feature::CopyOut { scatter } => bytes(&[1, u8::from(scatter)]),
        Feature::ZeroFill => bytes(&[2]),
        Feature::ZeroTest => bytes(&[3]),
        Feature::Compare => bytes(&[4]),
        Feature::Compress { kind, level_min, level_max } => bytes(&[5, kind.0, level_min, level_max]),
        Feature::Decompress { kind } => bytes(&[6, kind.0]),
        Feature::Checksum { kind, order } => bytes(&[7, kind.0, u8::from(!order.is_little())]),
        Feature::RaidGenerate { parity, data_columns_max } => {
            bytes(&[8, parity]);
            to.number(u64::from(data_columns_max));
        }
        Feature::RaidReconstruct { parity, data_columns_max } => {
            bytes(&[9, parity]);
            to.number(u64::from(data_columns_max));
        }
        Feature::Store { kind } => bytes(&[10, u8::from(kind == StoreKind::Disk)]),
        Feature::Load { kind } => bytes(&[11, u8::from(kind == StoreKind::Disk)]),
    }
}

fn store_kind(from: &mut Decoder<'_>) -> Result<StoreKind, Malformed> {
    Ok(if from.flag()? { StoreKind::Disk } else { StoreKind::File })
}

fn feature(from: &mut Decoder<'_>) -> Result<Feature, Malformed> {
    Ok(match from.byte()? {
        0 => Feature::CopyIn { scatter: from.flag()? },
        1 => Feature::CopyOut { scatter: from.flag()? },
        2 => Feature::ZeroFill,
        3 => Feature::ZeroTest,
        4 => Feature::Compare,
        5 => Feature::Compress { kind: Compression(from.byte()?), level_min: from.byte()?, level_max: from.byte()? },
        6 => Feature::Decompress { kind: Compression(from.byte()?) },
        7 => Feature::Checksum { kind: Checksum(from.byte()?), order: ByteOrder::from_little(!from.flag()?) },
        8 => Feature::RaidGenerate { parity: from.byte()?, data_columns_max: from.small()? },
        9 => Feature::RaidReconstruct { parity: from.byte()?, data_columns_max: from.small()? },
        10 => Feature::Store { kind: store_kind(from)? },
        11 => Feature::Load { kind: store_kind(from)? },
        tag => return Err(Malformed::Tag(tag)),
    })
}

impl Welcome {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.word(self.session);
        to.word(self.epoch);
        to.number(self.lease_ns);
        to.number(self.memory_bytes_max);
        to.text(self.about.as_bytes());
        to.number(self.capabilities.queue.graphs_max as u64);
        to.number(self.capabilities.queue.bytes_max);
        to.list(&self.capabilities.list, |to, capability| {
            put_feature(to, &capability.feature);
            let Sizes { min_bytes, max_bytes, align_bytes } = capability.sizes;
            [min_bytes, max_bytes, align_bytes].into_iter().for_each(|bytes| to.number(bytes as u64));
        });
        to.done()
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<Welcome, Malformed> {
        let mut from = Decoder::new(message);
        let welcome = Welcome {
            session: from.word()?,
            epoch: from.word()?,
            lease_ns: from.number()?,
            memory_bytes_max: from.number()?,
            about: from.string()?,
            capabilities: {
                let queue = QueueLimits { graphs_max: from.small()?, bytes_max: from.number()? };
                let list = from.list(|from| {
                    let feature = feature(from)?;
                    let sizes = Sizes { min_bytes: from.small()?, max_bytes: from.small()?, align_bytes: from.small()? };
                    Ok(Capability { feature, sizes })
                })?;
                Capabilities { list, queue }
            },
        };
        from.end()?;
        Ok(welcome)
    }
}
