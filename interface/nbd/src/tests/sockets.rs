//! The driver and the listeners, over sockets: both kinds of them, places, time, and ends.

use super::{BLOCK, MODERN, NAME, SHAPE, exports};
use crate::proto::{command, field, option};
use crate::testing::Script;
use crate::{Guests, Listener, Options, serve};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Time by which a server that can do something has done it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the greeting, and of the answers to an `NBD_OPT_GO` without more.
const GREETING: usize = 18;
const GONE_ON: usize = 20 + 12 + 20;

/// A server with both kinds of listeners; it ends with the value.
struct World {
    runtime: Runtime,
    address: SocketAddr,
    path: PathBuf,
    guests: Arc<Guests>,
    stop: watch::Sender<bool>,
    served: Vec<JoinHandle<()>>,
}

impl World {
    fn new(name: &str, options: &Options) -> World {
        let path = std::env::temp_dir().join(format!("zirconia-nbd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let (exports, guests) = (exports(), Arc::<Guests>::default());
        let (stop, stopped) = watch::channel(false);
        let (port, socket) = runtime.block_on(async {
            let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            (port, tokio::net::UnixListener::bind(&path).expect("a path is free"))
        });
        let address = port.local_addr().expect("it is bound");
        let listeners = [Listener::Tcp(port), Listener::Unix(socket)];
        let served = listeners
            .map(|listener| runtime.spawn(serve(listener, exports.clone(), guests.clone(), options.clone(), stopped.clone())))
            .into();
        World { runtime, address, path, guests, stop, served }
    }

    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    }

    fn unix(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn receive(stream: &mut impl Read, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("it comes");
    bytes
}

/// Haggles for an export, with simple replies.
fn enter(stream: &mut (impl Read + Write)) {
    stream.write_all(&Script::begin(MODERN).about(option::GO, NAME, &[]).0).expect("sent");
    receive(stream, GREETING + GONE_ON);
}

/// Waits for the end of a connection, which the server brings about, and gives what came before.
fn ends(stream: &mut impl Read) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset is an end as well.
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert!(!matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{error}");
    }
    rest
}

/// Writes a whole export in requests that are sent one behind the other, and reads it back.
fn use_it(mut stream: impl Read + Write) {
    enter(&mut stream);
    let bytes: Vec<u8> = (0..SHAPE.bytes as usize).map(|at| (at / 5) as u8).collect();
    let write = |script: Script, at: usize| script.request((0, command::WRITE), at as u64, BLOCK as u32, &bytes[at..at + BLOCK]);
    let writes = (0..bytes.len()).step_by(BLOCK).fold(Script::default(), write);
    stream.write_all(&writes.0).expect("sent");
    let answers = receive(&mut stream, 16 * (bytes.len() / BLOCK));
    assert!(answers.chunks(16).all(|answer| answer[4..8] == [0; 4]));
    stream.write_all(&Script::default().request((0, command::READ), 0, bytes.len() as u32, &[]).0).expect("sent");
    assert!(receive(&mut stream, 16 + bytes.len())[16..] == bytes);
    stream.write_all(&Script::default().request((0, command::DISC), 0, 0, &[]).0).expect("sent");
    ends(&mut stream);
}

/// If this fails, bytes that come in several pieces, or many at a time, are lost on the way.
#[test]
fn bytes_go_through_either_kind_of_socket() {
    let world = World::new("bytes", &Options::default());
    use_it(world.tcp());
    use_it(world.unix());
}

/// If this fails, some of many small reads are never answered, those that are not begun where they came in.
#[test]
fn many_reads_at_a_time_are_all_answered() {
    const READS: usize = 300;
    let world = World::new("many", &Options::default());
    let mut stream = world.unix();
    enter(&mut stream);
    let read = |script: Script, at: usize| script.request((0, command::READ), (at * BLOCK) as u64 % SHAPE.bytes, BLOCK as u32, &[]);
    let reads = (0..READS).fold(Script::default(), read);
    stream.write_all(&reads.0).expect("sent");
    let answers = receive(&mut stream, READS * (16 + BLOCK));
    assert!(answers.chunks(16 + BLOCK).all(|answer| answer[4..8] == [0; 4]));
    let mut cookies: Vec<u64> = answers.chunks(16 + BLOCK).map(|answer| field(answer, 8, 8)).collect();
    cookies.sort_unstable();
    let asked: Vec<u64> = (0..READS).map(|at| (at * reads.0.len() / READS) as u64).collect();
    assert_eq!(cookies, asked, "each once");
    stream.write_all(&Script::default().request((0, command::DISC), 0, 0, &[]).0).expect("sent");
    ends(&mut stream);
}

/// If this fails, whoever connects and says nothing takes all descriptors, or keeps all others out.
#[test]
fn who_says_nothing_makes_room() {
    let world = World::new("places", &Options { haggling_max: 1, ..Options::default() });
    let mut silent = world.tcp();
    receive(&mut silent, GREETING);
    let mut next = world.tcp();
    assert!(ends(&mut silent).is_empty(), "there is one place");
    enter(&mut next);
    let mut other = world.tcp();
    receive(&mut other, GREETING);
    // Who has an export is not one of those.
    next.write_all(&Script::default().request((0, command::READ), 0, BLOCK as u32, &[]).0).expect("sent");
    receive(&mut next, 16 + BLOCK);
    receive(&mut world.tcp(), GREETING);
    assert!(ends(&mut other).is_empty());
}

/// If this fails, whoever connects and says nothing keeps all others out, for ever.
#[test]
fn who_haggles_for_too_long_is_sent_away() {
    let world = World::new("haggling", &Options { haggling_time: Duration::ZERO, ..Options::default() });
    assert_eq!(ends(&mut world.tcp()).len(), GREETING);
    assert_eq!(ends(&mut world.unix()).len(), GREETING);
}

/// If this fails, a volume stays in use by clients that were told to go, or the daemon cannot end; or nobody knows who uses it.
#[test]
fn clients_are_known_and_can_be_sent_away() {
    let mut world = World::new("guests", &Options::default());
    let mut local = world.unix();
    enter(&mut local);
    let guests = world.guests.list();
    assert_eq!(guests.len(), 1);
    assert_eq!((guests[0].export.as_str(), guests[0].client.clone()), (NAME, format!("process {}", std::process::id())));
    world.guests.end("tank/else");
    world.guests.end(NAME);
    ends(&mut local);
    let mut far = world.tcp();
    enter(&mut far);
    world.stop.send(true).expect("somebody serves");
    ends(&mut far);
    for served in std::mem::take(&mut world.served) {
        world.runtime.block_on(served).expect("it ends");
    }
    assert!(world.guests.list().is_empty());
}
