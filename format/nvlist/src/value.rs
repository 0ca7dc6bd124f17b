//! Lists, pairs and values in memory: in order, whatever their names.

use std::fmt;

/// Flag of a list: names are unique (OpenZFS: `NV_UNIQUE_NAME`).
pub const UNIQUE_NAME: u32 = 1;
/// Flag of a list: pairs of name and type are unique (OpenZFS: `NV_UNIQUE_NAME_TYPE`).
pub const UNIQUE_NAME_TYPE: u32 = 2;
/// Lists deeper than this are refused (OpenZFS: `nvpair_max_recursion`).
pub const DEPTH_MAX: usize = 100;

/// A string of the format: any bytes but NUL. Most are UTF-8; paths and extended-attribute names need not be.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NvString(Box<[u8]>);

impl NvString {
    /// Makes a string from bytes, up to the first NUL if there is one.
    pub fn new(bytes: &[u8]) -> NvString {
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        NvString(bytes[..end].into())
    }
    /// The bytes, without a terminator.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
    /// The text, or None when it is not UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}
impl From<&str> for NvString {
    fn from(text: &str) -> NvString {
        NvString::new(text.as_bytes())
    }
}
impl From<String> for NvString {
    fn from(text: String) -> NvString {
        NvString::new(text.as_bytes())
    }
}
impl From<&[u8]> for NvString {
    fn from(bytes: &[u8]) -> NvString {
        NvString::new(bytes)
    }
}
impl AsRef<[u8]> for NvString {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
impl fmt::Debug for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}
impl fmt::Display for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

macro_rules! values {
    ($($variant:ident($inner:ty) = $number:literal;)*) => {
        /// A value of a pair (OpenZFS: `data_type_t`).
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "named as the standard names them")]
        pub enum Value {
            /// Present without a value: `true` by its presence.
            Boolean,
            $($variant($inner),)*
        }
        impl Value {
            /// The type's number on disk.
            pub fn type_number(&self) -> i32 {
                match self { Value::Boolean => 1, $(Value::$variant(_) => $number,)* }
            }
        }
        $(impl From<$inner> for Value {
            fn from(value: $inner) -> Value { Value::$variant(value) }
        })*
    };
}
/// An 8-bit value that is opaque rather than a number (OpenZFS: `uchar_t`, `DATA_TYPE_BYTE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Byte(pub u8);
/// A time in nanoseconds (OpenZFS: `hrtime_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HrTime(pub i64);
/// Opaque bytes (OpenZFS: `DATA_TYPE_BYTE_ARRAY`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

values! {
    Byte(Byte) = 2; Int16(i16) = 3; Uint16(u16) = 4; Int32(i32) = 5; Uint32(u32) = 6; Int64(i64) = 7; Uint64(u64) = 8;
    String(NvString) = 9; ByteArray(Bytes) = 10; Int16Array(Vec<i16>) = 11; Uint16Array(Vec<u16>) = 12; Int32Array(Vec<i32>) = 13;
    Uint32Array(Vec<u32>) = 14; Int64Array(Vec<i64>) = 15; Uint64Array(Vec<u64>) = 16; StringArray(Vec<NvString>) = 17;
    HrTime(HrTime) = 18; NvList(NvList) = 19; NvListArray(Vec<NvList>) = 20; BooleanValue(bool) = 21; Int8(i8) = 22; Uint8(u8) = 23;
    BooleanArray(Vec<bool>) = 24; Int8Array(Vec<i8>) = 25; Uint8Array(Vec<u8>) = 26; Double(f64) = 27;
}
impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.into())
    }
}
impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text.into())
    }
}

/// A list of pairs in the order in which they were added.
#[derive(Clone, Debug, PartialEq)]
pub struct NvList {
    flags: u32,
    pairs: Vec<(NvString, Value)>,
}
impl Default for NvList {
    fn default() -> NvList {
        NvList::new()
    }
}

