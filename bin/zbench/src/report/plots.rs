//! Plots of rows as SVG text, drawn by the library `plotters`.

use crate::matrix::cell::{Layer, Mode, Pattern, Row, name_of, size_name};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::collections::BTreeMap;

const SIZE: (u32, u32) = (430, 270);
const COLOURS: [(Layer, RGBColor); 4] = [
    (Layer::Raw, RGBColor(120, 120, 120)),
    (Layer::Library, RGBColor(31, 119, 180)),
    (Layer::Fuse, RGBColor(44, 160, 44)),
    (Layer::Peer, RGBColor(214, 39, 40)),
];

/// Quantity that a plot shows of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// 10⁶ bytes per second
    Rate,
    /// Percent of the raw devices
    RawPercent,
    /// CPU seconds per GiB
    Cpu,
    /// 99th percentile of latency, milliseconds
    Latency,
}

impl Quantity {
    /// Quantities, all of them, in the order of the report.
    pub const ALL: [Quantity; 4] = [Quantity::Rate, Quantity::RawPercent, Quantity::Cpu, Quantity::Latency];

    /// Title for headings.
    pub fn title(self) -> &'static str {
        match self {
            Quantity::Rate => "MB/s",
            Quantity::RawPercent => "percent of the raw devices",
            Quantity::Cpu => "CPU seconds per GiB",
            Quantity::Latency => "99th percentile of latency, ms",
        }
    }

    fn of(self, row: &Row) -> Option<f64> {
        match self {
            Quantity::Rate => Some(row.mb_per_second),
            Quantity::RawPercent => row.raw_percent,
            Quantity::Cpu => Some(row.cpu_per_gib),
            Quantity::Latency => row.latency_us.map(|all| all[1] / 1e3),
        }
    }
}

/// Line of a plot: a layer and its points (place on the axis, value).
type Line = (Layer, Vec<(f64, f64)>);

/// Area that a plot is drawn in.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn said<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> String {
    error.to_string()
}

/// Text of an image that `fill` draws on white ground; empty where the largest value, `most`, is none.
fn image(most: f64, fill: impl FnOnce(&Area<'_>) -> Result<(), String>) -> Result<String, String> {
    let mut svg = String::new();
    if most > 0.0 {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(said)?;
        fill(&area)?;
        area.present().map_err(said)?;
    }
    Ok(svg)
}

/// Begins a chart with its title, and room for what is written below it.
fn chart<'a, 'b>(area: &'a Area<'b>, title: &str) -> ChartBuilder<'a, 'static, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart.caption(title, ("sans-serif", 13)).margin(8).x_label_area_size(24);
    chart
}

fn draw(title: &str, names: &[String], lines: &[Line]) -> Result<String, String> {
    let most = lines.iter().flat_map(|(_, points)| points).map(|(_, value)| *value).fold(0.0, f64::max);
    image(most, |area| {
        let right = (names.len() as f64 - 1.0).max(0.5);
        let mut chart = chart(area, title).y_label_area_size(46).build_cartesian_2d(0.0..right, 0.0..most * 1.1).map_err(said)?;
        let label = |place: &f64| match (place - place.round()).abs() < 0.01 {
            true => names.get(place.round() as usize).cloned().unwrap_or_default(),
            false => String::new(),
        };
        chart.configure_mesh().x_labels(names.len().max(2)).y_labels(5).x_label_formatter(&label).draw().map_err(said)?;
        for (layer, points) in lines {
            let colour = COLOURS.iter().find(|(known, _)| known == layer).map_or(BLACK, |(_, colour)| *colour);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))
                .map_err(said)?
                .label(name_of(*layer))
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 12, y)], colour.stroke_width(2)));
        }
        let mut labels = chart.configure_series_labels();
        labels.background_style(WHITE.mix(0.7)).label_font(("sans-serif", 10)).position(SeriesLabelPosition::UpperLeft);
        labels.draw().map_err(said)
    })
}

