//! New keys for encryption roots (OpenZFS: `spa_keystore_change_key`): the datasets' own keys stay, and nothing is encrypted anew; what changes is the key
//! that wraps them, of the dataset and of everything below it that has the same encryption root.

use super::encryption::{RootKey, failed};
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::keys::{self, KeyFacts};
use crate::{DslError, names};
use crypt::{WrappedKey, WrappingKey, random};
use dmu::Tx;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Property of an encryption root: the place that its key comes from.
const LOCATION: &str = "keylocation";

/// Keys that are wrapped anew.
pub(super) struct Rewrap {
    /// Dataset whose key changes.
    pub(super) head: Arc<Dataset>,
    /// Key objects, each with what it says from now on.
    wraps: Vec<(u64, KeyFacts, WrappedKey)>,
    with: Arc<WrappingKey>,
    /// True for a key of its own, false for that of the dataset above.
    pub(super) is_own: bool,
}

/// Encryption root that has the key of the one above.
pub(super) struct Adoption {
    /// Dataset that is one.
    pub(super) head: Arc<Dataset>,
    /// Key objects that say so.
    objects: Vec<u64>,
    /// Directory that is the one above.
    root: u64,
}

impl Tree {
    /// Facts of the keys of an encrypted file system or volume.
    ///
    /// Errors: [`DslError::NotEncrypted`]; [`DslError::NotEncryptionRoot`] for a clone, whose keys are its origin's.
    pub(super) fn to_change(&self, name: &str) -> Result<(Arc<Dataset>, KeyFacts), DslError> {
        if names::split(name)?.1.is_some() {
            return Err(DslError::IsSnapshot);
        }
        let head = self.find(name)?;
        let facts = keys::facts_of(&self.meta, &head.dir)?.ok_or(DslError::NotEncrypted)?;
        if self.is_clone(&head.dir) {
            return Err(self.belongs_to(facts.root)?);
        }
        Ok((head, facts))
    }

    /// Error for a key that is another dataset's.
    fn belongs_to(&self, root: u64) -> Result<DslError, DslError> {
        Ok(DslError::NotEncryptionRoot { root: self.dir(root)?.full_name() })
    }

    /// The keys of a dataset and of what is below it, wrapped with `new`, or with the key of the encryption root above.
    ///
    /// Errors: those of [`Tree::to_change`]; [`DslError::NoKey`] unless both keys are loaded; [`DslError::NotEncryptionRoot`] for what has no key of its
    /// own, [`DslError::OtherRoot`] when nothing above is encrypted.
    pub(super) fn check_rewrap(&self, name: &str, new: Option<&RootKey>) -> Result<Rewrap, DslError> {
        let (head, facts) = self.to_change(name)?;
        let old = self.keystore.get(facts.root).ok_or(DslError::NoKey)?;
        let (with, wrapping) = match new {
            Some(new) => (new.key(), KeyFacts { root: head.dir.object, ..new.facts() }),
            None if facts.root != head.dir.object => return Err(self.belongs_to(facts.root)?),
            None => {
                let above = head.dir.parent().map_or(Ok(None), |parent| keys::facts_of(&self.meta, &parent))?.ok_or(DslError::OtherRoot)?;
                (self.keystore.get(above.root).ok_or(DslError::NoKey)?, above)
            }
        };
        let mut wraps = Vec::new();
        for object in self.wrapped_by(&head.dir, facts.root)? {
            let own = keys::wrapped(&self.meta, object)?;
            let key = own.open(&old).map_err(|_| DslError::WrongKey)?;
            let wrapped = WrappedKey::seal(&key, &with, random::bytes().map_err(failed)?).map_err(failed)?;
            wraps.push((object, KeyFacts { suite: own.suite.number(), ..wrapping }, wrapped));
        }
        Ok(Rewrap { head, wraps, with, is_own: new.is_some() })
    }

    /// An encryption root that came raw, and that the user's key of the one above opens as well: both were wrapped with it where they come from. That shows
    /// as far as a passphrase has a salt of its own; nothing else is known of keys that nobody here has (OpenZFS: `DCP_CMD_FORCE_INHERIT`).
    ///
    /// Errors: those of [`Tree::to_change`]; [`DslError::NotEncryptionRoot`] for what has no key of its own, [`DslError::OtherRoot`] when nothing above is
    /// encrypted, or with another key.
    pub(super) fn check_adoption(&self, name: &str) -> Result<Adoption, DslError> {
        let (head, facts) = self.to_change(name)?;
        if facts.root != head.dir.object {
            return Err(self.belongs_to(facts.root)?);
        }
        let above = head.dir.parent().map_or(Ok(None), |parent| keys::facts_of(&self.meta, &parent))?.ok_or(DslError::OtherRoot)?;
        if (above.format, above.iterations, above.salt) != (facts.format, facts.iterations, facts.salt) {
            return Err(DslError::OtherRoot);
        }
        Ok(Adoption { objects: self.wrapped_by(&head.dir, facts.root)?, root: above.root, head })
    }

