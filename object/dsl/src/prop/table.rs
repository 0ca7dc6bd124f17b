//! The table of native properties: name, kind, default, where it applies and whether it can be set (OpenZFS: `zfs_prop.c`).
//!
//! The order is that of OpenZFS's `zfs_prop_t`, which `zfs get all` follows.

use super::words::{self, Words};
use crate::DslError;

/// Applies to file systems.
pub const FILESYSTEM: u8 = 1;
/// Applies to volumes.
pub const VOLUME: u8 = 2;
/// Applies to snapshots.
pub const SNAPSHOT: u8 = 4;
/// Longest text of a property, in bytes, final zero byte included.
const TEXT_BYTES_MAX: usize = 1024;
/// Longest name of a user's property, in bytes (OpenZFS: `ZAP_MAXNAMELEN`, with its end).
pub const USER_NAME_BYTES_MAX: usize = 255;
/// Longest value of a user's property, in bytes (OpenZFS: `ZAP_MAXVALUELEN`, with its end).
pub const USER_VALUE_BYTES_MAX: usize = 8191;
const ALL: u8 = FILESYSTEM | VOLUME | SNAPSHOT;
const DATA: u8 = FILESYSTEM | VOLUME;
const FILES: u8 = FILESYSTEM | SNAPSHOT;

/// Ways in which a property gets its value (OpenZFS: `zprop_attr_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attr {
    /// Set here or inherited.
    Inherit,
    /// Set here or the default.
    Default,
    /// Computed by the engine, never set.
    ReadOnly,
    /// Set when the dataset is made, inherited otherwise.
    OneTime,
    /// Set when the dataset is made, the default otherwise.
    OneTimeDefault,
}

/// Properties that live in the file system's own tables.
const IN_FILE_SYSTEM: &[&str] = &["normalization", "utf8only", "casesensitivity", "version"];
/// Properties that live in the volume.
const IN_VOLUME: &[&str] = &["volsize", "volblocksize"];

/// True for properties that the file system's own tables, or the volume's, keep.
pub(crate) fn in_object_set(name: &str) -> bool {
    IN_FILE_SYSTEM.contains(&name) || IN_VOLUME.contains(&name)
}

/// Type of a property's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Number of bytes.
    Bytes,
    /// Number of bytes; 0 means that there is none.
    BytesOrNone,
    /// A count; all ones means that there is none.
    CountOrNone,
    /// A number that is never abbreviated.
    Number,
    /// Ratio in hundredths.
    Ratio,
    /// Time in seconds since the epoch.
    Time,
    /// Text with a default.
    Text(&'static str),
    /// One of the words.
    Index(&'static [(&'static str, u64)]),
}

impl Kind {
    /// True for properties whose value is text.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Kind::Text(_))
    }
}

/// A native property.
#[derive(Debug, PartialEq, Eq)]
pub struct PropDesc {
    /// Name as in `zfs get`.
    pub name: &'static str,
    /// Type of the value.
    pub kind: Kind,
    /// Default of what is not text.
    pub default: u64,
    /// Way in which the property gets its value.
    pub attr: Attr,
    /// Kinds of datasets that the property applies to, as a mask of [`FILESYSTEM`], [`VOLUME`] and [`SNAPSHOT`].
    pub applies: u8,
}

/// A checked name: a native property, or a user property (with a colon).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prop {
    /// A native one.
    Native(&'static PropDesc),
    /// The user's own.
    User(String),
}

impl Prop {
    /// Name of the property.
    pub fn name(&self) -> &str {
        match self {
            Prop::Native(desc) => desc.name,
            Prop::User(name) => name,
        }
    }
    /// True when children inherit it.
    pub fn is_inherited(&self) -> bool {
        match self {
            Prop::Native(desc) => matches!(desc.attr, Attr::Inherit | Attr::OneTime),
            Prop::User(_) => true,
        }
    }
}

/// Finds a property by name.
pub fn find(name: &str) -> Result<Prop, DslError> {
    if let Some(desc) = TABLE.iter().find(|desc| desc.name == name) {
        return Ok(Prop::Native(desc));
    }
    if is_users(name) && name.len() <= USER_NAME_BYTES_MAX { Ok(Prop::User(name.to_string())) } else { Err(DslError::BadProperty) }
}

