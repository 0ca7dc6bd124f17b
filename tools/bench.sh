#!/usr/bin/env bash
# Speed beside the peer, in one run: kernels, the engine, what the mount adds, memory. The peer's program zpbench is $ZPBENCH, or is built
# from the sources in $ZIRCONIA_PEER or ../shared/peer; without it only ours is measured. Each command judges its own bounds and goes on.
set -uo pipefail
cd "$(dirname "$0")/.."
missed=0
for command in kernels engine fuse memory; do
    printf '\n# zbench %s\n' "$command"
    target/release/zbench "$command" || { missed=1; echo "$command: a bound was missed, or it failed (see above)"; }
done
exit $missed
