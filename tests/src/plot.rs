//! A line plot as SVG: what a benchmark's reader would rather look at than read.

use std::fmt::Write;

/// One line of a plot.
#[derive(Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// CSS colour.
    pub color: &'static str,
    /// Points, in order of x.
    pub points: Vec<(f64, f64)>,
}

/// Title and axis labels.
#[derive(Debug)]
pub struct Labels<'a> {
    /// Above the plot.
    pub title: &'a str,
    /// Below the x axis, whose scale is logarithmic with base 2.
    pub x: &'a str,
    /// Beside the y axis, which starts at 0.
    pub y: &'a str,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 360.0;

/// Draws `series` over a base-2 logarithmic x axis.
///
/// # Panics
/// If there is no point, or an x that is not positive.
pub fn lines(labels: &Labels<'_>, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|s| s.points.iter());
    let mut xs: Vec<f64> = points().map(|p| p.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let (first, last) = (xs[0], xs[xs.len() - 1]);
    assert!(first > 0.0, "x values are positive");
    let step = nice_step(points().map(|p| p.1).fold(0.0, f64::max) / 5.0);
    let y_max = step * (points().map(|p| p.1).fold(0.0, f64::max) / step).ceil().max(1.0);
    let span = (last / first).log2().max(1e-9);
    let px = |x: f64| LEFT + (RIGHT - LEFT) * (x / first).log2() / span;
    let py = |y: f64| BOTTOM - (BOTTOM - TOP) * y / y_max;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut text = |x: f64, y: f64, anchor: &str, content: &str| {
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"
        );
    };
    text(WIDTH / 2.0, 24.0, "middle", labels.title);
    text((LEFT + RIGHT) / 2.0, HEIGHT - 16.0, "middle", labels.x);
    text(LEFT - 10.0, TOP - 12.0, "start", labels.y);
    for &x in &xs {
        text(px(x), BOTTOM + 20.0, "middle", &format!("{x}"));
    }
    let ticks = (0..).map(|tick| f64::from(tick) * step).take_while(|y| *y <= y_max + step / 2.0);
    for y in ticks.clone() {
        text(LEFT - 8.0, py(y) + 4.0, "end", &format!("{y}"));
    }
    for y in ticks.map(py) {
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
        );
    }
    for (index, line) in series.iter().enumerate() {
        let path: Vec<String> =
            line.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", px(x), py(y))).collect();
        let color = line.color;
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2.5\"/>",
            path.join(" ")
        );
        for &(x, y) in &line.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{color}\"/>",
                px(x),
                py(y)
            );
        }
        let y = TOP + 10.0 + 20.0 * index as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"{y:.1}\">{}</text>",
            LEFT + 12.0,
            y - 6.0,
            LEFT + 32.0,
            line.name
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= least).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_1_2_or_5() {
        for (least, want) in [(0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (3.0, 5.0), (70.0, 100.0)] {
            assert_eq!(nice_step(least), want);
        }
    }
}