/// True for a name that a user's property could have, were it short enough.
fn is_users(name: &str) -> bool {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.' | ':');
    name.contains(':') && name.chars().all(valid)
}

/// Objection to the length of the name or the value of a user's property, in OpenZFS's words and with the limit; none to other properties.
pub fn users_objection(name: &str, text: &str) -> Option<String> {
    if !is_users(name) {
        return None;
    }
    if name.len() > USER_NAME_BYTES_MAX {
        return Some(format!("property name '{name}' is too long: {USER_NAME_BYTES_MAX} bytes at most"));
    }
    (text.len() > USER_VALUE_BYTES_MAX).then(|| format!("property value too long: '{name}' takes {USER_VALUE_BYTES_MAX} bytes at most"))
}

/// Reason why `name` of a dataset of this kind ([`FILESYSTEM`], [`VOLUME`] or [`SNAPSHOT`]) cannot be set to `text` by a user, in the
/// words of OpenZFS's commands; none when it is possible.
pub fn objection(name: &str, text: &str, kind: u8, creating: bool) -> Option<String> {
    match find(name) {
        Err(_) if is_users(name) => users_objection(name, text),
        Err(_) if is_owners(name) => owners_objection(name, text, kind),
        Err(_) => {
            Some(format!("invalid property '{name}' ('zfs get all' lists the properties; the user's own have a colon in their names)"))
        }
        Ok(Prop::Native(_)) if kind == SNAPSHOT => Some("this property can not be modified for snapshots".to_string()),
        Ok(Prop::Native(desc)) if desc.applies & kind == 0 => Some(format!("'{name}' does not apply to datasets of this type")),
        Ok(Prop::Native(desc)) => desc.objection(text, creating),
        Ok(Prop::User(_)) => users_objection(name, text),
    }
}

/// Objection to so many bytes as `special_small_blocks`, where blocks take at most `largest`, in the words of OpenZFS's commands
/// (`zfs_valid_proplist`).
pub fn small_blocks_objection(bytes: u64, largest: &str) -> String {
    format!("invalid 'special_small_blocks={bytes}' property: must be zero or a power of 2 from 512B to {largest}")
}

/// True for what concerns one user, group or project: `userquota@ID`, `projectobjused@ID` and their kind. A dataset keeps such values
/// apart from its properties.
pub fn is_owners(name: &str) -> bool {
    let what = |kind: &'_ str| ["user", "group", "project"].iter().find_map(|who| kind.strip_prefix(who).map(str::to_string));
    let kind = name.split_once('@').and_then(|(kind, _)| what(kind));
    kind.is_some_and(|what| matches!(what.as_str(), "used" | "objused" | "quota" | "objquota"))
}

/// The number behind the `@`: of a user, a group or a project.
pub fn owner(name: &str) -> Option<u64> {
    let (_, id) = name.split_once('@')?;
    // The largest is nobody's (OpenZFS: `zpl_is_valid_projid`).
    id.parse().ok().filter(|number| *number < u64::from(u32::MAX) && id.bytes().all(|byte| byte.is_ascii_digit()))
}

/// [`objection`] to a limit of one user, group or project.
fn owners_objection(name: &str, text: &str, kind: u8) -> Option<String> {
    match kind {
        SNAPSHOT => return Some("this property can not be modified for snapshots".to_string()),
        FILESYSTEM => {}
        _ => return Some(format!("'{name}' does not apply to datasets of this type")),
    }
    if owner(name).is_none() {
        return Some(format!("'{name}' has an invalid user/group name"));
    }
    if name.split_once('@').is_some_and(|(kind, _)| kind.ends_with("used")) {
        return Some(format!("'{name}' is readonly"));
    }
    if text == "none" { None } else { size(text).err() }
}

/// The native property of this name.
pub fn native(name: &str) -> Option<&'static PropDesc> {
    TABLE.iter().find(|desc| desc.name == name)
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A number, as stored.
    Number(u64),
    /// Text, as stored.
    Text(String),
}

