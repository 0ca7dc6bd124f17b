#!/usr/bin/env bash
# GlusterFS over three machines whose bricks lie on Zirconia's mounts, played on one: three daemons of each on the loopback device, a replicated and
# a dispersed volume; a daemon of ours is killed, a device is lost, both heal, and every file is read back without the first machine.
#   examples/gluster/run.sh
#   ZIRCONIA_BIN=DIR          the programs (default: target/release of this tree)
#   ZIRCONIA_GLUSTER_DIR=DIR  where devices, state and logs go (default: a new folder below /var/tmp; needs 2 GiB); what is made there is removed
#   ZIRCONIA_GLUSTER_PATIENCE=SECONDS   what anything may take (default: 90)
#   ZIRCONIA_GLUSTER_KEEP=1   leave devices, state and logs in place
# Needs root, /dev/fuse, and of Debian glusterfs-server, glusterfs-client, attr, iproute2, util-linux. Everything runs in namespaces of its own
# (processes, mounts, network), so that nothing is left when the script ends, however it ends, and no other GlusterFS is touched.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
machines="1 2 3"
volumes="replicated dispersed"
# Seconds that anything may take: Gluster's own pauses are up to a minute.
patience=${ZIRCONIA_GLUSTER_PATIENCE:-90}

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
die() { echo "FAIL  gluster: $*" >&2; exit 1; }

need() { # COMMAND PACKAGE
    command -v "$1" >/dev/null || die "there is no $1: apt-get install $2"
}

# Everything before the namespaces.
outside() {
    [ "$(id -u)" = 0 ] || die "trusted.* attributes and mounts of Gluster need root"
    [ -e /dev/fuse ] || die "there is no /dev/fuse: modprobe fuse"
    need glusterd glusterfs-server
    need gluster glusterfs-server
    need glusterfs glusterfs-client
    need getfattr attr
    need setfattr attr
    need ip iproute2
    need ps procps
    need unshare util-linux
    local bin dir result=0
    bin=$(realpath -m "${ZIRCONIA_BIN:-$here/../../target/release}")
    [ -x "$bin/zirconiad" ] || die "there is no $bin/zirconiad: cargo build --release, or set ZIRCONIA_BIN"
    if [ -n "${ZIRCONIA_GLUSTER_DIR:-}" ]; then
        mkdir -p "$ZIRCONIA_GLUSTER_DIR"
        dir=$(mktemp -d "$(realpath "$ZIRCONIA_GLUSTER_DIR")/gluster.XXXXXX")
    else
        dir=$(mktemp -d /var/tmp/zirconia-gluster.XXXXXX)
    fi
    # shellcheck disable=SC2064
    trap "outside_ends '$dir'" EXIT
    trap 'exit 130' INT TERM HUP
    ZIRCONIA_GLUSTER_INSIDE=$dir PATH=$bin:$PATH \
        unshare --mount --pid --net --uts --fork --mount-proc --kill-child "$BASH" "$here/run.sh" || result=$?
    return $result
}

outside_ends() { # DIR
    if [ -n "${ZIRCONIA_GLUSTER_KEEP:-}" ]; then
        echo "left in place: $1"
    else
        rm -rf --one-file-system "$1"
    fi
}

# until_true WHAT COMMAND…: waits for it.
until_true() {
    local what=$1 end=$((SECONDS + patience))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || die "after $patience s: $what"
        sleep 0.5
    done
}

address() { echo "127.0.1.$1"; }
# The commands of ours, and of Gluster, on a machine. A daemon takes the parameter from whoever starts it: bricks get requests of clients with
# O_DIRECT and any alignment.
ours() { local machine=$1; shift; ZIRCONIA_STATE=$dir/$machine/state ZIRCONIA_ZFS_DIO_STRICT=0 "$@"; }
theirs() { local machine=$1; shift; gluster --mode=script --glusterd-sock="$dir/$machine/glusterd.sock" "$@"; }
# quietly COMMAND…: shows what it printed only when it fails.
quietly() { "$@" >"$dir/printed" 2>&1 || { cat "$dir/printed" >&2; die "failed: $*"; }; }

# pool MACHINE: a pool on one device, with a dataset for each volume: Gluster keeps the copies, so the pool has none.
pool() {
    local machine=$1
    mkdir -p "$dir/$machine/state" "$dir/$machine/mnt"
    truncate -s 4G "$dir/$machine/device"
    ours "$machine" zirconia start >/dev/null
    ours "$machine" zpool create -f -m none \
        -O xattr=sa -O dnodesize=auto -O atime=off -O acltype=posix -O compression=lz4 "brick$machine" "$dir/$machine/device"
    for volume in $volumes; do
        ours "$machine" zfs create -o "mountpoint=$dir/$machine/mnt/$volume" "brick$machine/$volume"
    done
}

