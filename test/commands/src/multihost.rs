//! Two hosts with the same devices: two daemons with ids of their own, on files that they do not keep from each other. What users lose is a pool that both
//! write, or one that nobody can have when its host died.

use crate::mounts::kill_both;
use crate::waiting::until;
use crate::world::{Failure, World, judge};
use std::time::{Duration, Instant};

/// Number of times that the host which has the pool dies.
const DEATHS: usize = 3;
/// Longest time until another host has the pool of one that died.
const TAKEOVER: Duration = Duration::from_secs(30);

/// A host: its daemon's surroundings, and its id.
pub struct Side<'a> {
    pub world: &'a World,
    pub id: &'static str,
}

impl Side<'_> {
    fn begin(&self) -> Result<(), Failure> {
        self.begin_with("")
    }

    /// Starts the daemon, with the host's id and these variables, on devices that it leaves to others.
    pub fn begin_with(&self, variables: &str) -> Result<(), Failure> {
        let program = self.world.program("zirconia");
        self.world.ok(&format!("env {variables} ZFS_HOSTID={} ZIRCONIA_SHARED_DEVICES=1 {program} start", self.id)).map(drop)
    }

    /// Has heartbeats written more often, every so many milliseconds, where parameters can be set: what is waited for becomes shorter.
    pub fn hurry(&self, interval_ms: &str) {
        let parameter = self.world.path("state/sys/module/zfs/parameters/zfs_multihost_interval");
        if parameter.exists() {
            let _ = std::fs::write(parameter, interval_ms);
        }
    }

    /// Takes the pool over from a host that died, or stands still since `begun`: not later than [`TAKEOVER`] after that.
    pub fn take(&self, vdevs: &str, begun: Instant) -> Result<(), Failure> {
        self.world.ok(&format!("zpool import -f -N -d {vdevs} tank"))?;
        if begun.elapsed() > TAKEOVER {
            return Err(format!("      the pool of a dead host was had after {:?}", begun.elapsed()).into());
        }
        Ok(())
    }

    /// Looks at the list of pools once the host that had it is dead: the pool can be had, by force, and the other host is named.
    fn sees_it_free(&self, vdevs: &str) -> Result<(), Failure> {
        let list = self.world.ok(&format!("zpool import -d {vdevs}"))?;
        list.shows(" state: ONLINE\nstatus: The pool was last accessed by another system")?;
        list.shows("action: The pool can be imported using its name or numeric identifier and\n\tthe '-f' flag.\n").map(drop)
    }

    /// Comes back after another host took its pool, which it remembers, and must not go on with it.
    pub fn comes_back(&self, vdevs: &str, variables: &str) -> Result<(), Failure> {
        self.begin_with(variables)?;
        let log = self.world.path("state/zirconiad.log");
        until("a refusal of the host that came back", || {
            Ok(std::fs::read_to_string(&log)?.contains("pool was previously in use from another system"))
        })?;
        self.is_refused(vdevs)
    }

    /// Stood still while another host took its pool, and goes on: it writes nothing, says so, and cannot be talked into it.
    pub fn goes_on(&self) -> Result<(), Failure> {
        until("the suspension of the host that stood still", || {
            Ok(self.world.ok("zpool status tank")?.out.contains("multihost writes failed or were delayed"))
        })?;
        self.world.ok("zpool status tank")?.shows("SUSPENDED")?.shows("ZFS-8000-MM")?;
        self.world.refused("zpool clear tank", 1, "pool is imported on a different host")?;
        self.world.refused("zfs create -o canmount=off tank/old", 1, "suspended")?;
        self.world.ok("zpool export -f tank").map(drop)
    }

    /// Checks that this host sees that another one has the pool, also by force.
    pub fn is_refused(&self, vdevs: &str) -> Result<(), Failure> {
        for import in ["zpool import", "zpool import -f"] {
            self.world.refused(&format!("{import} -d {vdevs} tank"), 1, "cannot import 'tank': pool is imported on ")?;
        }
        Ok(())
    }

    /// Checks that the pool has every dataset whose creation was answered.
    pub fn has_all(&self, answered: &[String]) -> Result<(), Failure> {
        let listed = self.world.ok("zfs list -H -o name -r tank")?;
        match answered.iter().find(|name| !listed.out.lines().any(|line| line == name.as_str())) {
            Some(lost) => Err(listed.fault(format!("{lost} was made, and is lost"))),
            None => Ok(()),
        }
    }
}

