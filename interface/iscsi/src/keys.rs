//! Text keys of Login and Text requests: `key=value` pairs with a zero byte behind each (RFC 7143, section 6.1).

/// Longest name of a key, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// Longest value, in bytes: that of a CHAP challenge of 1024 bytes in hexadecimal, the longest that there is.
const VALUE_BYTES_MAX: usize = 2 + 2 * 1024;
/// Longest text of several PDUs, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Number of keys of one text, at most.
const KEYS_MAX: usize = 64;

/// Text that is not made of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// A pair without `=`, or with an empty or overlong name.
    Malformed,
    /// A value that is too long, or too many keys.
    TooLong,
    /// A key that is there twice.
    Repeated,
    /// Bytes that are no UTF-8.
    Encoding,
}

/// Keys and their values, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(Vec<(String, String)>);

impl Keys {
    /// Reads a whole text.
    pub fn parse(text: &[u8]) -> Result<Keys, KeyError> {
        let mut keys = Keys::default();
        for pair in text.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()) {
            let pair = std::str::from_utf8(pair).map_err(|_| KeyError::Encoding)?;
            let (name, value) = pair.split_once('=').ok_or(KeyError::Malformed)?;
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(KeyError::Malformed);
            }
            if value.len() > VALUE_BYTES_MAX || keys.0.len() >= KEYS_MAX {
                return Err(KeyError::TooLong);
            }
            if keys.get(name).is_some() {
                return Err(KeyError::Repeated);
            }
            keys.0.push((name.into(), value.into()));
        }
        Ok(keys)
    }

    /// Value of the key `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Appends a key; one name may be appended several times (`TargetName` of a list of targets is).
    pub fn push(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The text of the keys.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, value) in self.iter() {
            text.extend_from_slice(name.as_bytes());
            text.push(b'=');
            text.extend_from_slice(value.as_bytes());
            text.push(0);
        }
        text
    }
}

/// Number in decimal or, with `0x`, hexadecimal notation.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None if text.bytes().all(|digit| digit.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

/// Binary value in hexadecimal (`0x`) or base64 (`0b`) notation, of at most `bytes_max` bytes.
pub(crate) fn binary(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let bytes = match text.get(..2)? {
        "0x" | "0X" => hexadecimal(&text.as_bytes()[2..])?,
        "0b" | "0B" => base64(&text.as_bytes()[2..])?,
        _ => return None,
    };
    (!bytes.is_empty() && bytes.len() <= bytes_max).then_some(bytes)
}

fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

fn base64(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let length = digits.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    if !digits.len().is_multiple_of(4) || digits.len() - length > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(length * 3 / 4);
    for group in digits[..length].chunks(4) {
        let mut bits = 0u32;
        for byte in group {
            bits = bits << 6 | u32::from(value(*byte)?);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

/// Hexadecimal notation of `bytes`, with `0x`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("0x"), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, initiators that write numbers and binary values in another of the allowed ways cannot log in.
    #[test]
    fn numbers_and_binary_values_in_all_notations() {
        assert_eq!((number("262144"), number("0x40000"), number("12x"), number("")), (Some(262_144), Some(0x40000), None, None));
        assert_eq!(binary("0x00fF", 4), Some(vec![0, 255]));
        assert_eq!(binary("0bAP8=", 4), Some(vec![0, 255]));
        assert_eq!(binary("0bAAEC", 4), Some(vec![0, 1, 2]));
        for bad in ["0x0", "0xzz", "00ff", "0b=", "0bAAE", "0b====", "0x", "", "0", "0x0102030405"] {
            assert_eq!(binary(bad, 4), None, "{bad}");
        }
    }

    #[test]
    fn text_is_read_and_what_is_no_text_refused() {
        let keys = Keys::parse(b"A=1\0B=\0C=x=y\0").expect("it is well formed");
        assert_eq!((keys.get("A"), keys.get("B"), keys.get("C"), keys.get("D")), (Some("1"), Some(""), Some("x=y"), None));
        assert_eq!(Keys::parse(&keys.encode()), Ok(keys));
        assert_eq!(Keys::parse(b"A\0"), Err(KeyError::Malformed));
        assert_eq!(Keys::parse(b"A=1\0A=2\0"), Err(KeyError::Repeated));
        assert_eq!(Keys::parse(b"A=\xff\0"), Err(KeyError::Encoding));
        assert_eq!(Keys::parse(format!("{}=1\0", "n".repeat(64)).as_bytes()), Err(KeyError::Malformed));
    }
}
