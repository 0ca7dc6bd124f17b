//! Scripted initiators against a target over TCP: what they rely on, and what they must not get away with.

mod at_once;
mod commands;
mod initiator;
mod late;
mod login;
mod reservations;
mod sessions;
mod transfer;
mod world;
