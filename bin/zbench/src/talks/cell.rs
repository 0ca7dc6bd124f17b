//! Cells of the page of the talks: a number that was shown, and the way to ours. No cell has a figure of ours in it: each is got anew.

use crate::survey::figures::Side;

/// Talk whose numbers are shown.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// Title, with the speakers, the place and the year.
    pub title: &'static str,
    /// Short name.
    pub name: &'static str,
    /// Numbers, in the order of the slides.
    pub cells: &'static [Cell],
}

/// Number of a talk, and the way to ours.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Heading of the slide.
    pub slide: &'static str,
    /// Quantity, and the condition under which it was measured there.
    pub what: &'static str,
    /// Number of the talk with its unit.
    pub theirs: &'static str,
    /// Way to ours.
    pub ours: Way,
}

/// Way to a figure of ours.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Pool on modelled drives: parameters of the survey, and the figure of its row
    Pool(Drives, &'static str, Figure),
    /// Bare modelled drives as a stripe
    Bare(Bare),
    /// Modelled drives of which one errs: the names of those that stand out
    StandsOut(&'static str),
    /// Scheduler's model of the NVMe drive of the study, alone
    Nvme(Nvme),
    /// Longest wait in ms of random reads of a modelled disk beside a sequential stream, through our queue
    DiskWait,
    /// Program that measures on this machine, and what is taken of its results
    Measured(Program, fn(&super::measured::Results) -> Option<String>),
    /// Reason for which there is none
    Impossible(&'static str),
}

/// Drives that are modelled, by the talk that used such ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drives {
    /// PM1725a as LANL measured them (3,414 MiB/s read, 1,800 written), PCIe Gen3, no shared controller
    Gen3,
    /// Twice the rates of Gen3: the slides name no model
    Gen4,
    /// PM1725b as ORNL lists them, behind two controllers of 15.75 GB/s
    Ornl,
    /// PM1725a as ORNL lists them, behind the same controllers
    OrnlFast,
}

/// Figure of a row of the survey; a name is that of its test.
#[derive(Clone, Copy, Debug)]
pub enum Figure {
    /// Percent of the bandwidth of the drives that hold data
    PercentOfDrives(&'static str),
    /// Rate until the devices have all, in MiB/s
    Rate(&'static str),
    /// Rate as a part of that of the bare drives as a stripe
    OfBare(&'static str),
    /// Rate as a multiple of that of the same test with these parameters
    OfOther(&'static str, &'static str),
    /// Bytes of the devices for a byte that was asked for
    DeviceBytes(&'static str),
    /// Percent of the bytes that did not go through memory
    Direct(&'static str),
}

/// Figure of bare drives.
#[derive(Clone, Copy, Debug)]
pub struct Bare {
    /// Drives.
    pub drives: Drives,
    /// True when they are taken from both controllers in turn.
    pub is_aware: bool,
    /// Side that is looked at.
    pub side: Side,
    /// Number of drives.
    pub devices: usize,
    /// Number of drives whose rate it is compared with; None: the rate itself in MiB/s.
    pub over: Option<usize>,
}

/// Load of the model of one NVMe drive.
#[derive(Clone, Copy, Debug)]
pub struct Nvme {
    /// Percent of the I/Os that write.
    pub write_percent: u64,
    /// True when they go from the beginning to the end.
    pub is_sequential: bool,
    /// Bytes of each.
    pub bytes: u64,
}

/// Program whose results are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `zbench zia`
    Zia,
    /// `zbench resilver`
    Resilver,
    /// `zbench matrix` of the library
    Matrix,
    /// `zbench matrix` of the mount
    Mount,
    /// `zbench block` of volumes over the library
    Volumes,
    /// `zbench block` of volumes over iSCSI
    Iscsi,
}

/// Kind of a figure of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On this machine
    Measured,
    /// In virtual time
    Modelled,
    /// Not here
    Impossible,
}

/// Figure of ours.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Kind of it.
    pub kind: Kind,
    /// Figure with its unit; "–" where there is none.
    pub value: String,
    /// Command that gives it, or the reason.
    pub how: String,
}

/// Makes a cell.
pub const fn cell(slide: &'static str, what: &'static str, theirs: &'static str, ours: Way) -> Cell {
    Cell { slide, what, theirs, ours }
}
