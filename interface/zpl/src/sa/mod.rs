//! System attributes: the registry of attributes, the table of layouts, and the attributes of one object.
//!
//! An object's bonus (and its spill block, when there is one) is a header with a layout number and the lengths of the
//! variable attributes, then the values in the layout's order, each on 8 bytes (OpenZFS: `sa.c`, `sa_impl.h`). File systems
//! before version 5 have a fixed record instead, which is treated as layout 0 without a header (`sa_legacy_zpl_layout`): see [`legacy`].
//!
//! Invariants: layouts are only ever added; an attribute that is not ours is carried along when an object is rewritten.

mod legacy;

use crate::{ZplError, acl};
use abd::Abd;
use dmu::{Dnode, Objset, Tx};
use exec::RwLock;
pub(crate) use legacy::RECORD_BYTES;
use ondisk::{ObjectId, ObjectType};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use zap::{Value, Zap};

/// Attributes of the file system, numbered as OpenZFS's `zpl_attr_t` (not as on disk: the registry maps them).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's names; TABLE says what each holds")]
pub enum Attr {
    Atime,
    Mtime,
    Ctime,
    Crtime,
    Gen,
    Mode,
    Size,
    Parent,
    Links,
    Xattr,
    Rdev,
    Flags,
    Uid,
    Gid,
    Pad,
    ZnodeAcl,
    DaclCount,
    Symlink,
    Scanstamp,
    DaclAces,
    Dxattr,
    Projid,
}

const U64: u8 = 0;
const U8: u8 = 3;
const ACL: u8 = 4;

/// Name, length (0 = variable) and byteswap class of every attribute (OpenZFS: `zfs_attr_table`).
const TABLE: [(&str, u16, u8); 22] = [
    ("ZPL_ATIME", 16, U64),
    ("ZPL_MTIME", 16, U64),
    ("ZPL_CTIME", 16, U64),
    ("ZPL_CRTIME", 16, U64),
    ("ZPL_GEN", 8, U64),
    ("ZPL_MODE", 8, U64),
    ("ZPL_SIZE", 8, U64),
    ("ZPL_PARENT", 8, U64),
    ("ZPL_LINKS", 8, U64),
    ("ZPL_XATTR", 8, U64),
    ("ZPL_RDEV", 8, U64),
    ("ZPL_FLAGS", 8, U64),
    ("ZPL_UID", 8, U64),
    ("ZPL_GID", 8, U64),
    ("ZPL_PAD", 32, U64),
    ("ZPL_ZNODE_ACL", 88, U8),
    ("ZPL_DACL_COUNT", 8, U64),
    ("ZPL_SYMLINK", 0, U8),
    ("ZPL_SCANSTAMP", 32, U8),
    ("ZPL_DACL_ACES", 0, ACL),
    ("ZPL_DXATTR", 0, U8),
    ("ZPL_PROJID", 8, U64),
];
/// Number of attributes that version 4 and older have, in the order of their record.
const LEGACY: usize = 16;

const MAGIC: u32 = 0x2F_505A;
const HEADER_BYTES: usize = 8;
const BLKPTR_BYTES: usize = 128;
const SPILL_BYTES_MAX: usize = 128 << 10;
/// Largest layout number: they have 10 bits.
const LAYOUT_MAX: u16 = 1023;

#[derive(Clone, Debug)]
struct AttrInfo {
    name: String,
    length: u16,
    byteswap: u8,
    registered: bool,
}

struct State {
    attrs: Vec<AttrInfo>,
    registry: Option<ObjectId>,
    layouts_object: Option<ObjectId>,
    layouts: HashMap<u16, Arc<[u16]>>,
    numbers: HashMap<Arc<[u16]>, u16>,
    next_layout: u16,
    wants_registration: bool,
}

