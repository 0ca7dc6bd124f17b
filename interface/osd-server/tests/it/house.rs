//! A server of one device, and clients of it.

use crate::bed::{Bed, OBJECTS, SEQUENCE};
use exec::Pool;
use osd::Device;
use osd_client::{Client, Fid, Operation, Piece, Place};
use osd_server::{Devices, Opened, Options, Server};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

struct Only(Arc<Device>);

impl Opened for Only {
    fn device(&self) -> &Arc<Device> {
        &self.0
    }
}

impl Devices for Only {
    fn open(&self, dataset: &str) -> Result<Arc<dyn Opened>, Errno> {
        if dataset == OBJECTS { Ok(Arc::new(Only(self.0.clone()))) } else { Err(Errno::NOENT) }
    }
}

/// Server, with the pool beneath it.
pub struct House {
    pub bed: Bed,
    pub device: Arc<Device>,
    pub server: Arc<Server>,
}

impl House {
    pub fn new(properties: &[(&str, &str)]) -> House {
        House::with(properties, Options::default())
    }

    pub fn with(properties: &[(&str, &str)], options: Options) -> House {
        House::on(Bed::under(Arc::new(Pool::new(2)), properties), options)
    }

    pub fn on(bed: Bed, options: Options) -> House {
        let device = bed.open();
        let server = Server::new(&bed.exec, Arc::new(Only(device.clone())), options);
        House { bed, device, server }
    }

    /// Socket of a connection that is served.
    pub fn socket(&self) -> UnixStream {
        let (own, other) = UnixStream::pair().expect("a pair");
        let server = self.server.clone();
        drop(self.bed.exec.spawn_operation("server", Box::new(move || server.serve(other))));
        own
    }

    /// Client that has the device open.
    pub fn client(&self) -> Client {
        let mut client = Client::over(self.socket()).expect("greeted");
        assert_eq!(client.open(OBJECTS).expect("opened"), self.device.record_size());
        client
    }

    /// Waits until all clients are gone, and what they had with them.
    pub fn wait_for_nobody(&self) {
        self.wait_for(0);
    }

    /// Waits until there are so many clients.
    pub fn wait_for(&self, clients: usize) {
        while self.server.connections() != clients {
            self.bed.exec.sleep_ns(1_000_000);
        }
    }

    /// Ends it, and checks that every block has an owner.
    pub fn check(self, what: &str) {
        self.server.end(u64::MAX);
        let House { bed, device, server } = self;
        drop((device, server));
        bed.check_space(what);
    }
}

pub fn fid(number: u32) -> Fid {
    Fid::new(SEQUENCE, number)
}

/// Operation that makes an object with data.
pub fn create(number: u32) -> (Fid, Operation) {
    (fid(number), Operation::Create { mode: 0o640, uid: 5, gid: 6, is_index: false })
}

/// Piece of memory 0.
pub fn piece(offset: u64, at: u64, bytes: u64) -> Piece {
    Piece { offset, place: Place { memory: 0, offset: at, bytes } }
}

/// Sends bytes, and reads until the server ends the connection.
pub fn say(socket: &UnixStream, bytes: &[u8]) -> Vec<u8> {
    let (mut socket, mut heard) = (socket, Vec::new());
    // It may have heard enough before the end.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let _ = socket.read_to_end(&mut heard);
    heard
}
