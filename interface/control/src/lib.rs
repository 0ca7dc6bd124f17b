//! The control layer; see ARCHITECTURE.md for its place and invariants.
