//! The example provider in C, built here and loaded: the promise to vendors that the header is enough.

use crate::common::{Folder, build, root};
use abd::{Abd, AbdPart};
use dpusm::{
    Claim, Device, Fault, Feature, Graph, OpError, OpKind, Provider, RaidContext, RegisterOptions, Registry, RegistryError, Tally, verify,
};
use exec::{Exec, Inline, Pool};
use ondisk::{ByteOrder, Checksum};
use provider_c::{CProvider, LoadError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn example(folder: &Folder, extra: &[&str]) -> PathBuf {
    build(folder, &root().join("examples/provider-c/provider.c"), extra)
}

fn register(exec: &Exec, library: &Path) -> Device {
    let provider = CProvider::load(exec, library).unwrap();
    assert_eq!((provider.name(), provider.version()), ("example", "1.0"));
    Registry::new(exec).register(provider, &RegisterOptions::default()).unwrap()
}

/// A provider written to the header must stand every test, and compute what software computes.
#[test]
fn the_example_stands_its_tests_and_computes() {
    let folder = Folder::new("example");
    let library = example(&folder, &[]);
    for exec in [Arc::new(Inline::new(1)) as Exec, Arc::new(Pool::new(2))] {
        let device = register(&exec, &library);
        assert_eq!(device.disabled(), []);
        assert!(device.has(&Feature::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little }));
        let data: Vec<Abd> = (1..4u8).map(|n| Abd::from_slice(&vec![n * 37; 8192 - 512 * usize::from(n)])).collect();
        let buffers: Vec<_> = data.iter().map(|column| device.alloc(column.len()).unwrap()).collect();
        let parity = device.alloc(data[0].len()).unwrap();
        let row = RaidContext::new(vec![parity.whole()], buffers.iter().map(|buffer| buffer.whole()).collect()).unwrap();
        let mut graph = Graph::new();
        for (column, buffer) in data.iter().zip(&buffers) {
            graph.copy_in(column, &buffer.whole());
        }
        graph.raid_generate(&row);
        let sum = graph.checksum(parity.whole(), Checksum::FLETCHER_4, ByteOrder::Little);
        let out = graph.copy_out(parity.whole(), vec![AbdPart::scratch(1000), AbdPart::scratch(7000)]);
        let mut report = device.run(graph, 10_000_000_000).unwrap();
        report.all().unwrap();
        let made = report.take_bytes(out).unwrap();
        let words = report.checksum(sum).unwrap();
        assert!(verify(&Claim::Row { parity: std::slice::from_ref(&made), data: &data }));
        assert!(verify(&Claim::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little, data: &made, words }));
        assert_eq!(device.stats().get(OpKind::RaidGenerate, Tally::Blocks), 1);
        drop((row, parity, buffers));
        assert_eq!(device.live_handles(), 0);
        // What it does not offer is refused here, before it is asked.
        let buffer = device.alloc(512).unwrap();
        let mut graph = Graph::new();
        graph.zero_test(buffer.whole());
        assert_eq!(device.run(graph, 1).unwrap_err().error, OpError::NotImplemented);
    }
}

/// A library with a wrong result in it must be found out at registration.
#[test]
fn a_wrong_library_is_found_out() {
    let folder = Folder::new("wrong");
    let source = std::fs::read_to_string(root().join("examples/provider-c/provider.c")).unwrap();
    let wrong = source.replace("parity[byte] ^= data[byte];", "parity[byte] |= data[byte];");
    assert_ne!(wrong, source);
    let path = folder.0.join("wrong.c");
    std::fs::write(&path, wrong).unwrap();
    let exec: Exec = Arc::new(Inline::new(1));
    let device = register(&exec, &build(&folder, &path, &[]));
    let disabled: Vec<String> = device.disabled().iter().map(|one| format!("{}: {}", one.capability.feature, one.fault)).collect();
    assert_eq!(disabled, ["raidz1 generate: the answer was wrong"]);
}

