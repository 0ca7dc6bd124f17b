#!/usr/bin/env bash
# Fetches NVRTC (the compiler of CUDA as a library) and CUDA's headers, for the tests of the kernels; prints the folder they are in.
# They are NVIDIA's, under its licence, and never part of this tree: Python wheels of one version with known hashes (tools/wheels.sh).
set -euo pipefail

cd "$(dirname "$0")/.."
. tools/wheels.sh
version=12.1.105
wheels "nvrtc-$version" <<WHEELS
nvidia-cuda-nvrtc-cu12==$version --hash=sha256:339b385f50c309763ca65456ec75e17bbefcbbf2893f462cb8b90584cd27a1c2
nvidia-cuda-runtime-cu12==$version --hash=sha256:6e258468ddf5796e25f1dc591a31029fa317d97a0a94ed93468fc86301d61e40
WHEELS
