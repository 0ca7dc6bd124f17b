//! A completion on the link: what came of each store that was to be opened and of each operation, a few bytes each.
//!
//! Bytes that were copied out are the frame's payload, in the order of their operations.

use crate::bytes::{Decoder, Encoder, Malformed};
use dpusm::OpError;

/// Answer of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireOutcome {
    /// Nothing more to say.
    Done,
    /// Length of the compressed bytes; None when the source did not shrink.
    Compressed(Option<u64>),
    /// Words of a checksum.
    Checksum([u64; 4]),
    /// True when all bytes are zero, or the two differ.
    Flag(bool),
    /// The next so many bytes of the payload.
    Copied(u64),
    /// Bytes that were written.
    Stored(u64),
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireResult {
    /// Outcome of the operation.
    pub outcome: Result<WireOutcome, OpError>,
    /// Time that the target worked on it, in nanoseconds.
    pub device_ns: u64,
}

impl From<Result<WireOutcome, OpError>> for WireResult {
    fn from(outcome: Result<WireOutcome, OpError>) -> WireResult {
        WireResult { outcome, device_ns: 0 }
    }
}

/// The answer to a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireCompletion {
    /// Outcome of each store that was to be opened.
    pub opens: Vec<Result<(), OpError>>,
    /// Result of each operation.
    pub results: Vec<WireResult>,
}

/// From here on a tag says an error, by [`OpError::index`].
const ERRORS: u8 = 0x80;

fn put_error(to: &mut Encoder, error: OpError) {
    to.byte(ERRORS | error.index() as u8);
    if let OpError::Io(errno) = error {
        to.number(u64::from(errno.unsigned_abs()));
    }
}

fn error(from: &mut Decoder<'_>, tag: u8) -> Result<OpError, Malformed> {
    let plain = tag.checked_sub(ERRORS).and_then(|index| OpError::ALL.get(usize::from(index))).ok_or(Malformed::Tag(tag))?;
    Ok(match plain {
        OpError::Io(_) => OpError::Io(from.small()?),
        other => *other,
    })
}

fn put_result(to: &mut Encoder, result: &WireResult) {
    match result.outcome {
        Ok(WireOutcome::Done) => to.byte(0),
        Ok(WireOutcome::Compressed(None)) => to.byte(1),
        Ok(WireOutcome::Compressed(Some(bytes))) => {
            to.byte(2);
            to.number(bytes);
        }
        Ok(WireOutcome::Checksum(words)) => {
            to.byte(3);
            words.into_iter().for_each(|word| to.word(word));
        }
        Ok(WireOutcome::Flag(flag)) => to.byte(4 + u8::from(flag)),
        Ok(WireOutcome::Copied(bytes)) => {
            to.byte(6);
            to.number(bytes);
        }
        Ok(WireOutcome::Stored(bytes)) => {
            to.byte(7);
            to.number(bytes);
        }
        Err(error) => put_error(to, error),
    }
    to.number(result.device_ns);
}

fn result(from: &mut Decoder<'_>) -> Result<WireResult, Malformed> {
    let outcome = match from.byte()? {
        0 => Ok(WireOutcome::Done),
        1 => Ok(WireOutcome::Compressed(None)),
        2 => Ok(WireOutcome::Compressed(Some(from.number()?))),
        3 => Ok(WireOutcome::Checksum([from.word()?, from.word()?, from.word()?, from.word()?])),
        4 => Ok(WireOutcome::Flag(false)),
        5 => Ok(WireOutcome::Flag(true)),
        6 => Ok(WireOutcome::Copied(from.number()?)),
        7 => Ok(WireOutcome::Stored(from.number()?)),
        tag => Err(error(from, tag)?),
    };
    Ok(WireResult { outcome, device_ns: from.number()? })
}

impl WireCompletion {
    /// The message of a *Completion*.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.list(&self.opens, |to, open| match open {
            Ok(()) => to.byte(0),
            Err(error) => put_error(to, *error),
        });
        to.list(&self.results, put_result);
        to.done()
    }

    /// The completion of a message.
    ///
    /// # Errors
    /// What is wrong with the message.
    pub fn decode(message: &[u8]) -> Result<WireCompletion, Malformed> {
        let mut from = Decoder::new(message);
        let completion = WireCompletion {
            opens: from.list(|from| match from.byte()? {
                0 => Ok(Ok(())),
                tag => Ok(Err(error(from, tag)?)),
            })?,
            results: from.list(result)?,
        };
        from.end()?;
        Ok(completion)
    }

    /// Makes a completion with the same error for all of a program.
    pub fn refused(opens: usize, ops: usize, error: OpError) -> WireCompletion {
        WireCompletion { opens: vec![Err(error); opens], results: vec![Err(error).into(); ops] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that came back as another one would be taken for a dead target, or for software's work.
    #[test]
    fn every_error_keeps_its_number() {
        for (index, error) in OpError::ALL.iter().enumerate() {
            assert_eq!(error.index(), index);
        }
        let io = OpError::Io(28);
        let completion =
            WireCompletion { opens: vec![Err(io), Ok(())], results: OpError::ALL.iter().map(|error| Err(*error).into()).collect() };
        assert_eq!(WireCompletion::decode(&completion.encode()), Ok(completion));
    }
}
