//! What users change: each verb is a look that it is possible and the change itself, run as one sync task.

use super::create::{CreateDataset, creation_flags};
use super::encryption::{self, Encryption, RootKey};
use super::{Delegation, DslPool, ReceiveBegin, ReceiveEnd, ReceivedValue, delegations, keystore, rename, settings};
use crate::resume::ResumeState;
use crate::{DatasetHandle, DslError, RedactedRun, names};
use dmu::Tx;
use std::sync::Arc;

/// Runs of a redaction list that one txg writes.
const RUNS_PER_TXG: usize = 1 << 16;

impl DslPool {
    /// Runs `check` then `sync` in syncing context of one txg and waits until it is on disk. An error of `check` goes to
    /// the caller alone; an error of `sync` fails the txg (OpenZFS: `dsl_sync_task`).
    pub fn sync_task<C, R, F, G>(self: &Arc<Self>, check: F, sync: G) -> Result<R, DslError>
    where
        C: Send + 'static,
        R: Send + 'static,
        F: FnOnce(&Arc<DslPool>, &Tx) -> Result<C, DslError> + Send + 'static,
        G: FnOnce(&Arc<DslPool>, C, &Tx) -> Result<R, DslError> + Send + 'static,
    {
        if !self.tree.meta.services.is_writeable() {
            return Err(DslError::ReadOnly);
        }
        self.tasks.run(&self.txgs, check, sync)
    }

    /// Makes a dataset; its parent must exist. Below one that is encrypted it is encrypted too, with keys that the same user's key wraps, unless its
    /// properties say otherwise.
    ///
    /// # Errors
    /// [`DslError::NoKey`] below an encrypted dataset that is locked; those of its properties and name.
    pub fn create_dataset(self: &Arc<Self>, name: &str, options: CreateDataset) -> Result<(), DslError> {
        self.create_dataset_with(name, options, None)
    }

    /// As [`DslPool::create_dataset`]; `secret` is what a user gives for the key of a new encryption root, which the property `keyformat` makes of it.
    /// Deriving a key from a passphrase takes a while.
    ///
    /// # Errors
    /// Those of [`DslPool::create_dataset`]; [`DslError::BadKey`] for what is no key of this `keyformat`.
    pub fn create_dataset_with(self: &Arc<Self>, name: &str, options: CreateDataset, secret: Option<&[u8]>) -> Result<(), DslError> {
        let (name, snapshot) = names::split(name)?;
        if snapshot.is_some() {
            return Err(DslError::BadName);
        }
        names::check_depth(name)?;
        let name = name.to_string();
        let CreateDataset { kind, mut properties, init } = options;
        let encryption = Encryption::take(&mut properties, secret)?;
        let flags = creation_flags(&properties);
        self.space.wait_for_room()?;
        self.sync_task(
            move |pool, _| pool.creation.check_create(&name, kind, &properties, &encryption),
            move |pool, wanted, tx| pool.creation.create(&wanted, kind, flags, init, tx),
        )
    }

    /// Makes a dataset that starts as the snapshot `origin`.
    pub fn clone_snapshot(self: &Arc<Self>, name: &str, origin: &str, properties: Vec<(String, String)>) -> Result<(), DslError> {
        let (name, origin) = (name.to_string(), origin.to_string());
        self.space.wait_for_room()?;
        self.sync_task(
            move |pool, _| pool.creation.check_clone(&name, &origin, &properties),
            |pool, wanted, tx| pool.creation.clone_origin(&wanted, tx),
        )
    }

    /// Makes the snapshots that a clone shares with what it was made from its own, with the bookmarks up to the newest of them, and that one its
    /// clone.
    ///
    /// # Errors
    /// [`DslError::NotClone`], [`DslError::Conflict`] with the name of a snapshot or bookmark that the clone has too, [`DslError::Busy`] while
    /// one of the snapshots is used, [`DslError::NoSpace`] where a quota has no room for them.
    pub fn promote(self: &Arc<Self>, name: &str) -> Result<(), DslError> {
        let name = name.to_string();
        self.sync_task(move |pool, _| pool.promotion.check(&name), |pool, promoted, tx| pool.promotion.promote(&promoted, tx))
    }

