//! The client in C (`examples/osd`): a program that is built here, and stores objects through the socket of a listening server.

use crate::bed::{OBJECTS, SEQUENCE};
use crate::house::House;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

/// If this fails, programs in C cannot store objects, or everybody may connect.
#[test]
fn a_program_in_c_stores_objects() {
    let house = House::new(&[("recordsize", "128K"), ("compression", "off")]);
    let folder = std::env::temp_dir().join(format!("osd-server-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (program, socket) = (folder.join("store"), folder.join("osd.sock"));
    let sources = ["store.c", "osd.c"].map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/osd").join(name));
    let flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"];
    assert!(Command::new("cc").args(flags).arg(&program).args(sources).status().expect("cc is installed").success());
    let listening = house.server.listen(&socket).expect("it listens");
    assert_eq!(std::fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);
    let ran = Command::new(&program).arg(&socket).arg(OBJECTS).output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let object = house.device.object(osd::Fid::new(SEQUENCE, 42)).expect("an object");
    assert_eq!(object.read(0, u64::MAX).expect("read").to_vec(), [0, 4, 8, 13, 17], "what it left");
    drop((object, listening));
    assert!(!socket.exists() && UnixStream::connect(&socket).is_err());
    house.check("in C");
    let _ = std::fs::remove_dir_all(folder);
}
