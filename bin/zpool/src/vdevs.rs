//! `zpool offline`, `online`, `attach`, `replace`, `detach`, `remove` and `reopen`: single devices of a pool.

use crate::{args, list, power, spec, wait};
use cli::number::nice_count;
use cli::{Client, Stop, done};
use control_api::{ErrorKind, Failure, NewDevice, PoolNames, PoolReopen, Request, Response, VdevChange, VdevRemove, VdevVerb};

/// Runs `zpool offline`: every device, also when one is refused; the exit code says that one was.
pub fn offline(client: &Client, arguments: &args::Offline) -> Result<u8, Stop> {
    let temporary = arguments.temporary;
    if arguments.power {
        return power_off(client, arguments);
    }
    let verb = if arguments.fault { VdevVerb::Fault { temporary } } else { VdevVerb::Offline { temporary } };
    each(client, &arguments.pool, &arguments.devices, &verb, |_, failure| cli::errln!("{failure}"))
}

/// Switches off the slots of devices: these are gone then, and become REMOVED.
fn power_off(client: &Client, arguments: &args::Offline) -> Result<u8, Stop> {
    if arguments.fault || arguments.temporary {
        let letter = if arguments.fault { "f" } else { "t" };
        return Err(Stop::usage(format!("--power and -{letter} cannot be used together")));
    }
    let mut code = 0;
    for device in &arguments.devices {
        if !power::off(client, &arguments.pool, device)? {
            cli::errln!("unable to power off slot for {device}");
            code = cli::EXIT_FAILURE;
        }
    }
    Ok(code)
}

/// Runs `zpool online`, like [`offline`].
pub fn online(client: &Client, arguments: &args::Online) -> Result<u8, Stop> {
    if arguments.power && !power::on(client, &arguments.pool, &arguments.devices)? {
        cli::errln!("Power control not supported");
        return Ok(cli::EXIT_FAILURE);
    }
    let verb = VdevVerb::Online { expand: arguments.expand };
    each(client, &arguments.pool, &arguments.devices, &verb, |device, failure| match failure.kind {
        ErrorKind::NotFound => cli::errln!("couldn't find device \"{device}\" in pool \"{}\"", arguments.pool),
        _ => cli::errln!("{failure}"),
    })
}

/// Runs `zpool attach`.
pub fn attach(client: &Client, arguments: &args::Attach) -> Result<u8, Stop> {
    check_properties(&arguments.how.properties)?;
    if let Some(why) = spec::unknown(&arguments.new_device) {
        cli::errln!("{why}");
        return Ok(cli::EXIT_FAILURE);
    }
    let new = NewDevice {
        path: Some(spec::device_path(&arguments.new_device)),
        force: arguments.how.force,
        sequential: arguments.how.sequential,
    };
    let change = VdevChange { pool: arguments.pool.clone(), device: arguments.device.clone(), change: VdevVerb::Attach(new) };
    let activity = if arguments.device.starts_with("raidz") { "raidz_expand" } else { "resilver" };
    change_and_wait(client, change, arguments.how.wait, activity)
}

/// Runs `zpool replace`.
pub fn replace(client: &Client, arguments: &args::Replace) -> Result<u8, Stop> {
    check_properties(&arguments.how.properties)?;
    if let Some(why) = arguments.new_device.as_deref().and_then(spec::unknown) {
        cli::errln!("{why}");
        return Ok(cli::EXIT_FAILURE);
    }
    let new = NewDevice {
        path: arguments.new_device.as_deref().map(spec::device_path),
        force: arguments.how.force,
        sequential: arguments.how.sequential,
    };
    let change = VdevChange { pool: arguments.pool.clone(), device: arguments.device.clone(), change: VdevVerb::Replace(new) };
    change_and_wait(client, change, arguments.how.wait, "replace")
}

/// Runs `zpool detach`.
pub fn detach(client: &Client, pool: String, device: String) -> Result<u8, Stop> {
    Ok(done(client, &Request::VdevChange(VdevChange { pool, device, change: VdevVerb::Detach }))?)
}

/// Runs `zpool remove`: every device, also when one is refused; the exit code says that one was.
pub fn remove(client: &Client, arguments: &args::Remove) -> Result<u8, Stop> {
    let pool = &arguments.pool;
    list::reports(client, vec![pool.clone()], false)?;
    if arguments.stop && arguments.dry_run {
        cli::errln!("stop request ignored");
        return Ok(0);
    }
    if arguments.stop {
        if !arguments.devices.is_empty() {
            return Err(Stop::usage("too many arguments"));
        }
        if arguments.wait {
            return Err(Stop::usage("invalid option combination: -w cannot be used with -s"));
        }
        return Ok(done(client, &Request::VdevRemoveStop(PoolNames { pools: vec![pool.clone()] }))?);
    }
    if arguments.devices.is_empty() {
        return Err(Stop::usage("missing device"));
    }
    let mut code = 0;
    for device in &arguments.devices {
        let request = VdevRemove { pool: pool.clone(), device: device.clone(), dry_run: arguments.dry_run };
        match client.call(&Request::VdevRemove(request)) {
            Ok(Response::Memory { bytes }) if arguments.parsable => cli::outln!("{device} {bytes}"),
            Ok(Response::Memory { bytes }) => cli::outln!("Memory that will be used after removing {device}: {}", nice_count(bytes)),
            Ok(Response::Done { remarks }) => remarks.iter().for_each(cli::say),
            Ok(other) => return Err(cli::unexpected("cannot remove", other).into()),
            Err(failure) => {
                cli::errln!("{failure}");
                code = cli::EXIT_FAILURE;
                if arguments.dry_run {
                    break;
                }
            }
        }
    }
    if arguments.wait && code == 0 {
        wait::until_idle(client, pool, &["remove".to_string()])?;
    }
    Ok(code)
}

/// Runs `zpool reopen`.
pub fn reopen(client: &Client, keep_resilver: bool, pools: Vec<String>) -> Result<u8, Stop> {
    Ok(done(client, &Request::PoolReopen(PoolReopen { pools, keep_resilver }))?)
}

fn change_and_wait(client: &Client, change: VdevChange, wait: bool, activity: &str) -> Result<u8, Stop> {
    let pool = change.pool.clone();
    let code = done(client, &Request::VdevChange(change))?;
    if wait && code == 0 {
        wait::until_idle(client, &pool, &[activity.to_string()])?;
    }
    Ok(code)
}

/// Checks the properties: only `ashift` may be given, and it changes nothing: a vdev keeps the sector size that it has.
fn check_properties(properties: &[String]) -> Result<(), Stop> {
    for property in properties {
        match property.split_once('=') {
            None => return Err(Stop::usage("missing '=' for -o option")),
            Some(("ashift", value)) if value.parse::<u32>().is_ok_and(|ashift| ashift == 0 || (9..=16).contains(&ashift)) => {}
            Some((name, _)) => return Err(Stop::usage(format!("property '{name}' is not valid here"))),
        }
    }
    Ok(())
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
