//! Several lives, one after the other.
