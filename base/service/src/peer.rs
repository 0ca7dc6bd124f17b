//! Users at the other end of a socket, as the kernel saw them when they connected.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Groups that are asked for at first, and at most (Linux: `NGROUPS_MAX`).
const GROUPS: [usize; 2] = [64, 65536];

/// Numbers of the supplementary groups of whoever connected to a unix socket (unix(7): `SO_PEERGROUPS`).
///
/// # Errors
/// Those of the system: Linux before 4.13 cannot tell.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    match groups_up_to(socket, GROUPS[0]) {
        Err(error) if error.raw_os_error() == Some(libc::ERANGE) => groups_up_to(socket, GROUPS[1]),
        result => result,
    }
}

fn groups_up_to(socket: BorrowedFd<'_>, most: usize) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; most];
    let mut bytes = (most * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to the vector, which has as many, and the length of what it wrote to `bytes`.
    #[expect(unsafe_code, reason = "this option of sockets can't be asked for otherwise")]
    let failed =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), &raw mut bytes) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// If this fails, members of a group may not do what was delegated to it, or others may.
    #[test]
    fn the_groups_are_those_of_whoever_connected() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let mut told = peer_groups(one.as_fd()).expect("told");
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).expect("a line");
        let mut own: Vec<u32> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        told.sort_unstable();
        own.sort_unstable();
        assert_eq!(told, own);
    }
}
