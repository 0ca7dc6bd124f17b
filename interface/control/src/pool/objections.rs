//! What is wrong with a property of a pool that is asked for, in the words of OpenZFS's commands (`zpool_valid_proplist`).

use crate::failure::{GIVE_HOSTID, because};
use crate::pool::compatibility;
use crate::pool::hostid::{NO_HOSTID, host};
use control_api::{ErrorKind, Failure};

/// Occasion on which a property is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    Creation,
    Import,
    /// Some time while the pool is open.
    Later,
}

/// Names of properties that nobody sets.
const READ_ONLY: &[&str] = &[
    "name",
    "size",
    "capacity",
    "health",
    "guid",
    "load_guid",
    "dedupratio",
    "free",
    "allocated",
    "expandsize",
    "freeing",
    "fragmentation",
    "leaked",
    "checkpoint",
    "bcloneused",
    "bclonesaved",
    "bcloneratio",
    "dedup_table_size",
    "dedupcached",
    "last_scrubbed_txg",
    "maxblocksize",
    "maxdnodesize",
    "zia_available",
];

/// Most characters of a comment (OpenZFS: `ZPROP_MAX_COMMENT`).
const COMMENT_MAX: usize = 32;

/// log2 of the sectors that `ashift=` asks for; 0 leaves the choice to whoever makes the vdev.
pub(crate) fn ashift_of(value: &str) -> Result<u32, String> {
    let number = dsl::prop::table::size(value)?;
    match u32::try_from(number) {
        Ok(ashift @ (0 | 9..=16)) => Ok(ashift),
        _ => Err(format!("property 'ashift' number {number} is invalid, only values between 9 and 16 are allowed.")),
    }
}

/// Reason why a property of a pool cannot be set so on this occasion; None also for what only its own code can judge (paths, datasets,
/// providers, versions).
pub(crate) fn objection(name: &str, value: &str, occasion: Occasion) -> Option<String> {
    let wrong = |why: String| Some(why);
    if let Some(feature) = name.strip_prefix("feature@") {
        return of_feature(feature, value, occasion);
    }
    if READ_ONLY.contains(&name) {
        return wrong(format!("'{name}' is readonly"));
    }
    if let Some(why) = of_word(name, value) {
        return Some(why);
    }
    match name {
        "readonly" if occasion != Occasion::Import => wrong(format!("property '{name}' can only be set at import time")),
        "altroot" if occasion == Occasion::Later => wrong(format!("property '{name}' can only be set during pool creation or import")),
        "bootfs" if occasion != Occasion::Later => wrong(format!("property '{name}' cannot be set at creation or import time")),
        "version" if occasion == Occasion::Import => wrong("property 'version' cannot be set at import time".to_string()),
        "zia_provider" if occasion != Occasion::Later => {
            wrong(format!("property '{name}' can be set once the pool is there ('zpool set')"))
        }
        "dedup_table_quota" if value == "0" => wrong("use 'none' to disable ddt table quota".to_string()),
        "dedup_table_quota" if pool::dedup_table_quota(value).is_none() => wrong(format!("'{value}' is no value for '{name}'")),
        "multihost" if value == "on" && host().id == 0 => wrong(NO_HOSTID.to_string()),
        "ashift" => ashift_of(value).err(),
        "comment" => of_comment(value),
        "compatibility" => compatibility::allowed(value).err(),
        "readonly" | "altroot" | "bootfs" | "version" | "cachefile" | "listsnaps" => None,
        _ if !pool::is_own_value(name, value) => wrong(format!("'{value}' is no value for '{name}'")),
        _ if pool::is_user_prop(name) => of_users(name, value),
        _ if pool::settable_props().any(|known| known == name) => None,
        _ => wrong(format!("invalid property '{name}'")),
    }
}

/// Failure of a request that wants a property so, for the reason that [`objection`] gives.
pub(crate) fn objected(what: &str, why: &str) -> Failure {
    let failure = because(ErrorKind::Invalid, what, why);
    if why == NO_HOSTID { failure.advise(GIVE_HOSTID.join(" ")) } else { failure }
}

/// Objection to a value that is none of a property's words.
pub(crate) fn of_word(name: &str, value: &str) -> Option<String> {
    let words: &[&str] = match name {
        "readonly" => &["off", "on"],
        _ => pool::prop_words(name)?,
    };
    if words.contains(&value) {
        return None;
    }
    let shown = if words == ["off", "on"] { "on | off".to_string() } else { words.join(" | ") };
    Some(format!("'{name}' must be one of '{shown}'"))
}

fn of_feature(feature: &str, value: &str, occasion: Occasion) -> Option<String> {
    if pool::feature_by_name(feature).is_none() {
        return Some(format!("invalid feature '{feature}'"));
    }
    match value {
        "enabled" => None,
        "disabled" if occasion == Occasion::Creation => None,
        "disabled" => Some(format!("property 'feature@{feature}' can only be set to 'disabled' at creation time")),
        _ => Some(format!("property 'feature@{feature}' can only be set to 'enabled' or 'disabled'")),
    }
}

