//! Handlers as `zinject` prints them: tables by kind, and the properties of a new one (OpenZFS: `print_all_handlers`, `register_handler`).

use control_api::{InjectBlocks, InjectReport};

/// Table of one kind of handlers: its heading, and the line of a handler that belongs into it.
struct Table {
    heading: String,
    rule: &'static str,
    line: fn(&InjectReport) -> Option<String>,
}

/// Text of the tables of all handlers, by kind.
pub fn tables(handlers: &[InjectReport]) -> String {
    let tables = [
        Table {
            heading: format!("{:>3}  {:<15}  {:<16}  {:<5}  {:<10}  {:<9}", "ID", "POOL", "GUID", "TYPE", "ERROR", "FREQ"),
            rule: "---  ---------------  ----------------  -----  ----------  ---------",
            line: device_line,
        },
        Table {
            heading: format!("{:>3}  {:<15}  {:<15}  {:<15}  {}", "ID", "POOL", "DELAY (ms)", "LANES", "GUID"),
            rule: "---  ---------------  ---------------  ---------------  ----------------",
            line: delay_line,
        },
        Table {
            heading: format!(
                "{:>3}  {:<15}  {:<6}  {:<6}  {:<8}  {:>3}  {:<4}  {:<15}",
                "ID", "POOL", "OBJSET", "OBJECT", "TYPE", "LVL", "DVAs", "RANGE"
            ),
            rule: "---  ---------------  ------  ------  --------  ---  ----  ---------------",
            line: block_line,
        },
        Table {
            heading: format!("{:>3}  {:<19}  {:<11}  {}", "ID", "POOL", "DELAY (sec)", "COMMAND"),
            rule: "---  -------------------  -----------  -------",
            line: pool_line,
        },
        Table {
            heading: format!("{:>3}  {:<15}  {}", "ID", "POOL", "LOST WRITES (sec)"),
            rule: "---  ---------------  -----------------",
            line: lost_line,
        },
    ];
    let mut text = String::new();
    for table in tables {
        let lines: Vec<String> = handlers.iter().filter_map(table.line).collect();
        if !lines.is_empty() {
            text.push_str(&format!("{}\n{}\n{}\n\n", table.heading, table.rule, lines.join("\n")));
        }
    }
    text
}

fn percent(frequency: u32) -> f64 {
    if frequency == 0 { 100.0 } else { f64::from(frequency) / f64::from(u32::MAX) * 100.0 }
}

fn device_line(report: &InjectReport) -> Option<String> {
    let guid = report.device.filter(|_| report.delay.is_none())?;
    let InjectReport { id, pool, io, error, .. } = report;
    Some(format!("{id:>3}  {pool:<15}  {guid:x}  {io:<5}  {error:<10}  {:>8.4}%", percent(report.frequency)))
}

fn delay_line(report: &InjectReport) -> Option<String> {
    let ((delay, lanes), guid) = report.delay.zip(report.device)?;
    Some(format!("{:>3}  {:<15}  {delay:<15}  {lanes:<15}  {guid:x}", report.id, report.pool))
}

fn block_line(report: &InjectReport) -> Option<String> {
    let InjectBlocks { objset, object, type_name, level, range, copies, .. } = report.blocks.as_ref()?;
    let (id, pool) = (report.id, &report.pool);
    let range = if is_all(*range) { "all".to_string() } else { format!("[{}, {}]", range.0, range.1) };
    Some(format!("{id:>3}  {pool:<15}  {objset:<6}  {object:<6}  {type_name:<8}  {level:<3}  0x{copies:02x}  {range}"))
}

fn pool_line(report: &InjectReport) -> Option<String> {
    let (seconds, import) = report.pool_delay?;
    Some(format!("{:>3}  {:<19}  {seconds:<11}  {}", report.id, report.pool, if import { "import" } else { "export" }))
}

fn lost_line(report: &InjectReport) -> Option<String> {
    Some(format!("{:>3}  {:<15}  {}", report.id, report.pool, report.lost_writes?))
}

/// True for every block, as OpenZFS shows that; faults by type have no range at all.
fn is_all(range: (u64, u64)) -> bool {
    range == (0, u64::MAX)
}

/// Text about a handler that was just added.
pub fn added(report: &InjectReport) -> String {
    let mut text = format!("Added handler {} with the following properties:\n  pool: {}\n", report.id, report.pool);
    let seconds = report.lost_writes.or(report.pool_delay.map(|(seconds, _)| seconds));
    match (report.device, seconds, &report.blocks) {
        (Some(guid), _, _) => text.push_str(&format!("  vdev: {guid:x}\n")),
        (None, Some(seconds), _) => text.push_str(&format!(" time: {seconds} seconds\n")),
        (None, None, Some(blocks)) => {
            let (start, end) = blocks.range;
            let range = if is_all(blocks.range) { "all".to_string() } else { format!("[{start}, {end})") };
            text.push_str(&format!("objset: {}\nobject: {}\n  type: {}\n", blocks.objset, blocks.object, blocks.object_type));
            text.push_str(&format!(" level: {}\n range: {range}\n  dvas: 0x{:x}\n", blocks.level, blocks.copies));
        }
        (None, None, None) => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts cut these columns.
    #[test]
    fn handlers_stand_in_openzfs_tables() {
        let device = InjectReport {
            id: 1,
            pool: "tank".into(),
            device: Some(0xabc),
            io: "all".into(),
            error: "nxio".into(),
            ..InjectReport::default()
        };
        let blocks = InjectBlocks { objset: 54, object: 2, type_name: "-".into(), range: (0, u64::MAX), ..InjectBlocks::default() };
        let data = InjectReport { id: 12, pool: "tank".into(), blocks: Some(blocks), ..InjectReport::default() };
        let expected = "\x20ID  POOL             GUID              TYPE   ERROR       FREQ     
---  ---------------  ----------------  -----  ----------  ---------
  1  tank             abc  all    nxio        100.0000%

 ID  POOL             OBJSET  OBJECT  TYPE      LVL  DVAs  RANGE          
---  ---------------  ------  ------  --------  ---  ----  ---------------
 12  tank             54      2       -         0    0x00  all

";
        assert_eq!(tables(&[device.clone(), data.clone()]), expected);
        assert_eq!(added(&device), "Added handler 1 with the following properties:\n  pool: tank\n  vdev: abc\n");
        assert!(added(&data).ends_with("objset: 54\nobject: 2\n  type: 0\n level: 0\n range: all\n  dvas: 0x0\n"));
    }
}
