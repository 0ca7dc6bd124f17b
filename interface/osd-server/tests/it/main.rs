//! The door of an object storage device: clients on sockets, what they may do, and what becomes of what they had.

#[path = "../../../osd/tests/it/bed.rs"]
#[expect(dead_code, reason = "the tests of the library use all of it")]
mod bed;
mod changing;
mod clients;
mod hostile;
mod house;
mod in_c;
