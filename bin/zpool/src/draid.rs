//! `draid[P][:Dd][:Cc][:Ss]`: the word that begins a dRAID vdev, with OpenZFS's defaults and messages (OpenZFS: `get_parity`,
//! `draid_config_by_type` in `zpool_vdev.c`).

/// Number of data columns of a group when the word names none.
const DATA_DEFAULT: u64 = 8;
/// Number of distributed spares, at most.
const SPARES_MAX: u64 = 100;

/// Shape that a dRAID vdev is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of parity columns of a group.
    pub parity: u8,
    /// Number of data columns of a group.
    pub data: u8,
    /// Number of distributed spares.
    pub spares: u8,
}

/// Number of parity columns that a word asks for; None when it does not begin a dRAID vdev.
pub fn parity(word: &str) -> Option<u8> {
    let rest = word.strip_prefix("draid")?;
    match rest.split(':').next()? {
        "" => Some(1),
        number if number.starts_with('0') => None,
        number => number.parse().ok().filter(|parity| (1..=3).contains(parity)),
    }
}

/// Shape that `word` asks for with so many devices, or OpenZFS's message.
pub fn shape(word: &str, devices: usize) -> Result<Shape, String> {
    let children = devices as u64;
    let parity = parity(word).ok_or_else(|| "invalid dRAID parity level 0; must be between 1 and 3".to_string())?;
    let (mut data, mut spares) = (None, 0);
    for field in word.split(':').skip(1) {
        let syntax = || format!("invalid dRAID syntax; expected [:<number><c|d|s>] not '{word}'");
        let end = field.find(|c: char| !c.is_ascii_digit()).ok_or_else(syntax)?;
        let value: u64 = field[..end].parse().map_err(|_| syntax())?;
        match field.as_bytes()[end].to_ascii_lowercase() {
            b'c' if value != children => {
                return Err(format!("invalid number of dRAID children; {value} required but {children} provided"));
            }
            b'c' => {}
            b'd' => data = Some(value),
            b's' => spares = value,
            _ => return Err(syntax()),
        }
    }
    let columns = children.saturating_sub(spares).saturating_sub(u64::from(parity));
    let data = match data {
        Some(data) => data,
        None if columns > 0 => columns.min(DATA_DEFAULT),
        None => {
            return Err(format!(
                "request number of distributed spares {spares} and parity level {parity}\nleaves no disks available for data"
            ));
        }
    };
    if spares > SPARES_MAX || spares >= children {
        return Err(format!("invalid number of dRAID spares {spares}; additional disks would be required"));
    }
    if data == 0 || data > columns {
        return Err(format!(
            "requested number of dRAID data disks per group {data} is too high,\nat most {columns} disks are available for data"
        ));
    }
    let small =
        |number: u64| u8::try_from(number).map_err(|_| format!("{children} disks were provided, but dRAID only supports up to 255 disks"));
    Ok(Shape { parity, data: small(data)?, spares: small(spares)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another default than OpenZFS's makes a pool of another width than the user's scripts expect.
    #[test]
    fn words_mean_what_they_mean_in_openzfs() {
        let shape = |word, devices| shape(word, devices).map(|shape| (shape.parity, shape.data, shape.spares));
        assert_eq!(shape("draid", 4), Ok((1, 3, 0)));
        assert_eq!(shape("draid2", 24), Ok((2, 8, 0)));
        assert_eq!(shape("draid2:8d:2s:24c", 24), Ok((2, 8, 2)));
        assert_eq!(shape("draid3:24C:2S:5D", 24), Ok((3, 5, 2)));
        assert_eq!(shape("draid:1s", 4), Ok((1, 2, 1)));
        for word in ["draid4", "draid0", "draid01", "draid2-0-0", "draidy", "raidz", "mirror"] {
            assert_eq!(parity(word), None, "{word}");
        }
    }

    /// A layout that cannot be must be refused with the message that tells what can.
    #[test]
    fn impossible_words_are_refused_as_in_openzfs() {
        let said = |word, devices| shape(word, devices).expect_err("refused");
        assert_eq!(said("draid:x", 4), "invalid dRAID syntax; expected [:<number><c|d|s>] not 'draid:x'");
        assert_eq!(said("draid:4", 4), "invalid dRAID syntax; expected [:<number><c|d|s>] not 'draid:4'");
        assert_eq!(said("draid:5c", 4), "invalid number of dRAID children; 5 required but 4 provided");
        assert_eq!(
            said("draid2:8d", 8),
            "requested number of dRAID data disks per group 8 is too high,\nat most 6 disks are available for data"
        );
        assert_eq!(said("draid1:3s", 4), "request number of distributed spares 3 and parity level 1\nleaves no disks available for data");
        assert_eq!(said("draid1:2d:9s", 4), "invalid number of dRAID spares 9; additional disks would be required");
    }
}