/// A size with an optional unit: `1.5G`, `128K`, `512` (OpenZFS: `zfs_nicestrtonum`); the error says in its words what is wrong.
pub fn size(text: &str) -> Result<u64, String> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(format!("bad numeric value '{text}'"));
    }
    let too_large = || "numeric value is too large".to_string();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = shift(unit).ok_or_else(|| format!("invalid numeric suffix '{unit}'"))?;
    if number.contains('.') {
        let value: f64 = number.parse().map_err(|_| format!("bad numeric value '{text}'"))?;
        let bytes = value * 2f64.powi(shift as i32);
        return if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(too_large()) };
    }
    let value: u64 = number.parse().map_err(|_| too_large())?;
    1u64.checked_shl(shift).and_then(|unit| value.checked_mul(unit)).ok_or_else(too_large)
}

/// log2 of a unit: `K`, `KB`, `KiB` in either case and so on; `B` stands alone (OpenZFS: `str2shift`).
fn shift(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    let Some(letter) = unit.chars().next() else { return Some(0) };
    let tail = &unit[letter.len_utf8()..];
    let index = "BKMGTPEZ".find(letter)? as u32;
    let is_unit = tail.is_empty() || index > 0 && matches!(tail, "B" | "IB");
    is_unit.then_some(10 * index)
}

/// [`size`], without the reason.
pub fn parse_bytes(text: &str) -> Option<u64> {
    size(text).ok()
}

impl PropDesc {
    /// The word for a number of an index property.
    pub fn word(&self, value: u64) -> Option<&'static str> {
        match self.kind {
            Kind::Index(words) => words.iter().find(|(_, number)| *number == value).map(|(word, _)| *word),
            _ => None,
        }
    }

    /// Checks and converts what a user gave.
    pub fn parse(&self, text: &str) -> Result<Parsed, DslError> {
        let number = match self.kind {
            Kind::Text(_) => return self.parse_text(text),
            Kind::Index(words) => words.iter().find(|(word, _)| *word == text).map(|(_, number)| *number),
            Kind::BytesOrNone | Kind::Bytes if text == "none" => Some(0),
            Kind::BytesOrNone if self.is_quota() => parse_bytes(text).filter(|bytes| *bytes != 0),
            Kind::BytesOrNone | Kind::Bytes => parse_bytes(text),
            Kind::CountOrNone if text == "none" => Some(u64::MAX),
            Kind::CountOrNone | Kind::Number | Kind::Ratio | Kind::Time => parse_bytes(text),
        };
        let number = number.ok_or(DslError::BadValue)?;
        // Who means none says so: 0 would be the smallest limit.
        if number == 0 && text != "none" && matches!(self.name, "quota" | "refquota") {
            return Err(DslError::BadValue);
        }
        if self.is_possible(number) { Ok(Parsed::Number(number)) } else { Err(DslError::BadValue) }
    }

    /// Quotas are removed by `none`: a 0 is a mistake (OpenZFS: `zprop_parse_value`).
    fn is_quota(&self) -> bool {
        matches!(self.name, "quota" | "refquota")
    }

    fn parse_text(&self, text: &str) -> Result<Parsed, DslError> {
        let possible = match self.name {
            "mountpoint" => matches!(text, "none" | "legacy") || text.starts_with('/'),
            "keylocation" => is_key_location(text),
            "sharenfs" => super::share::is_nfs(text),
            "sharesmb" => matches!(text, "on" | "off"),
            _ => true,
        };
        if possible && text.len() < TEXT_BYTES_MAX && !text.contains('\0') {
            Ok(Parsed::Text(text.to_string()))
        } else {
            Err(DslError::BadValue)
        }
    }

    /// Reason why a user may not set this to `text`, in the words of OpenZFS's commands (`zfs_valid_proplist`); none when it is possible.
    fn objection(&self, text: &str, creating: bool) -> Option<String> {
        let name = self.name;
        if self.attr == Attr::ReadOnly || !creating && matches!(self.attr, Attr::OneTime | Attr::OneTimeDefault) {
            return Some(format!("'{name}' is readonly"));
        }
        if self.parse(text).is_ok() {
            return None;
        }
        Some(match self.kind {
            Kind::Index(words) => format!("'{name}' must be one of '{}'", words::listed(words)),
            Kind::Bytes if matches!(name, "recordsize" | "volblocksize") => format!("'{name}' must be power of 2 from 512B to 16M"),
            Kind::Text(_) if matches!(name, "sharenfs" | "sharesmb") => format!("'{name}' cannot be set to invalid options"),
            Kind::Text(_) if name == "mountpoint" && !text.starts_with('/') => {
                format!("'{name}' must be an absolute path, 'none', or 'legacy'")
            }
            Kind::Text(_) if text.len() >= TEXT_BYTES_MAX => format!("'{name}' is too long"),
            Kind::Text(_) if name == "keylocation" => "invalid keylocation".to_string(),
            Kind::Text(_) => format!("'{text}' is no value for '{name}'"),
            _ if text == "auto" && name == "refreservation" => "'refreservation=auto' only allowed on volumes".to_string(),
            _ if text == "auto" => format!("'auto' is invalid value for '{name}'"),
            _ if self.is_quota() && parse_bytes(text) == Some(0) => "use 'none' to disable quota/refquota".to_string(),
            _ => match size(text) {
                Ok(bytes) if name == "special_small_blocks" => small_blocks_objection(bytes, "16M"),
                Ok(_) => format!("bad numeric value '{text}'"),
                Err(why) => why,
            },
        })
    }

    fn is_possible(&self, number: u64) -> bool {
        match self.name {
            "recordsize" | "volblocksize" => number.is_power_of_two() && (512..=16 << 20).contains(&number),
            "special_small_blocks" => number == 0 || number.is_power_of_two() && (512..=16 << 20).contains(&number),
            _ => true,
        }
    }
}