    /// Has a dataset go back to its newest snapshot, by the snapshot's full name. What was written since is lost, also what is not on disk yet.
    ///
    /// # Errors
    /// [`DslError::NotFound`] without such a snapshot, [`DslError::Exists`] when there is a newer one or a newer bookmark, [`DslError::Busy`]
    /// while the dataset is used, [`DslError::Quota`] when it had more than it may refer to, [`DslError::NoSpace`] without room for what is
    /// reserved.
    pub fn rollback(self: &Arc<Self>, snapshot: &str) -> Result<(), DslError> {
        // In the txg in which the snapshot was taken it is too early.
        until_possible(|| {
            let name = snapshot.to_string();
            self.sync_task(
                move |pool, tx| pool.rollback.check(&name, tx),
                |pool, (head, target), tx| pool.rollback.roll_back(&head, &target, tx),
            )
        })
    }

    /// Begins to receive a stream; gives the dataset that its contents come into, which nobody else sees or uses.
    ///
    /// # Errors
    /// [`DslError::Exists`] for a snapshot that is there, or a full stream into a dataset that is there, without force;
    /// [`DslError::NotIncremental`], [`DslError::Modified`] where it does not go on from what is there; [`DslError::HasSnapshots`] when a full
    /// stream would replace snapshots; [`DslError::Busy`] when something was received half; [`DslError::Unsupported`] without a feature.
    pub fn receive_begin(self: &Arc<Self>, begin: ReceiveBegin) -> Result<DatasetHandle, DslError> {
        self.space.wait_for_room()?;
        // A clone cannot begin in the txg of its snapshot.
        self.txgs.wait_synced(self.txgs.open_txg())?;
        let object = self.sync_task(
            move |pool, tx| Ok((pool.receiving.check_begin(&begin, &pool.creation, tx)?, begin)),
            |pool, (begun, begin), tx| pool.receiving.begin(begun, begin, &pool.creation, tx),
        )?;
        self.hold_object(object)
    }

    /// Ends a receive: what came is the dataset's contents from now on, and has the snapshot. Nobody may hold what was received into, nor the
    /// dataset that it replaces.
    ///
    /// # Errors
    /// [`DslError::Busy`], [`DslError::Modified`], [`DslError::Exists`], [`DslError::Held`], [`DslError::HasClones`], [`DslError::Quota`]: nothing is
    /// changed then, and what came is still there.
    pub fn receive_end(self: &Arc<Self>, end: &ReceiveEnd) -> Result<(), DslError> {
        until_possible(|| {
            let end = end.clone();
            self.space.wait_for_room()?;
            self.sync_task(
                move |pool, tx| Ok((pool.receiving.check_end(&end, &pool.destruction, tx)?, end)),
                |pool, (ended, end), tx| pool.receiving.end(&ended, &end, (&pool.snapshots, &pool.destruction), tx),
            )
        })
    }

    /// Destroys what was not received to its end, by its object.
    ///
    /// # Errors
    /// [`DslError::NotFound`] for what is whole, [`DslError::Busy`] while it is received.
    pub fn receive_abort(self: &Arc<Self>, object: u64) -> Result<(), DslError> {
        self.sync_task(
            move |pool, _| pool.receiving.check_abort(object, &pool.destruction),
            |pool, head, tx| pool.destruction.destroy_head(&head, tx),
        )
    }

    /// Destroys everything that was not received to its end and cannot be resumed, as an import does; gives the number of datasets.
    ///
    /// # Errors
    /// Those of the sync. What is damaged stays.
    pub fn destroy_lost_receives(self: &Arc<Self>) -> Result<usize, DslError> {
        let lost = {
            let _config = self.config();
            self.receiving.lost()
        };
        let mut count = 0;
        for object in lost {
            match self.receive_abort(object) {
                Ok(()) => count += 1,
                Err(DslError::Sync(error)) => return Err(error.into()),
                Err(error) => tracing::warn!("dataset object {object} was not received to its end, and stays: {error}"),
            }
        }
        Ok(count)
    }

