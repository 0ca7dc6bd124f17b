//! What programs print: to a reader that may go away, and to files that may be full.
//!
//! `println!` panics where C programs end by SIGPIPE. The signal itself stays ignored, since it would also end a command whose daemon
//! goes away while it is being asked.

use crate::color;
use crate::stop::EXIT_FAILURE;
use control_api::shown_lines;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

/// Exit code that a shell shows for a program that SIGPIPE ended.
const EXIT_NO_READER: i32 = 128 + 13;

/// Standard output. Ends the program when nobody reads any more, or when it cannot be written.
#[derive(Clone, Copy, Debug)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Err(error) = check_open() {
            return give_up(&error);
        }
        if std::io::stdout().is_terminal() && bytes.iter().any(|byte| is_order(*byte)) {
            let bytes_shown: Vec<u8> = bytes.iter().flat_map(|byte| written_out(*byte)).collect();
            return std::io::stdout().write_all(&bytes_shown).map_or_else(|error| give_up(&error), |()| Ok(bytes.len()));
        }
        std::io::stdout().write(bytes).or_else(|error| give_up(&error))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush().or_else(|error| give_up(&error))
    }
}

/// Standard output for streams of bytes: not the buffered one, which looks for ends of lines.
///
/// # Errors
/// EBADF where this program was started without one, and those of the duplication.
pub fn raw_output() -> std::io::Result<File> {
    check_open()?;
    std::io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// Fails where there was no standard output at the start: the runtime has `/dev/null` there since.
fn check_open() -> std::io::Result<()> {
    if service::output_was_closed() { Err(rustix::io::Errno::BADF.into()) } else { Ok(()) }
}

fn is_order(byte: u8) -> bool {
    byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t')
}

fn written_out(byte: u8) -> Vec<u8> {
    if is_order(byte) { format!("\\{byte:03o}").into_bytes() } else { vec![byte] }
}

/// Text for a terminal: names and values, which others may have chosen, give it no orders; only what is in `codes` does.
fn harmless(text: &str, codes: &[&str]) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((at, code)) = codes.iter().filter_map(|code| Some((rest.find(code)?, code))).min() {
        out.push_str(&shown_lines(&rest[..at]));
        out.push_str(code);
        rest = &rest[at + code.len()..];
    }
    out.push_str(&shown_lines(rest));
    out
}

/// Prints to the standard output. To files and pipes it goes as it is.
pub fn to_output(text: Arguments<'_>) {
    let mut output = std::io::stdout();
    if output.is_terminal() {
        let text = harmless(&text.to_string(), color::codes());
        output.write_all(text.as_bytes()).unwrap_or_else(|error| give_up(&error));
        return;
    }
    // What fails there does not come back.
    let _ = Output.write_fmt(text);
}

/// Writes out what was printed and still stands in memory.
pub fn flush() {
    let _ = Output.flush();
}

fn give_up<T>(error: &std::io::Error) -> T {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(EXIT_NO_READER);
    }
    to_errors(format_args!("cannot write the output: {}\n", crate::os_error(error)));
    std::process::exit(i32::from(EXIT_FAILURE));
}

/// Prints to the standard error. It is for people, wherever it leads, so that names and words give no terminal an order later either; that nobody
/// reads it changes nothing.
pub fn to_errors(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_all(shown_lines(&text.to_string()).as_bytes());
}

/// Prints as `print!` for programs whose reader may go away.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::print::to_output(format_args!($($text)*)) };
}

/// Prints as `println!` for programs whose reader may go away.
#[macro_export]
macro_rules! outln {
    () => { $crate::print::to_output(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::to_output(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints as `eprint!` for programs whose reader may go away.
#[macro_export]
macro_rules! err {
    ($($text:tt)*) => { $crate::print::to_errors(format_args!($($text)*)) };
}

/// Prints as `eprintln!` for programs whose reader may go away.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::print::to_errors(format_args!("{}\n", format_args!($($text)*))) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the name of a pool or a user's property moves the cursor, sets the title or answers for the terminal of root.
    #[test]
    fn a_terminal_gets_no_orders_but_our_colours() {
        let text = "\x1b[0;31mtank\x1b[0m\tONLINE\n\x1b]0;evil\x07\x1b[2J\r";
        assert_eq!(harmless(text, &["\x1b[0;31m", "\x1b[0m"]), "\x1b[0;31mtank\x1b[0m\tONLINE\n\\033]0;evil\\007\\033[2J\\015");
        assert_eq!(harmless("\x1b[0mx", &[]), "\\033[0mx");
        assert_eq!(b"a\x1b\n\x7f".iter().flat_map(|byte| written_out(*byte)).collect::<Vec<u8>>(), b"a\\033\n\\177");
    }
}
