#!/usr/bin/env bash
# Test suites of others, run through a real mount and our commands (docs/suites.md has what to expect). Slow: part of `make suites`.
#   tools/suites.sh [pjdfstest] [fsx] [go-zfs]   those that are named, or all
#   ZIRCONIA_BIN=DIR          the programs (default: target/release)
#   ZIRCONIA_SUITES_DIR=DIR   where pools and files go (default: a folder below /var/tmp); everybody must be able to pass to it
#   ZIRCONIA_SUITES_TOOLS=DIR where the suites are installed and kept (default: target/suites)
# Needs root, /dev/fuse, cargo, and for go-zfs go; fetches the suites from crates.io and the Go module proxy.
set -uo pipefail
cd "$(dirname "$0")/.."
. tools/missing.sh
bin=$(realpath "${ZIRCONIA_BIN:-target/release}")
tools=$(realpath -m "${ZIRCONIA_SUITES_TOOLS:-target/suites}")
dir=${ZIRCONIA_SUITES_DIR:-$(mktemp -d /var/tmp/zirconia-suites.XXXXXX)}
mkdir -p "$dir" "$tools" && dir=$(realpath "$dir")
chmod 755 "$dir"
[ "$(id -u)" = 0 ] || { missing root "the suites" "run them as root"; exit; }
[ -e /dev/fuse ] || { missing fuse "the suites" "there is no /dev/fuse: modprobe fuse"; exit; }
export ZIRCONIA_STATE=$dir/state PATH=$bin:$PATH
mkdir -p "$ZIRCONIA_STATE" && chmod 755 "$ZIRCONIA_STATE"
failed=
cleanup() {
    zirconia stop >/dev/null 2>&1
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
fail() { failed="$failed $1"; echo "FAIL  $1: $2"; }

install() { # crate version
    [ -x "$tools/bin/$1" ] && "$tools/bin/$1" --version 2>/dev/null | grep -qF "$2" && return
    CARGO_TARGET_DIR=$tools/build cargo install --quiet --locked --root "$tools" --version "$2" "$1"
}

pool() { # a pool of its own, mounted at $dir/mnt
    for name in a b c; do rm -f "$dir/$name" && truncate -s 2G "$dir/$name"; done
    zpool create -f -m "$dir/mnt" "$1" raidz "$dir/a" "$dir/b" "$dir/c"
}

pjdfstest() { # POSIX, by system call
    install pjdfstest 0.2.2 || { fail pjdfstest "it cannot be installed"; return; }
    pool pjd || { fail pjdfstest "no pool"; return; }
    mkdir "$dir/mnt/work" "$dir/other" && chmod 755 "$dir/mnt/work" "$dir/other"
    cat >"$dir/pjdfstest.toml" <<'TOML'
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML
    (cd "$dir/mnt/work" && "$tools/bin/pjdfstest" -c "$dir/pjdfstest.toml" -p "$dir/mnt/work" -s "$dir/other") >"$tools/pjdfstest.txt" 2>&1
    local code=$?
    grep -aE 'FAILED' "$tools/pjdfstest.txt"
    tail -1 "$tools/pjdfstest.txt"
    [ $code = 0 ] || fail pjdfstest "exit $code, see $tools/pjdfstest.txt"
    zpool destroy pjd
}

fsx() { # one file under random operations, also through mappings
    install fsx 0.3.2 || { fail fsx "it cannot be installed"; return; }
    pool fsx || { fail fsx "no pool"; return; }
    cat >"$dir/fsx.toml" <<'TOML'
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 5
sendfile = 3
posix_fadvise = 3
copy_file_range = 5
TOML
    for seed in 1 2 3 4 5 6; do
        # Each fsync, and each msync after a store, waits for a txg.
        if "$tools/bin/fsx" -q -f "$dir/fsx.toml" -N "${ZIRCONIA_FSX_OPERATIONS:-4000}" -S $seed -P "$tools" "$dir/mnt/file$seed" >"$tools/fsx-$seed.txt" 2>&1; then
            echo "ok    fsx, seed $seed"
        else
            fail "fsx-$seed" "see $tools/fsx-$seed.txt"
            tail -5 "$tools/fsx-$seed.txt"
        fi
    done
    zpool destroy fsx
}

# What does not pass (it asks for the default of compression before OpenZFS 2.2): a test of this list that passes is to
# be taken off it.
go_zfs_lacks="TestDatasetGetProperty"
go_zfs() { # a client that reads what the commands print
    command -v go >/dev/null || { missing go go-zfs "go is not installed" || fail go-zfs "it must be run"; return; }
    local src="$tools/go-zfs" info
    info=$(cd "$tools" && go mod download -json github.com/mistifyio/go-zfs/v3@v3.0.1) || { fail go-zfs "it cannot be downloaded"; return; }
    rm -rf "$src" && cp -r "$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$info")" "$src" && chmod -R u+w "$src"
    # Its pool is named test and lies in /test, its devices are files in /tmp.
    [ ! -e /test ] || { fail go-zfs "/test is there already"; return; }
    (cd "$src" && go test -count=1 -v ./...) >"$tools/go-zfs.txt" 2>&1
    local passed=0 test verdict
    while read -r verdict test; do
        case "$verdict  $go_zfs_lacks " in
        "PASS: "*" $test "*) fail "go-zfs $test" "it passes: take it off the list" ;;
        "PASS: "*) passed=$((passed + 1)) ;;
        "FAIL: "*" $test "*) ;;
        *) fail "go-zfs $test" "see $tools/go-zfs.txt" ;;
        esac
    done < <(sed -nE 's/^--- (PASS:|FAIL:) ([A-Za-z]+) .*/\1 \2/p' "$tools/go-zfs.txt")
    zpool destroy -f test 2>/dev/null
    [ ! -d /test ] || rmdir /test
    echo "go-zfs: $passed passed; expected to fail: $go_zfs_lacks"
    [ $passed -gt 0 ] || fail go-zfs "nothing passed, see $tools/go-zfs.txt"
}

for suite in "${@:-pjdfstest fsx go-zfs}"; do
    for name in $suite; do
        echo "── $name"
        case $name in
        pjdfstest | fsx) $name ;;
        go-zfs) go_zfs ;;
        *) fail "$name" "there is no such suite" ;;
        esac
    done
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
