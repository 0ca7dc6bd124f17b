//! Waiting for what a daemon or a program does by itself.

use crate::world::Failure;
use std::time::{Duration, Instant};

/// Time within which the daemon does what it does by itself.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
pub const STEP: Duration = Duration::from_millis(5);

/// Longest time between two looks of somebody who has waited long: most looks are programs that are started.
const REST: Duration = Duration::from_millis(100);

/// Waits until something is so; `what` says what does not come else.
pub fn until(what: &str, mut is_so: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > PATIENCE {
            return Err(format!("      {what}: does not come").into());
        }
        std::thread::sleep((begun.elapsed() / 20).clamp(Duration::from_millis(2), REST));
    }
    Ok(())
}
