//! POSIX access control lists of `acltype=posix`: extended attributes in Linux's own encoding, as OpenZFS stores them
//! (`zpl_xattr.c`: `zpl_set_acl`, `zpl_init_acl`, `zpl_chmod_acl`).
//!
//! Who may do what is decided by the kernel, which asks for the lists (`fuse::MountOptions::posix_acl`). Here is what a list is, and how lists and
//! permission bits follow each other: the bits of the group are the mask's where there is one. A list that the bits say as well is not stored.

use crate::ZplError;

/// Name of the list that decides about access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the list of a directory that what is made in it begins with.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Bytes of the version; entries follow: tag, permissions, id (Linux: `posix_acl_xattr_header`, `posix_acl_xattr_entry`).
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// Identity in entries that name nobody.
const NOBODY: u32 = u32::MAX;
/// Number of entries of a list that says what permission bits can say.
const TRIVIAL_ENTRIES: usize = 3;

/// Names and values of the lists that a new node begins with.
pub(crate) type Lists = Vec<(&'static [u8], Vec<u8>)>;

/// True for the name of an access control list.
pub(crate) fn is_list(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

fn tag_of(entry: &[u8]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

/// Place in the permission bits, in bits, of what an entry says of all of its class; None for who is named, and for the owning group where the
/// mask stands for the class.
fn shift_of(tag: u16, has_mask: bool) -> Option<u32> {
    match tag {
        USER_OBJ => Some(6),
        MASK => Some(3),
        GROUP_OBJ if !has_mask => Some(3),
        OTHER => Some(0),
        _ => None,
    }
}

/// Entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    rights: u16,
    id: u32,
}

impl Entry {
    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Entry {
        let [t0, t1, r0, r1, id @ ..] = *bytes;
        Entry { tag: u16::from_le_bytes([t0, t1]), rights: u16::from_le_bytes([r0, r1]), id: u32::from_le_bytes(id) }
    }

    fn is_valid(self) -> bool {
        let names_right = match self.tag {
            USER | GROUP => self.id != NOBODY,
            USER_OBJ | GROUP_OBJ | MASK | OTHER => true,
            _ => false,
        };
        names_right && self.rights <= 7
    }
}

/// List that is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List(Vec<Entry>);

impl List {
    /// Decodes a list; None for one without entries, which stands for none (Linux: `posix_acl_from_xattr`, `posix_acl_valid`).
    ///
    /// # Errors
    /// [`ZplError::NotSupported`] for an encoding of another version, [`ZplError::Invalid`] for what is no list.
    pub fn decode(bytes: &[u8]) -> Result<Option<List>, ZplError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (version, entries) = bytes.split_at_checked(HEADER_BYTES).ok_or(ZplError::Invalid)?;
        if version != VERSION.to_le_bytes() {
            return Err(ZplError::NotSupported);
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        let list = List(entries.iter().map(Entry::decode).collect());
        match (list.0.is_empty(), rest.is_empty()) {
            (true, true) => Ok(None),
            (false, true) if list.is_valid() => Ok(Some(list)),
            _ => Err(ZplError::Invalid),
        }
    }

    /// True for entries in order, each class once, with a mask where somebody is named.
    fn is_valid(&self) -> bool {
        let count = |tag: u16| self.0.iter().filter(|entry| entry.tag == tag).count();
        let is_whole = [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1);
        let is_masked = count(MASK) == 1 || count(MASK) == 0 && count(USER) + count(GROUP) == 0;
        is_whole && is_masked && self.0.is_sorted_by_key(|entry| entry.tag) && self.0.iter().all(|entry| entry.is_valid())
    }

    fn has_mask(&self) -> bool {
        self.0.iter().any(|entry| entry.tag == MASK)
    }

    /// Permission bits of the list (Linux: `posix_acl_equiv_mode`).
    pub fn mode(&self) -> u64 {
        let has_mask = self.has_mask();
        let bits = |entry: &Entry| Some(u64::from(entry.rights) << shift_of(entry.tag, has_mask)?);
        self.0.iter().filter_map(bits).sum()
    }

    /// True when the permission bits say all of it.
    pub fn is_trivial(&self) -> bool {
        self.0.len() == TRIVIAL_ENTRIES
    }

    /// List of what is made with this mode in a directory whose default list it is (Linux: `posix_acl_create_masq`).
    pub fn narrowed(mut self, mode: u64) -> List {
        let has_mask = self.has_mask();
        for entry in &mut self.0 {
            if let Some(shift) = shift_of(entry.tag, has_mask) {
                entry.rights &= (mode >> shift & 7) as u16;
            }
        }
        self
    }

    /// Encodes the list as it is stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let id = if matches!(entry.tag, USER | GROUP) { entry.id } else { NOBODY };
            bytes.extend([entry.tag.to_le_bytes(), entry.rights.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
}

/// Mode and lists that a new node begins with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heritage {
    pub mode: u64,
    pub lists: Lists,
}

impl Heritage {
    /// Returns what a node that is made with this mode inherits of a default list (OpenZFS: `zpl_init_acl`); the umask does not count.
    pub fn of(default: &List, mode: u64, is_directory: bool) -> Heritage {
        let access = default.clone().narrowed(mode);
        let mut lists = Lists::new();
        if is_directory {
            lists.push((DEFAULT, default.encode()));
        }
        if !access.is_trivial() {
            lists.push((ACCESS, access.encode()));
        }
        Heritage { mode: mode & !0o777 | access.mode(), lists }
    }
}

/// Makes a list say what the mode says (Linux: `posix_acl_chmod`): the group's bits go to the mask where there is one.
fn follow_mode(list: &mut [u8], mode: u64) {
    let Some((_, entries)) = list.split_at_mut_checked(HEADER_BYTES) else { return };
    let has_mask = entries.chunks_exact(ENTRY_BYTES).any(|entry| tag_of(entry) == MASK);
    for entry in entries.chunks_exact_mut(ENTRY_BYTES) {
        if let Some(shift) = shift_of(tag_of(entry), has_mask) {
            entry[2..4].copy_from_slice(&((mode >> shift & 7) as u16).to_le_bytes());
        }
    }
}

/// Stored list as it is to be to follow a new mode; None when it need not change.
pub(crate) fn followed(old: &[u8], mode: u64) -> Option<Vec<u8>> {
    let mut list = old.to_vec();
    follow_mode(&mut list, mode);
    (list != old).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, NewNode, SetAttrs, SetMode, Settings, Zfs};
    use dmu::testing::{MemBlockIo, TestPool};
    use dmu::{Objset, ObjsetProps};
    use ondisk::ObjsetType;
    use std::sync::Arc;

    /// Identities that lists of the tests name.
    const NAMED: (u32, u32) = (1000, 88);

    /// Linux's encoding of u::rwx,u:1000:rw-,g::r-x,m::rwx,o::r-- or the like.
    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn file_system() -> (TestPool, Arc<Zfs>) {
        let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("create");
        let tx = pool.txgs.assign(0).expect("assign");
        Zfs::create(&pool.objset, &CreateOptions::default(), &tx).expect("a file system");
        drop(tx);
        let settings = Settings { posix_acl: true, ..Settings::default() };
        let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), settings).expect("opens");
        (pool, zfs)
    }

    /// Lists of few rights, with and without who is named.
    fn every_list() -> Vec<List> {
        const RIGHTS: [u16; 4] = [0, 3, 4, 7];
        let entry = |tag: u16, rights: u16, id: u32| Entry { tag, rights, id };
        let mut lists = Vec::new();
        for (user, group) in [(None, None), (Some(0), None), (Some(6), None), (None, Some(5)), (Some(6), Some(5))] {
            for mask in [None, Some(0), Some(5), Some(7)] {
                if mask.is_none() && (user.is_some() || group.is_some()) {
                    continue;
                }
                for code in 0..64_usize {
                    let rights = |place: usize| RIGHTS[code >> (2 * place) & 3];
                    let entries = [
                        Some(entry(USER_OBJ, rights(0), NOBODY)),
                        user.map(|rights| entry(USER, rights, NAMED.0)),
                        Some(entry(GROUP_OBJ, rights(1), NOBODY)),
                        group.map(|rights| entry(GROUP, rights, NAMED.1)),
                        mask.map(|rights| entry(MASK, rights, NOBODY)),
                        Some(entry(OTHER, rights(2), NOBODY)),
                    ];
                    lists.push(List(entries.into_iter().flatten().collect()));
                }
            }
        }
        lists
    }

    /// Somebody who wants something: the owner or not, the user, whether of the owning group and of the group that is named.
    #[derive(Clone, Copy, Debug)]
    struct Who(bool, u32, bool, bool);

    const WHO: [Who; 7] = [
        Who(true, 0, true, true),
        Who(false, NAMED.0, false, false),
        Who(false, NAMED.0, true, true),
        Who(false, 1, true, false),
        Who(false, 1, false, true),
        Who(false, 1, true, true),
        Who(false, 1, false, false),
    ];

    fn has(rights: u16, want: u16) -> bool {
        rights & want == want
    }

    /// Entries that are for somebody, as POSIX 1003.1e has the right ones found, and the place of their class in the permission bits.
    fn entries_for(list: &List, who: Who) -> (Vec<Entry>, u32) {
        let all = |wanted: &dyn Fn(&Entry) -> bool| list.0.iter().copied().filter(|entry| wanted(entry)).collect::<Vec<_>>();
        if who.0 {
            return (all(&|entry| entry.tag == USER_OBJ), 6);
        }
        let named = all(&|entry| entry.tag == USER && entry.id == who.1);
        let groups = all(&|entry| entry.tag == GROUP_OBJ && who.2 || entry.tag == GROUP && who.3);
        match (named.is_empty(), groups.is_empty()) {
            (false, _) => (named, 3),
            (true, false) => (groups, 3),
            (true, true) => (all(&|entry| entry.tag == OTHER), 0),
        }
    }

    /// True when the list lets somebody do what he wants.
    fn lets(list: &List, who: Who, want: u16) -> bool {
        let (entries, class) = entries_for(list, who);
        let mask = list.0.iter().find(|entry| entry.tag == MASK && class == 3).map_or(7, |mask| mask.rights);
        entries.iter().any(|entry| has(entry.rights & mask, want))
    }

    fn bits_let(mode: u64, class: u32, want: u16) -> bool {
        has((mode >> class & 7) as u16, want)
    }

    /// If this fails, programs that look at the mode are told that a file is closed that is open to somebody, or the owner's rights are not
    /// those that were set.
    #[test]
    fn the_permission_bits_promise_no_less_than_a_list_gives() {
        for list in every_list() {
            assert_eq!(List::decode(&list.encode()), Ok(Some(list.clone())));
            for (who, want) in WHO.into_iter().flat_map(|who| (0..8).map(move |want| (who, want))) {
                let (_, class) = entries_for(&list, who);
                let (is_let, bits) = (lets(&list, who, want), bits_let(list.mode(), class, want));
                assert!(bits || !is_let, "{list:?} {who:?} {want}");
                assert!(is_let || !bits || class == 3 && !list.is_trivial(), "{list:?} {who:?} {want}");
            }
        }
    }

    /// If this fails, a new file is open to somebody whom the default list or whoever made it shut out, or closed to whom both let in.
    #[test]
    fn a_new_node_lets_in_whom_both_the_default_list_and_the_mode_let_in() {
        for default in every_list() {
            for mode in [0o777, 0o666, 0o640, 0o755, 0o600, 0o070, 0] {
                let Heritage { mode: given, lists } = Heritage::of(&default, 0o100_000 | mode, false);
                let own = match &lists[..] {
                    [] => default.clone().narrowed(mode),
                    [(ACCESS, value)] => List::decode(value).expect("valid").expect("a list"),
                    other => panic!("{other:?}"),
                };
                assert_eq!((given, lists.is_empty()), (0o100_000 | own.mode(), own.is_trivial()), "{default:?} {mode:o}");
                for (who, want) in WHO.into_iter().flat_map(|who| (0..8).map(move |want| (who, want))) {
                    let (_, class) = entries_for(&default, who);
                    let both = lets(&default, who, want) && bits_let(mode, class, want);
                    assert_eq!(lets(&own, who, want), both, "{default:?} {mode:o} {who:?} {want}");
                }
            }
        }
    }

    /// If this fails, something is stored of which Linux's OpenZFS says that it is no list: nobody gets at the file there any more.
    #[test]
    fn what_is_no_list_is_refused() {
        let whole = [(USER_OBJ, 6, NOBODY), (USER, 7, 1000), (GROUP_OBJ, 5, NOBODY), (GROUP, 1, 88), (MASK, 7, NOBODY), (OTHER, 4, NOBODY)];
        let decoded = |entries: &[(u16, u16, u32)]| List::decode(&list(entries)).map(|list| list.is_some());
        assert_eq!(decoded(&whole), Ok(true));
        assert_eq!((decoded(&[]), List::decode(b"")), (Ok(false), Ok(None)), "no list");
        for index in 0..whole.len() {
            let is_named = matches!(whole[index].0, USER | GROUP);
            let wanted = if is_named { Ok(true) } else { Err(ZplError::Invalid) };
            let (mut less, mut more) = (whole.to_vec(), whole.to_vec());
            less.remove(index);
            more.insert(index, whole[index]);
            assert_eq!((decoded(&less), decoded(&more)), (wanted, wanted), "{index}");
            for (tag, rights, id) in [(whole[index].0, 8, 5), (0x40, 7, 5), (0, 7, 5)] {
                let mut other = whole;
                other[index] = (tag, rights, id);
                assert_eq!(decoded(&other), Err(ZplError::Invalid), "{index}");
            }
            let mut nobody = whole;
            nobody[index].2 = NOBODY;
            assert_eq!(decoded(&nobody), if is_named { Err(ZplError::Invalid) } else { Ok(true) }, "{index}");
            let mut swapped = whole;
            swapped.swap(index, (index + 1) % whole.len());
            assert_eq!(decoded(&swapped), Err(ZplError::Invalid), "{index}");
        }
        let bytes = list(&whole);
        for length in 1..bytes.len() {
            let is_whole = length == HEADER_BYTES;
            assert_eq!(List::decode(&bytes[..length]).is_ok(), is_whole, "{length} bytes");
        }
        assert_eq!(List::decode(&[&[1][..], &bytes[1..]].concat()), Err(ZplError::NotSupported), "another version");
    }

    /// If this fails, whom the owner shut out with chmod here gets in again.
    #[test]
    fn lists_that_the_kernel_wrote_are_shown_and_follow_the_mode() {
        for xattr_sa in [true, false] {
            let (_pool, zfs) = file_system();
            let root = zfs.node(zfs.root()).expect("root");
            let node = zfs.create_node(&root, b"f", &NewNode { mode: 0o100_674, ..NewNode::default() }).expect("create");
            let stored = list(&[(USER_OBJ, 6, NOBODY), (USER, 7, 1000), (GROUP_OBJ, 5, NOBODY), (MASK, 7, NOBODY), (OTHER, 4, NOBODY)]);
            zfs.set_settings(Settings { posix_acl: true, xattr_sa, ..Settings::default() });
            let change = zfs.xattrs.stage_xattr(&node, ACCESS, Some(&stored)).expect("prepared");
            zfs.xattrs.carry_out_xattr(&node, &change).expect("as the kernel would");
            assert_eq!(zfs.get_xattr(&node, ACCESS), Ok(stored));
            assert_eq!(zfs.list_xattrs(&node), Ok(vec![ACCESS.to_vec()]));
            zfs.set_attrs(&node, &SetAttrs { mode: Some(0o600), ..SetAttrs::default() }).expect("chmod");
            let followed = list(&[(USER_OBJ, 6, NOBODY), (USER, 7, 1000), (GROUP_OBJ, 5, NOBODY), (MASK, 0, NOBODY), (OTHER, 0, NOBODY)]);
            assert_eq!(zfs.get_xattr(&node, ACCESS), Ok(followed));
            zfs.set_settings(Settings::default());
            assert_eq!(zfs.get_xattr(&node, ACCESS), Err(ZplError::NotSupported), "acltype=off");
            assert_eq!(zfs.list_xattrs(&node), Ok(Vec::new()));
        }
    }

    /// If this fails, a list that was set does not say what the mode says, is lost with the next mount, or lies where nobody wants one.
    #[test]
    fn lists_are_set_and_taken_away() {
        for xattr_sa in [true, false] {
            let (pool, zfs) = file_system();
            zfs.set_settings(Settings { posix_acl: true, xattr_sa, ..Settings::default() });
            let root = zfs.node(zfs.root()).expect("root");
            let node = zfs.create_node(&root, b"f", &NewNode { mode: 0o102_674, ..NewNode::default() }).expect("create");
            let given = list(&[(USER_OBJ, 7, NOBODY), (USER, 6, 1000), (GROUP_OBJ, 5, NOBODY), (MASK, 3, NOBODY), (OTHER, 0, NOBODY)]);
            assert_eq!(zfs.set_xattr(&node, ACCESS, &given, SetMode::Replace), Ok(()), "there was none");
            assert_eq!(node.fields().mode, 0o102_730);
            pool.sync().expect("synced");
            let fresh = Objset::open(TestPool::env(&pool.io), pool.objset.root_bp(), pool.objset.props()).expect("opens");
            let disk = Zfs::open(&fresh, None, zfs.settings()).expect("it opens from disk");
            let read = disk.node(node.object()).expect("the file");
            assert_eq!((read.fields().mode, disk.get_xattr(&read, ACCESS)), (0o102_730, Ok(given.clone())));
            assert_eq!(read.fields().xattr != 0, !xattr_sa, "where it lies");
            assert_eq!(zfs.set_list(&node, ACCESS, Some(&given), true), Ok(()));
            assert_eq!(node.fields().mode, 0o100_730, "set by a stranger to the group");
            let refused = [(&given[..9], ZplError::Invalid), (&[3, 0, 0, 0][..], ZplError::NotSupported)];
            for (value, error) in refused {
                assert_eq!(zfs.set_xattr(&node, ACCESS, value, SetMode::Any), Err(error));
            }
            assert_eq!(zfs.set_xattr(&node, DEFAULT, &given, SetMode::Any), Err(ZplError::AccessDenied), "no directory");
            assert_eq!(zfs.remove_xattr(&node, DEFAULT), Ok(()));
            assert_eq!(zfs.get_xattr(&node, ACCESS), Ok(given.clone()));
            let plain = list(&[(USER_OBJ, 6, NOBODY), (GROUP_OBJ, 4, NOBODY), (OTHER, 4, NOBODY)]);
            assert_eq!(zfs.set_xattr(&node, ACCESS, &plain, SetMode::Any), Ok(()));
            assert_eq!((node.fields().mode, zfs.list_xattrs(&node)), (0o100_644, Ok(Vec::new())), "the mode says it all");
            zfs.set_xattr(&node, ACCESS, &given, SetMode::Any).expect("again");
            assert_eq!(zfs.set_xattr(&node, ACCESS, &given[..4], SetMode::Any), Ok(()), "without entries");
            assert_eq!((node.fields().mode, zfs.list_xattrs(&node)), (0o100_730, Ok(Vec::new())), "the mode stays");
            assert_eq!(zfs.remove_xattr(&node, ACCESS), Ok(()), "there is none");
            let link = zfs.create_node(&root, b"l", &NewNode { mode: 0o120_777, target: b"f", ..NewNode::default() }).expect("symlink");
            assert_eq!(zfs.set_xattr(&link, ACCESS, &given, SetMode::Any), Err(ZplError::NotSupported));
            zfs.set_settings(Settings::default());
            assert_eq!(zfs.set_xattr(&node, ACCESS, &given, SetMode::Any), Err(ZplError::NotSupported), "acltype=off");
        }
    }

    /// If this fails, what is made in a shared directory is closed to those whom it is shared with, or open to others, or so after the next mount.
    #[test]
    fn default_lists_are_inherited() {
        for xattr_sa in [true, false] {
            let (pool, zfs) = file_system();
            zfs.set_settings(Settings { posix_acl: true, xattr_sa, ..Settings::default() });
            let root = zfs.node(zfs.root()).expect("root");
            let new = |mode: u64| NewNode { mode, umask: Some(0o077), ..NewNode::default() };
            let folder = zfs.create_node(&root, b"d", &new(0o040_777)).expect("mkdir");
            assert_eq!(folder.fields().mode, 0o040_700, "without a default list the umask counts");
            let narrowed = |user: u16, mask: u16, other: u16| {
                list(&[(USER_OBJ, user, NOBODY), (USER, 6, 1000), (GROUP_OBJ, 5, NOBODY), (MASK, mask, NOBODY), (OTHER, other, NOBODY)])
            };
            let default = narrowed(7, 7, 4);
            zfs.set_xattr(&folder, DEFAULT, &default, SetMode::Any).expect("a default list");
            assert_eq!(folder.fields().mode, 0o040_700, "it says nothing of the directory itself");
            let file = zfs.create_node(&folder, b"f", &new(0o100_666)).expect("create");
            let inner = zfs.create_node(&folder, b"inner", &new(0o040_777)).expect("mkdir");
            let nameless = zfs.create_nameless(&folder, &new(0o100_600)).expect("O_TMPFILE");
            let link = zfs.create_node(&folder, b"l", &NewNode { target: b"f", ..new(0o120_777) }).expect("symlink");
            let as_it_is = zfs.create_node(&folder, b"g", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("create");
            let wanted = [
                (&file, 0o100_664, vec![(ACCESS, narrowed(6, 6, 4))]),
                (&inner, 0o040_774, vec![(ACCESS, default.clone()), (DEFAULT, default.clone())]),
                (&nameless, 0o100_600, vec![(ACCESS, narrowed(6, 0, 0))]),
                (&link, 0o120_777, Vec::new()),
                (&as_it_is, 0o100_644, Vec::new()),
            ];
            let check = |zfs: &Arc<Zfs>, what: &str| {
                for (node, mode, lists) in &wanted {
                    let node = zfs.node(node.object()).expect("it is there");
                    let mut names = zfs.list_xattrs(&node).expect("names");
                    names.sort();
                    let found: Vec<_> = names.iter().map(|name| (&name[..], zfs.get_xattr(&node, name).expect("a value"))).collect();
                    assert_eq!((node.fields().mode, found), (*mode, lists.clone()), "{what}");
                }
            };
            check(&zfs, "in memory");
            pool.sync().expect("synced");
            assert_eq!(pool.check(), Ok(()));
            let fresh = Objset::open(TestPool::env(&pool.io), pool.objset.root_bp(), pool.objset.props()).expect("opens");
            check(&Zfs::open(&fresh, None, zfs.settings()).expect("it opens from disk"), "on disk");
            zfs.set_settings(Settings::default());
            let masked = zfs.create_node(&folder, b"off", &new(0o100_666)).expect("create");
            assert_eq!((masked.fields().mode, zfs.list_xattrs(&masked)), (0o100_600, Ok(Vec::new())), "acltype=off");
        }
    }

    /// If this fails, a damaged default list decides who gets at new files, or ends the daemon.
    #[test]
    fn nothing_is_made_below_a_damaged_default_list() {
        let (_pool, zfs) = file_system();
        let root = zfs.node(zfs.root()).expect("root");
        let change = zfs.xattrs.stage_xattr(&root, DEFAULT, Some(&[2, 0, 0, 0, 1, 0])).expect("prepared");
        zfs.xattrs.carry_out_xattr(&root, &change).expect("damaged");
        let new = NewNode { mode: 0o100_644, umask: Some(0), ..NewNode::default() };
        assert_eq!(zfs.create_node(&root, b"f", &new).map(drop), Err(ZplError::CORRUPT));
    }

    /// If this fails, a chmod of a file with a short or damaged list ends the daemon.
    #[test]
    fn damaged_lists_are_left_alone() {
        for length in 0..20 {
            let mut list = vec![1; length];
            follow_mode(&mut list, 0o777);
            assert_eq!(list.len(), length);
        }
        let mut small = list(&[(GROUP_OBJ, 5, NOBODY)]);
        follow_mode(&mut small, 0o020);
        assert_eq!(small, list(&[(GROUP_OBJ, 2, NOBODY)]), "without a mask the group's own");
    }
}
