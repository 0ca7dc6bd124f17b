//! The attributes of a file (OpenZFS: `dump_znode` in `zdb.c`).

use crate::dump::Dump;
use crate::object::Shown;
use nvlist::NvList;
use ondisk::ObjectId;
use ondisk::sa::DirectoryEntry;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use zap::Zap;
use zpl::{Attr, Node, Settings, Zfs};

/// Number of components of a path beyond which it is taken for a loop of directories.
const COMPONENTS_MAX: usize = 4096;
const MASTER_NODE: ObjectId = ObjectId(1);
const FLAG_XATTR: u64 = 0x1;
const FLAG_PROJECT: u64 = 0x8000_0000_0000;

/// Shows the attributes of node `object`.
pub fn dump(dump: &mut Dump<'_>, shown: &mut Shown, object: ObjectId) {
    let objset = shown.objset.clone();
    let files = shown.files.get_or_insert_with(|| Zfs::open(&objset, None, Settings::default()).ok()).clone();
    let node = files.as_ref().and_then(|files| files.node(object).ok());
    let (Some(files), Some(node)) = (files, node) else {
        return dump.line(format_args!("Failed to get handle for SA znode"));
    };
    if dump.datasets > 4 {
        let path = path(&files, &mut shown.names, object).unwrap_or_else(|problem| {
            shown.leaked += u64::from(problem == LEAKED);
            problem.to_string()
        });
        dump.line(format_args!("\tpath\t{path}"));
    }
    if node.fields().mode & 0o170_000 == 0o120_000
        && files.attribute_bytes(&node, Attr::Symlink) > 0
        && let Ok(target) = files.read_link(&node)
    {
        dump.line(format_args!("\ttarget\t{}", String::from_utf8_lossy(&target)));
    }
    fields(dump, &files, &node);
    match files.sa_xattrs(&node) {
        Ok(Some((bytes, list))) => attributes(dump, bytes, &list),
        Ok(None) => {}
        Err(error) => dump.damage(format_args!("object {object}: extended attributes: {error}")),
    }
}

fn fields(dump: &mut Dump<'_>, files: &Zfs, node: &Node) {
    let fields = node.fields();
    dump.line(format_args!("\tuid     {}\n\tgid     {}", fields.uid, fields.gid));
    for (name, (seconds, _)) in ["atime", "mtime", "ctime", "crtime"].iter().zip(fields.times) {
        dump.line(format_args!("\t{name}\t{}", cli::time::long(seconds)));
    }
    dump.line(format_args!("\tgen\t{}\n\tmode\t{:o}\n\tsize\t{}", fields.generation, fields.mode, fields.size));
    dump.line(format_args!("\tparent\t{}\n\tlinks\t{}\n\tpflags\t{:x}", fields.parent, fields.links, fields.flags));
    let has_projects = fields.flags & FLAG_PROJECT != 0 && dump.has_projects;
    let project = files.attribute(node, Attr::Projid).filter(|_| has_projects);
    if let Some(project) = project {
        dump.line(format_args!("\tprojid\t{project}"));
    }
    if let Some(xattr) = files.attribute(node, Attr::Xattr) {
        dump.line(format_args!("\txattr\t{xattr}"));
    }
    if let Some(rdev) = files.attribute(node, Attr::Rdev) {
        dump.line(format_args!("\trdev\t0x{rdev:016x}"));
    }
}

fn attributes(dump: &mut Dump<'_>, bytes: usize, list: &Arc<NvList>) {
    dump.line(format_args!("\tSA xattrs: {bytes} bytes, {} entries\n", list.len()));
    for (name, _) in list.iter() {
        let value = list.get_bytes(name.as_bytes()).unwrap_or_default();
        let printable = !dump.exact && value.iter().all(|byte| (b' '..=b'~').contains(byte));
        let mut text = String::new();
        for &byte in value {
            // Writing to a String cannot fail.
            let _ = if printable { write!(text, "{}", char::from(byte)) } else { write!(text, "\\{byte:03o}") };
        }
        dump.line(format_args!("\t\t{name} = {text}"));
    }
}

const LEAKED: &str = "path not found, possibly leaked";
const DELETED: &str = "on delete queue";

/// Path of a node from the root of its file system (OpenZFS: `zfs_obj_to_path`).
fn path(files: &Arc<Zfs>, names: &mut Names, object: ObjectId) -> Result<String, &'static str> {
    const S_IFMT: u64 = 0o170_000;
    const S_IFDIR: u64 = 0o040_000;
    let objset = files.objset();
    let queue = Zap::hold(objset, MASTER_NODE).and_then(|master| master.lookup_u64("DELETE_QUEUE"));
    let deleted = queue.and_then(|queue| Zap::hold(objset, ObjectId(queue))?.contains(format!("{:x}", object.0)));
    if deleted == Ok(true) {
        return Err(DELETED);
    }
    let mut components: Vec<String> = Vec::new();
    let mut at = object;
    while components.len() < COMPONENTS_MAX {
        let fields = files.node(at).map_err(|_| LEAKED)?.fields();
        let parent = ObjectId(fields.parent);
        if parent == at {
            components.reverse();
            return Ok(format!("/{}", components.join("/")));
        }
        let is_xattrs = fields.flags & FLAG_XATTR != 0 && fields.mode & S_IFMT == S_IFDIR;
        components.push(if is_xattrs { "<xattrdir>".to_string() } else { names.find(files, parent, at)? });
        at = parent;
    }
    Err(LEAKED)
}

/// Number of directories whose names are kept at a time, at most.
const DIRECTORIES_MAX: usize = 64;

/// Names in the directories that were looked into lately, by object.
#[derive(Default)]
pub struct Names(HashMap<ObjectId, HashMap<u64, String>>);

impl Names {
    fn find(&mut self, files: &Arc<Zfs>, directory: ObjectId, object: ObjectId) -> Result<String, &'static str> {
        if let Some(names) = self.0.get(&directory) {
            return names.get(&object.0).cloned().ok_or(LEAKED);
        }
        let mut names = HashMap::new();
        let zap = Zap::hold(files.objset(), directory).map_err(|_| LEAKED)?;
        let listed = zap.for_each(|entry| {
            let target = DirectoryEntry::from_word(entry.first_integer).object.0;
            names.entry(target).or_insert_with(|| String::from_utf8_lossy(&entry.name).into_owned());
            Ok(())
        });
        listed.map_err(|_| LEAKED)?;
        if self.0.len() >= DIRECTORIES_MAX {
            self.0.clear();
        }
        self.0.entry(directory).or_insert(names).get(&object.0).cloned().ok_or(LEAKED)
    }
}
