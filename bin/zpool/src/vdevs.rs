//! `zpool offline` and `zpool online`: single devices of a pool.

use crate::args;
use cli::{Client, Stop, done};
use control_api::{ErrorKind, Failure, Request, VdevChange, VdevVerb};

/// Runs `zpool offline`: every device, also when one is refused; the exit code says that one was.
pub fn offline(client: &Client, arguments: &args::Offline) -> Result<u8, Stop> {
    let temporary = arguments.temporary;
    let verb = if arguments.fault { VdevVerb::Fault { temporary } } else { VdevVerb::Offline { temporary } };
    each(client, &arguments.pool, &arguments.devices, &verb, |_, failure| eprintln!("{failure}"))
}

/// Runs `zpool online`, as [`offline`].
pub fn online(client: &Client, arguments: &args::Online) -> Result<u8, Stop> {
    let verb = VdevVerb::Online { expand: arguments.expand };
    each(client, &arguments.pool, &arguments.devices, &verb, |device, failure| match failure.kind {
        ErrorKind::NotFound => eprintln!("couldn't find device \"{device}\" in pool \"{}\"", arguments.pool),
        _ => eprintln!("{failure}"),
    })
}

fn each(client: &Client, pool: &str, devices: &[String], change: &VdevVerb, say: impl Fn(&str, &Failure)) -> Result<u8, Stop> {
    let mut code = 0;
    for device in devices {
        let request = VdevChange { pool: pool.to_string(), device: device.clone(), change: change.clone() };
        if let Err(failure) = done(client, &Request::VdevChange(request)) {
            // Without the pool no device can be looked for.
            if failure.what.starts_with("cannot open") {
                return Err(failure.into());
            }
            say(device, &failure);
            code = cli::EXIT_FAILURE;
        }
    }
    Ok(code)
}