/// True for a place that a key can come from, or for none (OpenZFS: `zfs_prop_valid_keylocation`). Nobody looks here whether a key is there.
fn is_key_location(text: &str) -> bool {
    let is_behind = |scheme: &&str| text.len() > scheme.len() && text.starts_with(*scheme);
    // They would be orders to whoever reads a list of properties, and part no address.
    if text.chars().any(char::is_control) {
        return false;
    }
    matches!(text, "none" | "prompt") || ["file:///", "https://", "http://"].iter().any(is_behind)
}

const fn row(name: &'static str, kind: Kind, default: u64, attr: Attr, applies: u8) -> PropDesc {
    PropDesc { name, kind, default, attr, applies }
}
const fn fact(name: &'static str, kind: Kind, applies: u8) -> PropDesc {
    row(name, kind, 0, Attr::ReadOnly, applies)
}
const fn index(name: &'static str, words: Words, default: u64, attr: Attr, applies: u8) -> PropDesc {
    row(name, Kind::Index(words), default, attr, applies)
}
const fn switch(name: &'static str, default: u64, applies: u8) -> PropDesc {
    index(name, words::BOOLEAN, default, Attr::Inherit, applies)
}
const fn text(name: &'static str, default: &'static str, attr: Attr, applies: u8) -> PropDesc {
    row(name, Kind::Text(default), 0, attr, applies)
}

