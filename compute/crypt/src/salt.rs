//! Salts of what is written, and for how many blocks one serves.

use crate::{CryptError, Salt};

/// Blocks for which one salt serves (OpenZFS: `ZFS_CURRENT_MAX_SALT_USES`).
pub(crate) const USES_MAX: u64 = 400_000_000;

/// Salt of what is being written, and how often it was taken.
#[derive(Debug, Default)]
pub(crate) struct SaltInUse {
    salt: Option<Salt>,
    uses: u64,
}

impl SaltInUse {
    /// The salt for one block more; `make` makes new ones. Error: that of `make`.
    pub(crate) fn take(&mut self, make: impl FnOnce() -> Result<Salt, CryptError>) -> Result<Salt, CryptError> {
        let salt = match self.salt.filter(|_| self.uses < USES_MAX) {
            Some(salt) => salt,
            None => {
                let salt = make()?;
                *self = SaltInUse { salt: Some(salt), uses: 0 };
                salt
            }
        };
        self.uses += 1;
        Ok(salt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, so many blocks are written with one key that vectors repeat.
    #[test]
    fn a_salt_is_given_up_after_its_uses() {
        let (mut in_use, mut made) = (SaltInUse::default(), 0u64);
        let mut take = |in_use: &mut SaltInUse| {
            in_use.take(|| {
                made += 1;
                Ok(made.to_le_bytes())
            })
        };
        assert_eq!((take(&mut in_use), take(&mut in_use)), (Ok([1, 0, 0, 0, 0, 0, 0, 0]), Ok([1, 0, 0, 0, 0, 0, 0, 0])));
        in_use.uses = USES_MAX - 1;
        assert_eq!((take(&mut in_use), take(&mut in_use)), (Ok([1, 0, 0, 0, 0, 0, 0, 0]), Ok([2, 0, 0, 0, 0, 0, 0, 0])));
        assert_eq!(in_use.take(|| Err(CryptError::Random)), Ok([2, 0, 0, 0, 0, 0, 0, 0]));
        in_use.uses = USES_MAX;
        assert_eq!(in_use.take(|| Err(CryptError::Random)), Err(CryptError::Random), "no old one instead");
    }
}
