//! The meta object set with the ledger that counts its space.

use crate::DslError;
use crate::ledger::MosLedger;
use crate::meta::{POOL_DIRECTORY, Usage};
use dmu::{BlockIo, Objset, ObjsetEnv, ObjsetProps, Tx};
use ondisk::{BlockPtr, ObjectId, ObjectType, ObjsetId, ObjsetType};
use std::sync::Arc;
use zap::CreateOptions;

/// The meta object set with the ledger that counts its space. Made or opened before [`DslPool`], since the pool reads
/// its features and configuration from it first.
#[derive(Clone)]
pub struct Mos {
    objset: Arc<Objset>,
    ledger: Arc<MosLedger>,
}

impl Mos {
    fn env(io: Arc<dyn BlockIo>) -> (ObjsetEnv, Arc<MosLedger>) {
        let ledger = Arc::new(MosLedger::new(io.clone()));
        (ObjsetEnv { io, ledger: Some(ledger.clone()), id: ObjsetId(0) }, ledger)
    }
    /// Makes an empty MOS with its pool directory (object 1), dirty in the transaction's txg.
    pub fn create(io: Arc<dyn BlockIo>, props: ObjsetProps, tx: &Tx) -> Result<Mos, DslError> {
        let (env, ledger) = Mos::env(io);
        let objset = Objset::create(env, ObjsetType::META, props, tx)?;
        let directory = CreateOptions { claim: Some(ObjectId(POOL_DIRECTORY)), ..CreateOptions::new(ObjectType::OBJECT_DIRECTORY) };
        zap::create_with(&objset, directory, tx)?;
        Ok(Mos { objset, ledger })
    }
    /// Opens the MOS at the uberblock's root pointer.
    pub fn open(io: Arc<dyn BlockIo>, root: BlockPtr, props: ObjsetProps) -> Result<Mos, DslError> {
        let (env, ledger) = Mos::env(io);
        Ok(Mos { objset: Objset::open(env, root, props)?, ledger })
    }
    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }
    /// Bytes that the MOS gained and lost since the last call.
    pub(super) fn take_change(&self) -> Usage {
        self.ledger.change.take()
    }
}