/// Registry and layouts of one object set.
pub struct Sa {
    objset: Arc<Objset>,
    /// Version of the file system, which is raised while it is mounted.
    version: AtomicU64,
    /// Object of the SA master node; none before version 5.
    master: OnceLock<ObjectId>,
    /// Numbers on disk, by [`Attr`].
    ids: [u16; TABLE.len()],
    state: RwLock<State>,
}

impl std::fmt::Debug for Sa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sa {{ layouts: {} }}", self.state.read().layouts.len())
    }
}

/// Place of an attribute in a buffer.
#[derive(Clone, Copy, Debug)]
struct Slot {
    attr: u16,
    offset: u32,
    length: u16,
}

/// Buffer (bonus or spill) with its index.
#[derive(Clone, Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    dirty: bool,
}

/// Attributes of one object.
#[derive(Clone, Debug)]
pub(crate) struct Attrs {
    legacy: bool,
    bonus: Buffer,
    spill: Option<Buffer>,
    /// True when the spill block went away and must be removed.
    drop_spill: bool,
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

/// Bytes of a header for `variable` variable-length attributes.
fn header_bytes(variable: usize) -> usize {
    (HEADER_BYTES + 2 * variable.saturating_sub(1)).next_multiple_of(8)
}

impl Sa {
    /// Reads registry and layouts of a file system of this version (OpenZFS: `sa_setup`).
    pub(crate) fn open(objset: &Arc<Objset>, version: u64, master: Option<ObjectId>) -> Result<Sa, ZplError> {
        let mut attrs: Vec<AttrInfo> = TABLE[..LEGACY].iter().map(AttrInfo::of).collect();
        let (mut registry, mut layouts_object) = (None, None);
        if let Some(master) = master {
            let master = Zap::hold(objset, master)?;
            registry = master.try_lookup_u64("REGISTRY")?.map(ObjectId);
            layouts_object = master.try_lookup_u64("LAYOUTS")?.map(ObjectId);
        }
        if let Some(object) = registry {
            read_registry(objset, object, &mut attrs)?;
        }
        let mut ids = [0; TABLE.len()];
        for (id, row) in ids.iter_mut().zip(TABLE.iter()) {
            let position = attrs.iter().position(|attr| attr.name == row.0);
            *id = position.unwrap_or_else(|| {
                attrs.push(AttrInfo::of(row));
                attrs.len() - 1
            }) as u16;
        }
        let wants_registration = attrs.iter().any(|attr| !attr.registered);
        let mut state =
            State { attrs, registry, layouts_object, layouts: HashMap::new(), numbers: HashMap::new(), next_layout: 2, wants_registration };
        if let Some(object) = layouts_object {
            read_layouts(objset, object, &mut state)?;
        }
        let master = master.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Sa { objset: objset.clone(), version: AtomicU64::new(version), master, ids, state: RwLock::new(state) })
    }

    /// True when new objects get system attributes.
    pub(crate) fn is_modern(&self) -> bool {
        self.master.get().is_some()
    }

    /// Version of the file system.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that the file system was raised to a version, and the SA master node that it has since.
    pub(crate) fn set_version(&self, version: u64, master: Option<ObjectId>) {
        if let Some(master) = master {
            let _ = self.master.set(master);
        }
        self.version.store(version, Ordering::Release);
    }

    fn id(&self, attr: Attr) -> u16 {
        self.ids[attr as usize]
    }

    /// Number of the layout `attrs`, added when it is new (OpenZFS: `sa_find_layout`).
    fn layout_number(&self, attrs: &[u16], tx: &Tx) -> Result<u16, ZplError> {
        if let Some(number) = self.state.read().numbers.get(attrs) {
            return Ok(*number);
        }
        let master = *self.master.get().ok_or(ZplError::NotSupported)?;
        let mut state = self.state.write();
        if let Some(number) = state.numbers.get(attrs) {
            return Ok(*number);
        }
        let object = match state.layouts_object {
            Some(object) => object,
            None => create_link(&self.objset, ObjectType::SA_ATTR_LAYOUTS, master, "LAYOUTS", tx)?,
        };
        state.layouts_object = Some(object);
        let number = state.next_layout;
        if number > LAYOUT_MAX {
            return Err(ZplError::NoSpace);
        }
        Zap::hold(&self.objset, object)?.update(number.to_string(), &Value::U16(attrs.to_vec()), tx)?;
        state.remember(number, attrs.into());
        Ok(number)
    }

