//! Providers written in C, loaded from shared objects: `include/zirconia/provider.h` as a [`dpusm::Provider`].
//!
//! The code with `unsafe`: calls into the library, and the lists that it is handed. A library is
//! never unloaded: its threads and the functions it gave out may outlive everything here. Lists handed to C live until it answers;
//! what it never answers is leaked, because it may still write there. A provider that answers from threads of its own needs an executor with
//! threads (`exec::Pool`): others think that nothing can happen any more.
#![deny(unsafe_op_in_unsafe_fn)]
#![expect(unsafe_code, reason = "the boundary to C")]

mod error;
mod ffi;
mod guard;
mod host;
mod pending;
mod provider;

pub use error::LoadError;
pub use provider::CProvider;
