//! What is said of payload that goes through memory that both sides share: the offer of a region, and what stands before a program or
//! a completion whose bytes lie in it.
//!
//! The host says which parts of the region are used, in both directions: a program names the place of its payload, and room for that
//! of its completion. So a target writes only where it was told to, and says no more than how much it wrote.

use crate::bytes::{Decoder, Encoder, Malformed};
use crate::region::Place;

/// A feature in the handshake: payload may go through shared memory.
pub const SHARED_MEMORY: u64 = 1;

/// The message of the host's *Region*; its file comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionOffer {
    /// Length of the region, in bytes.
    pub bytes: u64,
}

/// The message of the target's *Region*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAnswer {
    /// True when the region is used from now on.
    pub is_taken: bool,
}

/// Places that stand before a program in *Execute with places*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutePlaces {
    /// Place of the payload, and its CRC; none when it is in the frame, as ever.
    pub payload: Option<(Place, u32)>,
    /// Place that the payload of the completion may be put in.
    pub room: Option<Place>,
}

/// Facts of the payload that stand before a completion in *Completion in its room*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionRoom {
    /// Length of the payload, from the start of the room on.
    pub bytes: u64,
    /// CRC of the payload.
    pub crc: u32,
}

fn put_place(to: &mut Encoder, place: &Place) {
    to.number(place.offset);
    to.number(place.bytes);
}

fn place(from: &mut Decoder<'_>) -> Result<Place, Malformed> {
    Ok(Place { offset: from.number()?, bytes: from.number()? })
}

impl RegionOffer {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.number(self.bytes);
        to.done()
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<RegionOffer, Malformed> {
        let mut from = Decoder::new(message);
        let bytes = from.number()?;
        from.end()?;
        Ok(RegionOffer { bytes })
    }
}

impl RegionAnswer {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        vec![u8::from(self.is_taken)]
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<RegionAnswer, Malformed> {
        let mut from = Decoder::new(message);
        let is_taken = from.flag()?;
        from.end()?;
        Ok(RegionAnswer { is_taken })
    }
}

impl ExecutePlaces {
    /// The message of a program with these places.
    pub fn encode(&self, program: &[u8]) -> Vec<u8> {
        let mut to = Encoder::default();
        to.byte(u8::from(self.payload.is_some()) | u8::from(self.room.is_some()) << 1);
        if let Some((place, crc)) = &self.payload {
            put_place(&mut to, place);
            to.number(u64::from(*crc));
        }
        self.room.iter().for_each(|room| put_place(&mut to, room));
        to.raw(program);
        to.done()
    }

    /// Decodes a message, with the program's bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<(ExecutePlaces, &[u8]), Malformed> {
        let mut from = Decoder::new(message);
        let which = from.byte()?;
        if which > 3 {
            return Err(Malformed::Tag(which));
        }
        let payload = if which & 1 != 0 { Some((place(&mut from)?, from.small()?)) } else { None };
        let room = if which & 2 != 0 { Some(place(&mut from)?) } else { None };
        Ok((ExecutePlaces { payload, room }, from.rest()))
    }
}

impl CompletionRoom {
    /// The message of a completion whose payload lies in its room.
    pub fn encode(&self, completion: &[u8]) -> Vec<u8> {
        let mut to = Encoder::default();
        to.number(self.bytes);
        to.number(u64::from(self.crc));
        to.raw(completion);
        to.done()
    }

    /// Decodes a message, with the completion's bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<(CompletionRoom, &[u8]), Malformed> {
        let mut from = Decoder::new(message);
        let room = CompletionRoom { bytes: from.number()?, crc: from.small()? };
        Ok((room, from.rest()))
    }
}
