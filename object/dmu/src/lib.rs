//! The data management unit: object sets of objects ("dnodes") made of blocks, changed in transaction groups.
//!
//! # How it works
//! * An [`Objset`] is a tree: one block (`objset_phys_t`) holds the *meta-dnode*, whose data blocks hold the dnodes of all
//!   objects; each dnode roots a tree of indirect blocks over its data blocks.
//! * A [`Dnode`] keeps, per open or syncing transaction group ("txg"), the level-0 blocks that were modified in it. Clean
//!   blocks are not kept here: they are found by block pointer in the cache behind [`BlockIo`].
//! * [`Objset::sync`] writes one txg's dirty blocks to new places, then the indirect blocks above them, level by level, then
//!   the dnodes, the meta-dnode and the objset block. A dnode's new root replaces its old one, and its dirty blocks of the
//!   txg are dropped, in one step under its lock: readers see the old tree under the dirty blocks, or the new tree.
//! * [`TxgManager`] hands out transactions ([`Tx`]) and drives the sync. A txg opens only after the previous one has no
//!   transaction left, so changes are strictly ordered by txg.
//!
//! # Invariants
//! 1. Nothing is referenced before it is written: a block pointer enters a parent only after its write succeeded.
//! 2. Every block born is freed at most once, and every block that is no longer referenced is killed.
//! 3. No lock of this crate is held across a wait for I/O.
//! 4. Nothing here knows pools, datasets or files; those arrive as [`BlockIo`], [`BlockLedger`], [`ObjsetHook`] and
//!    [`ObjsetProps`].
//!
//! OpenZFS: `dmu.c`, `dmu_objset.c`, `dnode.c`, `dnode_sync.c`, `dbuf.c`, `dmu_tx.c`, `txg.c`.
#![forbid(unsafe_code)]

mod error;
mod ports;
mod props;

pub use error::{BlockError, Cause, DamagedRecord, DmuError, LostBlock, RecordError, SyncError, Which, with_causes};
pub use memory::{MemoryUse, memory_use};
pub use ports::{
    BlockIo, BlockLedger, BlockWrite, CloneIo, Dedup, Keep, Landed, LandedDone, LogDone, LogIo, LogOwner, LogRoom, LookupIo, Poke,
    StoredDone, TxgSync, WriteDone,
};
pub use props::{ObjsetProps, PrimaryCache, RedundantMetadata, SyncMode};

mod activity;
mod blocks;
mod budget;
mod dirty_list;
mod dnode;
mod memory;
mod objset;
mod special;
mod sync;
mod tx;
mod txg;
mod txg_history;

pub use activity::{DnodeEvent, TxEvent, dnode_counts, tx_counts};
pub use blocks::ObjsetEnv;
pub use dnode::{
    Dnode, DnodeInfo, Marks, SealedObject, StoredBlock, UserData, Zeros, ZfetchStats, ZfetchTunables, set_direct_read_window,
    set_zfetch_tunables, zfetch_stats,
};
pub use objset::{MetaForm, NewObject, ObjectOwner, Objset, ObjsetHook, OwnerDelta};
pub use ondisk::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
pub use tx::{Announced, Announcement, Tx};
pub use txg::{TxgConfig, TxgManager};
pub use txg_history::{IoTotals, TxgRecord};

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
