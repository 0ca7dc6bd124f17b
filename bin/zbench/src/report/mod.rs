//! `zbench report`: one HTML page that needs nothing else, from the JSON lines and the printed output of other commands.

mod plots;

use crate::machine::Machine;
use crate::matrix::cell::{Row, name_of, size_name};
use crate::measure::text;
use crate::zia;
use clap::Args as ClapArgs;
use plots::Quantity;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Title of a plot, and the value of a row that it shows.
type Plot = (&'static str, fn(&zia::Row) -> f64);

/// Plots of `zbench zia`.
const ZIA_PLOTS: [Plot; 4] = [
    ("MB/s", |row| row.mb_per_second),
    ("CPU of the host, seconds per GiB", |row| row.host_cpu),
    ("bytes copied by the host ÷ bytes written", |row| row.copies),
    ("bytes over the link ÷ bytes written", |row| row.link),
];

const STYLE: &str = "body{font:14px/1.45 sans-serif;margin:2em auto;max-width:1380px;padding:0 1em;color:#222;background:#fff}\
h1{font-size:22px}h2{font-size:17px;margin-top:1.6em}table{border-collapse:collapse;font-size:12px}\
td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #e4e4e4}td:nth-child(-n+7),th:nth-child(-n+7){text-align:left}\
pre{background:#f6f6f6;padding:.8em;overflow-x:auto;font-size:12px}.plots{display:flex;flex-wrap:wrap;gap:6px}summary{cursor:pointer}";

/// What goes in.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// JSON lines of `zbench matrix --json` and `zbench zia --json`
    #[arg(long)]
    json: Vec<PathBuf>,
    /// Printed output of other commands, shown under the file's name
    #[arg(long)]
    output: Vec<PathBuf>,
    /// The page to write
    html: PathBuf,
}

/// Text of the command line by which this program was called.
pub fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = Path::new(program.as_str()).file_name().map_or_else(|| program.clone(), |name| name.to_string_lossy().into_owned());
    }
    words.join(" ")
}

