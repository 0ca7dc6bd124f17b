//! Numbers for people, in OpenZFS's style: five characters at most, binary units.

const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

fn nice(value: u64, suffix: &str) -> String {
    let mut index = 0;
    let mut rest = value;
    while rest >= 1024 {
        rest /= 1024;
        index += 1;
    }
    if index == 0 {
        return format!("{value}{suffix}");
    }
    let unit = UNITS[index];
    let scale = 1u64 << (10 * index);
    if value.is_multiple_of(scale) {
        return format!("{rest}{unit}");
    }
    // As many decimals as fit: 1.23M, 12.3M, 123M.
    let exact = value as f64 / scale as f64;
    (0..=2)
        .rev()
        .map(|decimals| format!("{exact:.decimals$}{unit}"))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{exact:.0}{unit}"))
}

/// Text of a size in bytes: `0B`, `512B`, `1.50K`, `16M`.
pub fn nice_bytes(bytes: u64) -> String {
    nice(bytes, "B")
}

/// Text of a count: `0`, `999`, `1.21K`.
pub fn nice_count(count: u64) -> String {
    nice(count, "")
}

/// Text of a time in nanoseconds: `-`, `730ns`, `12us`, `1ms`, `2s`.
pub fn nice_time_ns(nanoseconds: u64) -> String {
    const STEPS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];
    STEPS
        .iter()
        .find(|(_, scale)| nanoseconds >= *scale)
        .map_or_else(|| "-".to_string(), |(unit, scale)| format!("{}{unit}", nanoseconds / scale))
}

/// Text of a duration in seconds as `HH:MM:SS` or `N days HH:MM:SS`, as scan lines print it.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes, rest) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days} days {hours:02}:{minutes:02}:{rest:02}") } else { format!("{hours:02}:{minutes:02}:{rest:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_openzfs_prints_them() {
        let cases = [
            (0, "0B"),
            (512, "512B"),
            (1024, "1K"),
            (1536, "1.50K"),
            (24576, "24K"),
            (1_288_490_188, "1.20G"),
            (107_374_182_400, "100G"),
            (12_884_901_889, "12.0G"),
            (1_047_552, "1023K"),
        ];
        for (value, text) in cases {
            assert_eq!(nice_bytes(value), text, "{value}");
        }
        assert_eq!(nice_count(0), "0");
        assert_eq!(nice_count(1234), "1.21K");
    }
}
