#!/bin/bash
# group.sh: process 1 of fresh PID, mount and UTS name spaces; runs the tests of one group. WORK has suite and path (environment.sh), HOME_OF_GROUP is
# this group's folder with group.run, LOOPS names its loop devices, PROGRAMS the folder of our programs, GROUP_SECONDS what it may take.
# The root is an overlay that nobody else sees: pools mount on /testpool, users are added, tests remove what they should not.
set -u
home=$HOME_OF_GROUP
mount --make-rprivate /
export HOME=/root
mkdir -p "$home"/{vartmp,upper,module,run,state,xdg,out}
chmod 1777 "$home/vartmp"; chmod 755 "$home" "$home/state"
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/{upper,work,root}
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root || exit 9
root=/mnt/root
mount -t tmpfs -o mode=1777 tmpfs $root/tmp
for folder in "$WORK/suite" "$WORK/path" "$WORK/zed" "$PROGRAMS"; do
    mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; mount -o remount,bind,ro "$root$folder"
done
mkdir -p "$root$home"; mount --bind "$home" "$root$home"; chmod 755 "$root$WORK"
mount --bind "$home/vartmp" $root/var/tmp
mount --rbind /proc $root/proc; mount --rbind /sys $root/sys
# An import that looks everywhere finds the pools of this group only.
mount -t tmpfs -o mode=755 tmpfs $root/dev
cp -a /dev/{null,zero,full,random,urandom,tty,fuse,loop-control,kmsg} $root/dev/ 2>/dev/null
ln -s /proc/self/fd $root/dev/fd; ln -s fd/0 $root/dev/stdin; ln -s fd/1 $root/dev/stdout; ln -s fd/2 $root/dev/stderr
mkdir $root/dev/{pts,shm,disk,mapper,zvol}; mount --bind /dev/pts $root/dev/pts; ln -s pts/ptmx $root/dev/ptmx
mount -t tmpfs -o size=512m tmpfs $root/dev/shm
for loop in $LOOPS; do cp -a "/dev/$loop" $root/dev/; done
mkdir -p $root/old; cd $root; pivot_root . old || exit 9
cd /; umount -l /old
/bin/rm -rf /testpool* /etc/zfs/zpool.cache
# The tests of multihost give the machine ids of their own, and want none before; their ztest, the other host, opens the device of the kernel module, and
# asks it for nothing.
case $(<"$home/out/group.run") in *functional/mmp*) /bin/rm -f /etc/hostid; cp -a /dev/null /dev/zfs;; esac
hostname zts; echo "127.0.0.1 zts" >>/etc/hosts
# Tests look for core dumps, which sudo forbids by itself.
printf 'Defaults !secure_path\nDefaults !env_reset\nDefaults !requiretty\nDefaults rlimit_core=default\nALL ALL=(ALL:ALL) NOPASSWD: ALL\n' >/etc/sudoers.d/zts; chmod 440 /etc/sudoers.d/zts
echo "Set disable_coredump false" >>/etc/sudo.conf
getent passwd ztsuser >/dev/null || useradd -M -U ztsuser
mkdir -p /run/zts; mount --bind "$home/run" /run/zts; chmod 777 /run/zts
export ZIRCONIA_STATE=$home/state XDG_RUNTIME_DIR=$home/xdg ZIRCONIA_ZEDLETS=/var/tmp/zed
ln -sfn "$ZIRCONIA_STATE/proc/spl" /run/zts/spl
mount -t overlay -o "lowerdir=/sys/module,upperdir=$home/upper,workdir=$home/module" overlay /sys/module
ln -sfn "$ZIRCONIA_STATE/sys/module/zfs" /sys/module/zfs; ln -sfn "$ZIRCONIA_STATE/sys/module/spl" /sys/module/spl
mkdir -p /etc/zfs/zed.d /usr/lib/zfs-linux/zed.d
cp "$WORK"/zed/etc/* /etc/zfs/zed.d/; cp "$WORK"/zed/lib/* /usr/lib/zfs-linux/zed.d/; /bin/rm -f /etc/zfs/vdev_id.conf
# mount(8) calls the helpers of the system by their full names: ours, for `mount -t zfs` and `mount -o remount`.
for helper in mount.zfs mount.fuse.zfs; do
    /bin/rm -f /usr/sbin/$helper; printf '#!/bin/bash\nexec -a %s %s/zfs "$@"\n' $helper "$PROGRAMS" >/usr/sbin/$helper; chmod 755 /usr/sbin/$helper
done
export STF_TOOLS=$WORK/suite/test-runner STF_SUITE=$WORK/suite/zfs-tests STF_PATH=$WORK/path PATH=$WORK/path DISKS="$LOOPS" FILEDIR=/var/tmp TMPDIR=/var/tmp \
    KEEP=rpool __ZFS_POOL_EXCLUDE=rpool UNAME=Linux LOSETUP=/sbin/losetup DMSETUP=/sbin/dmsetup TESTFAIL_CALLBACKS= PYTHONDONTWRITEBYTECODE=1
out=$home/out
cd /var/tmp
zpool list >"$out/daemon.txt" 2>&1
. $STF_SUITE/include/default.cfg
timeout -k 20 "$GROUP_SECONDS" $STF_TOOLS/bin/test-runner.py -o "$out/r" -c "$out/group.run" -T functional -i $STF_SUITE -I 1 >"$out/runner.log" 2>&1
# What a test that was ended left behind goes before the daemon: clean-ups of the suite call themselves for ever when every zpool fails.
for round in 1 2 3; do
    for pid in /proc/[0-9]*; do
        pid=${pid#/proc/}; [ $pid = 1 ] || [ $pid = $$ ] || case $(cat /proc/$pid/comm 2>/dev/null) in zirconiad|"") ;; *) kill -9 $pid 2>/dev/null;; esac
    done
done
timeout 40 zirconia stop >>"$out/daemon.txt" 2>&1
cp "$ZIRCONIA_STATE"/*.log "$out/" 2>/dev/null
exit 0