/// A library that changes memory which it was only lent would be tested, loaded, and damage whatever lies there in the process that it runs in.
#[test]
fn a_library_that_writes_beside_its_memory_is_found_out() {
    let source = std::fs::read_to_string(root().join("examples/provider-c/provider.c")).unwrap();
    let (copy_in, copy_out) = ("memcpy(to, node->pieces[n].bytes, node->pieces[n].length);", "memcpy(node->pieces[n].bytes, from, count);");
    let sum = "result->checksum[0] = a;";
    let exec: Exec = Arc::new(Inline::new(1));
    let register = |place: &str, harm: &str| {
        let folder = Folder::new("beside");
        let harmful = source.replace(place, &format!("{place}\n\t{harm}"));
        assert_ne!(harmful, source);
        let path = folder.0.join("harmful.c");
        std::fs::write(&path, harmful).unwrap();
        let provider = CProvider::load(&exec, &build(&folder, &path, &[])).unwrap();
        Registry::new(&exec).register(provider, &RegisterOptions::default())
    };
    for (place, harm) in [
        (copy_in, "((unsigned char *)node->pieces[n].bytes)[0] ^= 1;"),
        (copy_in, "((unsigned char *)node->pieces[n].bytes)[node->pieces[n].length] = 1;"),
        (copy_out, "((unsigned char *)node->pieces[n].bytes)[node->pieces[n].length] = 1;"),
        (copy_out, "((unsigned char *)node->pieces[n].bytes)[-1] = 1;"),
    ] {
        assert_eq!(register(place, harm).map(|_| ()), Err(RegistryError::CannotCopy(Fault::WroteOutside)), "{harm}");
    }
    let device = register(sum, "at(&node->source.view)[0] ^= 1;").unwrap();
    let disabled: Vec<Fault> = device.disabled().iter().map(|one| one.fault).collect();
    assert_eq!(disabled, [Fault::ChangedSource]);
    assert_eq!(device.disabled()[0].fault.to_string(), "bytes that it only reads were changed");
}

/// Only the first copies of a library are made with memory of their own: a library that begins later to change what it copies from is found out by
/// whoever tests it then.
#[test]
fn a_library_that_changes_what_it_copies_later_is_found_out_too() {
    /// Copies after which it begins: more than are guarded, and than tests make.
    const LATER: usize = 30_000;
    let (folder, exec) = (Folder::new("later"), Arc::new(Inline::new(1)) as Exec);
    let source = std::fs::read_to_string(root().join("examples/provider-c/provider.c")).unwrap();
    let place = "memcpy(to, node->pieces[n].bytes, node->pieces[n].length);";
    let begins = format!("static long copies;\n\t\tif (++copies > {LATER})");
    let later = source.replace(place, &format!("{place}\n\t\t{begins}\n\t\t\t((unsigned char *)node->pieces[n].bytes)[0] ^= 1;"));
    assert_ne!(later, source);
    let path = folder.0.join("later.c");
    std::fs::write(&path, later).unwrap();
    let provider = CProvider::load(&exec, &build(&folder, &path, &[])).unwrap();
    let registries = [(); 2].map(|()| Registry::new(&exec));
    let device = registries[0].register(provider.clone(), &RegisterOptions::default()).unwrap();
    assert_eq!(device.disabled(), []);
    let (block, buffer) = (Abd::from_slice(&[7; 512]), device.alloc(512).unwrap());
    for _ in 0..LATER / 10 {
        let mut graph = Graph::new();
        for _ in 0..10 {
            graph.copy_in(&block, &buffer.whole());
        }
        device.run(graph, 10_000_000_000).unwrap().all().unwrap();
    }
    let again = registries[1].register(provider, &RegisterOptions::default());
    assert_eq!(again.map(|_| ()), Err(RegistryError::CannotCopy(Fault::ChangedSource)));
}

