//! A figure as SVG: groups of bars, or lines, over places with names.

use crate::bench::document::{Figure, Shape};
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged};
use plotters::prelude::*;
use std::fmt::Display;

const WIDTH: u32 = 1000;
const PLOT_HEIGHT: u32 = 330;
const FONT: &str = "sans-serif";
const LINE: i32 = 15;
/// Okabe and Ito's colours, which most people with a colour deficiency can tell apart.
/// The first is for plain calls.
const COLOURS: [RGBColor; 7] = [
    RGBColor(140, 140, 140),
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
];
/// If values differ by more than this factor, the axis is logarithmic.
const WIDE: f64 = 60.0;
/// The part of a place that its bars take.
const BARS: f64 = 0.8;

/// The chart; empty if there is nothing to draw.
pub fn svg(figure: &Figure) -> Result<String, String> {
    let positive = figure.points.iter().map(|point| point.value).filter(|&value| value > 0.0);
    let lowest = positive.clone().fold(f64::INFINITY, f64::min);
    let highest = figure.points.iter().map(|point| point.value).fold(0.0, f64::max);
    if figure.points.is_empty() || highest <= 0.0 {
        return Ok(String::new());
    }
    // An interval far above its value must not make all other bars small.
    let top = figure.points.iter().map(|point| point.high.min(1.6 * highest)).fold(highest, f64::max);
    if highest / lowest > WIDE {
        let bottom = 10f64.powf(lowest.log10().floor());
        draw(figure, (bottom..top * 1.2).log_scale(), bottom)
    } else {
        draw(figure, 0.0..top * 1.05, 0.0)
    }
}

fn failed(error: impl Display) -> String {
    format!("drawing a chart: {error}")
}

fn draw<Y>(figure: &Figure, y: Y, bottom: f64) -> Result<String, String>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let series = figure.names(|point| &point.series);
    let places = figure.names(|point| &point.x);
    // About 6.6 pixels per letter.
    let letters = (f64::from(WIDTH - 110) / places.len() as f64 / 6.6) as usize;
    let labels: Vec<Vec<String>> = places.iter().map(|place| wrapped(place, letters.max(6))).collect();
    let label_lines = labels.iter().map(Vec::len).max().unwrap_or(1) as i32;
    let legend_lines = legend(&series).last().map_or(0, |(_, _, line)| line + 1);
    let head = 26 + if series.len() > 1 { legend_lines * 20 } else { 0 };
    let foot = label_lines * LINE + 34;

    let height = PLOT_HEIGHT as i32 + head + foot;
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, (WIDTH, height as u32)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let is_ratio = super::ratios::shows_ratios(figure);
        let line = if is_ratio { "; the line: no difference" } else { "" };
        let title = format!("{} ({}{line})", figure.y, super::cells::better(figure));
        write(&root, &title, (10, 6), 15, 'l')?;
        if series.len() > 1 {
            for (number, x, line) in legend(&series) {
                let y = 30 + line * 20;
                let mark = Rectangle::new([(x, y), (x + 12, y + 12)], colour(&series, number).filled());
                root.draw(&mark).map_err(failed)?;
                write(&root, series[number], (x + 18, y - 1), 14, 'l')?;
            }
        }
        let mut chart = ChartBuilder::on(&root)
            .margin_top(head)
            .margin_right(20)
            .margin_bottom(foot)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..places.len() as f64, y)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_label_style((FONT, 14))
            .y_label_formatter(&|value| amount(*value))
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(failed)?;

        for (number, name) in series.iter().enumerate() {
            let found = places.iter().enumerate();
            let found = found.filter_map(|(place, x)| figure.point(name, x).map(|point| (place as f64, point)));
            let colour = colour(&series, number);
            let (offset, width) = match figure.shape {
                Shape::Bars => {
                    let width = BARS / series.len() as f64;
                    ((1.0 - BARS) / 2.0 + (number as f64 + 0.5) * width, width)
                }
                // Lines are shifted, so that their intervals do not hide each other.
                Shape::Lines => (0.5 + (number as f64 - (series.len() - 1) as f64 / 2.0) * 0.03, 0.0),
            };
            let points: Vec<_> = found.map(|(place, point)| (place + offset, point)).collect();
            match figure.shape {
                Shape::Bars => {
                    let bar = |x: f64, value: f64| {
                        let half = width * 0.46;
                        Rectangle::new([(x - half, bottom), (x + half, value.max(bottom))], colour.filled())
                    };
                    chart.draw_series(points.iter().map(|(x, point)| bar(*x, point.value))).map_err(failed)?;
                }
                Shape::Lines => {
                    let at: Vec<_> = points.iter().map(|(x, point)| (*x, point.value)).collect();
                    chart.draw_series(LineSeries::new(at.iter().copied(), colour.stroke_width(2))).map_err(failed)?;
                    let dots = at.iter().map(|&at| Circle::new(at, 4, colour.filled()));
                    chart.draw_series(dots).map_err(failed)?;
                }
            }
            let whiskers = points.iter().filter(|(_, point)| point.high > point.low);
            let whiskers = whiskers.map(|(x, point)| {
                let ends = vec![(*x, point.low.max(bottom)), (*x, point.high)];
                PathElement::new(ends, BLACK.mix(0.6).stroke_width(1))
            });
            chart.draw_series(whiskers).map_err(failed)?;
        }

        if is_ratio {
            let ends = vec![(0.0, 1.0), (places.len() as f64, 1.0)];
            let line = PathElement::new(ends, BLACK.mix(0.7).stroke_width(2));
            chart.draw_series([line]).map_err(failed)?;
        }

        let base = head + PLOT_HEIGHT as i32;
        for (place, lines) in labels.iter().enumerate() {
            let (x, _) = chart.backend_coord(&(place as f64 + 0.5, bottom));
            for (number, line) in lines.iter().enumerate() {
                write(&root, line, (x, base + 6 + number as i32 * LINE), 13, 'm')?;
            }
        }
        write(&root, &figure.x, ((WIDTH / 2) as i32, height - 22), 14, 'm')?;
        root.present().map_err(failed)?;
    }
    Ok(out)
}