    /// The dataset that a receive goes into whose target has this name, or went into until it was interrupted; None where there is none.
    ///
    /// # Errors
    /// [`DslError::NotFound`], those of reading the MOS.
    pub fn partial_receive(self: &Arc<Self>, name: &str) -> Result<Option<DatasetHandle>, DslError> {
        let _config = self.config();
        let found = self.receiving.partial(name)?;
        Ok(found.map(|dataset| DatasetHandle::new(self.clone(), dataset)))
    }

    /// State of an interrupted receive whose target has this name, when it can be resumed.
    ///
    /// # Errors
    /// [`DslError::NotFound`], those of reading the MOS.
    pub fn resume_state(self: &Arc<Self>, name: &str) -> Result<Option<ResumeState>, DslError> {
        let _config = self.config();
        match self.receiving.partial(name)? {
            Some(dataset) => ResumeState::of(&self.tree.meta, &dataset),
            None => Ok(None),
        }
    }

    /// Takes snapshots (full names), all in one txg or none.
    pub fn snapshot(self: &Arc<Self>, names: &[String], properties: Vec<(String, String)>) -> Result<(), DslError> {
        // Another snapshot of the same dataset may be taken in the same txg.
        until_possible(|| {
            let (names, properties) = (names.to_vec(), properties.clone());
            self.space.wait_for_room()?;
            self.sync_task(
                move |pool, tx| pool.snapshots.check(&names, &properties, tx),
                |pool, wanted, tx| pool.snapshots.take_all(&wanted, tx),
            )
        })
    }

    /// Destroys snapshots (full names), all in one txg or none; `defer` marks those that are in use. A snapshot that is
    /// not there counts as destroyed.
    pub fn destroy_snapshots(self: &Arc<Self>, names: &[String], defer: bool) -> Result<(), DslError> {
        let names = names.to_vec();
        self.sync_task(
            move |pool, _| pool.destruction.check_snapshots(&names, defer),
            move |pool, found, tx| found.iter().try_for_each(|snapshot| pool.destruction.destroy_snapshot(snapshot, defer, tx)),
        )
    }

    /// Destroys a file system or volume without children and snapshots, and with the last clone the snapshot that was marked for that.
    ///
    /// # Errors
    /// [`DslError::HasSnapshots`], [`DslError::HasChildren`], [`DslError::Busy`] while it, or the snapshot that would go with it, is in use.
    pub fn destroy_dataset(self: &Arc<Self>, name: &str) -> Result<(), DslError> {
        match self.destroy_head_of(name) {
            // What a receive left in it, which nobody sees, goes with it (OpenZFS: `zfs_ioc_destroy`).
            Err(DslError::HasChildren) if self.children(name)?.is_empty() => match self.partial_receive(name)? {
                Some(partial) => {
                    let object = partial.object();
                    drop(partial);
                    self.receive_abort(object)?;
                    self.destroy_head_of(name)
                }
                None => Err(DslError::HasChildren),
            },
            result => result,
        }
    }

    fn destroy_head_of(self: &Arc<Self>, name: &str) -> Result<(), DslError> {
        let name = name.to_string();
        self.sync_task(move |pool, _| pool.destruction.check_dataset(&name), |pool, head, tx| pool.destruction.destroy_head(&head, tx))
    }

    /// Renames a dataset (with all below it) or a snapshot.
    pub fn rename(self: &Arc<Self>, from: &str, to: &str) -> Result<(), DslError> {
        let ((from_dataset, from_snapshot), (to_dataset, to_snapshot)) = (names::split(from)?, names::split(to)?);
        match (from_snapshot, to_snapshot) {
            (None, None) => self.rename_dataset(from_dataset.to_string(), to_dataset.to_string()),
            (Some(old), Some(new)) if from_dataset == to_dataset => self.rename_snapshots(&[from_dataset.to_string()], old, new),
            _ => Err(DslError::BadName),
        }
    }

    fn rename_dataset(self: &Arc<Self>, from: String, to: String) -> Result<(), DslError> {
        if from == to {
            return Err(DslError::Exists);
        }
        let old_name = from.clone();
        self.sync_task(
            move |pool, _| pool.renaming.check_dataset(&from, &to),
            move |pool, wanted, tx| pool.renaming.rename_dataset(wanted, &old_name, tx),
        )
    }

