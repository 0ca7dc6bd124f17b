//! Keys that a web server on this machine gives: `keylocation=http://…` and `https://…` of encrypted file systems.

use crate::waiting::until;
use crate::world::{Failure, World, same};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Key of 32 bytes, some of which end lines.
const RAW: [u8; 32] = [b'\n'; 32];
/// Another one.
const OTHER: [u8; 32] = [7; 32];

/// Server that answers one request at a time, and ends with this process.
struct Site {
    address: String,
    requests: Arc<AtomicUsize>,
}

impl Site {
    fn begin() -> Result<Site, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let site = Site { address: format!("http://{}", listener.local_addr()?), requests: Arc::default() };
        let requests = Arc::clone(&site.requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                requests.fetch_add(1, Ordering::Relaxed);
                // Who asked may be gone: an answer without an end is not read to it.
                let _ = answer(stream);
            }
        });
        Ok(site)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let reply = |status: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    match first.split(' ').nth(1).unwrap_or_default() {
        "/raw" => stream.write_all(&reply("200 OK", &RAW)),
        "/other" => stream.write_all(&reply("200 OK", &OTHER)),
        "/words" => stream.write_all(&reply("200 OK", b"correct horse\nbattery")),
        "/moved" => stream.write_all(&reply("302 Found\r\nLocation: /raw", b"")),
        "/endless" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            loop {
                stream.write_all(&[b'x'; 4096])?;
            }
        }
        _ => stream.write_all(&reply("404 Not Found", b"it is not here, and this is not a key of its own")),
    }
}

/// `openssl s_server` over the files of a world's folder.
struct Sealed(Child);

impl Drop for Sealed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sealed {
    /// Starts the server, with a certificate that nobody but `web.pem` in the folder vouches for; also returns its address.
    fn begin(world: &World) -> Result<(Sealed, String), Failure> {
        let name = "-subj /CN=localhost -addext subjectAltName=DNS:localhost";
        world.ok(&format!("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {{dir}}/web.key -out {{dir}}/web.pem {name}"))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let place = format!("127.0.0.1:{port}");
        let mut command = Command::new("openssl");
        command.args(["s_server", "-WWW", "-quiet", "-accept", &place, "-cert", "web.pem", "-key", "web.key"]);
        command.current_dir(world.path(".")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Sealed(command.spawn()?);
        until("a server of openssl's", || Ok(TcpStream::connect(&place).is_ok()))?;
        Ok((server, format!("https://localhost:{port}")))
    }
}

/// If this fails, who has keys on a server cannot open what they are for, takes an error page for a key, or waits for an answer without an end.
pub fn keys(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    let site = Site::begin()?;
    let at = &site.address;
    // Whatever proxies this machine has: they do not lead here.
    let [zfs, zpool] = ["zfs", "zpool"].map(|name| format!("env no_proxy=* {}", world.program(name)));
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let create = format!("{zfs} create -o encryption=on -o keyformat=raw -o keylocation");
    world.refused(&format!("{create}={at}/nothing tank/a"), 1, &format!("Couldn't GET {at}/nothing: 404"))?;
    world.refused(&format!("{create}={at}/endless tank/a"), 1, "it has more than 4096 bytes")?;
    world.refused(&format!("{create}={at}/words tank/a"), 1, "Raw key too short (expected 32).")?;
    world.refused(&format!("{create}=http://127.0.0.1:1/raw tank/a"), 1, "Failed to connect to http://127.0.0.1:1/raw: ")?;
    world.refused(&format!("{create}=ftp://127.0.0.1/raw tank/a"), 1, "keylocation 'ftp://127.0.0.1/raw' is not supported")?;
    world.ok(&format!("{create}={at}/moved tank/a"))?;
    world.ok("zfs get -H -o value keylocation,keystatus tank/a")?.prints(&format!("{at}/moved\navailable"))?;
    std::fs::write(world.path("mnt/tank/a/file"), "text")?;
    lock(world)?;
    world.refused(&format!("{zfs} load-key -L {at}/other tank/a"), 1, "Incorrect key provided for 'tank/a'.")?;
    world.ok(&format!("{zfs} load-key -n tank/a"))?.shows("1 / 1 key(s) successfully verified")?;
    world.ok(&format!("{zfs} mount -l tank/a"))?;
    same("the file", std::fs::read_to_string(world.path("mnt/tank/a/file"))?, "text".to_string())?;
    let form = "-o keyformat=passphrase -o pbkdf2iters=100000";
    world.ok(&format!("{zfs} change-key {form} -o keylocation={at}/words tank/a"))?;
    world.ok("zpool export tank")?;
    world.ok(&format!("{zpool} import -d {{vdevs}} -l tank"))?.prints("1 / 1 keys successfully loaded")?;
    same("the file", std::fs::read_to_string(world.path("mnt/tank/a/file"))?, "text".to_string())?;
    locations(world, &site)?;
    over_https(world, &zfs)
}

fn lock(world: &World) -> Result<(), Failure> {
    world.ok("zfs unmount tank/a")?;
    world.ok("zfs unload-key tank/a").map(drop)
}

/// Locations that can be set, and of what; the daemon asks no server whether a key is there.
fn locations(world: &World, site: &Site) -> Result<(), Failure> {
    let before = site.requests();
    world.ok("zfs create tank/a/below")?;
    world.ok(&format!("zfs set keylocation={}/nothing tank/a", site.address))?;
    world.ok("zfs set keylocation=https://keys.example/tank tank/a")?;
    world.ok("zfs get -H -o value keylocation tank/a")?.prints("https://keys.example/tank")?;
    for location in ["https://", "http://", "file:///", "/words", "ftp://keys.example/tank"] {
        world.refused(&format!("zfs set keylocation={location} tank/a"), 1, "invalid keylocation")?;
    }
    world.refused("zfs set keylocation=none tank/a", 1, "keylocation must not be 'none' for encrypted datasets")?;
    world.refused("zfs set keylocation=none tank/a/below", 1, "keylocation must not be 'none' for encrypted datasets")?;
    world.refused("zfs set keylocation=https://keys.example/tank tank/a/below", 1, "may only be set on encryption roots")?;
    world.refused("zfs set keylocation=https://keys.example/tank tank", 1, "may only be set on encryption roots")?;
    world.ok("zfs destroy tank/a/below")?;
    same("requests", site.requests(), before)
}

/// Keys over https, of a server that nobody vouches for and of one that the user does.
fn over_https(world: &World, zfs: &str) -> Result<(), Failure> {
    std::fs::write(world.path("words"), "correct horse\n")?;
    let (_server, at) = Sealed::begin(world)?;
    world.ok(&format!("zfs set keylocation={at}/words tank/a"))?;
    lock(world)?;
    world.refused(&format!("{zfs} load-key tank/a"), 1, &format!("Failed to connect to {at}/words: "))?;
    let trusting = zfs.replace("env ", "env SSL_CA_CERT_FILE={dir}/web.pem ");
    world.ok(&format!("{trusting} load-key tank/a"))?;
    world.ok("zfs mount tank/a")?;
    same("the file", std::fs::read_to_string(world.path("mnt/tank/a/file"))?, "text".to_string())
}
