//! Options that several verbs of several programs share.

use crate::Stop;
use clap::Args;

/// `-H -p -j --json-int`: how results are printed.
#[derive(Clone, Debug, Default, Args)]
pub struct Output {
    /// No headings, tabs between fields.
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Exact numbers.
    #[arg(short = 'p')]
    pub parsable: bool,
    /// How JSON is printed.
    #[command(flatten)]
    pub json: Json,
}

/// `-j --json-int`.
#[derive(Clone, Debug, Default, Args)]
pub struct Json {
    /// JSON.
    #[arg(short = 'j', long = "json")]
    pub json: bool,
    /// JSON with numbers as numbers instead of strings.
    #[arg(long = "json-int")]
    pub json_int: bool,
}

impl Json {
    /// Checks that `--json-int` goes with `-j` only.
    pub fn check(&self) -> Result<(), Stop> {
        if self.json_int && !self.json {
            return Err(Stop::usage("'--json-int' only works with '-j' option"));
        }
        Ok(())
    }
}

impl Output {
    /// True when numbers are printed in full (`-p`; `--json-int` implies it).
    pub fn is_exact(&self) -> bool {
        self.parsable || self.json.json_int
    }
}