    /// Renames the snapshots of one name of several datasets, all or none; those that have none, but for the first, are passed over
    /// (OpenZFS: `dsl_dataset_rename_snapshot`).
    ///
    /// # Errors
    /// [`DslError::NotFound`] when the first has none, [`DslError::Exists`] when one has another snapshot of the new name.
    pub fn rename_snapshots(self: &Arc<Self>, datasets: &[String], old: &str, new: &str) -> Result<(), DslError> {
        rename::check_snapshot_names(datasets, old, new)?;
        let (datasets, old, new) = (datasets.to_vec(), old.to_string(), new.to_string());
        self.sync_task(
            move |pool, _| Ok((pool.renaming.check_snapshots(&datasets, &old, &new)?, old, new)),
            |pool, (found, old, new), tx| {
                found.iter().try_for_each(|(head, snapshot)| pool.renaming.rename_snapshot(head, snapshot, (&old, &new), tx))
            },
        )
    }

    /// Takes a hold on snapshots (full names), on all or none; a snapshot that is not there is passed over (OpenZFS: `dsl_dataset_user_hold`).
    ///
    /// # Errors
    /// [`DslError::NotFound`] when none is there, [`DslError::TagExists`] when one has a hold of this tag, [`DslError::TagTooLong`].
    pub fn hold_snapshots(self: &Arc<Self>, names: &[String], tag: &str) -> Result<(), DslError> {
        let (names, tag) = (names.to_vec(), tag.to_string());
        self.sync_task(
            move |pool, _| Ok((pool.holds.check_hold(&names, &tag)?, tag)),
            |pool, (snapshots, tag), tx| pool.holds.hold(&snapshots, &tag, tx),
        )
    }

    /// Releases the holds of this tag on snapshots (full names); one that has none is passed over, and one that was marked for destruction goes
    /// with its last hold (OpenZFS: `dsl_dataset_user_release`).
    ///
    /// # Errors
    /// [`DslError::NotFound`] when none of the snapshots is there, [`DslError::NoSuchTag`] when none has such a hold, [`DslError::Busy`] when one
    /// that would go is in use: none is released then.
    pub fn release_snapshots(self: &Arc<Self>, names: &[String], tag: &str) -> Result<(), DslError> {
        let (names, tag) = (names.to_vec(), tag.to_string());
        self.sync_task(
            move |pool, _| {
                let held = pool.holds.check_release(&names, &tag)?;
                held.iter().try_for_each(|snapshot| pool.destruction.check_released(snapshot))?;
                Ok((held, tag))
            },
            |pool, (held, tag), tx| {
                held.iter().try_for_each(|snapshot| {
                    pool.holds.release(snapshot, &tag, tx)?;
                    pool.destruction.destroy_released(snapshot, tx)
                })
            },
        )
    }

    /// Loads the key of an encryption root: `secret` are bytes of `keyformat=raw`, digits, or a passphrase. With `only_check` it is only looked whether
    /// it is the right one. Deriving a key from a passphrase takes a while.
    ///
    /// # Errors
    /// [`DslError::NotEncrypted`], [`DslError::NotEncryptionRoot`], [`DslError::KeyLoaded`], [`DslError::BadKey`], [`DslError::WrongKey`].
    pub fn load_key(&self, name: &str, secret: &[u8], only_check: bool) -> Result<(), DslError> {
        let wanted = {
            let _config = self.config();
            self.tree.to_load(name)?
        };
        if !only_check && self.tree.keystore.has(wanted.root) {
            return Err(DslError::KeyLoaded);
        }
        let key = keystore::wrapping_key(&wanted.facts, secret)?;
        if only_check {
            return wanted.wrapped.open(&key).map(drop).map_err(|_| DslError::WrongKey);
        }
        // Making it may have taken a while.
        let _config = self.config();
        self.tree.load(name, key)
    }

    /// Forgets the key of an encryption root.
    ///
    /// # Errors
    /// [`DslError::NotEncrypted`], [`DslError::NotEncryptionRoot`], [`DslError::KeyUnloaded`]; [`DslError::Busy`] while the contents of a dataset that
    /// it is for are used.
    pub fn unload_key(&self, name: &str) -> Result<(), DslError> {
        // What was written with it must be on disk first.
        if self.tree.meta.services.is_writeable() {
            let ended = self.end_logs(name)?;
            self.txgs.wait_synced(self.txgs.open_txg())?;
            if self.live_logs.forget(&ended) {
                // The sync of the next txg may have them still.
                self.txgs.wait_synced(self.txgs.open_txg())?;
            }
        }
        let _config = self.config();
        let root = self.tree.to_load(name)?.root;
        if self.tree.keystore.has(root) { self.tree.lock(root) } else { Err(DslError::KeyUnloaded) }
    }

