//! The kernels layer; see ARCHITECTURE.md for its place and invariants.