    /// Makes the encryption root above that of a dataset and of what is below it.
    pub(super) fn adopt(&self, adoption: &Adoption, tx: &Tx) -> Result<(), DslError> {
        adoption.objects.iter().try_for_each(|object| keys::set_root(&self.meta, *object, adoption.root, tx))?;
        self.keystore.forget(adoption.head.dir.object);
        Ok(())
    }

    /// Key objects of a directory and of those below it that have this encryption root; below clones of these too, but not of the clones, which have
    /// their origins' (OpenZFS: `spa_keystore_change_key_sync_impl`).
    fn wrapped_by(&self, dir: &Arc<Dir>, root: u64) -> Result<Vec<u64>, DslError> {
        let (mut objects, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut waiting = vec![(dir.clone(), false)];
        while let Some((dir, is_clone)) = waiting.pop() {
            if dir.name().starts_with(['$', '%']) || !seen.insert((dir.object, is_clone)) {
                continue;
            }
            if !is_clone {
                let is_same = keys::facts_of(&self.meta, &dir)?.is_some_and(|facts| facts.root == root) && !self.is_clone(&dir);
                let Some(object) = keys::object_of(&self.meta, &dir)?.filter(|_| is_same) else { continue };
                objects.insert(object);
            }
            for child in self.children_of(&dir)? {
                waiting.push((self.dir(child)?, false));
            }
            let clones = dir.phys().dd_clones;
            for clone in if clones == 0 { Vec::new() } else { self.meta.integers(clones)? } {
                waiting.push((self.dataset(clone)?.dir.clone(), true));
            }
        }
        Ok(objects.into_iter().collect())
    }

    /// A look that a clone of what `origin` has can be promoted: it becomes the encryption root where that is one, else it must stay below it (OpenZFS:
    /// `dsl_dataset_promote_crypt_check`). Error: [`DslError::OtherRoot`].
    pub(super) fn check_promotion(&self, clone: &Dir, origin: &Dir) -> Result<(), DslError> {
        let Some(facts) = keys::facts_of(&self.meta, origin)? else { return Ok(()) };
        let above = clone.parent().map_or(Ok(None), |parent| keys::facts_of(&self.meta, &parent))?;
        let stays = facts.root == origin.object || above.is_some_and(|above| above.root == facts.root);
        if stays { Ok(()) } else { Err(DslError::OtherRoot) }
    }

    /// Makes a clone that is promoted the encryption root that its origin's directory was, if it was one; before the one is the clone of the other
    /// (OpenZFS: `dsl_dataset_promote_crypt_sync`).
    pub(super) fn promote_root(&self, clone: &Arc<Dir>, origin: &Arc<Dir>, tx: &Tx) -> Result<(), DslError> {
        let root = keys::facts_of(&self.meta, origin)?.map(|facts| facts.root);
        if root != Some(origin.object) || self.is_clone(origin) {
            return Ok(());
        }
        for object in self.wrapped_by(origin, origin.object)? {
            keys::set_root(&self.meta, object, clone.object, tx)?;
        }
        let (had, has) = (self.meta.zap(origin.phys().dd_props_zapobj)?, self.meta.zap(clone.phys().dd_props_zapobj)?);
        if let Some(location) = had.try_lookup(LOCATION)? {
            has.update(LOCATION, &location, tx)?;
            had.remove(LOCATION, tx)?;
        }
        if let Some(key) = self.keystore.get(origin.object) {
            self.keystore.load(clone.object, key);
            self.keystore.forget(origin.object);
        }
        Ok(())
    }

    /// Writes the keys as they are wrapped from now on; the key store follows.
    pub(super) fn rewrap(&self, rewrap: &Rewrap, tx: &Tx) -> Result<(), DslError> {
        for (object, facts, wrapped) in &rewrap.wraps {
            keys::rewrap(&self.meta, *object, (facts, wrapped), tx)?;
        }
        match rewrap.is_own {
            true => self.keystore.load(rewrap.head.dir.object, rewrap.with.clone()),
            false => self.keystore.forget(rewrap.head.dir.object),
        }
        Ok(())
    }
}