    /// Ends the intent logs of what is open with the key of this encryption root, since they are written with it; gives the objects of the datasets.
    fn end_logs(&self, name: &str) -> Result<Vec<u64>, DslError> {
        let _config = self.config();
        let open: Vec<u64> = self.tree.open_of(self.tree.to_load(name)?.root)?.iter().map(|dataset| dataset.object).collect();
        self.live_logs.end(&open).map(|()| open)
    }

    /// Gives an encrypted dataset a key of its own, or another one (OpenZFS: `DCP_CMD_NEW_KEY`): it, and what is below it with the same encryption root,
    /// has it for its encryption root from now on. `secret` is what a user gives, in the form that the property `keyformat` names, or else the one that
    /// the key had; `properties` may have `keylocation` and `pbkdf2iters`, too. Deriving a key from a passphrase takes a while.
    ///
    /// # Errors
    /// [`DslError::NotEncrypted`]; [`DslError::NotEncryptionRoot`] for a clone; [`DslError::NoKey`]; [`DslError::BadKey`]; [`DslError::BadValue`] for
    /// other properties, and without a form.
    pub fn change_key(self: &Arc<Self>, name: &str, mut properties: Vec<(String, String)>, secret: &[u8]) -> Result<(), DslError> {
        let (head, facts) = {
            let _config = self.config();
            self.tree.to_change(name)?
        };
        let had = (facts.root == head.dir.object).then_some(facts.format);
        let format = encryption::number(&mut properties, "keyformat")?.filter(|format| *format != 0).or(had).ok_or(DslError::BadValue)?;
        let iterations = encryption::number(&mut properties, "pbkdf2iters")?.filter(|count| *count != 0);
        if had.is_none() && properties.is_empty() {
            properties.push(("keylocation".to_string(), "prompt".to_string()));
        }
        if properties.iter().any(|(name, value)| name != "keylocation" || value == "none") {
            return Err(DslError::BadValue);
        }
        let new = RootKey::new(format, iterations, secret)?;
        let name = name.to_string();
        self.sync_task(
            move |pool, _| {
                let rewrap = pool.tree.check_rewrap(&name, Some(&new))?;
                let location = pool.settings.check_props(&properties, pool.tree.kind_of(&rewrap.head)?, false)?;
                Ok((rewrap, location))
            },
            |pool, (rewrap, location), tx| {
                pool.tree.rewrap(&rewrap, tx)?;
                pool.settings.change(&rewrap.head, &location, tx)
            },
        )
    }

    /// Gives an encryption root the key of the one above it (OpenZFS: `DCP_CMD_INHERIT`).
    ///
    /// # Errors
    /// [`DslError::NotEncrypted`], [`DslError::NotEncryptionRoot`]; [`DslError::OtherRoot`] when nothing above is encrypted; [`DslError::NoKey`] unless
    /// both keys are loaded.
    pub fn inherit_key(self: &Arc<Self>, name: &str) -> Result<(), DslError> {
        let (name, location) = (name.to_string(), crate::prop::table::find("keylocation")?);
        self.sync_task(
            move |pool, _| pool.tree.check_rewrap(&name, None),
            move |pool, rewrap, tx| {
                pool.tree.rewrap(&rewrap, tx)?;
                pool.settings.inherit(&rewrap.head, (&location, false), tx)
            },
        )
    }

    /// Makes what came raw and is an encryption root one of the dataset above it, whose key it has, as where both come from. No key is asked for.
    ///
    /// # Errors
    /// [`DslError::NotEncrypted`], [`DslError::NotEncryptionRoot`]; [`DslError::OtherRoot`] when nothing above is encrypted, or with another key.
    pub fn adopt_key(self: &Arc<Self>, name: &str) -> Result<(), DslError> {
        let (name, location) = (name.to_string(), crate::prop::table::find("keylocation")?);
        self.sync_task(
            move |pool, _| pool.tree.check_adoption(&name),
            move |pool, adoption, tx| {
                pool.tree.adopt(&adoption, tx)?;
                pool.settings.inherit(&adoption.head, (&location, false), tx)
            },
        )
    }

