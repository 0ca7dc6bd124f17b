//! Flags of files that programs see and set by ioctl(2): `chattr +ia`, lsattr(1), those that DOS has, and the generation
//! (OpenZFS: `zpl_file.c`, `zpl_ioctl` and what it calls).
//!
//! Who may set what is checked here too: the kernel does it for Linux's own flags, not for those of DOS.

use crate::ZplError;
use crate::nodes::Node;
use crate::room::TX_NAMES;
use crate::setattr::Attributes;
use crate::userspace::Owner;
use crate::znode::{CTIME, Fields, S_IFDIR, S_IFMT, S_IFREG, State, flag};
use fuse::{Caller, Errno, Reply};
use ondisk::ObjectId;

// Numbers of Linux (`linux/fs.h`) and of OpenZFS (`sys/fs/zfs.h`), for programs of 64 bits.
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const ZFS_IOC_GETDOSFLAGS: u32 = 0x8008_8301;
const ZFS_IOC_SETDOSFLAGS: u32 = 0x4008_8302;

/// Flags, each as stored, as `FS_IOC_GETFLAGS` has it, and as `FS_IOC_FSGETXATTR` has it.
const LINUX: [(u64, u32, u32); 4] =
    [(flag::IMMUTABLE, 0x10, 0x8), (flag::APPENDONLY, 0x20, 0x10), (flag::NODUMP, 0x40, 0x80), (flag::PROJINHERIT, 0x2000_0000, 0x200)];
/// Flags that `ZFS_IOC_GETDOSFLAGS` shows as they are stored (OpenZFS: `ZFS_DOS_FL_USER_VISIBLE`).
const DOS: u64 = flag::IMMUTABLE
    | flag::APPENDONLY
    | flag::NODUMP
    | flag::NOUNLINK
    | flag::ARCHIVE
    | flag::HIDDEN
    | flag::SYSTEM
    | flag::READONLY
    | flag::REPARSE
    | flag::OFFLINE
    | flag::SPARSE;
/// Bytes of `struct fsxattr`: the flags first, the project fourth, all words of 32 bits.
const FSXATTR_BYTES: usize = 28;
const PROJECT_AT: usize = 12;

/// Flag of a directory whose new files get its project, as stored (OpenZFS: `ZFS_PROJINHERIT`).
pub const PROJECT_INHERIT: u64 = flag::PROJINHERIT;

/// Flags to set and to clear, as stored, and a new project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlagChange {
    /// Mask of the flags that are set or cleared, as stored.
    pub mask: u64,
    /// Flags of `mask` that are set afterwards.
    pub set: u64,
    /// Number of the project that is charged afterwards, if it is another.
    pub project: Option<u64>,
}

impl FlagChange {
    /// Flags that differ from those that are there.
    fn differing(self, fields: &Fields) -> u64 {
        (fields.flags ^ self.set) & self.mask
    }
}