fn of_comment(text: &str) -> Option<String> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        return Some("comment may only have printable characters".to_string());
    }
    (text.len() > COMMENT_MAX).then(|| format!("comment must not exceed {COMMENT_MAX} characters"))
}

/// Objection to the length of the name or the value of a user's property.
pub(crate) fn of_users(name: &str, value: &str) -> Option<String> {
    if name.len() > pool::USER_NAME_BYTES_MAX {
        return Some(format!("property name '{name}' is too long: {} bytes at most", pool::USER_NAME_BYTES_MAX));
    }
    let most = pool::USER_VALUE_BYTES_MAX;
    (value.len() > most).then(|| format!("property value '{value}' is too long: {most} bytes at most"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::pool_failure;
    use Occasion::{Creation, Import, Later};

    /// If this fails, a system without an id is told of a command that may not be there, and not of ours, or the other way round.
    #[test]
    fn who_has_no_id_is_told_everywhere_what_gives_one() {
        for failure in [objected("cannot set", NO_HOSTID), pool_failure("cannot import".into(), &pool::PoolError::NoHostid)] {
            let said = format!("{} {}", failure.why, failure.next.unwrap_or_default());
            assert!(said.contains("zgenhostid(8)") && said.contains("'zirconia hostid'"), "{said}");
        }
        assert_eq!(objected("cannot set", "'size' is readonly").next, None);
    }

    /// Who mistypes a property or its value would look for what this version lacks instead of for the slip.
    #[test]
    fn slips_are_told_as_slips() {
        let wrong = [
            ("foo", "bar", "invalid property 'foo'"),
            ("size", "5", "'size' is readonly"),
            ("failmode", "bogus", "'failmode' must be one of 'wait | continue | panic'"),
            ("autotrim", "maybe", "'autotrim' must be one of 'on | off'"),
            ("multihost", "maybe", "'multihost' must be one of 'on | off'"),
            ("listsnaps", "maybe", "'listsnaps' must be one of 'on | off'"),
            ("readonly", "maybe", "'readonly' must be one of 'on | off'"),
            ("ashift", "17", "property 'ashift' number 17 is invalid, only values between 9 and 16 are allowed."),
            ("ashift", "many", "bad numeric value 'many'"),
            ("comment", "caf\u{e9}", "comment may only have printable characters"),
            ("feature@lz4_compress", "active", "property 'feature@lz4_compress' can only be set to 'enabled' or 'disabled'"),
            ("zia_verify", "200", "'200' is no value for 'zia_verify'"),
            ("zirconia:zia_verify", "200", "'200' is no value for 'zirconia:zia_verify'"),
            ("feature@nothing", "disabled", "invalid feature 'nothing'"),
        ];
        for (name, value, why) in wrong {
            for occasion in [Creation, Import, Later] {
                assert_eq!(objection(name, value, occasion).as_deref(), Some(why), "{name}={value}, {occasion:?}");
            }
        }
        let long = "x".repeat(33);
        assert_eq!(objection("comment", &long, Creation).as_deref(), Some("comment must not exceed 32 characters"));
        assert_eq!(objection("comment", &long[..32], Creation), None);
        let (name, value) = (format!("org.example:{}", "x".repeat(244)), "y".repeat(8192));
        assert!(objection(&name, "", Later).is_some_and(|why| why.ends_with("' is too long: 255 bytes at most")));
        assert!(objection("org.example:x", &value, Later).is_some_and(|why| why.ends_with("' is too long: 8191 bytes at most")));
    }

    /// Each property has its time: what is set too late or too early would be believed.
    #[test]
    fn every_property_has_its_occasions() {
        let times = [
            ("readonly", "on", [false, true, false]),
            ("altroot", "/mnt", [true, true, false]),
            ("bootfs", "tank/root", [false, false, true]),
            ("version", "28", [true, false, true]),
            ("feature@lz4_compress", "disabled", [true, false, false]),
            ("failmode", "continue", [true, true, true]),
            ("org.example:x", "1", [true, true, true]),
            ("background_latency_target", "auto", [true, true, true]),
        ];
        for (name, value, possible) in times {
            let are = [Creation, Import, Later].map(|occasion| objection(name, value, occasion).is_none());
            assert_eq!(are, possible, "{name}");
        }
    }

    /// Otherwise a property that is shown is called invalid when somebody sets it.
    #[test]
    fn no_property_is_unknown() {
        for name in pool::settable_props().chain(READ_ONLY.iter().copied()) {
            let why = objection(name, "none", Later).unwrap_or_default();
            assert!(!why.starts_with("invalid property"), "{name}: {why}");
        }
    }
}
