//! What `zpool iostat` can show: groups of columns, their headings and where their values come from.
//!
//! Facts from OpenZFS's `zpool_main.c` (`iostat_top_labels`, `iostat_bottom_labels`, `vsx_type_to_nvlist`, `default_column_width`).

/// Group of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Capacity, operations, bandwidth.
    Default,
    /// `-l`: average waits.
    Latency,
    /// `-q`: depths of queues.
    Queues,
    /// `-w`: histograms of waits.
    LatencyHistogram,
    /// `-r`: histograms of request sizes.
    SizeHistogram,
}

impl Group {
    /// True for groups that are printed as one table per vdev.
    pub fn is_histogram(self) -> bool {
        matches!(self, Group::LatencyHistogram | Group::SizeHistogram)
    }

    /// Heading of the column of names.
    pub fn title(self) -> &'static str {
        match self {
            Group::LatencyHistogram => "latency",
            Group::SizeHistogram => "req_size",
            _ => "pool",
        }
    }

    /// Width of a column in characters when numbers are exact.
    pub fn exact_width(self) -> usize {
        match self {
            Group::Default => 15,
            Group::Latency | Group::LatencyHistogram => 10,
            Group::Queues | Group::SizeHistogram => 6,
        }
    }

    /// Headings of the upper line and how many columns each stands over.
    pub fn top(self) -> &'static [(&'static str, usize)] {
        match self {
            Group::Default => &[("capacity", 2), ("operations", 2), ("bandwidth", 2)],
            Group::Latency => {
                &[("total_wait", 2), ("disk_wait", 2), ("syncq_wait", 2), ("asyncq_wait", 2), ("scrub", 1), ("trim", 1), ("rebuild", 1)]
            }
            Group::Queues => &[
                ("syncq_read", 2),
                ("syncq_write", 2),
                ("asyncq_read", 2),
                ("asyncq_write", 2),
                ("scrubq_read", 2),
                ("trimq_write", 2),
                ("rebuildq_write", 2),
            ],
            Group::LatencyHistogram => &[("total_wait", 2), ("disk_wait", 2), ("syncq_wait", 2), ("asyncq_wait", 2)],
            Group::SizeHistogram => {
                &[("sync_read", 2), ("sync_write", 2), ("async_read", 2), ("async_write", 2), ("scrub", 2), ("trim", 2), ("rebuild", 2)]
            }
        }
    }

    /// Headings of the lower line, one per column.
    pub fn bottom(self) -> &'static [&'static str] {
        match self {
            Group::Default => &["alloc", "free", "read", "write", "read", "write"],
            Group::Latency => &["read", "write", "read", "write", "read", "write", "read", "write", "wait", "wait", "wait"],
            Group::Queues => {
                &["pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ"]
            }
            Group::LatencyHistogram => &["read", "write", "read", "write", "read", "write", "read", "write", "scrub", "trim", "rebuild"],
            Group::SizeHistogram => &["ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg"],
        }
    }

    /// Names of the extended statistics behind the columns; none for the default group.
    pub fn sources(self) -> &'static [&'static str] {
        match self {
            Group::Default => &[],
            Group::Latency | Group::LatencyHistogram => &[
                "vdev_tot_r_lat_histo",
                "vdev_tot_w_lat_histo",
                "vdev_disk_r_lat_histo",
                "vdev_disk_w_lat_histo",
                "vdev_sync_r_lat_histo",
                "vdev_sync_w_lat_histo",
                "vdev_async_r_lat_histo",
                "vdev_async_w_lat_histo",
                "vdev_scrub_histo",
                "vdev_trim_histo",
                "vdev_rebuild_histo",
            ],
            Group::Queues => &[
                "vdev_sync_r_pend_queue",
                "vdev_sync_r_active_queue",
                "vdev_sync_w_pend_queue",
                "vdev_sync_w_active_queue",
                "vdev_async_r_pend_queue",
                "vdev_async_r_active_queue",
                "vdev_async_w_pend_queue",
                "vdev_async_w_active_queue",
                "vdev_async_scrub_pend_queue",
                "vdev_async_scrub_active_queue",
                "vdev_async_trim_pend_queue",
                "vdev_async_trim_active_queue",
                "vdev_rebuild_pend_queue",
                "vdev_rebuild_active_queue",
            ],
            Group::SizeHistogram => &[
                "vdev_sync_ind_r_histo",
                "vdev_sync_agg_r_histo",
                "vdev_sync_ind_w_histo",
                "vdev_sync_agg_w_histo",
                "vdev_async_ind_r_histo",
                "vdev_async_agg_r_histo",
                "vdev_async_ind_w_histo",
                "vdev_async_agg_w_histo",
                "vdev_ind_scrub_histo",
                "vdev_agg_scrub_histo",
                "vdev_ind_trim_histo",
                "vdev_agg_trim_histo",
                "vdev_ind_rebuild_histo",
                "vdev_agg_rebuild_histo",
            ],
        }
    }
}