    /// Writes attributes that are not in the registry yet (OpenZFS: `sa_attr_register_sync`).
    fn register(&self, tx: &Tx) -> Result<(), ZplError> {
        if !self.state.read().wants_registration {
            return Ok(());
        }
        let Some(master) = self.master.get().copied() else { return Ok(()) };
        let mut state = self.state.write();
        if !state.wants_registration {
            return Ok(());
        }
        let object = match state.registry {
            Some(object) => object,
            None => create_link(&self.objset, ObjectType::SA_ATTR_REGISTRATION, master, "REGISTRY", tx)?,
        };
        state.registry = Some(object);
        let registry = Zap::hold(&self.objset, object)?;
        for (number, attr) in state.attrs.iter_mut().enumerate().filter(|(_, attr)| !attr.registered) {
            let encoded = u64::from(attr.length) << 24 | u64::from(attr.byteswap) << 16 | number as u64;
            registry.update_u64(&attr.name, encoded, tx)?;
            attr.registered = true;
        }
        state.wants_registration = false;
        Ok(())
    }

    /// Reads an object's attributes.
    pub(crate) fn load(&self, dnode: &Dnode) -> Result<Attrs, ZplError> {
        let info = dnode.info()?;
        let bonus = dnode.bonus()?.to_vec();
        if info.bonus_type == ObjectType::ZNODE {
            return legacy::attributes(bonus);
        }
        if info.bonus_type != ObjectType::SA {
            return Err(ZplError::CORRUPT);
        }
        let bonus = self.index(bonus)?;
        let spill = match dnode.spill()? {
            Some(data) => Some(self.index(data.to_vec())?),
            None => None,
        };
        Ok(Attrs { legacy: false, bonus, spill, drop_spill: false })
    }

    fn index(&self, mut bytes: Vec<u8>) -> Result<Buffer, ZplError> {
        let magic = bytes.get(..4).ok_or(ZplError::CORRUPT)?;
        let foreign = magic == MAGIC.to_be_bytes();
        if !foreign && magic != MAGIC.to_le_bytes() {
            return Err(ZplError::CORRUPT);
        }
        if foreign {
            self.swap(&mut bytes)?;
        }
        let info = u16_at(&bytes, 4).ok_or(ZplError::CORRUPT)?;
        let (number, header) = (info & LAYOUT_MAX, usize::from(info >> 10) * 8);
        let state = self.state.read();
        let layout = state.layouts.get(&number).ok_or(ZplError::CORRUPT)?;
        let slots = state.place(layout, &bytes, header)?;
        Ok(Buffer { bytes, slots, dirty: false })
    }

