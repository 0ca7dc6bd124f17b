//! What programs print: to a reader that may go away, and to files that may be full.
//!
//! `println!` panics where C programs end by SIGPIPE. The signal itself stays ignored, since it would also end a command whose daemon
//! goes away while it is being asked.

use crate::stop::EXIT_FAILURE;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// What a shell shows for a program that SIGPIPE ended.
const EXIT_NO_READER: i32 = 128 + 13;

/// The standard output. Ends the program when nobody reads any more, or when it cannot be written.
#[derive(Clone, Copy, Debug)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().write(bytes).or_else(|error| give_up(&error))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush().or_else(|error| give_up(&error))
    }
}

/// Prints to the standard output.
pub fn to_output(text: Arguments<'_>) {
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

/// Prints to the standard error; that nobody reads it changes nothing.
pub fn to_errors(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// `print!` for programs whose reader may go away.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::print::to_output(format_args!($($text)*)) };
}

/// `println!` for programs whose reader may go away.
#[macro_export]
macro_rules! outln {
    () => { $crate::print::to_output(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::to_output(format_args!("{}\n", format_args!($($text)*))) };
}

/// `eprint!` for programs whose reader may go away.
#[macro_export]
macro_rules! err {
    ($($text:tt)*) => { $crate::print::to_errors(format_args!($($text)*)) };
}

/// `eprintln!` for programs whose reader may go away.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::print::to_errors(format_args!("{}\n", format_args!($($text)*))) };
}
