//! How a verb ends early, and the exit codes that scripts see. It prints nothing: the frame of the program (`program`) does.

use control_api::Failure;

/// Exit code for a failed operation.
pub const EXIT_FAILURE: u8 = 1;
/// Exit code for a wrong command line.
pub const EXIT_USAGE: u8 = 2;

/// Reason why a verb ended early.
#[derive(Debug)]
pub enum Stop {
    /// Operation failed (exit code 1).
    Failed(Failure),
    /// Words make no sense: this line and the usage go to stderr (exit code 2).
    Usage(String),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

impl Stop {
    /// Makes the reason of a wrong command line.
    pub fn usage(why: impl Into<String>) -> Stop {
        Stop::Usage(why.into())
    }
}
