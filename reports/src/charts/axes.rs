//! Scales with round ticks, axes with their names, and legends.

use crate::figures;

use super::{
    canvas::{Align, Area, Canvas, DrawError, Font, text_width},
    palette::ColorRole,
};

/// Font size of the numbers at an axis.
pub const SMALL: i32 = 12;

/// Maps a range of values to a range of pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    from: f64,
    to: f64,
    start: i32,
    end: i32,
    logarithmic: bool,
    /// Whether only whole numbers have a meaning.
    whole: bool,
}

/// A symbol in a legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisMark {
    /// A filled circle.
    Dot(ColorRole),
    /// A filled square.
    Box(ColorRole),
    /// A hollow square.
    Square(ColorRole),
    /// A filled square standing on a corner.
    Diamond(ColorRole),
    /// A circle around a point.
    Ring(ColorRole),
    /// A line.
    Line(ColorRole),
}

impl Scale {
    /// Maps values from `from` to `to` to the pixels between two ends. An empty range is widened,
    /// so that a single value has a place.
    pub fn new((from, to): (f64, f64), (start, end): (i32, i32)) -> Self {
        let (from, to) = if to - from > f64::EPSILON * to.abs().max(from.abs()) {
            (from, to)
        } else {
            // A scale for a single value still needs a length to divide by.
            let margin = if from == 0.0 { 1.0 } else { from.abs() * 0.05 };
            (from - margin, to + margin)
        };
        Self { from, to, start, end, logarithmic: false, whole: false }
    }

    /// The same with a logarithmic scale; no change unless both values are positive.
    pub fn logarithmic(self) -> Self {
        Self { logarithmic: self.from > 0.0 && self.from < self.to, ..self }
    }

    /// The same for values that are counted: no tick is between two whole numbers.
    pub fn counting(self) -> Self {
        Self { whole: true, ..self }
    }

    /// The pixel of a value.
    pub fn pixel(self, value: f64) -> i32 {
        let share = if self.logarithmic {
            // The logarithm of a bound that is not positive would be infinitely far away.
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start.saturating_add((share * f64::from(self.end - self.start)).round() as i32)
    }

    /// Round values in the range, at most `most` steps, and the number of decimals that
    /// distinguishes them.
    pub fn ticks(self, most: usize) -> (Vec<f64>, usize) {
        if self.logarithmic {
            return self.round_ratios(most);
        }
        let length = self.to - self.from;
        let rough = length / most.max(1) as f64;
        let rough = if self.whole { rough.max(1.0) } else { rough };
        let power = 10_f64.powf(rough.log10().floor());
        // Steps that readers can add up; the tolerance keeps a step that only rounding made too
        // small.
        let allowed = |step: &f64| *step >= rough * 0.999 && !(self.whole && step.fract() > 0.0);
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(allowed);
        let Some(step) = step.filter(|step| step.is_finite() && *step > 0.0) else { return (Vec::new(), 0) };
        // As many as the step needs, the same for all ticks, so that the numbers line up.
        let decimals = (0..9).find(|decimals| ((step * 10_f64.powi(*decimals)) + 1e-6).fract() < 2e-6).unwrap_or(9);
        let first = (self.from / step).ceil();
        let ticks = (0..=most).map(|place| (first + place as f64) * step).filter(|tick| *tick <= self.to + step * 1e-9);
        (ticks.collect(), decimals as usize)
    }
}

impl Scale {
    /// Powers of ten in the range, and as many of their multiples as there is room for.
    fn round_ratios(self, most: usize) -> (Vec<f64>, usize) {
        let (low, high) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let ticks = |factors: &[f64]| -> Vec<f64> {
            let powers = (low..=high).flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
            powers.filter(|tick| (self.from..=self.to).contains(tick)).collect()
        };
        // The densest set that fits: at equal ratios a few round numbers per power of ten are
        // enough.
        const MULTIPLES: [&[f64]; 4] =
            [&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0], &[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 5.0], &[1.0, 3.0]];
        let fitting = MULTIPLES.into_iter().map(ticks).find(|ticks| ticks.len() <= most.max(2));
        let ticks = fitting.unwrap_or_else(|| ticks(&[1.0]));
        (ticks, usize::try_from(-low).unwrap_or(0).min(9))
    }
}

impl Scale {
    /// A tick with the decimals that its scale needs; on a logarithmic scale whole numbers need
    /// none.
    fn written(self, tick: f64, decimals: usize) -> String {
        figures::with_decimals(tick, if self.logarithmic && tick >= 1.0 { 0 } else { decimals })
    }
}

/// The range of positive values, widened on both sides by a share of its ratio; `None` without
/// values.
pub fn span_of_ratios(values: impl Iterator<Item = f64>, margin: f64) -> Option<(f64, f64)> {
    let logarithms = values.filter(|value| *value > 0.0).map(f64::ln);
    span(logarithms, margin).map(|(low, high)| (low.exp(), high.exp()))
}

/// The range of values, widened on both sides by a share of its length; `None` without values.
pub fn span(values: impl Iterator<Item = f64>, margin: f64) -> Option<(f64, f64)> {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    (low <= high).then(|| {
        // Otherwise the outermost marks would be cut in half by the frame.
        let room = (high - low) * margin;
        (low - room, high + room)
    })
}

