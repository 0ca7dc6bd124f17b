//! Properties of datasets: as the API words them, what a new file system makes of them, and how a mounted one behaves.

use crate::dataset::maker::Maker;
use crate::dataset::{owners, versions};
use crate::pool::OpenPool;
use control_api::{Property, Value};
use dsl::{CreateDataset, DatasetHandle, DslError, PropEntry, PropSource, PropValue};
use ondisk::ObjsetType;
use std::collections::BTreeMap;
use zpl::direct::Property as Direct;
use zpl::{CaseSensitivity, CreateOptions, NormFlags, Settings, Snapdir, Zfs};

/// Source of a property as the API words it.
fn source(source: PropSource) -> control_api::Source {
    match source {
        PropSource::None => control_api::Source::None,
        PropSource::Default => control_api::Source::Default,
        PropSource::Local => control_api::Source::Local,
        PropSource::Inherited(from) => control_api::Source::Inherited(from),
        PropSource::Received => control_api::Source::Received,
    }
}

/// Property as the API words it.
pub(crate) fn property(entry: PropEntry) -> Property {
    Property { name: entry.name, value: value(entry.value), source: source(entry.source), received: entry.received.map(value) }
}

/// Value of a property as the API words it.
fn value(value: PropValue) -> Value {
    match value {
        PropValue::Text(text) => Value::Text(text),
        PropValue::Bytes(bytes) => Value::Bytes(bytes),
        PropValue::Limit(bytes) => Value::Limit(bytes),
        PropValue::Count(count) => Value::Count(count),
        PropValue::Number(number) => Value::Number(number),
        PropValue::Ratio(hundredths) => Value::Ratio(hundredths),
        PropValue::Time(seconds) => Value::Time(seconds as i64),
        PropValue::None => Value::None,
    }
}

/// Options of a new file system with these properties in a pool of a version; those that are fixed at creation shape its master node.
pub(crate) fn new_filesystem(properties: &BTreeMap<String, String>, maker: Maker, pool: u64) -> Result<CreateDataset, String> {
    let case = match properties.get("casesensitivity").map(String::as_str) {
        None | Some("sensitive") => CaseSensitivity::Sensitive,
        Some("insensitive") => CaseSensitivity::Insensitive,
        Some("mixed") => CaseSensitivity::Mixed,
        Some(other) => return Err(format!("'casesensitivity' must be one of 'sensitive | insensitive | mixed', not '{other}'")),
    };
    let normalization = match properties.get("normalization").map(String::as_str) {
        None | Some("none") => NormFlags::default(),
        Some("formC") => NormFlags::FORM_C,
        Some("formD") => NormFlags::FORM_D,
        Some("formKC") => NormFlags::FORM_KC,
        Some("formKD") => NormFlags::FORM_KD,
        Some(other) => return Err(format!("'normalization' must be one of 'none | formC | formD | formKC | formKD', not '{other}'")),
    };
    if normalization != NormFlags::default() && properties.get("utf8only").is_some_and(|value| value == "off") {
        return Err("'utf8only' must be 'on' where 'normalization' is not 'none'".to_string());
    }
    let utf8_only = properties.get("utf8only").is_some_and(|value| value == "on") || normalization != NormFlags::default();
    let version = versions::of_new(properties, pool)?;
    // The root directory belongs to whoever makes the file system, as OpenZFS has it for delegated users.
    let Maker { uid, gid, .. } = maker;
    let (limits, properties) = owners::split(properties);
    if !limits.is_empty() && version.is_some_and(|version| version < zpl::version::VERSION_USERSPACE) {
        return Err(owners::MUST_UPGRADE.to_string());
    }
    let options = CreateOptions { version, case, normalization, utf8_only, uid, gid, ..CreateOptions::default() };
    Ok(CreateDataset {
        kind: ObjsetType::ZFS,
        properties: properties.into_iter().collect(),
        init: Box::new(move |objset, tx| {
            let made = Zfs::create(objset, &options, tx).map_err(|_| DslError::Unsupported);
            made.and_then(|()| owners::enter(objset, &limits, tx))
        }),
    })
}

/// Behaviour of a mounted file system, by its properties.
pub(crate) fn settings(pool: &OpenPool, handle: &DatasetHandle) -> Settings {
    let text = |property: &str| text_of(handle, property);
    Settings {
        xattr_sa: matches!(text("xattr").as_str(), "sa" | "on" | ""),
        longname: text("longname") == "on",
        user_xattrs: text("xattr") != "off",
        atime: text("atime") != "off",
        relatime: text("relatime") != "off",
        project_quota: pool.counts_projects(),
        posix_acl: matches!(text("acltype").as_str(), "posix" | "posixacl"),
        snapdir: match text("snapdir").as_str() {
            "visible" => Snapdir::Visible,
            "disabled" => Snapdir::Disabled,
            _ => Snapdir::Hidden,
        },
        read_only: text("readonly") == "on",
        direct: match text("direct").as_str() {
            "disabled" => Direct::Disabled,
            "always" => Direct::Always,
            _ => Direct::Standard,
        },
        snapshot: false,
    }
}

/// Text of a property; empty where there is none.
pub(crate) fn text_of(handle: &DatasetHandle, name: &str) -> String {
    match handle.prop(name) {
        Ok(PropEntry { value: PropValue::Text(text), .. }) => text,
        _ => String::new(),
    }
}
