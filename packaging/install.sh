#!/usr/bin/env bash
# Installs what `make build` made: programs, manual pages, completions and units of systemd. Prints where.
#   PREFIX=/usr/local      where to: PREFIX/bin, PREFIX/sbin, PREFIX/share, PREFIX/lib/systemd/system
#   DESTDIR=               a folder in front of it, for packages
#   BUILT=target/release   where the programs are
# It refuses to stand in the way of an installed OpenZFS: give it a PREFIX of its own then, and have shells ask for the commands ('zirconia shellenv').
set -euo pipefail

PREFIX=${PREFIX:-/usr/local} DESTDIR=${DESTDIR:-} BUILT=${BUILT:-target/release}
here=$(cd "$(dirname "$0")" && pwd)
# The folder of the programs stands in units, where these would mean something.
[[ $PREFIX =~ ^/[A-Za-z0-9._/+-]*$ ]] || { echo "PREFIX '$PREFIX' is no plain absolute path" >&2; exit 1; }
usual=; [[ $PREFIX = /usr || $PREFIX = /usr/local || $PREFIX = / ]] && usual=1

if [ -n "$usual" ] && [ -z "$DESTDIR" ]; then
    for other in /usr/sbin/zpool /sbin/zpool /usr/bin/zpool; do
        if [ -e "$other" ] && [ "$other" != "$PREFIX/bin/zpool" ]; then
            echo "OpenZFS is installed ($other): choose another place, as PREFIX=/opt/zirconia" >&2
            exit 1
        fi
    done
fi

root=$DESTDIR$PREFIX
install -d "$root/bin" "$root/sbin" "$root/share/man/man1" "$root/share/man/man7" "$root/share/man/man8" \
    "$root/share/bash-completion/completions" "$root/lib/systemd/system" "$root/lib/systemd/system-preset"
programs=(zirconia zirconiad zpool zfs zdb zinject zstream zirconia-target arcstat zilstat)
for program in "${programs[@]}"; do
    # Whoever runs the old one keeps it.
    install -m 755 "$BUILT/$program" "$root/bin/.$program.new"
    mv -f "$root/bin/.$program.new" "$root/bin/$program"
done
# Under the name of OpenZFS's program it is that one.
ln -sf zirconia "$root/bin/zgenhostid"
# mount(8) calls helpers by these names, which it looks for in /sbin.
for helper in mount.zfs mount.fuse.zfs; do
    ln -sf ../bin/zfs "$root/sbin/$helper"
done
for section in 1 7 8; do
    install -m 644 "$here/../man/man$section"/*."$section" "$root/share/man/man$section/"
done
for name in zpool zfs zirconia; do
    install -m 644 "$here/completions/zirconia.bash" "$root/share/bash-completion/completions/$name"
done
for unit in "$here"/systemd/*.{service,timer,target}; do
    sed "s|@BINDIR@|$PREFIX/bin|g" "$unit" >"$root/lib/systemd/system/$(basename "$unit")"
done
install -m 644 "$here/systemd/50-zirconia.preset" "$root/lib/systemd/system-preset/"
echo "installed below $root"
if [ -z "$usual" ]; then
    echo "commands: eval \"\$($PREFIX/bin/zirconia shellenv)\""
    echo "units:    systemctl link $PREFIX/lib/systemd/system/*"
fi
if [ "$PREFIX" != /usr ] && [ "$PREFIX" != / ]; then
    echo "mount(8): ln -s $PREFIX/sbin/mount.zfs $PREFIX/sbin/mount.fuse.zfs /sbin/"
fi
