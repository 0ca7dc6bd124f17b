//! The kernels with one thread of this machine for each thread of a GPU (`races.cpp`), watched by ThreadSanitizer.

use need::Need;
use provider_cuda::Kernel;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Exit status of a program in which a race was found.
const RACE: i32 = 66;
const PROGRAM: &str = "-std=c++17 -O1 -g -Wall -Wextra -Werror -Wno-unused-function -fno-strict-aliasing -fsanitize=thread -pthread";

/// Program made of a source; None when it cannot be made.
fn built(source: &Path, name: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let made = Command::new("c++").args(PROGRAM.split(' ')).arg("-o").arg(&program).arg(source).status();
    made.expect("a C++ compiler is installed").success().then_some(program)
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).env("TSAN_OPTIONS", format!("exitcode={RACE}")).output().expect("it can be started")
}

/// True when programs can be watched here: the least of them is made, and runs.
fn is_watched() -> bool {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("least-{}.cpp", std::process::id()));
    std::fs::write(&source, "int main() { return 0; }\n").unwrap();
    built(&source, "least").is_some_and(|program| run(&program, &[]).status.success())
}

/// The program with the kernels, made once; None where nothing can be watched.
fn program() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        if !is_watched() {
            need::missing(Need::Sanitizer, "races between the threads of kernels", "a watched program cannot be made, or does not run")
                .unwrap();
            return None;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/races.cpp");
        Some(built(&source, "races").expect("the kernels compile as C++"))
    };
    BUILT.get_or_init(make).as_deref()
}

/// Two threads that touch the same bytes at the same time give a wrong checksum or block on a GPU, now and then, and nowhere else.
#[test]
fn no_two_threads_of_a_kernel_race() {
    let Some(program) = program() else { return };
    let ran = run(program, &[]);
    let (said, found) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}: {said}{found}", ran.status);
    assert_eq!(said, "18 launches\n");
    let source = include_str!("../races.cpp");
    for kernel in Kernel::ALL {
        assert!(source.contains(&format!("{}, ", kernel.name())) || source.contains(&format!("{} : ", kernel.name())), "{kernel:?} runs");
    }
}

/// A watch that sees nothing finds no race either.
#[test]
fn races_that_are_planted_are_found() {
    let Some(program) = program() else { return };
    for (fault, place) in [("no-barriers", "in add_sums"), ("no-atomics", "in atomicAdd")] {
        let ran = run(program, &[fault]);
        let found = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(RACE), "{fault}: {found}");
        assert!(found.contains("data race") && found.contains(place), "{fault}: {found}");
    }
}
