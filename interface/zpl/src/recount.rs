//! Accounts that are made anew in the background: of file systems from before their pool counted objects or projects, and of those that were
//! received without their key.
//!
//! OpenZFS: `dmu_objset_id_quota_upgrade_cb`, `dmu_objset_space_upgrade`. What each object is charged as stands in its record, so that all go on
//! changing meanwhile:
//!
//! ```text
//! flags of what is incomplete go ─▶ records lose the marks ─▶ tables are emptied ─▶ records get marks, objects are charged ─▶ flags
//! ```
//! Each step is on disk before the next begins, and the flags come last: what is cut short is begun again, whatever was charged by then.
//! Bytes of users and groups that were complete stay so, unless projects have to be told from them without counts of objects.

use crate::room::Room;
use crate::{Accounting, ZplError};
use dmu::{DmuError, Dnode, GROUPUSED_OBJECT, Objset, ObjsetHook, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use exec::{Exec, WaitQueue};
use ondisk::objset_flags::{PROJECTQUOTA_COMPLETE, USERACCOUNTING_COMPLETE, USEROBJACCOUNTING_COMPLETE};
use ondisk::{DNODE_BLOCK_BYTES, ObjectId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zap::{Zap, ZapError};

/// Objects, or entries of a table, that change in one transaction.
const PER_TX: usize = 64;
/// Objects that change in one txg: bounds what is in memory.
const PER_TXG: usize = 16 << 10;
/// Bytes that a transaction dirties, at most: each record lies in another block.
const TX_BYTES: u64 = (PER_TX * DNODE_BLOCK_BYTES) as u64;

/// Turn of whoever counts: one at a time.
#[derive(Default)]
struct Turn {
    is_taken: AtomicBool,
    is_stopped: AtomicBool,
    ended: WaitQueue,
}

impl Turn {
    /// Takes the turn; false while somebody has it.
    fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    fn end(&self) {
        self.is_taken.store(false, Ordering::Release);
        self.ended.notify_all();
    }

    fn wait(&self, exec: &Exec) {
        self.ended.wait_until(exec, &|| !self.is_taken.load(Ordering::Acquire));
    }

    /// `Busy` once somebody wants an end.
    fn check(&self) -> Result<(), ZplError> {
        if self.is_stopped.load(Ordering::Acquire) { Err(ZplError::Busy) } else { Ok(()) }
    }
}

/// Way from the flags that an object set has to those that it is to have.
struct Plan {
    /// Flags that stay meanwhile.
    kept: u64,
    /// Hook while marks go, and the flags whose marks those are.
    first: Option<Arc<dyn ObjsetHook>>,
    forgets: u64,
    /// Tables that are begun anew.
    tables: &'static [ObjectId],
    /// Flags at the end.
    wanted: u64,
}

impl Plan {
    /// None where nothing is missing.
    fn new(had: u64, wanted: u64) -> Option<Plan> {
        let wanted = wanted | had | USERACCOUNTING_COMPLETE;
        if wanted == had {
            return None;
        }
        let lacks_users = had & USERACCOUNTING_COMPLETE == 0;
        // The mark of counts of objects is that of projects, too: it must be there in the end, and may not stand for anything before.
        let is_whole = lacks_users || wanted & USEROBJACCOUNTING_COMPLETE == 0 || had & PROJECTQUOTA_COMPLETE != 0;
        let all = USERACCOUNTING_COMPLETE | USEROBJACCOUNTING_COMPLETE | PROJECTQUOTA_COMPLETE;
        Some(if is_whole {
            let tables = &[USERUSED_OBJECT, GROUPUSED_OBJECT, PROJECTUSED_OBJECT];
            Plan { kept: had & !all, first: None, forgets: all, tables, wanted }
        } else {
            let first: Arc<dyn ObjsetHook> = Arc::new(Accounting::new(true, false));
            let forgets = USEROBJACCOUNTING_COMPLETE;
            Plan { kept: had & !forgets, first: Some(first), forgets, tables: &[PROJECTUSED_OBJECT], wanted }
        })
    }
}

/// Object set that is counted.
struct Work {
    objset: Arc<Objset>,
    room: Arc<Room>,
    /// Flags that the object set is to have.
    wanted: AtomicU64,
    /// True when it lacks some of them, and nothing was in the way of counting.
    is_behind: AtomicBool,
}

impl Work {
    fn look(&self) {
        let lacks = self.wanted.load(Ordering::Acquire) & !self.objset.flags() != 0;
        let can_count = self.objset.props().has_accounts() && !self.room.is_read_only();
        self.is_behind.store(lacks && can_count, Ordering::Release);
    }

    /// Counts, and notes how it ended: what failed is not tried again before somebody asks for more.
    fn run(&self, turn: &Turn) -> Result<(), ZplError> {
        let result = Plan::new(self.objset.flags(), self.wanted.load(Ordering::Acquire)).map_or(Ok(()), |plan| self.follow(plan, turn));
        match result {
            Err(_) if turn.check().is_ok() => self.is_behind.store(false, Ordering::Release),
            _ => self.look(),
        }
        result
    }

    fn follow(&self, plan: Plan, turn: &Turn) -> Result<(), ZplError> {
        self.set_flags(plan.kept)?;
        self.objset.set_accounting(plan.first, plan.forgets);
        // What was synced before in the other way is on disk before anybody looks at its marks.
        self.room.sync()?;
        self.mark_all(turn)?;
        plan.tables.iter().try_for_each(|table| self.empty(*table, turn))?;
        self.room.sync()?;
        let counts = |flag| plan.wanted & flag != 0;
        let then = Accounting::new(counts(USEROBJACCOUNTING_COMPLETE), counts(PROJECTQUOTA_COMPLETE));
        self.objset.set_hook(Arc::new(then));
        self.mark_all(turn)?;
        self.room.sync()?;
        self.set_flags(plan.wanted)?;
        self.room.sync()
    }

    fn set_flags(&self, flags: u64) -> Result<(), ZplError> {
        let tx = self.room.assign_frees(TX_BYTES)?;
        Ok(self.objset.set_flags(flags, &tx)?)
    }

    /// Has all records written that have not the marks that a sync gives them.
    fn mark_all(&self, turn: &Turn) -> Result<(), ZplError> {
        let (mut at, mut in_txg) = (ObjectId(0), 0);
        let mut bite = Vec::with_capacity(PER_TX);
        while let Some(object) = self.objset.next_object(at)? {
            turn.check()?;
            at = object;
            bite.extend(self.objset.unaccounted(object)?);
            if bite.len() == PER_TX {
                self.rewrite(&mut bite)?;
                in_txg += PER_TX;
            }
            if in_txg >= PER_TXG {
                in_txg = 0;
                self.room.sync()?;
            }
        }
        self.rewrite(&mut bite)
    }

    fn rewrite(&self, bite: &mut Vec<Arc<Dnode>>) -> Result<(), ZplError> {
        if bite.is_empty() {
            return Ok(());
        }
        let tx = self.room.assign_frees(TX_BYTES)?;
        bite.drain(..).try_for_each(|dnode| match dnode.rewrite(&tx) {
            // Somebody was faster.
            Err(DmuError::NoSuchObject) => Ok(()),
            other => Ok(other?),
        })
    }

    /// Takes all entries out of a table that no sync changes now.
    fn empty(&self, table: ObjectId, turn: &Turn) -> Result<(), ZplError> {
        let zap = match Zap::hold(&self.objset, table) {
            Err(ZapError::Dmu(DmuError::NoSuchObject)) => return Ok(()),
            held => held?,
        };
        let mut names = Vec::new();
        zap.for_each(|entry| {
            names.push(entry.name.clone());
            Ok(())
        })?;
        for bite in names.chunks(PER_TX) {
            turn.check()?;
            let tx = self.room.assign_frees(TX_BYTES)?;
            bite.iter().try_for_each(|name| zap.remove(name, &tx))?;
        }
        Ok(())
    }
}

/// Accounts of a file system that may have to be made anew.
pub(crate) struct Recount {
    work: Arc<Work>,
    turn: Arc<Turn>,
    exec: Exec,
}

impl Drop for Recount {
    /// Leaves the count to whoever opens the file system next. After [`Recount::stop`], the end of a mount, there is nothing to wait for.
    fn drop(&mut self) {
        self.stop();
    }
}

impl Recount {
    pub(crate) fn new(objset: &Arc<Objset>, room: Arc<Room>) -> Recount {
        let (wanted, is_behind) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = Work { objset: objset.clone(), room, wanted, is_behind };
        Recount { work: Arc::new(work), turn: Arc::default(), exec: objset.io().exec().clone() }
    }

    /// Names flags that the object set is to have, if it lacks them by the first change, or by [`Recount::begin`].
    pub(crate) fn want(&self, flags: u64) {
        self.work.wanted.fetch_or(flags, Ordering::AcqRel);
        self.work.look();
    }

    /// Begins to count in the background, where something is missing and nobody does.
    pub(crate) fn begin(&self) {
        if !self.work.is_behind.load(Ordering::Relaxed) || !self.turn.take() {
            return;
        }
        let (work, turn) = (self.work.clone(), self.turn.clone());
        let count = move || {
            // What it failed for stops whoever needs the same, too; the file system goes on without these accounts.
            let _ = work.run(&turn);
            // Before anybody hears of the end, who may need that nobody has the object set.
            drop(work);
            turn.end();
        };
        drop(self.exec.spawn_operation("z-accounts", Box::new(count)));
    }

    /// Counts what is missing, or waits for who does.
    ///
    /// # Errors
    /// Those of reading objects and of transactions; `Busy` when it was stopped.
    pub(crate) fn finish(&self) -> Result<(), ZplError> {
        while self.work.is_behind.load(Ordering::Acquire) {
            if self.turn.take() {
                let result = self.work.run(&self.turn);
                self.turn.end();
                return result;
            }
            self.turn.wait(&self.exec);
        }
        Ok(())
    }

    /// Stops counting; what is left is done after the next begin.
    pub(crate) fn stop(&self) {
        self.turn.is_stopped.store(true, Ordering::Release);
        self.turn.wait(&self.exec);
        self.turn.is_stopped.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, use that was counted before is counted twice, or an account says that it is complete and is not.
    #[test]
    fn a_plan_forgets_what_its_marks_do_not_tell() {
        let (users, objects, projects) = (USERACCOUNTING_COMPLETE, USEROBJACCOUNTING_COMPLETE, PROJECTQUOTA_COMPLETE);
        let all = users | objects | projects;
        for had in 0..=all {
            for wanted in 0..=all {
                let Some(plan) = Plan::new(had, wanted) else {
                    assert_eq!((wanted | users) & !had, 0, "{had} {wanted}");
                    continue;
                };
                assert_eq!((plan.wanted, plan.kept & !had), (had | wanted | users, 0), "{had} {wanted}");
                assert_eq!(plan.kept & !users, 0, "marks of objects are made anew: {had} {wanted}");
                assert_eq!(plan.first.is_some(), plan.kept != 0, "who is not counted is not charged: {had} {wanted}");
                assert_eq!(plan.kept != 0, had & (users | projects) == users && plan.wanted & objects != 0, "{had} {wanted}");
            }
        }
    }
}
