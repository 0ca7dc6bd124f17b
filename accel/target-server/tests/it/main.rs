//! A target and its shared memory, as a hostile host uses them. One program: each file of tests by itself would be linked with all that is below.

mod hostile;
mod shared;

use abd::Abd;
use std::time::Duration;
use target_server::Listening;
use target_wire::{Challenge, Channel, Connection, Frame, Header, Initiator, Kind, Limits, Received, Secret, read_frame, write_frame};

const SECRET: &[u8] = b"correct horse battery staple";

/// A frame in the open.
fn plain(connection: &mut Connection) -> Frame {
    match read_frame(connection, &Limits::HANDSHAKE) {
        Ok(Received::Whole(frame)) => frame,
        other => panic!("{other:?}"),
    }
}

/// A connection, and its keys.
fn connect(listening: &Listening) -> (Connection, Channel) {
    let mut connection = Connection::open(listening.address(), Duration::from_secs(5)).unwrap();
    let (initiator, hello) = Initiator::new(&Secret::new(SECRET).unwrap()).unwrap();
    write_frame(&mut connection, &Header::of(Kind::Hello), &hello.encode(), &Abd::default()).unwrap();
    let challenge = Challenge::decode(&plain(&mut connection).message).unwrap();
    (connection, initiator.finish(&challenge).unwrap())
}
