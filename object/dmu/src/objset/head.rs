//! What of the objset block changes besides the dnodes in it, and where the block is.

use exec::Mutex;
use ondisk::{BlockPtr, DnodePhys, ObjsetPhys, ObjsetType, Txg, ZilHeader, objset_flags};
use std::collections::{BTreeMap, BTreeSet};

/// The facts of the objset block.
struct Facts {
    /// Header of the intent log as of the last sync.
    zil_header: ZilHeader,
    /// Headers that it got since, by txg: what a txg in the open says of the log must not reach the disk with the one that is being synced.
    zil_changes: BTreeMap<Txg, ZilHeader>,
    flags: u64,
    portable_mac: [u8; 32],
    local_mac: [u8; 32],
    block_bytes: usize,
    root: BlockPtr,
    /// Txgs in which the head itself was changed.
    dirty: BTreeSet<Txg>,
}

impl Facts {
    /// Header of the intent log as `txg` leaves it.
    fn zil_header_at(&self, txg: Txg) -> &ZilHeader {
        self.zil_changes.range(..=txg).next_back().map_or(&self.zil_header, |(_, header)| header)
    }
}

/// The head of an object set.
pub(crate) struct Head(Mutex<Facts>);

impl Head {
    /// Makes the head of a new object set of so many bytes, dirty in `txg`.
    pub(super) fn new(txg: Txg, block_bytes: usize) -> Head {
        Head(Mutex::new(Facts {
            zil_header: ZilHeader::default(),
            zil_changes: BTreeMap::new(),
            flags: 0,
            portable_mac: [0; 32],
            local_mac: [0; 32],
            block_bytes,
            root: BlockPtr::HOLE,
            dirty: BTreeSet::from([txg]),
        }))
    }

    /// Makes the head that the block at `root` describes.
    pub(super) fn from_phys(phys: &ObjsetPhys, root: BlockPtr) -> Head {
        Head(Mutex::new(Facts {
            zil_header: phys.zil_header.clone(),
            zil_changes: BTreeMap::new(),
            flags: phys.flags,
            portable_mac: phys.portable_mac,
            local_mac: phys.local_mac,
            block_bytes: phys.block_bytes,
            root,
            dirty: BTreeSet::new(),
        }))
    }

    /// The objset block as of `txg`, of these records of dnodes: the meta-dnode's, and those of the accounting objects.
    pub(crate) fn phys(&self, txg: Txg, kind: ObjsetType, meta_dnode: DnodePhys, special: [Option<DnodePhys>; 3]) -> ObjsetPhys {
        let [userused_dnode, groupused_dnode, projectused_dnode] = special;
        let facts = self.0.lock();
        ObjsetPhys {
            meta_dnode,
            zil_header: facts.zil_header_at(txg).clone(),
            objset_type: kind,
            flags: facts.flags,
            portable_mac: facts.portable_mac,
            local_mac: facts.local_mac,
            userused_dnode,
            groupused_dnode,
            projectused_dnode,
            block_bytes: facts.block_bytes,
        }
    }

    /// The pointer to the objset block as of the last sync.
    pub(super) fn root(&self) -> BlockPtr {
        self.0.lock().root
    }

    pub(super) fn flags(&self) -> u64 {
        self.0.lock().flags
    }

    pub(super) fn set_flags(&self, flags: u64, txg: Txg) {
        self.change(txg, |facts| facts.flags = flags);
    }

    /// Takes the MAC of what comes raw. Nothing that is counted here is covered, and nothing is counted until somebody has the key.
    pub(super) fn set_portable_mac(&self, mac: [u8; 32], txg: Txg) {
        self.change(txg, |facts| {
            (facts.portable_mac, facts.local_mac) = (mac, [0; 32]);
            facts.flags &= !objset_flags::USERACCOUNTING_COMPLETE;
        });
    }

    /// Has at least so many bytes from the next sync on, with room for the records of accounting objects: object sets of old versions are smaller
    /// (OpenZFS: `dmu_objset_open_impl` lets them grow).
    pub(super) fn make_room(&self, bytes: usize) {
        let mut facts = self.0.lock();
        facts.block_bytes = facts.block_bytes.max(bytes);
    }

    pub(super) fn zil_header(&self) -> ZilHeader {
        self.0.lock().zil_header_at(Txg(u64::MAX)).clone()
    }

    pub(super) fn set_zil_header(&self, header: ZilHeader, txg: Txg) {
        self.change(txg, |facts| {
            facts.zil_changes.insert(txg, header);
        });
    }

    fn change(&self, txg: Txg, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.0.lock();
        change(&mut facts);
        facts.dirty.insert(txg);
    }

    /// The block has to be written in `txg`.
    pub(crate) fn set_dirty(&self, txg: Txg) {
        self.change(txg, |_| ());
    }

    /// True when the block has to be written in `txg`.
    pub(super) fn is_dirty(&self, txg: Txg) -> bool {
        self.0.lock().dirty.contains(&txg)
    }

    /// True when the block has to be written in any txg.
    pub(super) fn has_changes(&self) -> bool {
        !self.0.lock().dirty.is_empty()
    }

    /// The sync of `txg` wrote the block.
    pub(crate) fn synced(&self, txg: Txg, root: BlockPtr) {
        let mut facts = self.0.lock();
        facts.root = root;
        facts.zil_header = facts.zil_header_at(txg).clone();
        facts.zil_changes.retain(|changed, _| *changed > txg);
        facts.dirty.remove(&txg);
    }
}
