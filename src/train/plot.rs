//! A run's losses as a picture.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Room for the axes' numbers: left, bottom, and the rest.
const MARGINS: (f64, f64, f64) = (56.0, 40.0, 24.0);

/// An SVG plot of losses over steps: those of training faint, their moving mean and those of validation as lines.
/// Each is (step, loss), in order; what is not finite is left out.
pub fn loss_svg(title: &str, training: &[(u64, f64)], validation: &[(u64, f64)]) -> String {
    let finite = |points: &[(u64, f64)]| -> Vec<(f64, f64)> {
        points.iter().filter(|p| p.1.is_finite()).map(|&(step, loss)| (step as f64, loss)).collect()
    };
    let (training, validation) = (finite(training), finite(validation));
    let all = || training.iter().chain(&validation);
    let last = all().fold(1.0f64, |last, p| last.max(p.0));
    let most = all().fold(f64::MIN, |most, p| most.max(p.1));
    let least = all().fold(f64::MAX, |least, p| least.min(p.1));
    let (low, high, step) = ticks(least.min(most), most.max(least));
    let (left, bottom, rest) = MARGINS;
    let x = |at: f64| left + at / last * (WIDTH - left - rest);
    let y = |loss: f64| HEIGHT - bottom - (loss - low) / (high - low) * (HEIGHT - bottom - rest);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"#333\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    // A String takes whatever is written.
    let _ = writeln!(svg, "<text x=\"{left}\" y=\"16\" font-size=\"13\">{}</text>", escaped(title));
    let middle = (HEIGHT - bottom + rest) / 2.0;
    let _ = writeln!(
        svg,
        "<text transform=\"translate(14 {middle}) rotate(-90)\" text-anchor=\"middle\">loss, nats a token</text>"
    );
    let mut tick = low;
    while tick <= high + step / 2.0 {
        let (at, right) = (y(tick), WIDTH - rest);
        let _ = writeln!(svg, "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>");
        let (text, down) = (number(tick, step), at + 4.0);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{down:.1}\" text-anchor=\"end\">{text}</text>", left - 6.0);
        tick += step;
    }
    let (_, _, between) = ticks(0.0, last);
    let mut at = 0.0;
    while at <= last {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x(at),
            HEIGHT - bottom + 18.0,
            number(at, between)
        );
        at += between.max(1.0);
    }
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">step</text>", WIDTH - rest, HEIGHT - 6.0);
    let mut line = |points: &[(f64, f64)], color: &str, width: f64| {
        let points: Vec<String> = points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        let points = points.join(" ");
        let _ =
            writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>");
    };
    line(&training, "#a9c7e8", 1.0);
    line(&smoothed(&training), "#1f5fa8", 2.0);
    line(&validation, "#d9691a", 2.0);
    for point in &validation {
        let _ = writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#d9691a\"/>", x(point.0), y(point.1));
    }
    let mut key = WIDTH - rest - 256.0;
    for (text, color, points) in
        [("training, moving mean", "#1f5fa8", &training), ("validation", "#d9691a", &validation)]
    {
        if !points.is_empty() {
            let end = key + 18.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{key}\" x2=\"{end}\" y1=\"12\" y2=\"12\" stroke=\"{color}\" stroke-width=\"2\"/>"
            );
            let _ = writeln!(svg, "<text x=\"{}\" y=\"16\">{text}</text>", key + 24.0);
            key += 176.0;
        }
    }
    svg + "</svg>\n"
}

/// The mean of the last twentieth of the points, at each of them.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let window = (points.len() / 20).max(1);
    let mut sum = 0.0;
    let mean = |(i, point): (usize, &(f64, f64))| {
        sum += point.1 - if i < window { 0.0 } else { points[i - window].1 };
        (point.0, sum / (i + 1).min(window) as f64)
    };
    points.iter().enumerate().map(mean).collect()
}

/// Round numbers around a range: (first, last, step), about five of them.
fn ticks(least: f64, most: f64) -> (f64, f64, f64) {
    let (least, most) = if least.is_finite() && most.is_finite() { (least, most) } else { (0.0, 1.0) };
    let range = (most - least).abs().max(1e-6 * most.abs()).max(1e-9);
    let power = 10f64.powf((range / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| range / step <= 6.0).unwrap_or(range);
    ((least / step).floor() * step, (most / step).ceil() * step, step)
}

fn number(value: f64, step: f64) -> String {
    format!("{value:.*}", (-step.log10().floor()).clamp(0.0, 9.0) as usize)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
