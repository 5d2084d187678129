//! How a figure's series compare: each with plain calls, or with the series that the figure names.

use crate::bench::document::{Figure, Point};

const PLAIN: &str = "plain";

/// With what others are compared.
pub fn base(figure: &Figure) -> &str {
    figure.base.as_deref().unwrap_or(PLAIN)
}

/// How many times as good as that.
pub fn times_as_good(figure: &Figure, point: &Point) -> Option<f64> {
    let base = match &figure.base {
        Some(base) => base.as_str(),
        None if point.series.starts_with(PLAIN) => return None,
        None => {
            // Where a figure has several lines a side, `plain, read` belongs to `Famio, read`.
            let series = figure.names(|point| &point.series).into_iter();
            let ours =
                series.filter(|name| name.strip_prefix(PLAIN).is_some_and(|group| point.series.ends_with(group)));
            ours.max_by_key(|name| name.len())?
        }
    };
    // Where all bars stand beside each other, the place is what differs.
    let is_one_series = figure.names(|point| &point.series).len() == 1;
    let base = if is_one_series { figure.point(&point.series, base)? } else { figure.point(base, &point.x)? };
    if std::ptr::eq(base, point) || base.value == 0.0 || point.value == 0.0 {
        return None;
    }
    Some(if figure.higher_is_better { point.value / base.value } else { base.value / point.value })
}

/// The least and the most of these ratios that Famio reaches in a figure.
pub fn ours(figure: &Figure) -> Option<(f64, f64)> {
    let is_ours = |point: &&Point| point.series.starts_with("Famio") || OUR_MAPS.contains(&point.x.as_str());
    let ratios: Vec<f64> = figure.points.iter().filter(is_ours).filter_map(|point| of(figure, point)).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    (!ratios.is_empty()).then_some((least, most))
}

/// Ways of mapping that are Famio's.
const OUR_MAPS: [&str; 3] = ["ahead", "advised", "cache"];

/// Whether what a figure shows are ratios already.
pub fn shows_ratios(figure: &Figure) -> bool {
    figure.y.starts_with("times as fast")
}

fn of(figure: &Figure, point: &Point) -> Option<f64> {
    if shows_ratios(figure) { Some(point.value) } else { times_as_good(figure, point) }
}

/// `1.20x to 9.40x`.
pub fn shown(figure: &Figure) -> String {
    match ours(figure) {
        None => "-".into(),
        Some((least, most)) if format!("{least:.2}") == format!("{most:.2}") => format!("{most:.2}x"),
        Some((least, most)) => format!("{least:.2}x to {most:.2}x"),
    }
}

/// What the paper says; what a figure of ours has no paper for.
pub fn paper_says(figure: &Figure) -> &str {
    let unknown = if figure.name.starts_with("famio-") { "-" } else { "not known to us" };
    figure.paper_says.as_deref().unwrap_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::document::Shape;

    fn figure(base: Option<&str>, points: &[(&str, &str, f64)]) -> Figure {
        let points = points.iter().map(|(series, x, value)| Point::new(series, x, vec![*value])).collect();
        Figure { base: base.map(Into::into), points, shape: Shape::Bars, ..Figure::new("a", "") }
    }

    #[test]
    fn a_series_is_compared_with_the_plain_one_of_its_group() {
        let figure = figure(
            None,
            &[
                ("plain, read", "1", 10.0),
                ("plain, write", "1", 4.0),
                ("Famio, read", "1", 30.0),
                ("Famio, write", "1", 2.0),
            ],
        );
        assert_eq!(times_as_good(&figure, &figure.points[0]), None);
        assert_eq!(times_as_good(&figure, &figure.points[2]), Some(3.0));
        assert_eq!((ours(&figure), shown(&figure)), (Some((0.5, 3.0)), "0.50x to 3.00x".into()));
    }

    #[test]
    fn a_figure_may_name_what_others_are_compared_with() {
        let named = figure(Some("WAL"), &[("DELETE", "1", 5.0), ("WAL", "1", 10.0), ("Famio, MEMORY", "1", 20.0)]);
        let ratios: Vec<_> = named.points.iter().map(|point| times_as_good(&named, point)).collect();
        assert_eq!(ratios, [Some(0.5), None, Some(2.0)]);
        // Of one series, by the places.
        let places = figure(Some("default"), &[("", "default", 10.0), ("", "ahead", 15.0)]);
        assert_eq!((ours(&places), base(&places)), (Some((1.5, 1.5)), "default"));
        let lower = Figure { higher_is_better: false, ..places };
        assert_eq!(shown(&lower), "0.67x");
    }
}
