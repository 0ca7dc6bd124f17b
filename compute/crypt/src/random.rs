//! The system's random bytes: keys, salts and initialization vectors come from nowhere else, on no executor.

use crate::CryptError;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `target`. Error: `Random`.
pub fn fill(target: &mut [u8]) -> Result<(), CryptError> {
    let mut done = 0;
    while done < target.len() {
        match getrandom(&mut target[done..], GetRandomFlags::empty()) {
            Ok(0) => return Err(CryptError::Random),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(CryptError::Random),
        }
    }
    Ok(())
}

/// Random bytes, `N` of them. Error: `Random`.
pub fn bytes<const N: usize>() -> Result<[u8; N], CryptError> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}
