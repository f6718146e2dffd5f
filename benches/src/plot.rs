//! Plots of cost against size, as SVG.

use std::path::Path;

use contiv_tests::lab::{LabError, Result};
use plotters::prelude::*;

use crate::figures::{Figure, Quantity};

const PLOT_SIZE: (u32, u32) = (860, 460);
const FONT: &str = "sans-serif";
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

/// A plot: its file, its title, and its lines.
struct Plot {
    file: &'static str,
    title: &'static str,
    lines: &'static [LineOfFigures],
}

/// A line: its label, the name of its figures, and whether it shows their floor.
type LineOfFigures = (&'static str, &'static str, bool);

const PLOTS: [Plot; 4] = [
    Plot {
        file: "one-change.svg",
        title: "One change in the kernel, by the number of services (4 backends each)",
        lines: &[
            ("backend replaced", "backend replaced, kernel, p50", false),
            ("backend added", "backend added, kernel, p50", false),
            ("service created", "service created, kernel, p50", false),
            (
                "last endpoint lost",
                "last endpoint lost, kernel, p50",
                false,
            ),
            (
                "kube-proxy 1.36 layout, nft -f",
                "kube-proxy 1.36, one change",
                false,
            ),
            (
                "kube-proxy 1.35 layout, nft -f",
                "kube-proxy 1.35, one change",
                false,
            ),
        ],
    },
    Plot {
        file: "end-to-end.svg",
        title: "One change, from etcd's acknowledgement to the commit, by the number of services",
        lines: &[
            (
                "backend replaced, p50",
                "backend replaced, end to end, p50",
                false,
            ),
            (
                "backend added, p50",
                "backend added, end to end, p50",
                false,
            ),
            (
                "service created, p50",
                "service created, end to end, p50",
                false,
            ),
            (
                "backend replaced, p99",
                "backend replaced, end to end, p99",
                false,
            ),
            (
                "backend added, p99",
                "backend added, end to end, p99",
                false,
            ),
            (
                "service created, p99",
                "service created, end to end, p99",
                false,
            ),
        ],
    },
    Plot {
        file: "everything.svg",
        title: "Everything into an empty kernel, by the number of services (4 backends each)",
        lines: &[
            ("contiv: plan, encode, commit", "kernel, cold", false),
            ("the kernel alone", "kernel, cold", true),
            ("contiv: restart", "kernel, restart", false),
            ("combine", "combine everything", false),
            (
                "kube-proxy 1.36 layout, nft -f",
                "kube-proxy 1.36, load",
                false,
            ),
            (
                "kube-proxy 1.35 layout, nft -f",
                "kube-proxy 1.35, load",
                false,
            ),
        ],
    },
    Plot {
        file: "first-packet.svg",
        title: "First packet of a flow, by the number of services",
        lines: &[
            ("contiv, p50", "first packet, contiv, p50", false),
            ("contiv, p99", "first packet, contiv, p99", false),
            (
                "kube-proxy 1.36, p50",
                "first packet, kube-proxy 1.36, p50",
                false,
            ),
            (
                "kube-proxy 1.36, p99",
                "first packet, kube-proxy 1.36, p99",
                false,
            ),
            (
                "kube-proxy 1.35, p50",
                "first packet, kube-proxy 1.35, p50",
                false,
            ),
            (
                "no services, p50",
                "first packet without services, p50",
                false,
            ),
        ],
    },
];

/// Draws every plot for which there are figures into a folder.
///
/// # Errors
/// When a file cannot be written.
pub fn draw_all(figures: &[Figure], folder: &Path) -> Result<()> {
    for plot in &PLOTS {
        let lines: Vec<_> = plot
            .lines
            .iter()
            .map(|(label, name, of_floor)| (*label, points(figures, name, *of_floor)))
            .filter(|(_, points)| points.len() > 1)
            .collect();
        if !lines.is_empty() {
            let path = folder.join(plot.file);
            draw(&path, plot.title, &lines).map_err(|error| {
                LabError::Unexpected(format!("failed to draw {}: {error}", path.display()))
            })?;
        }
    }
    Ok(())
}