/// Answers that are missing, too many, repeated or too late must not reach memory that is gone.
#[test]
fn strange_answers_do_no_harm() {
    let answer = "host->complete(program.cookie, results, program.nodes_count);";
    let source = std::fs::read_to_string(root().join("examples/provider-c/provider.c")).unwrap();
    let exec: Exec = Arc::new(Inline::new(1));
    for (name, instead, registers) in [
        ("twice", format!("{answer} {answer} host->started(program.cookie); (void)host->given_up(program.cookie);"), true),
        ("none", "host->complete(program.cookie, NULL, 0);".to_string(), false),
        ("never", "(void)host;".to_string(), false),
        ("few", "host->complete(program.cookie, results, program.nodes_count - 1);".to_string(), false),
    ] {
        let folder = Folder::new(name);
        let strange = source.replace(answer, &instead);
        assert_ne!(strange, source);
        let path = folder.0.join("strange.c");
        std::fs::write(&path, strange).unwrap();
        let provider = CProvider::load(&exec, &build(&folder, &path, &[])).unwrap();
        let registered = Registry::new(&exec).register(provider, &RegisterOptions::default());
        assert_eq!(registered.is_ok(), registers, "{name}: {registered:?}");
    }
}

/// Files that are no providers are refused with a reason.
#[test]
fn what_is_no_provider_is_refused() {
    let exec: Exec = Arc::new(Inline::new(1));
    let folder = Folder::new("none");
    let missing = CProvider::load(&exec, Path::new("/nonexistent/provider.so"));
    assert!(matches!(missing, Err(LoadError::Library(_))), "{missing:?}");
    let source = folder.0.join("other.c");
    std::fs::write(&source, "int other(void);\nint other(void) { return 1; }\n").unwrap();
    let other = CProvider::load(&exec, &build(&folder, &source, &[]));
    assert!(matches!(other, Err(LoadError::Library(_))), "{other:?}");
    std::fs::write(&source, "#include \"zirconia/provider.h\"\nint32_t zirconia_provider_open(const struct zp_host *h, struct zp_provider *p)\n{ (void)h; (void)p; return ZP_NOT_SUPPORTED; }\n").unwrap();
    let absent = CProvider::load(&exec, &build(&folder, &source, &[]));
    assert!(matches!(absent, Err(LoadError::NoDevice(OpError::NotSupported))), "{absent:?}");
    std::fs::write(&source, "#include \"zirconia/provider.h\"\nint32_t zirconia_provider_open(const struct zp_host *h, struct zp_provider *p)\n{ (void)h; p->version = 9; return ZP_OK; }\n").unwrap();
    let newer = CProvider::load(&exec, &build(&folder, &source, &[]));
    assert!(matches!(newer, Err(LoadError::Version { found: 9 })), "{newer:?}");
}

/// The block of docs/accelerators.md in this language.
fn block_of(page: &str, language: &str) -> String {
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_string()
}

/// The page that tells vendors how to write a provider must work as it stands.
#[test]
fn the_page_can_be_followed_literally() {
    let page = std::fs::read_to_string(root().join("docs/accelerators.md")).unwrap();
    let folder = Folder::new("page");
    std::fs::write(folder.0.join("least.c"), block_of(&page, "c")).unwrap();
    let include = root().join("include").canonicalize().unwrap();
    let status = Command::new("sh").arg("-ec").arg(block_of(&page, "sh")).env("INCLUDE", include).current_dir(&folder.0).status().unwrap();
    assert!(status.success());
    let exec: Exec = Arc::new(Inline::new(1));
    let provider = CProvider::load(&exec, &folder.0.join("least.so")).unwrap();
    let device = Registry::new(&exec).register(provider, &RegisterOptions::default()).unwrap();
    assert_eq!((device.name(), device.disabled()), ("least", &[][..]));
    let features: Vec<String> = device.capabilities().list.iter().map(|one| one.feature.to_string()).collect();
    assert_eq!(features, ["copy in", "copy out", "zero fill"]);
}
