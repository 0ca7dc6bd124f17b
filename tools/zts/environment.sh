#!/bin/bash
# environment.sh WORK PROGRAMS: makes WORK/suite (a copy of OpenZFS's test suite that reads our statistics) and WORK/path (the only commands that it sees).
# Needs Debian's zfs-test, zfsutils-linux, ksh and what include/commands.cfg of the suite names.
set -e
work=$1 programs=$2
suite=/usr/share/zfs
[ -e $suite/zfs-tests/include/libtest.shlib ] || { echo "the suite is not installed: ZIRCONIA_ZTS=1 tools/deps.sh" >&2; exit 1; }
rm -rf "$work/suite" "$work/path" "$work/zed"
mkdir -p "$work/path" "$work/suite" "$work/zed/etc" "$work/zed/lib"
cp -a $suite/zfs-tests $suite/test-runner $suite/runfiles "$work/suite/"
grep -rlI /proc/spl "$work/suite/zfs-tests" | xargs sed -i 's#/proc/spl#/run/zts/spl#g'
# The dataset's file is the last part of its path, wherever that begins.
sed -i 's/substr(a\[7\], 8)/substr(a[length(a)], 8)/' "$work/suite/zfs-tests/include/kstat.shlib"
path=$work/path
. $suite/zfs-tests/include/commands.cfg

link() { # NAME…: the first of that name that the system has
    for name in "$@"; do
        [ -e "$path/$name" ] && continue
        for folder in /usr/local/bin /usr/local/sbin /usr/bin /usr/sbin /bin /sbin; do
            if [ -x "$folder/$name" ] && [ ! -d "$folder/$name" ]; then ln -s "$folder/$name" "$path/$name"; break; fi
        done
        [ -e "$path/$name" ] || echo "missing: $name"
    done
}
program() { # NAME: a script on standard input. Never written through a link to what the system has.
    rm -f "$path/$1"; cat >"$path/$1"; chmod 755 "$path/$1"
}

for name in zpool zfs zdb zinject arcstat zilstat zirconia zirconiad zirconia-target zstream; do ln -s "$programs/$name" "$path/$name"; done
# The daemon plays zed's part: this one answers to being started and ended.
program zed <<'S'
#!/bin/sh
trap 'exit 0' TERM INT
while :; do sleep 1; done
S
# /dev is a small one of the group's own: the node of a loop device that is taken has to be made.
program losetup <<'S'
#!/bin/bash
case " $* " in *" -f "*|*" --find "*)
    n=$(/usr/bin/python3 -c 'import fcntl;print(fcntl.ioctl(open("/dev/loop-control"),0x4C82))'); [ -e /dev/loop$n ] || mknod /dev/loop$n b 7 $n;;
esac
exec /sbin/losetup "$@"
S
# Tests that build a path from an empty answer have tried to remove everything: never a folder of the root.
program rm <<'S'
#!/bin/bash
for a in "$@"; do
    b=$a; while [[ $b == */ && $b != / ]]; do b=${b%/}; done
    if [[ $b =~ ^/[^/]*$ && ! $b =~ ^/(testpool|testdir|alter|altdir|mpool|mmppool)[^/]*$ ]]; then echo "rm: refused by the harness: $a" >&2; exit 1; fi
done
exec /bin/rm "$@"
S
for name in arc_summary dbufstat; do
    found=$(PATH=/usr/sbin:/usr/bin:/sbin command -v $name) && sed 's#/proc/spl#/run/zts/spl#g' "$found" | program $name
done
ln -sf /usr/bin/python3 "$path/python3"
folder=$(mktemp -d); chmod 755 "$folder"
if (cd "$folder" && apt-get -qq download zfs-zed/bookworm-backports && dpkg-deb -x zfs-zed_*.deb .) >/dev/null 2>&1; then
    cp "$folder"/etc/zfs/zed.d/zed* "$work/zed/etc/"; find "$folder/usr/lib" -path '*zed.d*' -name '*.sh' -exec cp {} "$work/zed/lib/" \;
else
    echo "missing: zfs-zed"
fi
rm -rf "$folder"
link zhack ztest raidz_test zgenhostid zstream zfs_ids_to_path zpool_influxdb mount.zfs
for name in $ZFSTEST_FILES; do if [ -x $suite/zfs-tests/bin/$name ]; then ln -sf $suite/zfs-tests/bin/$name "$path/$name"; else echo "missing of the suite: $name"; fi; done
link $SYSTEM_FILES_COMMON $SYSTEM_FILES_LINUX bash mountpoint
ln -sf /sbin/fsck.ext4 "$path/fsck"; ln -sf /sbin/mkfs.ext4 "$path/newfs"; ln -sf gzip "$path/compress"; ln -sf gunzip "$path/uncompress"
chmod -R a+rX "$path" "$work/suite"
