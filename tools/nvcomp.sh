#!/usr/bin/env bash
# Fetches nvCOMP (compressors for GPUs) with its headers, for the test of how it is called; prints the folder they are in.
# It is NVIDIA's, under its licence, and never part of this tree: a Python wheel of one version with a known hash (tools/wheels.sh).
set -euo pipefail

cd "$(dirname "$0")/.."
. tools/wheels.sh
version=6.0.0.12
wheels "nvcomp-$version" <<WHEELS
nvidia-libnvcomp-cu12==$version --hash=sha256:9b8210d6ae6ee87ec74ea2fb2868c403c441bac4f3a5c60907e8bc0293297bd1
WHEELS
