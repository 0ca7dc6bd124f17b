//! Options of shares (OpenZFS: `nfs_validate_shareopts` of Linux): `zfs share` passes most of them on, and other systems must be able to.

/// Options without a special meaning to OpenZFS, which go to the NFS server.
const OPTIONS: [&str; 31] = [
    "all_squash",
    "anon",
    "anongid",
    "anonuid",
    "async",
    "auth_nlm",
    "crossmnt",
    "fsid",
    "fsuid",
    "hide",
    "insecure",
    "insecure_locks",
    "mountpoint",
    "mp",
    "no_acl",
    "no_all_squash",
    "no_auth_nlm",
    "no_root_squash",
    "no_subtree_check",
    "no_wdelay",
    "nohide",
    "nosub",
    "refer",
    "replicas",
    "root_mapping",
    "root_squash",
    "secure",
    "secure_locks",
    "subtree_check",
    "sync",
    "wdelay",
];

/// True for `on`, `off` and lists of options that an NFS server knows.
pub(super) fn is_nfs(text: &str) -> bool {
    let known = |option: &str| match option.split_once('=').unwrap_or((option, "")) {
        ("sec", _) => true,
        ("ro" | "rw", hosts) => are_hosts(hosts),
        (name, _) => OPTIONS.contains(&name),
    };
    matches!(text, "on" | "off") || !text.is_empty() && text.split(',').filter(|option| !option.is_empty()).all(known)
}

/// Hosts between colons; addresses that have colons themselves are in brackets, with a prefix length behind.
fn are_hosts(mut hosts: &str) -> bool {
    while let Some(at) = hosts.find('[') {
        let Some((_, tail)) = hosts[at..].split_once(']') else { return false };
        if !(tail.is_empty() || tail.starts_with(['/', ':'])) {
            return false;
        }
        hosts = tail;
    }
    true
}