    /// Turns a buffer of the other byte order into ours (OpenZFS: `sa_byteswap`).
    fn swap(&self, bytes: &mut [u8]) -> Result<(), ZplError> {
        bytes.get_mut(..4).ok_or(ZplError::CORRUPT)?.reverse();
        bytes.get_mut(4..6).ok_or(ZplError::CORRUPT)?.reverse();
        let info = u16_at(bytes, 4).ok_or(ZplError::CORRUPT)?;
        let header = usize::from(info >> 10) * 8;
        for length in bytes.get_mut(6..header).ok_or(ZplError::CORRUPT)?.chunks_exact_mut(2) {
            length.reverse();
        }
        let state = self.state.read();
        let layout = state.layouts.get(&(info & LAYOUT_MAX)).ok_or(ZplError::CORRUPT)?;
        for slot in state.place(layout, bytes, header)? {
            let value = &mut bytes[slot.offset as usize..slot.offset as usize + usize::from(slot.length)];
            match state.attrs[usize::from(slot.attr)].byteswap {
                0 => value.chunks_exact_mut(8).for_each(<[u8]>::reverse),
                1 => value.chunks_exact_mut(4).for_each(<[u8]>::reverse),
                2 => value.chunks_exact_mut(2).for_each(<[u8]>::reverse),
                4 => crate::acl::byteswap(value),
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives a new object its attributes, in this order (OpenZFS: `sa_replace_all_by_template`); one that was made for the fixed record gets that.
    pub(crate) fn build(&self, dnode: &Dnode, values: &[(Attr, &[u8])], tx: &Tx) -> Result<Attrs, ZplError> {
        if dnode.info()?.bonus_type == ObjectType::ZNODE {
            let mut attrs = legacy::record(dnode, values, self.has_old_acls(), tx)?;
            self.store(dnode, &mut attrs, tx)?;
            return Ok(attrs);
        }
        self.register(tx)?;
        let list: Vec<(u16, &[u8])> = values.iter().map(|(attr, value)| (self.id(*attr), *value)).collect();
        let mut attrs = Attrs { legacy: false, bonus: Buffer::default(), spill: None, drop_spill: false };
        self.lay_out(dnode, &mut attrs, &list, tx)?;
        self.store(dnode, &mut attrs, tx)?;
        Ok(attrs)
    }

    /// Distributes `list` over bonus and spill (OpenZFS: `sa_find_sizes`, `sa_build_layouts`).
    fn lay_out<V: AsRef<[u8]>>(&self, dnode: &Dnode, attrs: &mut Attrs, list: &[(u16, V)], tx: &Tx) -> Result<(), ZplError> {
        let room = usize::from(dnode.info()?.slots.max(1)) * 512 - 64 - BLKPTR_BYTES;
        let state = self.state.read();
        let variable = |attr: u16| state.attrs.get(usize::from(attr)).is_none_or(|info| info.length == 0);
        let mut split = list.len();
        let (mut bytes, mut count, mut fits) = (0usize, 0, 0);
        for (index, (attr, value)) in list.iter().enumerate() {
            bytes = bytes.next_multiple_of(8) + value.as_ref().len();
            count += usize::from(variable(*attr));
            if bytes + header_bytes(count) <= room - BLKPTR_BYTES && fits == index {
                fits = index + 1;
            }
        }
        if bytes + header_bytes(count) > room {
            split = fits;
        }
        let part = |range: &[(u16, V)]| -> (usize, usize) {
            let count = range.iter().filter(|(attr, _)| variable(*attr)).count();
            (header_bytes(count), range.iter().fold(header_bytes(count), |sum, (_, value)| sum.next_multiple_of(8) + value.as_ref().len()))
        };
        let (inside, outside) = list.split_at(split);
        let (inside_plan, outside_plan) = (part(inside), part(outside));
        let is_variable: Vec<bool> = list.iter().map(|(attr, _)| variable(*attr)).collect();
        drop(state);
        if outside_plan.1 > SPILL_BYTES_MAX {
            return Err(ZplError::TooBig);
        }
        let bonus = self.compose(inside, &is_variable[..split], inside_plan, tx)?;
        let mut spill = None;
        if !outside.is_empty() {
            let mut buffer = self.compose(outside, &is_variable[split..], outside_plan, tx)?;
            buffer.bytes.resize(buffer.bytes.len().next_multiple_of(512), 0);
            spill = Some(buffer);
        }
        attrs.drop_spill = (attrs.spill.is_some() || attrs.drop_spill) && spill.is_none();
        (attrs.bonus, attrs.spill) = (bonus, spill);
        Ok(())
    }

    fn compose<V: AsRef<[u8]>>(&self, list: &[(u16, V)], variable: &[bool], plan: (usize, usize), tx: &Tx) -> Result<Buffer, ZplError> {
        let (header, total) = plan;
        let layout: Vec<u16> = list.iter().map(|(attr, _)| *attr).collect();
        let number = self.layout_number(&layout, tx)?;
        let mut bytes = vec![0u8; total];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&(number | ((header / 8) as u16) << 10).to_le_bytes());
        let mut slots = Vec::with_capacity(list.len());
        let (mut offset, mut length_at) = (header, 6);
        for ((attr, value), variable) in list.iter().zip(variable) {
            let value = value.as_ref();
            offset = offset.next_multiple_of(8);
            let length = u16::try_from(value.len()).map_err(|_| ZplError::TooBig)?;
            if *variable {
                bytes[length_at..length_at + 2].copy_from_slice(&length.to_le_bytes());
                length_at += 2;
            }
            bytes[offset..offset + value.len()].copy_from_slice(value);
            slots.push(Slot { attr: *attr, offset: offset as u32, length });
            offset += value.len();
        }
        Ok(Buffer { bytes, slots, dirty: true })
    }

    /// Value of an attribute.
    pub(crate) fn get<'a>(&self, attrs: &'a Attrs, attr: Attr) -> Option<&'a [u8]> {
        attrs.find(self.id(attr))
    }

