//! Why a library is no provider. What a provider answers to work is [`OpError`].

use crate::ffi;
use dpusm::OpError;

/// Reason why a library is no provider.
#[derive(Debug)]
pub enum LoadError {
    /// The library cannot be loaded, or has no `zirconia_provider_open`.
    Library(libloading::Error),
    /// The interface is of another version.
    Version {
        /// The one that it has.
        found: u32,
    },
    /// The library says that there is no device.
    NoDevice(OpError),
    /// A function that every provider needs is missing, or its name is no text.
    Incomplete,
    /// The library says that it has more capabilities than it may.
    Capabilities {
        /// Number that it says.
        said: u64,
        /// Number that it may have, or that it said before.
        most: u64,
    },
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Library(error) => write!(f, "the library cannot be loaded: {error}"),
            LoadError::Version { found } => write!(f, "its interface has version {found}, not {}", ffi::VERSION),
            LoadError::NoDevice(error) => write!(f, "not available: {error}"),
            LoadError::Incomplete => f.write_str("its table of functions is incomplete"),
            LoadError::Capabilities { said, most } => write!(f, "it says that it has {said} capabilities, and may have {most}"),
        }
    }
}
impl std::error::Error for LoadError {}
