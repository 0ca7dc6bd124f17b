//! Id and name of this system: how it tells its pools from those of others.

use pool::Host;

/// Objection to protection against other systems where this one cannot be told from them (OpenZFS: `zpool_valid_proplist`).
pub(crate) const NO_HOSTID: &str = "requires a non-zero system hostid";

/// Environment variable with the id of this system, in place of that in its file: OpenZFS's programs in user space have it, too.
const HOSTID: &str = "ZFS_HOSTID";

/// Id in the text of the environment variable: a number, decimal, hexadecimal with `0x`, or octal with `0` (strtoull(3)).
fn hostid_of(text: &str) -> Option<u64> {
    let number = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => u32::from_str_radix(digits, 16),
        (None, Some(digits)) if !digits.is_empty() => u32::from_str_radix(digits, 8),
        _ => text.parse::<u32>(),
    };
    number.ok().map(u64::from)
}

/// Id and name of this system, by which other systems know it.
pub(crate) fn host() -> Host {
    let in_file = || {
        let bytes = std::fs::read("/etc/hostid").ok()?;
        bytes.first_chunk::<4>().map(|raw| u64::from(u32::from_le_bytes(*raw)))
    };
    let told = std::env::var(HOSTID).ok().and_then(|text| hostid_of(text.trim()));
    let id = told.or_else(in_file).unwrap_or(0);
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string();
    Host { id, name }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, two systems that were given ids have the same one, and nothing keeps them apart.
    #[test]
    fn an_id_is_read_as_openzfs_reads_it() {
        assert_eq!(["0x1a", "26", "0xffffffff", "0"].map(hostid_of), [Some(26), Some(26), Some(0xffff_ffff), Some(0)]);
        assert_eq!(hostid_of("01234567"), Some(0o1_234_567), "of OpenZFS's suite");
        assert_eq!(["", "one", "0x", "0x100000000", "-1"].map(hostid_of), [None; 5]);
    }
}
