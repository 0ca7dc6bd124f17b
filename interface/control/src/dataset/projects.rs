//! `zfs project`: the projects that files are charged to.

use crate::failure::because;
use crate::mount::mounts::Mounted;
use crate::pool::Pools;
use control_api::{ErrorKind, Failure, ProjectReport, ProjectRequest, Response};
use fuse::Errno;
use ondisk::ObjectId;
use zpl::{FlagChange, PROJECT_INHERIT, ZplError};

/// Looks at files, or changes them; each has an answer of its own.
pub(crate) fn projects(pools: &Pools, request: &ProjectRequest) -> Result<Response, Failure> {
    let name = pools.by_mountpoint(&request.mountpoint)?;
    let pool = pools.pool_of(&name, "open")?;
    let gone = || because(ErrorKind::NotFound, format!("cannot open '{name}'"), "it is not mounted any more");
    let mounted = pool.mounts.mounted(&name).ok_or_else(gone)?;
    let report = |inode: &u64| {
        one(&mounted, ObjectId(*inode), request)
            .unwrap_or_else(|error| ProjectReport { failure: Some(Errno::from(error).to_string()), ..ProjectReport::default() })
    };
    Ok(Response::Projects(request.inodes.iter().map(report).collect()))
}

fn one(mounted: &Mounted, object: ObjectId, request: &ProjectRequest) -> Result<ProjectReport, ZplError> {
    let node = mounted.zfs().node(object)?;
    let before = node.fields();
    let project = request.project.map(u64::from).filter(|project| *project != before.project);
    let set = if request.inherit == Some(true) { PROJECT_INHERIT } else { 0 };
    let change = FlagChange { mask: request.inherit.map_or(0, |_| PROJECT_INHERIT), set, project };
    if project.is_some() || (before.flags ^ change.set) & change.mask != 0 {
        mounted.zfs().change_flags(&node, change)?;
        mounted.attributes_changed(&node);
    }
    let now = node.fields();
    Ok(ProjectReport { project: now.project as u32, inherits: now.flags & PROJECT_INHERIT != 0, failure: None })
}
