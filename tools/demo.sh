#!/usr/bin/env bash
# From nothing to a mounted raidz2 pool on six file vdevs that holds a real source tree: written, scrubbed, exported and verified.
#   ZIRCONIA_DEMO_DIR=DIR   where the vdev files and the state go (default: a temporary directory)
#   ZIRCONIA_DEMO_KEEP=1    leave everything in place at the end
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/missing.sh
root=$PWD
dir=${ZIRCONIA_DEMO_DIR:-$(mktemp -d /tmp/zirconia-demo.XXXXXX)}
mkdir -p "$dir"
export ZIRCONIA_STATE=$dir/state
mkdir -p "$ZIRCONIA_STATE"
eval "$("$root/target/release/zirconia" shellenv)"
say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
run() { printf '\033[2m$ %.200s\033[0m\n' "$*"; "$@"; }
cleanup() {
    zirconia stop >/dev/null 2>&1 || true
    [ -n "${ZIRCONIA_DEMO_KEEP:-}" ] || rm -rf "$dir"
}
trap cleanup EXIT

say "Six file vdevs, one raidz2 pool"
mkdir -p "$dir/vdevs"
for i in 0 1 2 3 4 5; do truncate -s 1G "$dir/vdevs/d$i"; done
run zpool create -O compression=lz4 -m "$dir/mnt" demo raidz2 "$dir"/vdevs/d{0,1,2,3,4,5}
run zfs create -o recordsize=1M demo/big
run zfs create demo/src
run zfs list

say "A real source tree, and large binaries"
run cp -a /usr/include/. "$dir/mnt/src/"
mapfile -t large < <(find /usr/bin /usr/lib/x86_64-linux-gnu -maxdepth 1 -type f -size +2M 2>/dev/null | sort)
run cp -a "${large[@]:0:40}" "$dir/mnt/big/"
run zfs snapshot demo/src@first
(cd /usr/include && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$dir/expected"
(cd "$dir/mnt/src" && sha256sum --quiet -c "$dir/expected") && echo "every file reads back as it was written: $(wc -l <"$dir/expected") files"
echo "in the snapshot: $(find "$dir/mnt/src/.zfs/snapshot/first" -type f | wc -l) files"

say "Scrub and status"
run zpool scrub -w demo
run zpool status demo
run zfs list -o name,used,available,referenced,compressratio,mountpoint
run zpool list

say "Export, import elsewhere, read again"
run zpool export demo
run zpool import -d "$dir/vdevs"
run zpool import -d "$dir/vdevs" demo
(cd "$dir/mnt/src" && sha256sum --quiet -c "$dir/expected") && echo "after the import too"
run zpool export demo

if [ -x /usr/sbin/zdb ] || [ -x /sbin/zdb ]; then
    say "The real OpenZFS looks at the exported pool: zdb -bcc (block by block, leaks and checksums)"
    oracle=/usr/sbin/zdb; [ -x $oracle ] || oracle=/sbin/zdb
    run "$oracle" -e -p "$dir/vdevs" -bcc demo >"$dir/zdb.out" 2>&1 || { tail -30 "$dir/zdb.out"; echo "zdb found a fault" >&2; exit 1; }
    grep -E 'No leaks|bp count|bp logical|bp physical|bp allocated|SPA allocated' "$dir/zdb.out" || { tail -30 "$dir/zdb.out"; exit 1; }
else
    missing zdb "the check by OpenZFS's zdb" "it is not installed; tools/deps.sh installs it" >/dev/null
    echo "zdb of OpenZFS is not installed here: its check is skipped"
fi
say "Done"