    /// Makes a bookmark (full name) of a snapshot, or of another bookmark (OpenZFS: `dsl_bookmark_create`).
    ///
    /// # Errors
    /// [`DslError::Exists`]; [`DslError::NotFound`] for a source or a dataset that is not there; [`DslError::NotAncestor`] for a source that is no
    /// earlier point of what the dataset was; [`DslError::Unsupported`] without the feature.
    pub fn create_bookmark(self: &Arc<Self>, bookmark: &str, source: &str) -> Result<(), DslError> {
        let (bookmark, source) = (bookmark.to_string(), source.to_string());
        self.space.wait_for_room()?;
        self.sync_task(
            move |pool, _| pool.bookmarks.check_create(&bookmark, &source),
            |pool, wanted, tx| pool.bookmarks.create(&wanted, tx),
        )
    }

    /// A look that [`DslPool::create_redaction`] can be done, before anything is read for that.
    ///
    /// # Errors
    /// Those of [`DslPool::create_redaction`].
    pub fn check_redaction(&self, snapshot: &str, bookmark: &str, guids: &[u64]) -> Result<(), DslError> {
        let _config = self.config();
        self.bookmarks.check_redaction(snapshot, bookmark, guids.to_vec()).map(drop)
    }

    /// Gives a snapshot (full name) a bookmark with a redaction list: `runs` are the blocks that those who get all of the snapshots with these guids
    /// are not to have, in order of object and block. Goes on with what was not finished (OpenZFS: `dmu_redact_snap`).
    ///
    /// # Errors
    /// [`DslError::Exists`]; [`DslError::OtherRedaction`] for an unfinished list of other snapshots, [`DslError::Busy`] while somebody else works on it;
    /// [`DslError::TooManySnapshots`]; [`DslError::Redacted`] for a snapshot that is redacted itself; [`DslError::Unsupported`] without the feature.
    pub fn create_redaction(
        self: &Arc<Self>,
        snapshot: &str,
        bookmark: &str,
        guids: &[u64],
        runs: Vec<RedactedRun>,
    ) -> Result<(), DslError> {
        let (snapshot, bookmark, guids) = (snapshot.to_string(), bookmark.to_string(), guids.to_vec());
        let (mut rest, mut done) = (runs.into_iter(), 0);
        let mut next = || {
            let part: Vec<RedactedRun> = rest.by_ref().take(RUNS_PER_TXG).collect();
            let first = done;
            done += part.len() as u64;
            (first, part, rest.len() == 0)
        };
        let (first, runs, mut is_last) = next();
        self.space.wait_for_room()?;
        let list = self.sync_task(
            move |pool, _| pool.bookmarks.check_redaction(&snapshot, &bookmark, guids),
            move |pool, new, tx| {
                let list = pool.bookmarks.create_redaction(new, tx)?;
                pool.bookmarks.append(list.object(), (first, &runs), is_last, tx)?;
                Ok(list)
            },
        )?;
        while !is_last {
            let object = list.object();
            let (first, runs, ends) = next();
            is_last = ends;
            self.space.wait_for_room()?;
            self.sync_task(|_, _| Ok(()), move |pool, (), tx| pool.bookmarks.append(object, (first, &runs), ends, tx))?;
        }
        Ok(())
    }

    /// Destroys a bookmark (full name).
    ///
    /// # Errors
    /// [`DslError::NotFound`], [`DslError::Busy`] while its redaction list is used.
    pub fn destroy_bookmark(self: &Arc<Self>, name: &str) -> Result<(), DslError> {
        let name = name.to_string();
        self.sync_task(move |pool, _| pool.bookmarks.check_destroy(&name), |pool, found, tx| pool.bookmarks.destroy(&found, tx))
    }

