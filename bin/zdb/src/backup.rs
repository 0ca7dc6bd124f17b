//! `-B`: a dataset as a stream, also out of a pool that nobody can import for writing (OpenZFS: `dump_backup`).

use dsl::DatasetHandle;
use send::{SendError, SendOptions, Sending};
use std::io::{BufWriter, IsTerminal, Write};
use stream::Writer;

/// Form of the stream that letters ask for: those of the options of `zfs send`.
fn options(letters: &str) -> Result<SendOptions, String> {
    let mut options = SendOptions::default();
    for letter in letters.chars() {
        match letter {
            'e' => options.embedded = true,
            'L' => options.large_blocks = true,
            'c' => options.compressed = true,
            'w' => options.raw = true,
            _ => return Err(format!("invalid flag '{letter}'")),
        }
    }
    Ok(options)
}

/// Writes the whole stream of a dataset or snapshot to the standard output, as `zfs send` does with the options `letters`.
///
/// # Errors
/// What to tell the user.
pub fn write(dataset: DatasetHandle, letters: &str) -> Result<(), String> {
    let options = options(letters)?;
    if std::io::stdout().is_terminal() {
        return Err("stream cannot be written to a terminal".to_string());
    }
    let text = |error: SendError| error.to_string();
    let sending = Sending::new(dataset, None, options).map_err(text)?;
    let mut out = BufWriter::new(cli::print::Output);
    sending.run(&mut Writer::new(&mut out)).map_err(text)?;
    out.flush().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a backup lacks the keys, or has more than the program that reads it understands.
    #[test]
    fn letters_are_those_of_zfs_send() {
        let all = SendOptions { large_blocks: true, embedded: true, compressed: true, raw: true, ..SendOptions::default() };
        assert_eq!((options(""), options("ecLw")), (Ok(SendOptions::default()), Ok(all)));
        assert_eq!(options("eR"), Err("invalid flag 'R'".to_string()));
    }
}