    /// Value of a 64-bit attribute.
    pub(crate) fn get_u64(&self, attrs: &Attrs, attr: Attr) -> Option<u64> {
        self.get(attrs, attr).and_then(|bytes| Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?)))
    }

    /// Changes an attribute in memory; one that is missing or has another length makes a new layout. [`Sa::store`] writes it.
    pub(crate) fn set(&self, dnode: &Dnode, attrs: &mut Attrs, attr: Attr, value: &[u8], tx: &Tx) -> Result<(), ZplError> {
        let id = self.id(attr);
        if attrs.patch(id, value) {
            return Ok(());
        }
        if attrs.legacy {
            return Err(ZplError::NotSupported);
        }
        self.register(tx)?;
        let mut list = attrs.list();
        match list.iter_mut().find(|(other, _)| *other == id) {
            Some((_, old)) => *old = value.to_vec(),
            None => list.push((id, value.to_vec())),
        }
        self.lay_out(dnode, attrs, &list, tx)
    }

    /// Adds an attribute behind another one, where accounts look for it; [`Sa::store`] writes it (OpenZFS: `sa_add_projid`).
    pub(crate) fn insert(&self, dnode: &Dnode, attrs: &mut Attrs, new: (Attr, &[u8]), behind: Attr, tx: &Tx) -> Result<(), ZplError> {
        if attrs.legacy {
            return Err(ZplError::NotSupported);
        }
        self.register(tx)?;
        let mut list = attrs.list();
        let before = list.iter().position(|(attr, _)| *attr == self.id(behind)).ok_or(ZplError::CORRUPT)?;
        list.insert(before + 1, (self.id(new.0), new.1.to_vec()));
        self.lay_out(dnode, attrs, &list, tx)
    }

    /// Gives a node the access control list that says no more than its mode (OpenZFS: `zfs_acl_chmod`).
    ///
    /// # Errors
    /// [`ZplError::NotSupported`] for an old node whose list lies in an object of its own.
    pub(crate) fn set_trivial_acl(
        &self,
        dnode: &Dnode,
        attrs: &mut Attrs,
        (mode, is_directory): (u64, bool),
        tx: &Tx,
    ) -> Result<(), ZplError> {
        let aces = acl::trivial(mode, is_directory);
        if attrs.legacy {
            if attrs.acl_object().is_some() {
                return Err(ZplError::NotSupported);
            }
            return self.set(dnode, attrs, Attr::ZnodeAcl, &legacy::acl_record(&aces, self.has_old_acls()), tx);
        }
        let count = aces.len() as u64 / 8;
        self.set(dnode, attrs, Attr::DaclAces, &aces, tx)?;
        self.set(dnode, attrs, Attr::DaclCount, &count.to_le_bytes(), tx)
    }

    /// Hands the buffers that changed to the dnode.
    pub(crate) fn store(&self, dnode: &Dnode, attrs: &mut Attrs, tx: &Tx) -> Result<(), ZplError> {
        if attrs.drop_spill {
            dnode.remove_spill(tx)?;
            attrs.drop_spill = false;
        }
        if attrs.bonus.dirty {
            dnode.set_bonus(&attrs.bonus.bytes, tx)?;
            attrs.bonus.dirty = false;
        }
        if let Some(spill) = attrs.spill.as_mut().filter(|spill| spill.dirty) {
            dnode.set_spill(Abd::from_slice(&spill.bytes), tx)?;
            spill.dirty = false;
        }
        Ok(())
    }
}