/// Makes a pool that is protected on one host; gives the folder of its devices.
pub fn shared_pool(owner: &Side<'_>) -> Result<String, Failure> {
    owner.world.vdevs(&["a", "b"])?;
    owner.world.ok("zpool create -m none -o multihost=on tank mirror {vdevs}/a {vdevs}/b")?;
    owner.world.ok("zpool get -H -o value multihost tank")?.prints("on")?;
    Ok(owner.world.at("vdevs"))
}

/// The host that has the pool dies, again and again: the other one is refused before, by force too, and has the pool with all that was
/// answered soon after; the one that comes back is refused.
pub fn takes_over(world: &World) -> Result<(), Failure> {
    let zdb = judge("two hosts: OpenZFS's judgement")?;
    let elsewhere = World::new(world.options())?;
    let (mut owner, mut other) = (Side { world, id: "0x11" }, Side { world: &elsewhere, id: "0x12" });
    owner.begin()?;
    other.begin()?;
    let vdevs = shared_pool(&owner)?;
    let mut answered = Vec::new();
    for round in 0..DEATHS {
        for number in 0..10 {
            let name = format!("tank/r{round}-{number}");
            owner.world.ok(&format!("zfs create -o canmount=off {name}"))?;
            answered.push(name);
        }
        let list = other.world.ok(&format!("zpool import -d {vdevs}"))?;
        list.shows("status: The pool is currently imported by another system.")?.shows("UNAVAIL")?.shows("must be exported from ")?;
        other.is_refused(&vdevs)?;
        owner.world.ok("zpool status -x")?.shows("all pools are healthy")?;
        kill_both(owner.world)?;
        if round + 1 == DEATHS {
            other.sees_it_free(&vdevs)?;
        }
        other.take(&vdevs, Instant::now())?;
        other.has_all(&answered)?;
        owner.comes_back(&vdevs, "")?;
        std::mem::swap(&mut owner, &mut other);
        owner.hurry("300");
    }
    other.world.ok(&format!("{zdb} -luuuu {vdevs}/a"))?.shows("mmp_write = ")?.shows("mmp_fail = 10")?;
    owner.world.ok("zpool export tank")?;
    other.world.clean(&zdb, &format!("-e -p {vdevs} -bcch tank"))?;
    other.world.ok(&format!("zpool import -N -d {vdevs} tank"))?;
    other.has_all(&answered)?;
    Ok(())
}

/// A host that stood still while another one took its pool writes nothing when it goes on, says so, and cannot be talked into it.
pub fn stood_still(world: &World) -> Result<(), Failure> {
    let zdb = judge("two hosts, one stood still: OpenZFS's judgement")?;
    let elsewhere = World::new(world.options())?;
    let (owner, other) = (Side { world, id: "0x11" }, Side { world: &elsewhere, id: "0x12" });
    owner.begin()?;
    other.begin()?;
    let vdevs = shared_pool(&owner)?;
    let daemon = owner.world.daemon()?;
    owner.world.ok(&format!("kill -STOP {daemon}"))?;
    let taken =
        other.world.ok(&format!("zpool import -f -N -d {vdevs} tank")).and_then(|_| other.world.ok("zfs create -o canmount=off tank/new"));
    owner.world.ok(&format!("kill -CONT {daemon}"))?;
    taken?;
    owner.goes_on()?;
    other.has_all(&["tank/new".to_string()])?;
    other.world.ok("zpool export tank")?;
    other.world.clean(&zdb, &format!("-e -p {vdevs} -bcch tank")).map(drop)
}