brick() { echo "$dir/$1/mnt/$2/brick"; } # MACHINE VOLUME

# glusterd MACHINE: Gluster's daemon of a machine, with every file of it below the machine's folder.
daemon() {
    local machine=$1 own=$dir/$1/gluster
    mkdir -p "$own/work" "$own/run" "$own/log"
    cat >"$own/glusterd.vol" <<VOLUME
volume management
    type mgmt/glusterd
    option working-directory $own/work
    option run-directory $own/run
    option logging-directory $own/log
    option glusterd-sockfile $dir/$machine/glusterd.sock
    option transport-type socket
    option transport.socket.bind-address $(address "$machine")
    option transport.socket.listen-port 24007
    option transport.socket.read-fail-log off
    option transport.socket.keepalive-time 10
    option transport.socket.keepalive-interval 2
    option transport.tcp-user-timeout 42
    option ping-timeout 0
    option event-threads 1
    option max-port 60999
end-volume
VOLUME
    glusterd -f "$own/glusterd.vol" -p "$own/glusterd.pid" -l "$own/log/glusterd.log" -L WARNING
    until_true "machine $machine has no glusterd" theirs "$machine" peer status
}

peers() { [ "$(theirs 1 pool list | grep -c Connected)" = 3 ]; }

make_volumes() {
    local volume machine bricks layout
    for volume in $volumes; do
        bricks=
        for machine in $machines; do
            mkdir -p "$(brick "$machine" "$volume")"
            bricks="$bricks $(address "$machine"):$(brick "$machine" "$volume")"
        done
        layout="replica 3"
        [ "$volume" = replicated ] || layout="disperse 3 redundancy 1"
        # shellcheck disable=SC2086
        quietly theirs 1 volume create "$volume" $layout $bricks force
        quietly theirs 1 volume set "$volume" network.ping-timeout 10
        # What clients ask for with O_DIRECT reaches the bricks so.
        quietly theirs 1 volume set "$volume" network.remote-dio off
        quietly theirs 1 volume set "$volume" performance.strict-o-direct on
        quietly theirs 1 volume start "$volume"
    done
}

client() { # VOLUME: mounts it
    mkdir -p "$dir/clients/$1"
    glusterfs -s "$(address 1)" --volfile-id "$1" -l "$dir/clients/$1.log" -L WARNING --attribute-timeout=0 --entry-timeout=0 \
        "$dir/clients/$1"
    until_true "$1 is not mounted" mountpoint -q "$dir/clients/$1"
}

is_up() { # MACHINE VOLUME: its brick's process runs
    theirs 1 volume status "$2" "$(address "$1"):$(brick "$1" "$2")" --xml | grep -q '<status>1</status>'
}
is_down() { ! is_up "$@"; }
all_up() { for machine in $machines; do is_up "$machine" "$1" || return 1; done; }

is_healed() { # VOLUME: every brick answers, and none has anything to heal
    local told
    told=$(theirs 1 volume heal "$1" info) || return 1
    [ "$(grep -c '^Number of entries: 0$' <<<"$told")" = 3 ]
}

heal() { # VOLUME [full]
    until_true "the bricks of $1 are not all up" all_up "$1"
    # Healers may just be on their way to the bricks: what is asked for again is done again.
    until_true "nobody heals $1" theirs 1 volume heal "$@"
    until_true "$1 is not healed" is_healed "$1"
}

fill() { # FOLDER: what is there at first
    local number
    mkdir -p "$1"/d{0..7} "$1/deep/er/and/deeper"
    for number in {0..95}; do
        head -c $((number * 97 + number % 7)) "$dir/noise" >"$1/d$((number % 8))/f$number"
    done
    for number in 1 2 3; do dd if="$dir/noise" of="$1/large$number" bs=1M skip="$number" count=12 status=none; done
    # With O_DIRECT, in pages, and in sectors, which are no pages.
    local direct=(oflag=direct)
    [ "$1" != "$dir/plain" ] || direct=()
    dd if="$dir/noise" of="$1/direct4k" bs=4k count=64 "${direct[@]}" status=none
    dd if="$dir/noise" of="$1/direct512" bs=512 count=77 "${direct[@]}" status=none
    ln "$1/large1" "$1/deep/er/linked"
    ln -s ../large2 "$1/deep/symbolic"
    setfattr -n user.colour -v blue "$1/d1/f1"
    mkfifo "$1/deep/pipe"
}