impl AttrInfo {
    fn of(row: &(&str, u16, u8)) -> AttrInfo {
        AttrInfo { name: row.0.to_string(), length: row.1, byteswap: row.2, registered: false }
    }
}

impl State {
    fn remember(&mut self, number: u16, attrs: Arc<[u16]>) {
        self.next_layout = self.next_layout.max(number.saturating_add(1));
        self.numbers.insert(attrs.clone(), number);
        self.layouts.insert(number, attrs);
    }

    /// Places of the attributes of `layout` in `bytes`.
    fn place(&self, layout: &[u16], bytes: &[u8], header: usize) -> Result<Vec<Slot>, ZplError> {
        let mut slots = Vec::with_capacity(layout.len());
        let (mut offset, mut length_at) = (header, 6);
        if header < HEADER_BYTES {
            return Err(ZplError::CORRUPT);
        }
        for attr in layout {
            let mut length = self.attrs.get(usize::from(*attr)).ok_or(ZplError::CORRUPT)?.length;
            if length == 0 {
                if length_at + 2 > header {
                    return Err(ZplError::CORRUPT);
                }
                length = u16_at(bytes, length_at).ok_or(ZplError::CORRUPT)?;
                length_at += 2;
            }
            if offset + usize::from(length) > bytes.len() {
                return Err(ZplError::CORRUPT);
            }
            slots.push(Slot { attr: *attr, offset: offset as u32, length });
            offset = (offset + usize::from(length)).next_multiple_of(8);
        }
        Ok(slots)
    }
}

impl Buffer {
    fn find(&self, attr: u16) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.attr == attr)
    }

    fn value(&self, slot: &Slot) -> &[u8] {
        &self.bytes[slot.offset as usize..slot.offset as usize + usize::from(slot.length)]
    }

    fn patch(&mut self, attr: u16, value: &[u8]) -> bool {
        let Some(slot) = self.find(attr).copied() else { return false };
        if usize::from(slot.length) != value.len() {
            return false;
        }
        let target = &mut self.bytes[slot.offset as usize..slot.offset as usize + value.len()];
        if target != value {
            target.copy_from_slice(value);
            self.dirty = true;
        }
        true
    }
}

impl Attrs {
    /// True for the fixed record of old file systems.
    pub(crate) fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// Returns the attributes, to be written over whatever of `now` reached the object.
    pub(crate) fn rewritten_over(mut self, now: &Attrs) -> Attrs {
        self.bonus.dirty = true;
        self.spill.iter_mut().for_each(|spill| spill.dirty = true);
        self.drop_spill = self.spill.is_none() && (now.spill.is_some() || now.drop_spill);
        self
    }

    fn find(&self, attr: u16) -> Option<&[u8]> {
        if let Some(slot) = self.bonus.find(attr) {
            return Some(self.bonus.value(slot));
        }
        let spill = self.spill.as_ref()?;
        spill.find(attr).map(|slot| spill.value(slot))
    }

    fn patch(&mut self, attr: u16, value: &[u8]) -> bool {
        self.bonus.patch(attr, value) || self.spill.as_mut().is_some_and(|spill| spill.patch(attr, value))
    }

    fn list(&self) -> Vec<(u16, Vec<u8>)> {
        let all =
            |buffer: &Buffer| -> Vec<(u16, Vec<u8>)> { buffer.slots.iter().map(|slot| (slot.attr, buffer.value(slot).to_vec())).collect() };
        let mut list = all(&self.bonus);
        list.extend(self.spill.as_ref().map(all).unwrap_or_default());
        list
    }
}

