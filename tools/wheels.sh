#!/usr/bin/env bash
# To be sourced, in the root of the tree: `wheels NAME` unpacks Python wheels, given on standard input as lines of pip's requirements with
# hashes, into a folder NAME under target/, once, and prints that folder. They come from the package index that pip is set up for, and
# are never part of this tree. Ends with status 75 where the index cannot be reached, or does not have them.

wheels() {
    local folder=${CARGO_TARGET_DIR:-target}/$1 wheel
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
        cat >"$fresh/wheels.txt"
        fetch() {
            python3 -m pip download --quiet --disable-pip-version-check --timeout 20 --retries 2 --no-deps --only-binary=:all: --require-hashes \
                --requirement "$fresh/wheels.txt" --dest "$fresh" >&2
        }
        # Wheels with other hashes are not the same as none.
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
}