impl NvList {
    /// An empty list with unique names.
    pub fn new() -> NvList {
        NvList::with_flags(UNIQUE_NAME)
    }
    /// An empty list with these flags ([`UNIQUE_NAME`], [`UNIQUE_NAME_TYPE`] or 0).
    pub fn with_flags(flags: u32) -> NvList {
        NvList { flags, pairs: Vec::new() }
    }
    /// Flags of the list.
    pub fn flags(&self) -> u32 {
        self.flags
    }
    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }
    /// True without pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
    /// The pairs in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&NvString, &Value)> + '_ {
        self.pairs.iter().map(|(name, value)| (name, value))
    }
    /// The pairs in order, for change of the values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&NvString, &mut Value)> + '_ {
        self.pairs.iter_mut().map(|(name, value)| (&*name, value))
    }

    /// Adds a pair at the end. In a list with unique names an earlier pair of the same name goes (as `nvlist_add_*` does).
    pub fn add(&mut self, name: impl Into<NvString>, value: impl Into<Value>) -> &mut NvList {
        let (name, value) = (name.into(), value.into());
        if self.flags & UNIQUE_NAME != 0 {
            self.pairs.retain(|(other, _)| *other != name);
        } else if self.flags & UNIQUE_NAME_TYPE != 0 {
            self.pairs.retain(|(other, old)| *other != name || old.type_number() != value.type_number());
        }
        self.pairs.push((name, value));
        self
    }
    /// Adds a pair at the end, whatever names there are: a list stays as it was packed.
    pub(crate) fn push(&mut self, name: NvString, value: Value) {
        self.pairs.push((name, value));
    }
    /// As [`NvList::add`], for building in one expression.
    #[must_use]
    pub fn with(mut self, name: impl Into<NvString>, value: impl Into<Value>) -> NvList {
        self.add(name, value);
        self
    }
    /// Replaces the value of a pair in its place, or adds it at the end.
    pub fn set(&mut self, name: impl Into<NvString>, value: impl Into<Value>) -> &mut NvList {
        let name = name.into();
        match self.pairs.iter_mut().rfind(|(other, _)| *other == name) {
            Some(pair) => pair.1 = value.into(),
            None => self.pairs.push((name, value.into())),
        }
        self
    }
    /// Adds a name without a value.
    pub fn add_boolean(&mut self, name: impl Into<NvString>) -> &mut NvList {
        self.add(name, Value::Boolean)
    }
    /// Removes every pair of this name; true when there was one.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let before = self.pairs.len();
        self.pairs.retain(|(other, _)| other.as_bytes() != name.as_ref());
        before != self.pairs.len()
    }

    /// The value of the (last) pair of this name.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Value> {
        self.pairs.iter().rfind(|(other, _)| other.as_bytes() == name.as_ref()).map(|(_, value)| value)
    }
    /// The value of the (last) pair of this name, for change.
    pub fn get_mut(&mut self, name: impl AsRef<[u8]>) -> Option<&mut Value> {
        self.pairs.iter_mut().rfind(|(other, _)| other.as_bytes() == name.as_ref()).map(|(_, value)| value)
    }
    /// True when a pair of this name exists, whatever its type.
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }
    /// Value of a `uint64`.
    pub fn get_u64(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        if let Some(Value::Uint64(value)) = self.get(name) { Some(*value) } else { None }
    }
    /// Value of an `int64`.
    pub fn get_i64(&self, name: impl AsRef<[u8]>) -> Option<i64> {
        if let Some(Value::Int64(value)) = self.get(name) { Some(*value) } else { None }
    }
    /// A string that is UTF-8.
    pub fn get_str(&self, name: impl AsRef<[u8]>) -> Option<&str> {
        if let Some(Value::String(value)) = self.get(name) { value.to_str() } else { None }
    }
    /// Bytes of a string.
    pub fn get_string(&self, name: impl AsRef<[u8]>) -> Option<&NvString> {
        if let Some(Value::String(value)) = self.get(name) { Some(value) } else { None }
    }
    /// True for a pair without value (`Boolean`) and for a `boolean_value` that is true.
    pub fn get_flag(&self, name: impl AsRef<[u8]>) -> bool {
        matches!(self.get(name), Some(Value::Boolean | Value::BooleanValue(true)))
    }
    /// Value of a `boolean_value`.
    pub fn get_bool(&self, name: impl AsRef<[u8]>) -> Option<bool> {
        if let Some(Value::BooleanValue(value)) = self.get(name) { Some(*value) } else { None }
    }
    /// A nested list.
    pub fn get_nvlist(&self, name: impl AsRef<[u8]>) -> Option<&NvList> {
        if let Some(Value::NvList(value)) = self.get(name) { Some(value) } else { None }
    }
    /// A nested list, for change.
    pub fn get_nvlist_mut(&mut self, name: impl AsRef<[u8]>) -> Option<&mut NvList> {
        if let Some(Value::NvList(value)) = self.get_mut(name) { Some(value) } else { None }
    }
    /// An array of lists.
    pub fn get_nvlist_array(&self, name: impl AsRef<[u8]>) -> Option<&[NvList]> {
        if let Some(Value::NvListArray(value)) = self.get(name) { Some(value) } else { None }
    }
    /// An array of lists, for change.
    pub fn get_nvlist_array_mut(&mut self, name: impl AsRef<[u8]>) -> Option<&mut Vec<NvList>> {
        if let Some(Value::NvListArray(value)) = self.get_mut(name) { Some(value) } else { None }
    }
    /// An array of `uint64`.
    pub fn get_u64_array(&self, name: impl AsRef<[u8]>) -> Option<&[u64]> {
        if let Some(Value::Uint64Array(value)) = self.get(name) { Some(value) } else { None }
    }
    /// An array of strings.
    pub fn get_string_array(&self, name: impl AsRef<[u8]>) -> Option<&[NvString]> {
        if let Some(Value::StringArray(value)) = self.get(name) { Some(value) } else { None }
    }
    /// Opaque bytes: a `byte_array` or a `uint8_array`.
    pub fn get_bytes(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        match self.get(name) {
            Some(Value::ByteArray(Bytes(value)) | Value::Uint8Array(value)) => Some(value),
            _ => None,
        }
    }
}
