//! Rows with one interval each, and an optional second mark.

use tuner::results::selection::Interval;

use super::{
    ChartFormat, DrawnChart,
    axes::{self, AxisMark, SMALL, Scale},
    canvas::{self, Align, Area, Font, text_width},
    palette::ColorRole,
};

/// One row.
pub struct SpanRow {
    /// Its label.
    pub name: String,
    /// Value and interval; without an interval if both ends are equal.
    pub interval: Interval,
    /// Colour of dot and bar.
    pub role: ColorRole,
    /// A value to compare with, drawn as a diamond.
    pub second: Option<f64>,
    /// The figure at the end of the row.
    pub figure: String,
    /// Its tooltip.
    pub tip: String,
}

/// What all rows have in common.
pub struct SpanFrame<'a> {
    /// Text for screen readers.
    pub title: &'a str,
    /// Name of the axis.
    pub axis: &'a str,
    /// Suffix of the numbers at the axis.
    pub suffix: &'a str,
    /// A value marked by a separate line.
    pub line: Option<f64>,
    /// Legend of the marks.
    pub legend: &'a [(AxisMark, String)],
}

/// Maximum number of characters in a row's label.
const LETTERS: usize = 24;

/// Draws the rows one below the other.
pub fn draw(rows: &[SpanRow], frame: &SpanFrame<'_>, format: ChartFormat) -> DrawnChart {
    // A line alone would be an axis without anything on it.
    if rows.is_empty() {
        return Ok(None);
    }
    let values = rows.iter().flat_map(|row| [Some(row.interval.low), Some(row.interval.high), row.second]).flatten();
    let Some((low, high)) = axes::span(values.chain(frame.line), 0.06) else { return Ok(None) };
    let row_height = 22;
    let letters = rows.iter().map(|row| row.name.chars().count().min(LETTERS)).max().unwrap_or(0);
    let left = text_width(&"0".repeat(letters), SMALL).max(60) + 12;
    let right = format.width() - 62;
    let top = axes::legend_height(format.width(), frame.legend) + 8;
    let area = Area { left, top, right, bottom: top + row_height * rows.len() as i32 };
    let scale = Scale::new((low, high), (left, right));
    let drawn = canvas::drawing(format, area.bottom + 44, frame.title, |canvas| {
        axes::legend(canvas, (0, 0), frame.legend)?;
        axes::horizontal(canvas, area, scale, frame.axis, frame.suffix)?;
        if let Some(line) = frame.line {
            canvas.line((scale.pixel(line), area.top), (scale.pixel(line), area.bottom), ColorRole::Muted, 2)?;
        }
        for (place, row) in rows.iter().enumerate() {
            let y = area.top + row_height * place as i32 + row_height / 2;
            let font = Font::new(SMALL, ColorRole::Ink);
            canvas.text((left - 10, y), &shortened(&row.name), font.align(Align::Right))?;
            let (low, high) = (scale.pixel(row.interval.low), scale.pixel(row.interval.high));
            if high > low {
                canvas.line((low, y), (high, y), row.role, 2)?;
                for end in [low, high] {
                    canvas.line((end, y - 4), (end, y + 4), row.role, 2)?;
                }
            }
            canvas.dot((scale.pixel(row.interval.median), y), 4, row.role)?;
            if let Some(second) = row.second {
                canvas.diamond((scale.pixel(second), y), 5, ColorRole::Default)?;
            }
            canvas.text((right + 10, y), &row.figure, font.bold())?;
            let row_area = Area { left: 0, top: y - row_height / 2, right: format.width(), bottom: y + row_height / 2 };
            canvas.tip(row_area, &row.tip);
        }
        Ok(())
    })?;
    Ok(Some(drawn))
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= LETTERS {
        return name.to_owned();
    }
    name.chars().take(LETTERS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_row_there_is_no_axis() {
        let frame = SpanFrame { title: "change", axis: "change", suffix: "%", line: Some(0.0), legend: &[] };
        assert!(draw(&[], &frame, ChartFormat::Wide).expect("nothing fails").is_none());
    }
}