/// Text as HTML has it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn table(page: &mut String, rows: &[Row]) {
    page.push_str("<table><tr>");
    for title in [
        "layer",
        "devices",
        "layout",
        "size",
        "pattern",
        "mode",
        "streams",
        "MB/s",
        "±%",
        "% of raw",
        "IOPS",
        "p50 µs",
        "p99",
        "p99.9",
        "CPU s/GiB",
        "copies/byte",
        "direct %",
    ] {
        let _ = write!(page, "<th>{title}</th>");
    }
    page.push_str("</tr>\n");
    let optional = |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_string(), |value| format!("{value:.digits$}"));
    for row in rows {
        let cap = row.cap_mb.map_or_else(String::new, |cap| format!(" at {cap} MB/s"));
        let mut cells = vec![
            name_of(row.layer),
            format!("{}{cap}", row.devices_are),
            row.layout.clone(),
            size_name(row.size),
            name_of(row.pattern),
            name_of(row.mode),
            row.jobs.to_string(),
            format!("{:.0}", row.mb_per_second),
            format!("{:.0}", row.spread_percent),
            optional(row.raw_percent, 1),
            format!("{:.0}", row.iops),
        ];
        cells.extend((0..3).map(|index| optional(row.latency_us.map(|all| all[index]), 0)));
        cells.extend([format!("{:.3}", row.cpu_per_gib), optional(row.copies, 2), optional(row.direct_percent, 0)]);
        page.push_str("<tr>");
        for cell in cells {
            let _ = write!(page, "<td>{}</td>", escape(&cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// Contents of a page besides its header.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contents<'a> {
    /// Rows of `zbench matrix`.
    pub rows: &'a [Row],
    /// Rows of `zbench zia`.
    pub zia: &'a [zia::Row],
    /// Outputs of other commands: title and text.
    pub outputs: &'a [(String, String)],
}

/// Adds the pipeline on accelerators: a plot of each quantity and the table, for each setup that was measured.
fn accelerators(page: &mut String, rows: &[zia::Row]) -> Result<(), String> {
    for rows in rows.chunk_by(|one, other| one.setup == other.setup) {
        let _ = writeln!(page, "<h2>Accelerators</h2>\n<p>{}</p>\n<div class=\"plots\">", escape(&rows[0].setup));
        for (title, value) in ZIA_PLOTS {
            let bars: Vec<(&str, f64)> = rows.iter().map(|row| (row.name.as_str(), value(row))).collect();
            page.push_str(&plots::bars(title, &bars)?);
        }
        page.push_str("</div>\n<table><tr><th></th><th>MB/s</th><th>±%</th><th>host s/GiB</th><th>model s/GiB</th><th>copied/byte</th><th>link/byte</th><th>cards busy %</th></tr>\n");
        for row in rows {
            let busy = row.busy_percent.map_or_else(|| "-".to_string(), |busy| format!("{busy:.0}"));
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td>{:.0}</td><td>{:.0}</td><td>{:.3}</td><td>{:.3}</td><td>{:.2}</td><td>{:.2}</td><td>{busy}</td></tr>",
                escape(&row.name),
                row.mb_per_second,
                row.spread_percent,
                row.host_cpu,
                row.model_cpu,
                row.copies,
                row.link
            );
        }
        page.push_str("</table>\n");
    }
    Ok(())
}

/// Writes the page.
pub fn write(path: &Path, machine: &Machine, command: &str, contents: &Contents) -> Result<(), String> {
    let Contents { rows, zia, outputs } = *contents;
    let mut page = String::new();
    let (title, busy) =
        ("Zirconia: measurements", if machine.is_busy() { " The machine was busy: only ratios mean something." } else { "" });
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\n<h1>{title}</h1>\n\
         <p>{}, {} cores, {} MiB of memory, Linux {}; commit {}; {}; load at the start {:.2}.{busy}<br><code>{}</code></p>\n\
         <p>Rates are 10⁶ bytes per second; rows are medians of turns that layers took one after the other, ±% is (largest − smallest) ÷ median. \
         CPU is client and server together (the peer's × 0.9 for its assertions; threads of the kernel below the devices are not counted for \
         anybody). \"-\" was not measured.</p>\n",
        escape(&machine.cpu),
        machine.cores,
        machine.memory_mib,
        escape(&machine.kernel),
        escape(&machine.commit),
        escape(&machine.date),
        machine.load,
        escape(command)
    );
    for (name, text) in outputs {
        let _ = writeln!(page, "<h2>{}</h2>\n<pre>{}</pre>", escape(name), escape(text.trim_end()));
    }
    accelerators(&mut page, zia)?;
    if !rows.is_empty() {
        for quantity in Quantity::ALL {
            let plots = plots::small_multiples(rows, quantity)?;
            if plots.is_empty() {
                continue;
            }
            let open = if quantity == Quantity::Rate { " open" } else { "" };
            let _ = writeln!(
                page,
                "<details{open}><summary><b>Matrix: {}, by number of devices</b></summary><div class=\"plots\">",
                quantity.title()
            );
            for plot in plots {
                page.push_str(&plot);
            }
            page.push_str("</div></details>\n");
        }
        page.push_str("<h2>Matrix</h2>\n");
        table(&mut page, rows);
    }
    page.push_str("</html>\n");
    std::fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))
}

fn gather(args: &Args) -> Result<(), String> {
    let (mut machine, mut commands, mut rows, mut zia) = (None, Vec::new(), Vec::new(), Vec::new());
    for path in &args.json {
        let lines = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for line in lines.lines() {
            let value: Value = serde_json::from_str(line).map_err(text)?;
            match value.get("machine") {
                Some(found) => {
                    machine = machine.or_else(|| serde_json::from_value(found.clone()).ok());
                    commands.push(value["command"].as_str().unwrap_or_default().to_string());
                }
                None if value.get("zia").is_some() => zia.push(serde_json::from_value(value["zia"].clone()).map_err(text)?),
                None => rows.push(serde_json::from_value(value).map_err(text)?),
            }
        }
    }
    let mut outputs = Vec::new();
    for path in &args.output {
        let title = path.file_stem().map_or_else(String::new, |name| format!("zbench {}", name.to_string_lossy()));
        outputs.push((title, std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?));
    }
    write(
        &args.html,
        &machine.unwrap_or_else(Machine::describe),
        &commands.join("; "),
        &Contents { rows: &rows, zia: &zia, outputs: &outputs },
    )
}

/// Writes the page.
pub fn run(args: &Args) -> ExitCode {
    match gather(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zbench report: {error}");
            ExitCode::FAILURE
        }
    }
}
