//! What the allocator of the program keeps: small things (nodes, names, tables) are freed in pieces of pages that stay with the process.
//!
//! glibc gives back only what lies at the top of a heap, unless it is asked; with others there is nothing to be asked for.

#![allow(unsafe_code, reason = "a call of the C library that takes a number and returns one")]

#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe extern "C" {
    safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
}

/// Gives free pages of the program's heaps back to the system, wherever they lie. Takes a while where much was freed: for operations, and not
/// often.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let _ = malloc_trim(0);
}