change() { # FOLDER: what happens while a machine is away
    local number
    for number in {0..23}; do head -c $((number * 131 + 5)) "$dir/noise" >"$1/d$((number % 8))/f$number"; done
    for number in {24..39}; do rm "$1/d$((number % 8))/f$number"; done
    for number in {40..55}; do mv "$1/d$((number % 8))/f$number" "$1/deep/er/g$number"; done
    for number in {56..71}; do ln "$1/d$((number % 8))/f$number" "$1/deep/h$number"; done
    dd if="$dir/noise" of="$1/large1" bs=64k seek=17 count=21 conv=notrunc status=none
    truncate -s 1000001 "$1/large3"
    mv "$1/deep/er" "$1/moved"
    setfattr -n user.colour -v red "$1/d1/f1"
}

listing() { # FOLDER: kind and name of everything, what is in it, and which names are the same file
    (
        cd "$1"
        find . -mindepth 1 -path ./.trashcan -prune -o -printf '%y %p %l\n' | LC_ALL=C sort
        find . -path ./.trashcan -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
        # Not the number of links: Gluster's healer keeps one of its own for a while where a name moved.
        find . -path ./.trashcan -prune -o -type f -printf '%i %p\n' | LC_ALL=C sort -k 2 |
            awk '{ if (!($1 in first)) first[$1] = $2; print "link", $2, first[$1] }'
        getfattr -n user.colour d1/f1
    )
}

compare() { # WHEN
    listing "$dir/plain" >"$dir/expected"
    for volume in $volumes; do
        listing "$dir/clients/$volume" >"$dir/found"
        cmp -s "$dir/expected" "$dir/found" || {
            diff "$dir/expected" "$dir/found" | head -20 >&2 || true
            die "$1: $volume is not what was written"
        }
    done
    say "$1: $(grep -c '^f ' "$dir/expected") files of each volume are what was written (sha256)"
}

on_all() { # FUNCTION: with the plain folder and both volumes
    local folder
    for folder in "$dir/plain" "$dir/clients/replicated" "$dir/clients/dispersed"; do "$1" "$folder"; done
}

pid_of_ours() { echo "$(<"$dir/$1/state/zirconiad.lock")"; }
is_gone() { ! kill -0 "$1"; } # PID

# kill_ours MACHINE: the supervisor, which would start the daemon again, and the daemon.
kill_ours() {
    local pid
    pid=$(pid_of_ours "$1")
    kill -KILL "$(ps -o ppid= -p "$pid" | tr -d ' ')" "$pid"
    until_true "zirconiad of machine $1 does not die" is_gone "$pid"
}

unmount_below() { # FOLDER: what a dead daemon left: bricks, and the trees of its state
    local place
    awk -v folder="$1/" 'index($5, folder) == 1 { print $5 }' /proc/self/mountinfo | LC_ALL=C sort -r | while read -r place; do umount -l "$place"; done
}

stop_bricks() { # MACHINE: the processes of its bricks
    local file
    for file in "$dir/$1"/gluster/run/vols/*/*.pid; do kill -KILL "$(<"$file")" || true; done
    for volume in $volumes; do until_true "the brick of $volume on machine $1 does not end" is_down "$1" "$volume"; done
}

restart_bricks() { # the processes of bricks that ended
    for volume in $volumes; do quietly theirs 1 volume start "$volume" force; done
}

# identity MACHINE: by what Gluster and the kernel know a file.
identity() {
    local file
    file=$(brick "$1" replicated)/large2
    getfattr --absolute-names -n trusted.gfid -e hex "$file" && stat -c %i "$file"
}

is_mounted() { for volume in $volumes; do test -d "$(brick "$1" "$volume")/.glusterfs" || return 1; done; } # MACHINE

daemon_is_killed() {
    local before
    before=$(identity 2)
    kill_ours 2
    say "zirconiad of machine 2 was killed: its bricks fail every request"
    on_all change
    compare "beside dead bricks"
    # A brick's process that went on over mounts which came back would do half of what it is asked for: by names what is there, by the descriptors
    # that it has open nothing. So it ends before the mounts are back.
    stop_bricks 2
    ours 2 zirconia start >/dev/null
    until_true "machine 2 has no mounts again" is_mounted 2
    [ "$before" = "$(identity 2)" ] || die "the identity of a file changed with the daemon: $before, $(identity 2)"
    restart_bricks
    for volume in $volumes; do heal "$volume"; done
    compare "machine 2 healed"
}

device_is_lost() {
    local volume place
    stop_bricks 3
    kill_ours 3
    unmount_below "$dir/3"
    rm -rf "$dir/3/device" "$dir/3/state"
    say "machine 3 lost its device, and the pool with it"
    on_all change_again
    compare "without machine 3"
    pool 3
    for volume in $volumes; do
        mkdir -p "$(brick 3 "$volume")"
        place=$(address 3):$(brick 3 "$volume")
        quietly theirs 1 volume reset-brick "$volume" "$place" start
        quietly theirs 1 volume reset-brick "$volume" "$place" "$place" commit force
        heal "$volume" full
        # A full heal tells nobody when it is over.
        until_true "$volume lacks files on machine 3" is_full 3 "$volume"
    done
    compare "machine 3 healed onto a new device"
}

change_again() { # FOLDER
    head -c 3000001 "$dir/noise" >"$1/d7/later"
    rm -r "$1/d2"
    mkdir "$1/d2" && head -c 77 "$dir/noise" >"$1/d2/again"
    rm "$1/large2"
}

# is_full MACHINE VOLUME: its brick has as many files that are not empty as another one.
is_full() {
    local own other
    own=$(find "$(brick "$1" "$2")" -path '*/.glusterfs' -prune -o -type f -size +0 -print | wc -l)
    other=$(find "$(brick 1 "$2")" -path '*/.glusterfs' -prune -o -type f -size +0 -print | wc -l)
    [ "$own" = "$other" ]
}