/// Vertical grid lines, with values (and a suffix) below the area, and the axis label below them.
pub fn horizontal(
    canvas: &mut Canvas<'_>,
    area: Area,
    scale: Scale,
    name: &str,
    suffix: &str,
) -> Result<(), DrawError> {
    let most = (area.width() / if canvas.format.is_narrow() { 60 } else { 90 }).max(2) as usize;
    let (ticks, decimals) = scale.ticks(most);
    for tick in ticks {
        let x = scale.pixel(tick);
        canvas.line((x, area.top), (x, area.bottom), ColorRole::Grid, 1)?;
        let font = Font::new(SMALL, ColorRole::Muted).align(Align::Middle);
        canvas.text((x, area.bottom + 12), &(scale.written(tick, decimals) + suffix), font)?;
    }
    canvas.line((area.left, area.bottom), (area.right, area.bottom), ColorRole::Muted, 1)?;
    let font = Font::new(SMALL, ColorRole::Ink).align(Align::Middle);
    canvas.text(((area.left + area.right) / 2, area.bottom + 32), name, font)
}

/// Horizontal grid lines, with values (and a suffix) to the left of the area, and the axis label to
/// the left of them.
pub fn vertical(canvas: &mut Canvas<'_>, area: Area, scale: Scale, name: &str, suffix: &str) -> Result<(), DrawError> {
    let (ticks, decimals) = scale.ticks((area.height() / 45).max(2) as usize);
    for tick in ticks {
        let y = scale.pixel(tick);
        canvas.line((area.left, y), (area.right, y), ColorRole::Grid, 1)?;
        canvas.text(
            (area.left - 6, y),
            &(scale.written(tick, decimals) + suffix),
            Font::new(SMALL, ColorRole::Muted).align(Align::Right),
        )?;
    }
    canvas.line((area.left, area.top), (area.left, area.bottom), ColorRole::Muted, 1)?;
    let font = Font::new(SMALL, ColorRole::Ink).align(Align::Middle);
    canvas.upright_text((10, (area.top + area.bottom) / 2), name, font)
}

/// Height of a legend in pixels.
pub fn legend_height(width: i32, entries: &[(AxisMark, String)]) -> i32 {
    places(width, entries).last().map_or(0, |(_, y)| y + 22)
}

/// Draws a legend from the upper left corner, with line breaks at the available width.
pub fn legend(
    canvas: &mut Canvas<'_>,
    (left, top): (i32, i32),
    entries: &[(AxisMark, String)],
) -> Result<(), DrawError> {
    let width = canvas.format.width() - left;
    for ((mark, word), (x, y)) in entries.iter().zip(places(width, entries)) {
        let at = (left + x + 7, top + y + 10);
        match *mark {
            AxisMark::Dot(role) => canvas.dot(at, 5, role)?,
            AxisMark::Box(role) => canvas.rectangle(Area::around(at, 6), role)?,
            AxisMark::Square(role) => canvas.square(at, 5, role)?,
            AxisMark::Diamond(role) => canvas.diamond(at, 6, role)?,
            AxisMark::Ring(role) => canvas.ring(at, 6, role)?,
            AxisMark::Line(role) => canvas.line((at.0 - 8, at.1), (at.0 + 8, at.1), role, 2)?,
        }
        canvas.text((at.0 + 12, at.1), word, Font::new(SMALL, ColorRole::Ink))?;
    }
    Ok(())
}

fn places(width: i32, entries: &[(AxisMark, String)]) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (0, 0);
    let mut places = Vec::with_capacity(entries.len());
    for (_, word) in entries {
        let room = text_width(word, SMALL) + 30;
        if x > 0 && x + room > width {
            (x, y) = (0, y + 20);
        }
        places.push((x, y));
        x += room;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let check = |from: f64, to: f64, expected: &[f64]| {
            let (found, _) = Scale::new((from, to), (0, 100)).ticks(5);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(tick, value)| (tick - value).abs() < 1e-9), "{found:?}");
        };
        check(0.0, 10.0, &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        check(0.9, 1.7, &[1.0, 1.2, 1.4, 1.6]);
        check(1200.0, 4100.0, &[2000.0, 3000.0, 4000.0]);
    }

    #[test]
    fn counted_values_have_whole_ticks() {
        let check = |from: f64, to: f64, most: usize, expected: &[f64]| {
            assert_eq!(Scale::new((from, to), (0, 100)).counting().ticks(most), (expected.to_vec(), 0));
        };
        check(0.88, 3.12, 9, &[1.0, 2.0, 3.0]);
        check(1.0, 1.0, 9, &[1.0]);
        check(-0.4, 10.4, 5, &[0.0, 5.0, 10.0]);
        check(-2.0, 102.0, 5, &[0.0, 25.0, 50.0, 75.0, 100.0]);
    }

    #[test]
    fn equal_ratios_are_equally_far_apart() {
        let scale = Scale::new((1.0, 10_000.0), (0, 400)).logarithmic();
        assert_eq!([1.0, 10.0, 100.0, 10_000.0].map(|value| scale.pixel(value)), [0, 100, 200, 400]);
        assert_eq!(scale.ticks(6), (vec![1.0, 10.0, 100.0, 1000.0, 10_000.0], 0));
        let scale = Scale::new((0.4, 6.0), (0, 100)).logarithmic();
        assert_eq!(scale.ticks(5), (vec![0.5, 1.0, 2.0, 3.0, 5.0], 1));
        let scale = Scale::new((480.0, 1250.0), (0, 100)).logarithmic();
        assert_eq!(scale.ticks(6), (vec![500.0, 600.0, 800.0, 1000.0], 0));
        assert_eq!(Scale::new((-1.0, 1.0), (0, 100)).logarithmic().pixel(0.0), 50);
    }

    #[test]
    fn a_single_value_has_a_place() {
        for value in [0.0, 5.0, -3.0, 1e300] {
            let scale = Scale::new((value, value), (0, 100));
            assert_eq!(scale.pixel(value), 50, "{value}");
        }
        assert_eq!(span(std::iter::empty(), 0.1), None);
        assert_eq!(span([f64::NAN, 2.0].into_iter(), 0.1), Some((2.0, 2.0)));
    }
}
