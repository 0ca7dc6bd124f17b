#!/usr/bin/env bash
# Fetches NVRTC (the compiler of CUDA as a library) and CUDA's headers, for the tests of the kernels; prints the folder they are in.
# They are NVIDIA's, under its licence, and never part of this tree: Python wheels of one version with known hashes, from the package
# index that pip is set up for, kept under target/.
set -euo pipefail

cd "$(dirname "$0")/.."
version=12.1.105
folder=${CARGO_TARGET_DIR:-target}/nvrtc-$version
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9

if [ ! -e "$folder/done" ]; then
    [ "$(uname -m)" = x86_64 ] || { echo "the wheels that are known here are for x86_64, this is $(uname -m)" >&2; exit 1; }
    python3 -m pip --version >/dev/null 2>&1 || { echo "pip is needed (package python3-pip)" >&2; exit 1; }
    fresh=$folder.new
    rm -rf "$fresh"
    mkdir -p "$fresh"
    trap 'rm -rf "$fresh"' EXIT
    cat >"$fresh/wheels.txt" <<WHEELS
nvidia-cuda-nvrtc-cu12==$version --hash=sha256:339b385f50c309763ca65456ec75e17bbefcbbf2893f462cb8b90584cd27a1c2
nvidia-cuda-runtime-cu12==$version --hash=sha256:6e258468ddf5796e25f1dc591a31029fa317d97a0a94ed93468fc86301d61e40
WHEELS
    fetch() {
        python3 -m pip download --quiet --disable-pip-version-check --timeout 20 --retries 2 --no-deps --only-binary=:all: --require-hashes \
            --requirement "$fresh/wheels.txt" --dest "$fresh" >&2
    }
    # 75: the package index cannot be reached, or does not have them. Wheels with other hashes are no such thing.
    fetch 2>"$fresh/said" || fetch 2>"$fresh/said" || { cat "$fresh/said" >&2; grep -q 'DO NOT MATCH' "$fresh/said" && exit 1; exit 75; }
    for wheel in "$fresh"/*.whl; do
        python3 -m zipfile -e "$wheel" "$fresh"
        rm "$wheel"
    done
    touch "$fresh/done"
    rm -rf "$folder"
    mv "$fresh" "$folder"
    trap - EXIT
fi
realpath "$folder"
