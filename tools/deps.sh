#!/usr/bin/env bash
# Installs what building and testing need on Debian 12 and is not there yet. Prints only what it does.
#   ZIRCONIA_FIO=1         install fio and perf too (make bench needs them; building and testing don't)
#   ZIRCONIA_TGT=1         install tgt, the iSCSI target that ours is measured beside (zbench block)
#   ZIRCONIA_ZTS=1         install what OpenZFS's own test suite uses (cargo xtask zts)
#   ZIRCONIA_DATABASES=1   install PostgreSQL and SQLite, whose commits the kills of the daemon must not lose (make torture, cargo xtask kills)
#   ZIRCONIA_GLUSTER=1     install GlusterFS, whose bricks lie on our mounts in examples/gluster (make torture)
#   ZIRCONIA_QEMU=1        install QEMU's and libnbd's tools, which use volumes over NBD (make torture)
#   ZIRCONIA_NO_NVRTC=1    leave pip out, with which a test fetches the compiler of CUDA's kernels (tools/nvrtc.sh) and another one nvCOMP (tools/nvcomp.sh);
#                          these tests then say that they skip (0: they must not skip, not even where the package index cannot be reached)
#   ZIRCONIA_NO_ORACLE=1   leave the real OpenZFS (zdb and friends) out; the tests that need it then say that they skip, or fail with ZIRCONIA_STRICT=1
set -euo pipefail

sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
updated=
apt_install() {
    if [ -z "$updated" ]; then $sudo apt-get update -qq 2>/dev/null || true; updated=1; fi
    echo "installing: $*"
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "$@" >/dev/null
}
have() { command -v "$1" >/dev/null 2>&1; }
is_debian() { [ -e /etc/debian_version ] && have apt-get; }

if ! is_debian; then
    have cargo && have cc || { echo "this is not Debian: install a C compiler and Rust 1.95 or newer, then try again" >&2; exit 1; }
    exit 0
fi

want=()
have cc || want+=(gcc libc6-dev)
have fusermount3 || want+=(fuse3)
have setfacl || want+=(acl)
have curl || want+=(curl)
have openssl || want+=(openssl)
have systemd-analyze || want+=(systemd)
have pkg-config || want+=(pkg-config)
have c++ || want+=(g++)
[ "${ZIRCONIA_NO_NVRTC:-0}" != 0 ] || python3 -m pip --version >/dev/null 2>&1 || want+=(python3-pip)
[ -z "${ZIRCONIA_FIO:-}" ] || have fio || want+=(fio)
[ -z "${ZIRCONIA_FIO:-}" ] || have perf || want+=(linux-perf)
[ -z "${ZIRCONIA_TGT:-}" ] || [ -x /usr/sbin/tgtd ] || want+=(tgt)
[ -z "${ZIRCONIA_ZTS:-}" ] || want+=(ksh fio bc jq pax cpio xxhash acl attr parted rsync sudo)
[ -z "${ZIRCONIA_DATABASES:-}" ] || ls /usr/lib/postgresql/*/bin/pg_amcheck >/dev/null 2>&1 || want+=(postgresql)
[ -z "${ZIRCONIA_DATABASES:-}" ] || have sqlite3 || want+=(sqlite3)
[ -z "${ZIRCONIA_GLUSTER:-}" ] || have glusterd || want+=(glusterfs-server glusterfs-client)
[ -z "${ZIRCONIA_GLUSTER:-}" ] || have setfattr || want+=(attr)
[ -z "${ZIRCONIA_GLUSTER:-}" ] || have ip || want+=(iproute2)
[ -z "${ZIRCONIA_QEMU:-}" ] || have qemu-img || want+=(qemu-utils)
[ -z "${ZIRCONIA_QEMU:-}" ] || have nbdinfo || want+=(libnbd-bin)
[ ${#want[@]} -eq 0 ] || apt_install "${want[@]}"

rust_ok() { have cargo && have rustc && [ "$(printf '1.95.0\n%s\n' "$(rustc --version | awk '{print $2}' | cut -d- -f1)" | sort -V | head -1)" = 1.95.0 ]; }
if ! rust_ok; then
    # Debian 12 carries a current compiler for its browsers: rustc-web and cargo-web.
    apt_install rustc-web cargo-web
    have rustfmt || apt_install rustfmt-web || true
    rust_ok || { echo "Rust 1.95 or newer is needed; found: $(rustc --version 2>/dev/null || echo none)" >&2; exit 1; }
fi

if [ -z "${ZIRCONIA_NO_ORACLE:-}" ] && ! have zdb; then
    list=/etc/apt/sources.list.d/zirconia-oracle.sources
    base=/etc/apt/sources.list.d/debian.sources
    if [ ! -e "$list" ] && [ -e "$base" ]; then
        uri=$(awk '/^URIs:/{print $2; exit}' "$base"); key=$(awk '/^Signed-By:/{print $2; exit}' "$base")
        printf 'Types: deb\nURIs: %s\nSuites: bookworm bookworm-backports\nComponents: main contrib\nSigned-By: %s\n' "$uri" "$key" |
            $sudo tee "$list" >/dev/null
    fi
    DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq 2>/dev/null || true
    echo "installing the oracle: zfsutils-linux zfs-test libzfslinux-dev (userspace only)"
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends -t bookworm-backports \
        zfsutils-linux zfs-test libzfslinux-dev >/dev/null || echo "the oracle could not be installed: interoperability tests will say that they skip"
fi
