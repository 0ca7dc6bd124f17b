#!/usr/bin/env bash
# Every measurement in one run, on one machine, written as one page: docs/bench/report.html (ZIRCONIA_BENCH_HTML names another place).
#   tools/bench.sh            all of it: at most 45 minutes on two cores
#   tools/bench.sh --quick    a small matrix only, about two minutes, into target/bench/quick.html
# The peer's program zpbench is $ZPBENCH, or is built from the sources in $ZIRCONIA_PEER or ../shared/peer; without it only ours is
# measured, and without Debian's tgt no other target beside iSCSI. Each command judges its own bounds; the script goes on and fails in the end when one was missed.
# Interrupted, every command removes its mounts, loop devices, bandwidth caps and files.
set -uo pipefail
cd "$(dirname "$0")/.."
zbench=target/release/zbench
out=target/bench
rm -rf "$out" && mkdir -p "$out"
if [ "${1:-}" = --quick ]; then
    exec "$zbench" matrix --quick --html "$out/quick.html"
fi
html=${ZIRCONIA_BENCH_HTML:-docs/bench/report.html}
missed=
trap 'exit 130' INT TERM
check() {
    local name=$1
    shift
    printf '\n# zbench %s\n' "$name $*"
    "$zbench" "$name" "$@" 2>"$out/$name.err" | tee "$out/$name.txt"
    if [ "${PIPESTATUS[0]}" != 0 ]; then
        missed="$missed $name"
        tail -3 "$out/$name.err" | tee -a "$out/$name.txt"
    fi
}
check kernels
check engine
check direct
check fuse
check memory
check depth
check fsync
check locks
check block --seconds 1
check bandwidth
check zia --json "$out/zia.jsonl"
# Devices as fast as memory: CPU decides, and the peer takes part.
"$zbench" matrix --devices 1,4,12 --minutes 2 --json "$out/matrix.jsonl" || missed="$missed matrix"
"$zbench" matrix --devices 4 --size-kib 1024 --jobs 1,16 --minutes 1 --json "$out/matrix.jsonl" || missed="$missed matrix"
# Devices with a cap: the share of the raw devices decides.
"$zbench" matrix --devices-are loops --layers raw,library,fuse --seconds 0.4 --minutes 6 --json "$out/matrix.jsonl" ||
    missed="$missed matrix"
outputs=()
for name in kernels engine direct fuse memory depth fsync locks block bandwidth zia; do outputs+=(--output "$out/$name.txt"); done
"$zbench" report --json "$out/matrix.jsonl" --json "$out/zia.jsonl" "${outputs[@]}" "$html" && printf '\nwritten: %s\n' "$html"
[ -z "$missed" ] || { printf 'missed or failed:%s\n' "$missed"; exit 1; }