fn write(
    root: &DrawingArea<SVGBackend, Shift>,
    text: &str,
    at: (i32, i32),
    size: i32,
    align: char,
) -> Result<(), String> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let pos = Pos::new(if align == 'm' { HPos::Center } else { HPos::Left }, VPos::Top);
    let style = TextStyle::from((FONT, size).into_font()).pos(pos);
    root.draw(&Text::new(text.to_string(), at, style)).map_err(failed)
}

/// Grey is for plain calls.
fn colour(series: &[&str], number: usize) -> RGBColor {
    let first = usize::from(series.first().is_some_and(|name| !name.starts_with("plain")));
    COLOURS[(number + first) % COLOURS.len()]
}

/// For each series, its number and the place of its name: the x position and the line.
fn legend(series: &[&str]) -> Vec<(usize, i32, i32)> {
    let (mut x, mut line, mut out) = (10, 0, Vec::new());
    for (number, name) in series.iter().enumerate() {
        let width = 44 + 8 * name.chars().count() as i32;
        if x + width > WIDTH as i32 && x > 10 {
            (x, line) = (10, line + 1);
        }
        out.push((number, x, line));
        x += width;
    }
    out
}

/// A name in lines of about `letters` letters.
fn wrapped(name: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in name.split(' ') {
        let last = lines.last_mut().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > letters {
            lines.push(word.to_string());
        } else if let Some(line) = lines.last_mut() {
            line.push_str(if last > 0 { " " } else { "" });
            line.push_str(word);
        }
    }
    lines
}

/// A number for the axis.
fn amount(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{} M", value / 1e6),
        size if size >= 1000.0 => format!("{:.0}", value),
        // The multiple of the axis's step, without accumulated rounding errors.
        _ => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_get_several_lines() {
        assert_eq!(wrapped("random 4 KiB pwrite", 8), ["random 4", "KiB", "pwrite"]);
        assert_eq!(wrapped("", 8), [""]);
    }

    #[test]
    fn legends_stay_on_the_picture() {
        let names = ["a name of forty letters, which is long.."; 5];
        assert!(legend(&names).iter().all(|&(_, x, _)| x < WIDTH as i32 - 300));
        assert_eq!(legend(&names).last().unwrap().2, 2);
    }

    #[test]
    fn numbers_beside_the_axis_are_short() {
        assert_eq!([0.0, 0.30000000000000004, 25.0, 2e6].map(amount), ["0", "0.3", "25", "2 M"]);
    }
}