fn read_registry(objset: &Arc<Objset>, object: ObjectId, attrs: &mut Vec<AttrInfo>) -> Result<(), ZplError> {
    let mut rows = Vec::new();
    Zap::hold(objset, object)?.for_each(|entry| {
        rows.push((entry.first_integer, String::from_utf8_lossy(&entry.name).into_owned()));
        Ok(())
    })?;
    for (encoded, name) in rows {
        let number = (encoded & 0xFFFF) as usize;
        if number > usize::from(LAYOUT_MAX) {
            return Err(ZplError::CORRUPT);
        }
        while attrs.len() <= number {
            attrs.push(AttrInfo { name: String::new(), length: 0, byteswap: U8, registered: true });
        }
        attrs[number] = AttrInfo { name, length: (encoded >> 24) as u16, byteswap: (encoded >> 16) as u8, registered: true };
    }
    Ok(())
}

fn read_layouts(objset: &Arc<Objset>, object: ObjectId, state: &mut State) -> Result<(), ZplError> {
    let layouts = Zap::hold(objset, object)?;
    let mut names = Vec::new();
    layouts.for_each(|entry| {
        names.push(entry.name.clone());
        Ok(())
    })?;
    for name in names {
        let number = std::str::from_utf8(&name).ok().and_then(|text| text.parse::<u16>().ok()).ok_or(ZplError::CORRUPT)?;
        match layouts.lookup(&name)? {
            Value::U16(attrs) if number <= LAYOUT_MAX => state.remember(number, attrs.into()),
            _ => return Err(ZplError::CORRUPT),
        }
    }
    Ok(())
}

/// Makes a ZAP and names it in another one (OpenZFS: `zap_create_link`).
fn create_link(objset: &Arc<Objset>, kind: ObjectType, parent: ObjectId, name: &str, tx: &Tx) -> Result<ObjectId, ZplError> {
    let object = zap::create(objset, kind, tx)?;
    if let Err(error) = Zap::hold(objset, parent).and_then(|parent| parent.add_u64(name, object.0, tx)) {
        zap::destroy(objset, object, tx)?;
        return Err(error.into());
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::{AttrInfo, MAGIC, State, TABLE, header_bytes};
    use std::collections::HashMap;

    fn state(layout: &[u16]) -> State {
        let attrs: Vec<AttrInfo> = TABLE.iter().map(AttrInfo::of).collect();
        let mut state = State {
            attrs,
            registry: None,
            layouts_object: None,
            layouts: HashMap::new(),
            numbers: HashMap::new(),
            next_layout: 2,
            wants_registration: false,
        };
        state.remember(2, layout.into());
        state
    }

    /// A damaged or hostile node must give an error, not end the daemon with every pool in it.
    #[test]
    fn damaged_records_are_refused() {
        let layout = [5, 6, 4, 12, 13, 7, 11, 17, 19];
        let state = state(&layout);
        let mut seed = 7u64;
        for length in 0..400 {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 56) as u8
                })
                .collect();
            for header in [0, 8, 16, 504] {
                if let Ok(slots) = state.place(&layout, &bytes, header) {
                    assert!(slots.iter().all(|slot| slot.offset as usize + usize::from(slot.length) <= bytes.len()));
                }
            }
        }
        assert!(state.place(&[99], &[0; 64], 8).is_err(), "an attribute that nobody registered");
    }

    /// The header's size is what OpenZFS's assertions demand: else a debug kernel panics on our files.
    #[test]
    fn headers_have_the_size_that_openzfs_expects() {
        assert_eq!([0, 1, 2, 4, 5, 6, 9].map(header_bytes), [8, 8, 16, 16, 16, 24, 24]);
        assert_eq!(MAGIC.to_le_bytes(), [0x5A, 0x50, 0x2F, 0]);
    }
}
