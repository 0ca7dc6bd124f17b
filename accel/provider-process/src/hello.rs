//! What a helper says first: that the library is loaded, and what it is called, or why there is none. Lines, before the handshake of host and target.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 4096;
const LOADED: &str = "loaded";
const FAILED: &str = "failed";

/// Answer of a helper after loading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// The provider's name, and what it says of itself.
    Loaded { name: String, about: String },
    /// Reason why there is none.
    Failed { why: String },
}

/// A text in one line that is short enough.
fn line(text: &str) -> String {
    let one: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let end = (0..=one.len().min(LINE_BYTES_MAX - 1)).rev().find(|end| one.is_char_boundary(*end)).unwrap_or(0);
    format!("{}\n", &one[..end])
}

impl Hello {
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let text = match self {
            Hello::Loaded { name, about } => format!("{LOADED}\n{}{}", line(name), line(about)),
            Hello::Failed { why } => format!("{FAILED}\n{}", line(why)),
        };
        to.write_all(text.as_bytes())
    }

    /// Reads it, and not a byte more; `set_timeout` bounds the next read.
    ///
    /// # Errors
    /// Those of the connection; `TimedOut` when it was not there in time, `UnexpectedEof` when the helper has ended.
    pub(crate) fn read<R: Read>(from: &mut R, within: Duration, set_timeout: impl Fn(&R, Duration) -> io::Result<()>) -> io::Result<Hello> {
        let begun = Instant::now();
        let mut line = || {
            let mut text = Vec::new();
            let mut byte = [0];
            loop {
                let left = within.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()).ok_or(io::ErrorKind::TimedOut)?;
                set_timeout(from, left)?;
                match from.read(&mut byte) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) if byte == *b"\n" => break,
                    Ok(_) if text.len() >= LINE_BYTES_MAX => return Err(io::ErrorKind::InvalidData.into()),
                    Ok(_) => text.push(byte[0]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                    Err(error) => return Err(error),
                }
            }
            String::from_utf8(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
        };
        match line()?.as_str() {
            LOADED => Ok(Hello::Loaded { name: line()?, about: line()? }),
            FAILED => Ok(Hello::Failed { why: line()? }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<(Hello, usize), io::ErrorKind> {
        let hello = Hello::read(&mut bytes, Duration::from_secs(10), |_, _| Ok(())).map_err(|error| error.kind())?;
        Ok((hello, bytes.len()))
    }

    /// A byte too many would be missing in the handshake behind it; a library's words must not be taken for lines.
    #[test]
    fn what_a_helper_says_is_read_to_its_end_and_no_further() {
        for hello in [
            Hello::Loaded { name: "example".into(), about: "1.0".into() },
            Hello::Loaded { name: String::new(), about: String::new() },
            Hello::Failed { why: "there is no device".into() },
        ] {
            let mut bytes = Vec::new();
            hello.write(&mut bytes).unwrap();
            bytes.extend(b"ZTGT");
            assert_eq!(read(&bytes), Ok((hello, 4)));
        }
        let mut bytes = Vec::new();
        Hello::Loaded { name: "two\nlines".into(), about: "é".repeat(5000) }.write(&mut bytes).unwrap();
        let Ok((Hello::Loaded { name, about }, 0)) = read(&bytes) else { panic!() };
        assert_eq!((name.as_str(), about.len() < LINE_BYTES_MAX), ("two lines", true));
        for (wrong, kind) in [
            (&b"load"[..], io::ErrorKind::UnexpectedEof),
            (b"hm\n", io::ErrorKind::InvalidData),
            (b"failed\n\xff\n", io::ErrorKind::InvalidData),
        ] {
            assert_eq!(read(wrong), Err(kind));
        }
        assert_eq!(read(&[b'x'; 5000]), Err(io::ErrorKind::InvalidData));
    }
}