/// Services and milliseconds of one line.
fn points(figures: &[Figure], name: &str, of_floor: bool) -> Vec<(f64, f64)> {
    let point = |figure: &Figure| {
        let services = f64::from(u32::try_from(figure.services).ok()?);
        match if of_floor {
            figure.floor?
        } else {
            figure.measured
        } {
            Quantity::Seconds(seconds) => Some((services, seconds * 1e3)),
            _ => None,
        }
    };
    figures
        .iter()
        .filter(|figure| figure.name == name)
        .filter_map(point)
        .collect()
}

fn draw(
    path: &Path,
    title: &str,
    lines: &[(&str, Vec<(f64, f64)>)],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let range = |pick: fn(&(f64, f64)) -> f64| {
        let (low, high) = points()
            .map(pick)
            .fold((f64::MAX, 0.0_f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        (low / 1.3..high * 1.3).log_scale()
    };
    let area = SVGBackend::new(path, PLOT_SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(range(|point| point.0), range(|point| point.1))?;
    chart
        .configure_mesh()
        .x_desc("services")
        .y_desc("ms")
        .label_style((FONT, 13))
        .draw()?;
    for ((label, points), colour) in lines.iter().zip(COLOURS) {
        chart
            .draw_series(
                LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3),
            )?
            .label(*label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()?;
    area.present()?;
    Ok(())
}

/// The points of a line: minutes and values.
pub type Line = Vec<(f64, f64)>;

/// Draws values over time in stacked panels, each with its title and its named lines.
///
/// # Errors
/// When the file cannot be written.
pub fn draw_over_time(panels: &[(&str, Vec<(&str, Line)>)], path: &Path) -> Result<()> {
    draw_panels(panels, path).map_err(|error| {
        LabError::Unexpected(format!("failed to draw {}: {error}", path.display()))
    })
}

fn draw_panels(
    panels: &[(&str, Vec<(&str, Line)>)],
    path: &Path,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let rows = u32::try_from(panels.len().max(1))?;
    let area = SVGBackend::new(path, (PLOT_SIZE.0, 240 * rows)).into_drawing_area();
    area.fill(&WHITE)?;
    for (part, (title, lines)) in area
        .split_evenly((panels.len().max(1), 1))
        .iter()
        .zip(panels)
    {
        let points = || lines.iter().flat_map(|(_, points)| points);
        let last = points().map(|point| point.0).fold(0.0, f64::max);
        let highest = points().map(|point| point.1).fold(0.0, f64::max);
        let mut chart = ChartBuilder::on(part)
            .caption(title, (FONT, 16))
            .margin(10)
            .x_label_area_size(32)
            .y_label_area_size(50)
            // From zero, so that a constant value looks constant.
            .build_cartesian_2d(0.0..last, 0.0..highest * 1.2 + f64::EPSILON)?;
        chart
            .configure_mesh()
            .x_desc("minutes")
            .label_style((FONT, 12))
            .draw()?;
        for ((label, points), colour) in lines.iter().zip(COLOURS) {
            chart
                .draw_series(LineSeries::new(
                    points.iter().copied(),
                    colour.stroke_width(1),
                ))?
                .label(*label)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .label_font((FONT, 12))
            .draw()?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_drawn_through_figures_of_its_name() {
        let figure = |services, seconds| {
            Figure::new(
                "parts",
                "kernel, cold",
                (services, 4),
                Quantity::Seconds(seconds),
            )
            .beside(Quantity::Seconds(seconds / 2.0))
        };
        let figures = [figure(100, 0.002), figure(1000, 0.02)];
        assert_eq!(
            points(&figures, "kernel, cold", false),
            [(100.0, 2.0), (1000.0, 20.0)]
        );
        assert_eq!(
            points(&figures, "kernel, cold", true),
            [(100.0, 1.0), (1000.0, 10.0)]
        );
        let folder = std::env::temp_dir().join(format!("contiv-plot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        draw_all(&figures, &folder).unwrap();
        let drawn = std::fs::read_to_string(folder.join("everything.svg")).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.contains("the kernel alone"));
        assert!(
            !folder.join("first-packet.svg").exists(),
            "there are no figures for it"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
