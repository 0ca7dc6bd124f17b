//! Memory for keys: pages of their own that are wiped, never dumped, and kept in memory where the system lets us.
#![expect(unsafe_code, reason = "pages of their own, locked in memory and left out of core dumps")]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use std::fmt;
use std::ptr::NonNull;
use zeroize::Zeroize;

/// Secret bytes. They are wiped when they are dropped; a core dump does not have them; they are not swapped out unless the limit of locked memory
/// (`RLIMIT_MEMLOCK`) is used up.
pub struct Secret {
    pages: NonNull<u8>,
    length: usize,
}

// SAFETY: a Secret owns its mapping exclusively, like a Box<[u8]>.
unsafe impl Send for Secret {}
// SAFETY: shared access only reads.
unsafe impl Sync for Secret {}

impl Secret {
    /// `length` bytes, zeros until `fill` wrote them.
    pub fn new(length: usize, fill: impl FnOnce(&mut [u8])) -> Secret {
        let size = length.max(1);
        // SAFETY: a new private mapping at an address of the kernel's choice touches no memory of ours.
        let raw = unsafe { mmap_anonymous(std::ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let Some(pages) = raw.ok().and_then(|raw| NonNull::new(raw.cast::<u8>())) else {
            std::alloc::handle_alloc_error(std::alloc::Layout::array::<u8>(size).unwrap_or(std::alloc::Layout::new::<u8>()))
        };
        let mut secret = Secret { pages, length };
        // SAFETY: the mapping is ours and stays until the Secret is dropped; neither call changes its bytes.
        unsafe {
            let _ = madvise(pages.as_ptr().cast(), size, Advice::LinuxDontDump);
            let _ = mlock(pages.as_ptr().cast(), size);
        }
        fill(secret.bytes_mut());
        secret
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Secret {
        Secret::new(bytes.len(), |own| own.copy_from_slice(bytes))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has at least `length` initialized bytes, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_ptr(), self.length) }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes_mut().zeroize();
        // SAFETY: the mapping was made with this size, and nobody can have a reference into it any more.
        unsafe {
            let _ = munmap(self.pages.as_ptr().cast(), self.length.max(1));
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret of {} bytes", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    /// Flags that the kernel has of the mapping with this address.
    fn flags_of(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("the process sees its own mappings");
        let mut is_there = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let ends = range.and_then(|(start, end)| Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?)));
            if let Some((start, end)) = ends {
                is_there = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_there) {
                return flags.to_string();
            }
        }
        String::new()
    }

    /// If this fails, keys are in the core dumps of crashed daemons.
    #[test]
    fn secrets_are_not_dumped_and_not_printed() {
        let secret = Secret::copy_of(b"a key of a dataset");
        assert_eq!(secret.bytes(), b"a key of a dataset");
        let flags = flags_of(secret.bytes().as_ptr() as usize);
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
        assert_eq!(format!("{secret:?}"), "Secret of 18 bytes");
        assert_eq!(Secret::new(0, |_| ()).bytes(), b"");
    }
}
