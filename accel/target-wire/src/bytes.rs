//! Numbers and texts as bytes, and back with every bound checked: the alphabet of programs, completions and the handshake.
//!
//! Numbers are little-endian base 128 (seven bits a byte, the top bit says that more follow): most of those in a program are small.

use std::fmt;

/// Reason why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end too early.
    Short,
    /// The bytes go on after the end.
    Long,
    /// A number does not fit its type, or is not written in its shortest form.
    Number,
    /// A tag that stands for nothing.
    Tag(u8),
    /// A text is not UTF-8, or too long.
    Text,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short => f.write_str("the message is too short"),
            Malformed::Long => f.write_str("the message is too long"),
            Malformed::Number => f.write_str("the message has a number that cannot be"),
            Malformed::Tag(tag) => write!(f, "the message has an unknown tag ({tag})"),
            Malformed::Text => f.write_str("the message has a text that cannot be"),
        }
    }
}
impl std::error::Error for Malformed {}

/// Longest text, in bytes (`PATH_MAX`).
const TEXT_BYTES_MAX: usize = 4096;

/// Writes a message.
#[derive(Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn number(&mut self, number: u64) {
        let mut rest = number;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    /// Eight bytes, for numbers that are random.
    pub(crate) fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    pub(crate) fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Encoder, &T)) {
        self.number(list.len() as u64);
        list.iter().for_each(|item| each(self, item));
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a message.
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Short)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return Err(Malformed::Number);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed::Number)
    }

    /// A number that fits `T`.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.number()?).map_err(|_| Malformed::Number)
    }

    pub(crate) fn word(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(Malformed::Tag(tag)),
        }
    }

    pub(crate) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let count: usize = self.small()?;
        if count > TEXT_BYTES_MAX {
            return Err(Malformed::Text);
        }
        self.take(count)
    }

    pub(crate) fn string(&mut self) -> Result<String, Malformed> {
        std::str::from_utf8(self.text()?).map(String::from).map_err(|_| Malformed::Text)
    }

    /// A list whose every entry takes a byte at least, so that no count makes room for more than was sent.
    pub(crate) fn list<T>(&mut self, mut each: impl FnMut(&mut Decoder<'a>) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let count: usize = self.small()?;
        if count > self.0.len() {
            return Err(Malformed::Short);
        }
        (0..count).map(|_| each(self)).collect()
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that came back as another would name another buffer.
    #[test]
    fn numbers_come_back_and_have_one_form() {
        for number in (0..64).flat_map(|bit| [1u64 << bit, (1u64 << bit) - 1, u64::MAX >> bit]) {
            let mut encoder = Encoder::default();
            encoder.number(number);
            let bytes = encoder.done();
            let mut decoder = Decoder::new(&bytes);
            assert_eq!((decoder.number(), decoder.end()), (Ok(number), Ok(())));
        }
        for wrong in [&[0x80, 0][..], &[0xFF; 10], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2], &[0x80]] {
            assert!(Decoder::new(wrong).number().is_err(), "{wrong:?}");
        }
    }

    /// A short message that claims to be long must not make room for what it claims.
    #[test]
    fn a_list_is_not_longer_than_its_message() {
        let mut encoder = Encoder::default();
        encoder.number(1 << 40);
        let bytes = encoder.done();
        assert_eq!(Decoder::new(&bytes).list(|decoder| decoder.byte()), Err(Malformed::Short));
    }
}