/// A host without an id protects nothing, and takes nothing that is protected.
pub fn without_id(world: &World) -> Result<(), Failure> {
    let elsewhere = World::new(world.options())?;
    let (owner, nobody) = (Side { world, id: "0x11" }, Side { world: &elsewhere, id: "0" });
    owner.begin()?;
    nobody.begin()?;
    let vdevs = shared_pool(&owner)?;
    let (why, ours) = ("requires a non-zero system hostid", "'zirconia hostid' does that, too.");
    nobody.world.vdevs(&["c"])?;
    nobody.world.refused("zpool create -o multihost=on other {vdevs}/c", 1, why)?.says(ours)?;
    nobody.world.ok("zpool create -m none other {vdevs}/c")?;
    nobody.world.refused("zpool set multihost=on other", 1, why)?.says(ours)?;
    nobody.world.refused(&format!("zpool import -f -d {vdevs} tank"), 1, "the zgenhostid(8) command")?.says(ours)?;
    let list = nobody.world.ok(&format!("zpool import -d {vdevs}"))?;
    list.shows("The pool has the multihost property on.")?.shows("Set a unique system hostid")?.shows(ours)?;
    owner.world.ok("zpool set multihost=off tank")?;
    owner.world.ok("zpool export tank")?;
    nobody.world.ok(&format!("zpool import -N -d {vdevs} tank")).map(drop)
}

/// If this fails, a host that comes back goes on with a pool that another one took meanwhile, unasked: with nothing that keeps them apart (`multihost=off`)
/// both write to it, and all of it is lost.
pub fn comes_back_without_heartbeats(world: &World) -> Result<(), Failure> {
    let zdb = judge("two hosts, without heartbeats: OpenZFS's judgement")?;
    let elsewhere = World::new(world.options())?;
    let (owner, other) = (Side { world, id: "0x11" }, Side { world: &elsewhere, id: "0x12" });
    owner.begin()?;
    other.begin()?;
    world.vdevs(&["a"])?;
    let vdevs = world.at("vdevs");
    world.ok("zpool create -m none tank {vdevs}/a")?;
    world.ok("zpool sync tank")?;
    kill_both(world)?;
    other.world.refused(&format!("zpool import -N -d {vdevs} tank"), 1, "pool was previously in use from another system")?;
    other.world.ok(&format!("zpool import -f -N -d {vdevs} tank"))?;
    is_left_alone(&owner)?;
    other.world.ok("zfs create -o canmount=off tank/new")?;
    // It is its own also when its host died, and comes back there.
    kill_both(other.world)?;
    kill_both(world)?;
    is_left_alone(&owner)?;
    other.begin()?;
    other.has_all(&["tank/new".to_string()])?;
    other.world.ok("zpool export tank")?;
    // Exported it is nobody's, and is not opened unasked either.
    kill_both(world)?;
    owner.begin()?;
    world.ok("zpool list")?.prints("no pools available")?;
    world.logged(&["pool 'tank' is forgotten: the pool was exported"])?;
    world.clean(&zdb, &format!("-e -p {vdevs} -bcch tank"))?;
    world.ok(&format!("zpool import -N -d {vdevs} tank"))?;
    owner.has_all(&["tank/new".to_string()])?;
    // Nor is another pool taken for it.
    kill_both(world)?;
    other.world.ok(&format!("zpool create -f -m none new {vdevs}/a"))?;
    owner.begin()?;
    world.ok("zpool status tank")?.shows("state: UNAVAIL")?.shows("its devices are another pool's by now: 'new' (guid ")?;
    world.ok("zpool export tank")?;
    other.world.ok("zpool scrub -w new")?;
    other.world.ok("zpool status -x")?.shows("all pools are healthy").map(drop)
}

/// Starts a daemon that remembers the pool, and checks that it does not open it, says why and what to do, and goes on remembering it.
fn is_left_alone(owner: &Side<'_>) -> Result<(), Failure> {
    owner.begin()?;
    let status = owner.world.ok("zpool status tank")?;
    status.shows("state: UNAVAIL")?.shows("previously in use from another system. Last accessed by ")?.shows("ZFS-8000-EY")?;
    status.shows("'zpool import -f -d ")?;
    owner.world.refused("zpool clear tank", 1, "pool was previously in use from another system")?;
    owner.world.refused("zpool sync tank", 1, "previously in use from another system")?;
    let list = std::fs::read_to_string(owner.world.path("state/pools.json"))?;
    if list.contains("\"tank\"") { Ok(()) } else { Err(format!("      the pool is not remembered: {list}").into()) }
}