    /// Delegates permissions at a dataset, besides those that are there (OpenZFS: `dsl_deleg_set`).
    ///
    /// # Errors
    /// [`DslError::NotFound`]; [`DslError::BadValue`] for what [`super::is_delegation`] is false of, or without permissions.
    pub fn delegate(self: &Arc<Self>, name: &str, given: Vec<Delegation>) -> Result<(), DslError> {
        if !given.iter().all(|one| delegations::is_delegation(one) && !one.permissions.is_empty()) {
            return Err(DslError::BadValue);
        }
        let name = names::split(name)?.0.to_string();
        self.sync_task(move |pool, _| pool.tree.find_dir(&name), move |pool, dir, tx| delegations::give(&pool.tree, &dir, &given, tx))
    }

    /// Takes back permissions that were delegated at a dataset; all of somebody's where none is named. What is not there is passed over.
    ///
    /// # Errors
    /// [`DslError::NotFound`]; [`DslError::BadValue`] for what [`super::is_delegation`] is false of.
    pub fn undelegate(self: &Arc<Self>, name: &str, taken: Vec<Delegation>) -> Result<(), DslError> {
        if !taken.iter().all(delegations::is_delegation) {
            return Err(DslError::BadValue);
        }
        let name = names::split(name)?.0.to_string();
        self.sync_task(move |pool, _| pool.tree.find_dir(&name), move |pool, dir, tx| delegations::take(&pool.tree, &dir, &taken, tx))
    }

    /// Gives the user who made a dataset what those above it delegate to creators. Costs no txg where that is nothing.
    ///
    /// # Errors
    /// [`DslError::NotFound`], those of reading the MOS.
    pub fn delegate_to_creator(self: &Arc<Self>, name: &str, uid: u32) -> Result<(), DslError> {
        let name = names::split(name)?.0.to_string();
        {
            let _config = self.config();
            if delegations::for_creator(&self.tree, &*self.tree.find_dir(&name)?, uid)?.is_empty() {
                return Ok(());
            }
        }
        self.sync_task(
            move |pool, _| {
                let dir = pool.tree.find_dir(&name)?;
                Ok((delegations::for_creator(&pool.tree, &dir, uid)?, dir))
            },
            |pool, (given, dir), tx| if given.is_empty() { Ok(()) } else { delegations::store(&pool.tree, &dir, &given, tx) },
        )
    }

    /// Sets properties of a dataset or snapshot, all or none.
    pub(crate) fn set_props_of(self: &Arc<Self>, object: u64, properties: Vec<(String, String)>) -> Result<(), DslError> {
        // What cannot be is refused before anything waits, and what others are just writing counts for the limits as it did before.
        {
            let _config = self.config();
            self.settings.check_change(object, &properties)?;
        }
        self.sync_task(
            move |pool, _| pool.settings.check_change(object, &properties),
            |pool, (dataset, checked), tx| pool.settings.change(&dataset, &checked, tx),
        )
    }

    /// Removes a local value, to inherit or to go back to the received one.
    pub(crate) fn inherit_prop_of(self: &Arc<Self>, object: u64, name: &str, to_received: bool) -> Result<(), DslError> {
        let prop = settings::inheritable(name, to_received)?;
        self.sync_task(
            move |pool, _| pool.tree.dataset(object),
            move |pool, dataset, tx| pool.settings.inherit(&dataset, (&prop, to_received), tx),
        )
    }

    /// Replaces received values but those of the names `kept`, and has those of the names `inherited` inherited; gives those that cannot be had here,
    /// with the reasons.
    pub(crate) fn receive_props_of(
        self: &Arc<Self>,
        object: u64,
        properties: Vec<(String, ReceivedValue)>,
        (inherited, kept): (Vec<String>, Vec<String>),
    ) -> Result<Vec<(String, DslError)>, DslError> {
        self.sync_task(
            move |pool, _| pool.settings.check_received(object, &properties),
            move |pool, (dataset, taken, refused), tx| {
                pool.settings.receive(&dataset, (taken.as_slice(), inherited.as_slice(), kept.as_slice()), tx).map(|()| refused)
            },
        )
    }
}

/// Repeats what is not possible in one txg, but in the next.
fn until_possible(mut attempt: impl FnMut() -> Result<(), DslError>) -> Result<(), DslError> {
    loop {
        match attempt() {
            Err(DslError::Again) => {}
            result => return result,
        }
    }
}