fn word(argument: &[u8], at: usize) -> Reply<u32> {
    let bytes = argument.get(at..at + 4).ok_or(Errno::EINVAL)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Change to Linux's flags as stored; what OpenZFS has no flag for is refused.
fn stored(given: u32, of: impl Fn(&(u64, u32, u32)) -> u32) -> Reply<FlagChange> {
    let known = LINUX.iter().fold(0, |all, row| all | of(row));
    if given & !known != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mask = LINUX.iter().fold(0, |all, row| all | row.0);
    let set = LINUX.iter().filter(|row| given & of(row) != 0).fold(0, |all, row| all | row.0);
    Ok(FlagChange { mask, set, project: None })
}

/// Change that an ioctl asks for; None for one that only looks, or is not of this kind.
pub(crate) fn asked(fields: &Fields, command: u32, argument: &[u8]) -> Reply<Option<FlagChange>> {
    match command {
        FS_IOC_SETFLAGS => stored(word(argument, 0)?, |row| row.1).map(Some),
        FS_IOC_FSSETXATTR => {
            let project = match word(argument, PROJECT_AT)? {
                // Nobody's (OpenZFS: `zpl_is_valid_projid`).
                u32::MAX => return Err(Errno::EINVAL),
                project => Some(u64::from(project)).filter(|project| *project != fields.project),
            };
            Ok(Some(FlagChange { project, ..stored(word(argument, 0)?, |row| row.2)? }))
        }
        ZFS_IOC_SETDOSFLAGS => {
            let set = u64::from(word(argument, 0)?) | u64::from(word(argument, 4)?) << 32;
            if set & !DOS == 0 { Ok(Some(FlagChange { mask: DOS, set, project: None })) } else { Err(Errno::EOPNOTSUPP) }
        }
        _ => Ok(None),
    }
}

/// Answer to an ioctl that looks.
pub(crate) fn shown(fields: &Fields, command: u32) -> Reply<Vec<u8>> {
    let linux = |of: fn(&(u64, u32, u32)) -> u32| LINUX.iter().filter(|row| fields.flags & row.0 != 0).fold(0, |all, row| all | of(row));
    match command {
        FS_IOC_GETVERSION => Ok((fields.generation as u32).to_le_bytes().to_vec()),
        FS_IOC_GETFLAGS => Ok(linux(|row| row.1).to_le_bytes().to_vec()),
        FS_IOC_FSGETXATTR => {
            let mut answer = vec![0; FSXATTR_BYTES];
            answer[..4].copy_from_slice(&linux(|row| row.2).to_le_bytes());
            answer[PROJECT_AT..PROJECT_AT + 4].copy_from_slice(&(fields.project as u32).to_le_bytes());
            Ok(answer)
        }
        ZFS_IOC_GETDOSFLAGS => Ok((fields.flags & DOS).to_le_bytes().to_vec()),
        _ => Err(Errno::ENOTTY),
    }
}

/// Checks the caller: only root makes a file immutable or append-only, or takes that away; the rest is for its owner too.
pub(crate) fn check_caller(caller: &Caller, fields: &Fields, change: FlagChange) -> Reply<()> {
    if caller.uid == 0 {
        return Ok(());
    }
    if change.differing(fields) & (flag::IMMUTABLE | flag::APPENDONLY) != 0 {
        return Err(Errno::EPERM);
    }
    if u64::from(caller.uid) == fields.uid { Ok(()) } else { Err(Errno::EACCES) }
}

impl Attributes {
    /// Sets and clears flags and changes the project (OpenZFS: `zfs_setattr` with `xvattr_t`). EPERM for the mark of a reparse point; where the pool
    /// counts no projects, and for what is neither file nor directory, neither they nor the flag that inherits them are supported. An older node
    /// gets its number with its first project or with that flag.
    pub(crate) fn change_flags(&self, node: &Node, change: FlagChange) -> Result<(), ZplError> {
        self.store().check_writable()?;
        let fields = node.fields();
        let differs = change.differing(&fields);
        if differs & flag::REPARSE != 0 {
            return Err(ZplError::NotPermitted);
        }
        let is_of_projects = differs & flag::PROJINHERIT != 0 || change.project.is_some();
        let counts_projects = self.store().settings().project_quota && matches!(fields.mode & S_IFMT, S_IFREG | S_IFDIR);
        if is_of_projects && !counts_projects {
            return Err(ZplError::NotSupported);
        }
        let is_old = is_of_projects && fields.flags & flag::PROJID == 0;
        let change = if is_old { FlagChange { project: Some(change.project.unwrap_or(0)), ..change } } else { change };
        if change.project.is_some() {
            self.store().limits.check(&Owner { project: change.project, ..Owner::default() }, true)?;
            self.move_attributes(&fields, change)?;
        }
        let tx = self.store().room.assign(TX_NAMES)?;
        if let (true, Some(project)) = (is_old, change.project) {
            let sa = &self.store().sa;
            node.edit(sa, &tx, |state| state.give_project(sa, &node.dnode, project, &tx))?;
        }
        let now = self.store().now();
        let apply = |fields: &mut Fields| {
            let differing = change.differing(fields);
            fields.flags ^= differing;
            fields.project = change.project.unwrap_or(fields.project);
            fields.times[CTIME] = now;
            differing
        };
        let journal = &self.store().journal;
        let then = |state: &State, differing: &u64| journal.note_flags(node.object, state, (*differing, change.project), &tx);
        node.update_then(&self.store().sa, &tx, apply, then).map(drop)
    }

    /// Gives the directory of extended attributes and what is in it the project of their file (OpenZFS: `zfs_setattr_dir`).
    fn move_attributes(&self, fields: &Fields, change: FlagChange) -> Result<(), ZplError> {
        if fields.xattr == 0 {
            return Ok(());
        }
        let directory = self.nodes.node(ObjectId(fields.xattr))?;
        let mut objects = Vec::new();
        self.store().list(&directory, 0, &mut |listed| {
            objects.extend((listed.name != b"." && listed.name != b"..").then_some(listed.dirent.object));
            true
        })?;
        for object in objects {
            self.change_flags(&self.nodes.node(object)?, FlagChange { project: change.project, ..FlagChange::default() })?;
        }
        self.change_flags(&directory, FlagChange { project: change.project, ..FlagChange::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(flags: u64) -> Fields {
        Fields { flags, uid: 7, generation: 0x1_2345_6789, project: 3, ..Fields::default() }
    }

    /// Wrong bits make a file immutable that was meant to be left out of dumps, or show protection that is not there.
    #[test]
    fn flags_are_shown_as_they_are_set() {
        let start = fields(flag::ARCHIVE | flag::PROJID);
        for (bit, stored, shown_word) in [(0x10u32, flag::IMMUTABLE, 0x8u32), (0x20, flag::APPENDONLY, 0x10), (0x40, flag::NODUMP, 0x80)] {
            let change = asked(&start, FS_IOC_SETFLAGS, &bit.to_le_bytes()).unwrap().unwrap();
            assert_eq!(change.differing(&start), stored);
            let after = fields(start.flags & !change.mask | change.set);
            assert_eq!(shown(&after, FS_IOC_GETFLAGS).unwrap(), bit.to_le_bytes());
            let extended = shown(&after, FS_IOC_FSGETXATTR).unwrap();
            assert_eq!((&extended[..4], &extended[12..16]), (&shown_word.to_le_bytes()[..], &3u32.to_le_bytes()[..]));
            assert_eq!(asked(&after, FS_IOC_FSSETXATTR, &extended).unwrap().unwrap(), change);
            assert_eq!(shown(&after, ZFS_IOC_GETDOSFLAGS).unwrap(), (flag::ARCHIVE | stored).to_le_bytes());
        }
        assert_eq!(shown(&start, FS_IOC_GETVERSION).unwrap(), 0x2345_6789u32.to_le_bytes());
        assert_eq!(shown(&start, 0x5401).unwrap_err(), Errno::ENOTTY);
    }

    /// What cannot be kept must be refused: a program that set it would rely on it.
    #[test]
    fn unknown_flags_and_projects_are_refused() {
        let start = fields(0);
        assert_eq!(asked(&start, FS_IOC_SETFLAGS, &0x8u32.to_le_bytes()).unwrap_err(), Errno::EOPNOTSUPP);
        assert_eq!(asked(&start, FS_IOC_SETFLAGS, &[0; 3]).unwrap_err(), Errno::EINVAL);
        assert_eq!(asked(&start, ZFS_IOC_SETDOSFLAGS, &flag::PROJID.to_le_bytes()).unwrap_err(), Errno::EOPNOTSUPP);
        assert_eq!(asked(&start, FS_IOC_FSSETXATTR, &[0xff; FSXATTR_BYTES]).unwrap_err(), Errno::EINVAL);
        // Another project is a change, the same is none.
        let mut extended = [0; FSXATTR_BYTES];
        for (project, change) in [(3u32, None), (0, Some(0)), (1001, Some(1001))] {
            extended[PROJECT_AT..PROJECT_AT + 4].copy_from_slice(&project.to_le_bytes());
            assert_eq!(asked(&start, FS_IOC_FSSETXATTR, &extended).unwrap().unwrap().project, change);
        }
    }

    /// A user who could take "append-only" off a log could rewrite it; one who could hide the files of others could lose them.
    #[test]
    fn only_root_and_owners_set_flags() {
        let (root, owner, other) = (Caller::default(), Caller { uid: 7, ..Caller::default() }, Caller { uid: 8, ..Caller::default() });
        let (plain, protected) = (fields(0), fields(flag::APPENDONLY));
        let hidden = FlagChange { mask: DOS, set: flag::HIDDEN, project: None };
        assert_eq!(check_caller(&root, &protected, hidden), Ok(()));
        assert_eq!(check_caller(&owner, &protected, hidden), Err(Errno::EPERM));
        assert_eq!(check_caller(&owner, &plain, hidden), Ok(()));
        assert_eq!(check_caller(&other, &plain, hidden), Err(Errno::EACCES));
        assert_eq!(check_caller(&owner, &plain, FlagChange { mask: DOS, set: flag::IMMUTABLE, project: None }), Err(Errno::EPERM));
    }
}
