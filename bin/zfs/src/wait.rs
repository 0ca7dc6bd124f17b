//! `zfs wait`: asks again until nothing goes on in a file system, so that no single call is long.

use clap::Args;
use cli::{Client, Stop};
use control_api::{DatasetWait, Request, Response};

/// Milliseconds that one call waits.
const STEP_MS: u64 = 5000;

/// `zfs wait`.
#[derive(Args, Clone, Debug)]
pub struct Wait {
    /// Activities to wait for: deleteq, the files that are to be deleted.
    #[arg(short = 't', value_delimiter = ',', value_name = "activity")]
    pub activities: Vec<String>,
    /// File system.
    #[arg(value_name = "filesystem")]
    pub names: Vec<String>,
}

/// Runs the verb.
pub fn run(client: &Client, arguments: &Wait) -> Result<u8, Stop> {
    if let Some(unknown) = arguments.activities.iter().find(|activity| *activity != "deleteq") {
        return Err(Stop::usage(format!("invalid activity '{unknown}'")));
    }
    let name = match arguments.names.as_slice() {
        [] => return Err(Stop::usage("missing 'filesystem' argument")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments")),
    };
    loop {
        match client.call(&Request::DatasetWait(DatasetWait { name: name.clone(), deadline_ms: STEP_MS }))? {
            Response::Busy(busy) if busy.is_empty() => return Ok(0),
            Response::Busy(_) => {}
            other => return Err(cli::unexpected("cannot wait", other).into()),
        }
    }
}