/// Every native property that users see.
pub static TABLE: &[PropDesc] = &[
    text("type", "", Attr::ReadOnly, ALL),
    fact("creation", Kind::Time, ALL),
    fact("used", Kind::Bytes, ALL),
    fact("available", Kind::Bytes, DATA),
    fact("referenced", Kind::Bytes, ALL),
    fact("compressratio", Kind::Ratio, ALL),
    index("mounted", words::YES_NO, 0, Attr::ReadOnly, FILESYSTEM),
    text("origin", "", Attr::ReadOnly, DATA),
    row("quota", Kind::BytesOrNone, 0, Attr::Default, FILESYSTEM),
    row("reservation", Kind::BytesOrNone, 0, Attr::Default, DATA),
    row("volsize", Kind::Bytes, 0, Attr::Default, SNAPSHOT | VOLUME),
    row("volblocksize", Kind::Bytes, 16384, Attr::OneTime, VOLUME),
    row("recordsize", Kind::Bytes, 131072, Attr::Inherit, FILESYSTEM),
    text("mountpoint", "/", Attr::Inherit, FILESYSTEM),
    text("sharenfs", "off", Attr::Inherit, FILESYSTEM),
    index("checksum", words::CHECKSUM, 1, Attr::Inherit, DATA),
    index("compression", words::COMPRESSION, 1, Attr::Inherit, DATA),
    switch("atime", 1, FILESYSTEM),
    switch("devices", 1, FILES),
    switch("exec", 1, FILES),
    switch("setuid", 1, FILES),
    switch("readonly", 0, DATA),
    switch("zoned", 0, FILESYSTEM),
    index("snapdir", words::SNAPDIR, 0, Attr::Inherit, FILESYSTEM),
    index("aclmode", words::ACLMODE, 0, Attr::Inherit, FILESYSTEM),
    index("aclinherit", words::ACLINHERIT, 4, Attr::Inherit, FILESYSTEM),
    fact("createtxg", Kind::Number, ALL),
    index("canmount", words::CANMOUNT, 1, Attr::Default, FILESYSTEM),
    index("xattr", words::XATTR, 2, Attr::Inherit, FILES),
    index("copies", words::COPIES, 1, Attr::Inherit, DATA),
    index("version", words::VERSION, 0, Attr::Default, FILES),
    index("utf8only", words::BOOLEAN, 0, Attr::OneTime, FILES),
    index("normalization", words::NORMALIZE, 0, Attr::OneTime, FILES),
    index("casesensitivity", words::CASE, 0, Attr::OneTime, FILES),
    switch("vscan", 0, FILESYSTEM),
    switch("nbmand", 0, FILES),
    text("sharesmb", "off", Attr::Inherit, FILESYSTEM),
    row("refquota", Kind::BytesOrNone, 0, Attr::Default, FILESYSTEM),
    row("refreservation", Kind::BytesOrNone, 0, Attr::Default, DATA),
    fact("guid", Kind::Number, ALL),
    index("primarycache", words::CACHE, 2, Attr::Inherit, ALL),
    index("secondarycache", words::CACHE, 2, Attr::Inherit, ALL),
    fact("usedbysnapshots", Kind::Bytes, DATA),
    fact("usedbydataset", Kind::Bytes, DATA),
    fact("usedbychildren", Kind::Bytes, DATA),
    fact("usedbyrefreservation", Kind::Bytes, DATA),
    index("defer_destroy", words::BOOLEAN, 0, Attr::ReadOnly, SNAPSHOT),
    fact("userrefs", Kind::Number, SNAPSHOT),
    index("logbias", words::LOGBIAS, 0, Attr::Inherit, DATA),
    fact("objsetid", Kind::Number, ALL),
    index("dedup", words::DEDUP, 2, Attr::Inherit, DATA),
    text("mlslabel", "none", Attr::Inherit, ALL),
    index("sync", words::SYNC, 0, Attr::Inherit, DATA),
    index("dnodesize", words::DNODESIZE, 0, Attr::Inherit, FILESYSTEM),
    fact("refcompressratio", Kind::Ratio, ALL),
    fact("written", Kind::Bytes, ALL),
    text("clones", "", Attr::ReadOnly, SNAPSHOT),
    fact("logicalused", Kind::Bytes, DATA),
    fact("logicalreferenced", Kind::Bytes, ALL),
    index("volmode", words::VOLMODE, 0, Attr::Inherit, DATA),
    row("filesystem_limit", Kind::CountOrNone, u64::MAX, Attr::Default, FILESYSTEM),
    row("snapshot_limit", Kind::CountOrNone, u64::MAX, Attr::Default, DATA),
    row("filesystem_count", Kind::CountOrNone, u64::MAX, Attr::ReadOnly, FILESYSTEM),
    row("snapshot_count", Kind::CountOrNone, u64::MAX, Attr::ReadOnly, DATA),
    index("snapdev", words::SNAPDEV, 0, Attr::Inherit, DATA),
    index("acltype", words::ACLTYPE, 0, Attr::Inherit, FILES),
    text("context", "none", Attr::Default, ALL),
    text("fscontext", "none", Attr::Default, ALL),
    text("defcontext", "none", Attr::Default, ALL),
    text("rootcontext", "none", Attr::Default, ALL),
    switch("relatime", 1, FILESYSTEM),
    index("redundant_metadata", words::REDUNDANT, 0, Attr::Inherit, DATA),
    switch("overlay", 1, FILESYSTEM),
    text("receive_resume_token", "", Attr::ReadOnly, DATA),
    index("encryption", words::ENCRYPTION, 2, Attr::OneTime, ALL),
    text("keylocation", "none", Attr::Default, DATA),
    index("keyformat", words::KEYFORMAT, 0, Attr::OneTimeDefault, DATA),
    row("pbkdf2iters", Kind::Number, 0, Attr::OneTimeDefault, DATA),
    text("encryptionroot", "", Attr::ReadOnly, ALL),
    index("keystatus", words::KEYSTATUS, 0, Attr::ReadOnly, ALL),
    row("special_small_blocks", Kind::Bytes, 0, Attr::Inherit, FILESYSTEM),
    text("redact_snaps", "", Attr::ReadOnly, ALL),
    fact("snapshots_changed", Kind::Time, DATA),
    index("prefetch", words::CACHE, 2, Attr::Inherit, ALL),
    index("volthreading", words::BOOLEAN, 1, Attr::Default, VOLUME),
    index("direct", words::DIRECT, 1, Attr::Inherit, FILESYSTEM),
    switch("longname", 0, FILESYSTEM),
    fact("ivsetguid", Kind::Number, SNAPSHOT),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes as users type them; a wrong unit sets a quota a thousand times off.
    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("512", 512), ("128K", 131072), ("1.5G", 1610612736), ("10m", 10485760), ("2TiB", 2 << 40), ("1B", 1)] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for bad in ["", "K", "1X", "-1", "1.2.3", "99999999999999E", " 1", "1BB", "1BiB", "1Kx"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
        assert_eq!(size("1z"), Err("numeric value is too large".to_string()));
        assert_eq!(size("99999999999999999999"), Err("numeric value is too large".to_string()));
        assert_eq!(size("1X"), Err("invalid numeric suffix 'X'".to_string()));
        assert_eq!(size("big"), Err("bad numeric value 'big'".to_string()));
    }

    /// A value that the kernel does not know would make the property unreadable there.
    #[test]
    fn values_are_checked() {
        let prop = |name: &str| native(name).expect("a native property");
        assert_eq!(prop("compression").parse("zstd-19"), Ok(Parsed::Number(16 | 19 << 7)));
        assert_eq!(prop("compression").word(10), Some("gzip"));
        assert_eq!(prop("recordsize").parse("1M"), Ok(Parsed::Number(1 << 20)));
        assert_eq!(prop("recordsize").parse("3K"), Err(DslError::BadValue));
        assert_eq!(prop("quota").parse("none"), Ok(Parsed::Number(0)));
        assert_eq!((prop("quota").parse("0"), prop("reservation").parse("0")), (Err(DslError::BadValue), Ok(Parsed::Number(0))));
        assert_eq!(objection("refquota", "0", FILESYSTEM, false).as_deref(), Some("use 'none' to disable quota/refquota"));
        let why = "invalid 'special_small_blocks=1025' property: must be zero or a power of 2 from 512B to 16M";
        assert_eq!(objection("special_small_blocks", "1025", FILESYSTEM, true).as_deref(), Some(why));
        assert_eq!(prop("mountpoint").parse("relative"), Err(DslError::BadValue));
        assert!(prop("sharenfs").parse("rw=@10.0.0.0/8,no_root_squash").is_ok() && prop("sharenfs").parse("off").is_ok());
        let wrong = Some("'sharenfs' cannot be set to invalid options".to_string());
        for text in ["ON", "sss", "", "rw=[fe80::1"] {
            assert_eq!(objection("sharenfs", text, FILESYSTEM, true), wrong, "{text}");
        }
        assert_eq!(find("com.example:backup"), Ok(Prop::User("com.example:backup".to_string())));
        assert_eq!(find("nonsense"), Err(DslError::BadProperty));
    }

    /// If this fails, whoever keeps notes in properties has to find out by trial how long they may be.
    #[test]
    fn what_is_too_long_is_told_with_its_limit() {
        let (name, value) = (format!("org.example:{}", "x".repeat(243)), "y".repeat(8191));
        assert_eq!((name.len(), objection(&name, &value, FILESYSTEM, false)), (255, None));
        let (name, said) = (format!("{name}x"), |name: &str, value: &str| objection(name, value, SNAPSHOT, false));
        assert_eq!(said(&name, "").as_deref(), Some(format!("property name '{name}' is too long: 255 bytes at most").as_str()));
        let why = "property value too long: 'org.example:x' takes 8191 bytes at most";
        assert_eq!(said("org.example:x", &format!("{value}y")).as_deref(), Some(why));
    }
}