inside_ends() {
    local result=$? machine
    trap '' INT TERM HUP
    if [ $result != 0 ]; then
        for volume in $volumes; do timeout 20 gluster --mode=script --glusterd-sock="$dir/1/glusterd.sock" volume heal "$volume" info 2>&1 | head -30 >&2; done
        for machine in $machines; do
            echo "--- machine $machine" >&2
            grep -ahE ' [EC] ' "$dir/$machine"/gluster/log/*.log "$dir/$machine"/gluster/log/bricks/*.log 2>/dev/null | tail -5 >&2
            tail -n 3 "$dir/$machine/state/zirconiad.log" 2>/dev/null >&2
        done
    fi
    umount -l "$dir"/clients/* 2>/dev/null
    for machine in $machines; do timeout 20 env "ZIRCONIA_STATE=$dir/$machine/state" zirconia stop >/dev/null 2>&1; done
    # What is left dies with this process: it is the first of its namespace.
    exit $result
}

inside() {
    dir=$ZIRCONIA_GLUSTER_INSIDE
    trap inside_ends EXIT
    trap 'exit 130' INT TERM HUP
    mount --make-rprivate /
    ip link set lo up
    hostname zirconia-gluster
    # Names are looked up here: no server of names can be reached.
    { echo "127.0.0.1 localhost zirconia-gluster"; for machine in $machines; do echo "$(address "$machine") machine$machine"; done; } >"$dir/hosts"
    echo "hosts: files" >"$dir/nsswitch.conf"
    mount --bind "$dir/hosts" /etc/hosts
    mount --bind "$dir/nsswitch.conf" /etc/nsswitch.conf
    # Where Gluster writes whatever it is told, and looks for the daemon of the machine (gluster volume heal … info).
    mkdir -p "$dir/private/lib" "$dir/private/log" /var/lib/glusterd /var/log/glusterfs
    mount --bind "$dir/private/lib" /var/lib/glusterd
    mount --bind "$dir/private/log" /var/log/glusterfs
    mount -t tmpfs -o mode=755 run /run
    mkdir /run/gluster
    ln -s "$dir/1/glusterd.sock" /run/glusterd.socket
    head -c 16M /dev/urandom >"$dir/noise"
    mkdir "$dir/plain"
    for machine in $machines; do pool "$machine"; done
    say "three pools"
    for machine in $machines; do daemon "$machine"; done
    say "three glusterd"
    for machine in 2 3; do quietly theirs 1 peer probe "$(address "$machine")"; done
    until_true "the machines do not know each other" peers
    make_volumes
    for volume in $volumes; do client "$volume"; done
    say "three machines, two volumes"
    on_all fill
    compare "written"
    daemon_is_killed
    device_is_lost
    stop_bricks 1
    compare "without machine 1"
    for machine in 2 3; do
        ours "$machine" zpool sync
        ours "$machine" zpool scrub -w "brick$machine"
        ours "$machine" zpool status -x "brick$machine" | grep -q "is healthy" || die "the pool of machine $machine is not healthy"
    done
    say "ok: killed, lost, healed; nothing differs"
}

if [ -n "${ZIRCONIA_GLUSTER_INSIDE:-}" ]; then inside; else outside; fi
