#!/usr/bin/env bash
# The provider `cuda` on this machine's GPU, in at most five minutes: what kernels do in a second, random shapes beside software with and without nvCOMP, and
# the write pipeline. Wants a driver, NVRTC (12 or 13) and built programs; no compiler, no network, no root.
#   tools/gpu.sh [FOLDER]     zirconia and zbench lie in FOLDER (default: target/release), and libnvcomp.so.6 where there is one
#   FOLDER/before/zirconia    another build, whose LZ4 is measured beside it (docs/bench/gpu.md says how to make one)
#   ZIRCONIA_GPU_SECONDS=290  time for all of it: what comes too late is cut off and fails
#   OUT=DIR                   a folder for what the commands print (default: FOLDER/gpu)
# Fails when a step did, or did not end.
set -u
bin=$(cd "${1:-$(dirname "$0")/../target/release}" && pwd) || exit 1
out=${OUT:-$bin/gpu}
limit=${ZIRCONIA_GPU_SECONDS:-290}
mkdir -p "$out" || exit 1
failed=

# The newest library of that name that a CUDA or a wheel has put somewhere, and its folder, for what it loads itself.
if [ -z "${ZIRCONIA_NVRTC:-}" ]; then
    ZIRCONIA_NVRTC=$(find "$bin" /usr /opt /lib -name 'libnvrtc.so.1[23]' 2>/dev/null | awk -F. '{ print $NF, $0 }' | sort -n | tail -1 | cut -d' ' -f2-)
    export ZIRCONIA_NVRTC
fi
[ -e "$ZIRCONIA_NVRTC" ] || { echo "no libnvrtc.so.12 or .13: name it in ZIRCONIA_NVRTC"; exit 1; }
LD_LIBRARY_PATH=$(dirname "$ZIRCONIA_NVRTC")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
nvcomp=${ZIRCONIA_NVCOMP:-$bin/libnvcomp.so.6}

# What is left of a number of seconds: none of it may be after the end.
left() {
    local rest=$((limit - SECONDS))
    echo $((rest < 1 ? 1 : rest < $1 ? rest : $1))
}

# step NAME SECONDS COMMAND...: runs it, keeps and shows what it prints.
step() {
    local name=$1 seconds begun=$SECONDS code
    seconds=$(left "$2")
    shift 2
    printf '\n# %s: %s\n' "$name" "$*"
    timeout -k 2 "$seconds" "$@" >"$out/$name.txt" 2>&1
    code=$?
    cat "$out/$name.txt"
    printf '# %s: status %s, %s s\n' "$name" "$code" $((SECONDS - begun))
    [ "$code" = 0 ] || failed="$failed $name"
}

# Rates of the kernels for one block, some large ones and many small ones, with the data in the GPU's memory.
rates() {
    local name=$1 zirconia=$2
    shift 2
    step "$name-1x1024" 20 "$zirconia" provider bench "$@" cuda
    step "$name-64x1024" 25 "$zirconia" provider bench --at-once 64 "$@" cuda
    step "$name-256x128" 25 "$zirconia" provider bench --at-once 256 --kib 128 "$@" cuda
}

step gpu 10 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
export ZIRCONIA_NVCOMP=/no/nvcomp
rates after "$bin/zirconia"
[ -x "$bin/before/zirconia" ] && rates before "$bin/before/zirconia" --only lz4

# 10^5 shapes of up to 1 MiB, by eight processes: software is what takes the time.
shapes() {
    local seed pid pids=() code=0
    for seed in 1 2 3 4 5 6 7 8; do
        "$bin/zirconia" provider test --shapes 12500 --seed "$seed" --at-once 64 cuda >"$out/shapes-$seed.txt" 2>&1 &
        pids+=($!)
    done
    trap 'kill "${pids[@]}" 2>/dev/null; exit 124' TERM
    for pid in "${pids[@]}"; do wait "$pid" || code=1; done
    grep -h 'random shapes agree\|FAILED\|cannot' "$out"/shapes-?.txt
    return $code
}
export -f shapes
export bin out
step shapes 100 bash -c shapes

# Memory for the vdev files of twelve devices.
dir=/dev/shm/zbench
[ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -gt 8000000 ] 2>/dev/null || dir=${TMPDIR:-/tmp}/zbench
zia() {
    local name=$1 seconds=$2
    shift 2
    step "$name" "$seconds" "$bin/zbench" zia --cuda --threads "$(nproc)" --file-mib 32 --dir "$dir" "$@"
}
# Its bounds are those of a modelled card, and its status says whether they were kept: here only whether it ended counts.
judged() {
    grep -q '^GPU: ' "$out/$1.txt" && failed=${failed/ $1/}
}
zia zia-lz4 45 --compression lz4
judged zia-lz4
if [ -e "$nvcomp" ]; then
    export ZIRCONIA_NVCOMP=$nvcomp
    zia zia-gzip 75 --compression gzip --reps 1
    judged zia-gzip
    # A block of gzip takes nvCOMP a second for each MiB: small ones, and many at once.
    step nvcomp-shapes 150 "$bin/zirconia" provider test --shapes 100000 --kib 32 --at-once 512 cuda
fi

printf '\n# MB/s: before, after\n'
for shape in 1x1024 64x1024 256x128; do
    for operation in 'compress lz4' 'decompress lz4'; do
        rate() { [ -e "$out/$1-$shape.txt" ] && awk -v name="$operation" 'index($0, name " ") == 1 { print $3 }' "$out/$1-$shape.txt"; }
        printf '%-16s %-8s %10s %10s\n' "$operation" "$shape" "$(rate before)" "$(rate after)"
    done
done
printf '\n%s s\n' "$SECONDS"
[ -z "$failed" ] || { printf 'failed or cut off:%s\n' "$failed"; exit 1; }
