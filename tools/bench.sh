#!/usr/bin/env bash
# Speed beside the peer, in one run: kernels, then the engine. ZPBENCH names the peer's program; without it only ours is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=target/release/zbench
"$bench" kernels || echo "kernels: a target was missed (see above)"
for layout in stripe:4 raidz2:6; do
    for record in 1024 16; do
        "$bench" engine --layout "$layout" --record-kib "$record" --reps 3 ${ZPBENCH:+--peer "$ZPBENCH"}
    done
done
