//! The control_api layer; see ARCHITECTURE.md for its place and invariants.
