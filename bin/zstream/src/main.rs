//! The `zstream` program: shows what is in send streams and resume tokens, and writes streams anew, in the shape of OpenZFS's. It opens no pool,
//! and no daemon.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod dump;
mod recompress;
mod redup;
mod rewrite;
#[cfg(test)]
mod tests;

use clap::{Args, Parser, Subcommand};
use cli::{Lacking, Stop};
use control_api::{ErrorKind, Failure};
use std::process::ExitCode;

/// Send streams and resume tokens.
#[derive(Debug, Parser)]
#[command(name = "zstream", version, disable_help_subcommand = true, disable_help_flag = true, args_override_self = true)]
struct Arguments {
    /// What to do.
    #[command(subcommand)]
    verb: Verb,
}

/// Verbs of the program.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the records of a stream, from a file or the standard input.
    Dump(Dump),
    /// Show what is in a resume token.
    Token {
        /// Token.
        #[arg(value_name = "resume_token", long_help = "resume token")]
        token: String,
    },
    /// Turn a deduplicated stream into one that can be received, on the standard output.
    Redup {
        /// Say what was converted.
        #[arg(short = 'v')]
        verbose: bool,
        /// File that has the stream.
        #[arg(value_name = "file", long_help = "file")]
        file: String,
    },
    /// Compress the blocks of the stream on the standard input in another way, or not at all (off), on the standard output.
    Recompress {
        /// Level of zstd or gzip.
        #[arg(short = 'l', value_name = "level", allow_hyphen_values = true)]
        level: Option<i32>,
        /// Value of the property compression.
        #[arg(value_name = "algorithm", long_help = "algorithm")]
        algorithm: String,
    },
    /// Decompress blocks of the stream on the standard input whose records lie about how they are compressed, on the standard output.
    Decompress {
        /// Say what was decompressed.
        #[arg(short = 'v')]
        verbose: bool,
        /// Object and offset of a block, and one of off, lz4 (if there is none), lzjb, gzip, zle and zstd.
        #[arg(value_name = "object,offset[,type]")]
        blocks: Vec<String>,
    },
}

/// `zstream dump`.
#[derive(Debug, Args)]
struct Dump {
    /// Do not compare checksums.
    #[arg(short = 'C')]
    ignore_checksums: bool,
    /// Every record; twice: with its checksum.
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    verbose: u8,
    /// Every record, with its checksum and the data in it.
    #[arg(short = 'd')]
    data: bool,
    /// File; the standard input without one.
    #[arg(value_name = "file")]
    file: Option<String>,
}

/// Verbs that later versions of OpenZFS's program have besides.
const LACKING: Lacking = Lacking { verbs: &["drop_record", "raw"], options: &[] };

fn main() -> ExitCode {
    cli::run_with::<Arguments>(&LACKING, |arguments| match arguments.verb {
        Verb::Dump(arguments) => {
            let (records, checksums) = (arguments.verbose > 0 || arguments.data, arguments.verbose > 1 || arguments.data);
            let shown = dump::Shown { records, checksums, data: arguments.data, is_trusting: arguments.ignore_checksums };
            dump::run(arguments.file.as_deref(), &shown)
        }
        Verb::Token { token } => self::token(&token),
        Verb::Redup { verbose, file } => redup::run(&file, verbose),
        Verb::Recompress { level, algorithm } => recompress::recompress(&algorithm, level),
        Verb::Decompress { verbose, blocks } => recompress::decompress(&blocks, verbose),
    })
}

fn token(text: &str) -> Result<u8, Stop> {
    match stream::token::decode(text) {
        Ok(list) => cli::out!("{}", list.dump(5)),
        Err(error) => return Err(Failure::new(ErrorKind::Invalid, "Unable to parse resume token", error.to_string()).into()),
    }
    Ok(0)
}