/// Plot with one bar for each name, with its value beside it.
pub fn bars(title: &str, bars: &[(&str, f64)]) -> Result<String, String> {
    let most = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    image(most, |area| {
        let count = bars.len();
        let mut chart = chart(area, title).build_cartesian_2d(0.0..most * 1.05, 0.0..count as f64).map_err(said)?;
        chart.configure_mesh().disable_y_mesh().x_labels(5).draw().map_err(said)?;
        for (index, (name, value)) in bars.iter().enumerate() {
            let top = (count - index) as f64;
            let colour = COLOURS[index % COLOURS.len()].1;
            let bar = Rectangle::new([(0.0, top - 0.92), (*value, top - 0.5)], colour.mix(0.75).filled());
            let digits = if most < 10.0 { 2 } else { 0 };
            let label = Text::new(format!("{name}: {value:.digits$}"), (0.0, top - 0.12), ("sans-serif", 12));
            chart.draw_series(std::iter::once(bar)).map_err(said)?;
            chart.draw_series(std::iter::once(label)).map_err(said)?;
        }
        Ok(())
    })
}

/// Plots of rows, one for each (kind of devices, layout, pattern, mode, size, streams); its axis is the number of devices.
pub fn small_multiples(rows: &[Row], quantity: Quantity) -> Result<Vec<String>, String> {
    type Key = (String, String, Pattern, Mode, u64, usize);
    let mut plots: BTreeMap<Key, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let kind = row.layout.split(':').next().unwrap_or_default().to_string();
        let key = (row.devices_are.clone(), kind, row.pattern, row.mode, row.size, row.jobs);
        plots.entry(key).or_default().push(row);
    }
    let mut drawn = Vec::new();
    for ((kind, layout, pattern, mode, size, jobs), rows) in plots {
        let mut counts: Vec<usize> = rows.iter().map(|row| row.devices).collect();
        counts.sort_unstable();
        counts.dedup();
        let mut lines: BTreeMap<Layer, Vec<(f64, f64)>> = BTreeMap::new();
        for row in rows {
            let place = counts.iter().position(|count| *count == row.devices).unwrap_or(0) as f64;
            if let Some(value) = quantity.of(row) {
                lines.entry(row.layer).or_default().push((place, value));
            }
        }
        let names: Vec<String> = counts.iter().map(usize::to_string).collect();
        for points in lines.values_mut() {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        let title = format!("{} {} {}, {kind}, {layout}, {jobs} streams", size_name(size), name_of(pattern), name_of(mode));
        drawn.push(draw(&title, &names, &lines.into_iter().collect::<Vec<_>>())?);
    }
    Ok(drawn.into_iter().filter(|svg| !svg.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plot of the accelerators that lacks a way to do the work shows the others as all there is.
    #[test]
    fn every_bar_has_its_name_and_value() {
        let svg = bars("MB/s", &[("software", 236.4), ("cards, Z.I.A.", 2761.0)]).expect("a plot");
        assert!(svg.contains("software: 236") && svg.contains("cards, Z.I.A.: 2761"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 1 + 2, "the ground and two bars: {svg}");
        assert_eq!(bars("link", &[("software", 0.0)]), Ok(String::new()));
    }

    /// A report without its plots, or with one layer missing from them, would go unnoticed in a long file.
    #[test]
    fn every_layer_appears_in_a_plot() {
        let row = |layer, devices| Row {
            devices_are: "files".into(),
            cap_mb: None,
            layout: format!("stripe:{devices}"),
            devices,
            layer,
            size: 1 << 20,
            pattern: Pattern::Read,
            mode: Mode::Direct,
            jobs: 4,
            turns: 1,
            mb_per_second: 100.0 * devices as f64,
            spread_percent: 0.0,
            raw_percent: None,
            iops: 100.0,
            latency_us: None,
            cpu_per_gib: 0.1,
            copies: None,
            direct_percent: None,
        };
        let rows = [row(Layer::Raw, 1), row(Layer::Raw, 4), row(Layer::Fuse, 1), row(Layer::Fuse, 4)];
        let plots = small_multiples(&rows, Quantity::Rate).expect("plots");
        assert_eq!(plots.len(), 1);
        assert!(plots[0].contains("<svg") && plots[0].contains("raw") && plots[0].contains("fuse"), "{}", plots[0]);
        assert!(small_multiples(&rows, Quantity::Latency).expect("plots").is_empty());
    }
}
