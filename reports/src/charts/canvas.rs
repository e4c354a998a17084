//! A drawing in pixels whose colours are roles. The SVG backend has no fonts, so text widths are
//! estimated.

use std::{error::Error, fmt::Write};

use plotters::{
    backend::{DrawingBackend, SVGBackend},
    style::{
        Color, FontFamily, FontStyle, FontTransform, IntoFont, ShapeStyle, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    ChartFormat,
    palette::{self, ColorRole},
};

/// The drawing library's error.
pub type DrawError = Box<dyn Error + Send + Sync>;

/// Average advance of a font in em. A generous estimate, since labels collide if it is too small.
const ADVANCE: f64 = 0.6;

/// The library writes font sizes divided by this.
const FONT_SCALE: f64 = 1.24;

/// Alignment of a text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The text starts at its point.
    Left,
    /// The text is centred on its point.
    Middle,
    /// The text ends at its point.
    Right,
}

/// An upright rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Left edge.
    pub left: i32,
    /// Upper edge.
    pub top: i32,
    /// Right edge.
    pub right: i32,
    /// Lower edge.
    pub bottom: i32,
}

/// Style of a text.
#[derive(Clone, Copy, Debug)]
pub struct Font {
    /// Size in pixels.
    pub size: i32,
    /// Its colour.
    pub role: ColorRole,
    /// Whether it is bold.
    pub bold: bool,
    /// Its alignment.
    pub align: Align,
}

/// A drawing in progress.
pub struct Canvas<'a> {
    backend: SVGBackend<'a>,
    tips: String,
    /// Format of the drawing.
    pub format: ChartFormat,
}

/// Draws something as wide as the format and `height` pixels high; `title` is the text for screen
/// readers.
pub fn drawing(
    format: ChartFormat,
    height: i32,
    title: &str,
    draw: impl FnOnce(&mut Canvas<'_>) -> Result<(), DrawError>,
) -> Result<String, DrawError> {
    let mut svg = String::new();
    let tips = {
        let backend = SVGBackend::with_string(&mut svg, (format.width() as u32, height.max(1) as u32));
        let mut canvas = Canvas { backend, tips: String::new(), format };
        canvas.rectangle(Area { left: 0, top: 0, right: format.width(), bottom: height }, ColorRole::Surface)?;
        draw(&mut canvas)?;
        canvas.backend.present()?;
        canvas.tips
    };
    // Colours become classes, so that one chart serves the light and the dark page.
    let svg = palette::with_classes(&svg);
    // The library writes no attributes of its own for readers of screens.
    let head = format!("<svg role=\"img\" aria-label=\"{}\"", escaped(title));
    let body = svg.strip_prefix("<svg").unwrap_or(&svg);
    // Tips go last: what is drawn last receives the pointer.
    let body = body.trim_end().strip_suffix("</svg>").unwrap_or(body);
    Ok(format!("{head}{body}{tips}</svg>\n"))
}

impl Canvas<'_> {
    /// Draws a text; its point is at half its height.
    pub fn text(&mut self, at: (i32, i32), text: &str, font: Font) -> Result<(), DrawError> {
        let style = font.style();
        Ok(self.backend.draw_text(&clean(text), &style, at)?)
    }

    /// Draws a text that reads from bottom to top.
    pub fn upright_text(&mut self, at: (i32, i32), text: &str, font: Font) -> Result<(), DrawError> {
        let style = font.style().transform(FontTransform::Rotate270);
        Ok(self.backend.draw_text(&clean(text), &style, at)?)
    }

    /// Draws a straight line.
    pub fn line(&mut self, from: (i32, i32), to: (i32, i32), role: ColorRole, width: u32) -> Result<(), DrawError> {
        Ok(self.backend.draw_line(from, to, &stroke(role, width))?)
    }

    /// Draws a half-transparent straight line.
    pub fn faint_line(&mut self, from: (i32, i32), to: (i32, i32), role: ColorRole) -> Result<(), DrawError> {
        Ok(self.backend.draw_line(from, to, &ShapeStyle::from(role.colour().mix(0.5)).stroke_width(1))?)
    }

    /// Draws a line through several points.
    pub fn path(&mut self, points: &[(i32, i32)], role: ColorRole, width: u32) -> Result<(), DrawError> {
        Ok(self.backend.draw_path(points.iter().copied(), &stroke(role, width))?)
    }

    /// Draws a filled rectangle.
    pub fn rectangle(&mut self, area: Area, role: ColorRole) -> Result<(), DrawError> {
        Ok(self.backend.draw_rect((area.left, area.top), (area.right, area.bottom), &stroke(role, 1), true)?)
    }

    /// Draws the outline of a rectangle.
    pub fn frame(&mut self, area: Area, role: ColorRole, width: u32) -> Result<(), DrawError> {
        let Area { left, top, right, bottom } = area;
        self.path(&[(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], role, width)
    }

    /// Draws a dashed outline of a rectangle, for an empty cell.
    pub fn dashed_frame(&mut self, area: Area, role: ColorRole) -> Result<(), DrawError> {
        let dashes = |from: i32, to: i32| (from..to).step_by(7).map(move |start| (start, (start + 4).min(to)));
        for (start, end) in dashes(area.left, area.right) {
            self.line((start, area.top), (end, area.top), role, 1)?;
            self.line((start, area.bottom), (end, area.bottom), role, 1)?;
        }
        for (start, end) in dashes(area.top, area.bottom) {
            self.line((area.left, start), (area.left, end), role, 1)?;
            self.line((area.right, start), (area.right, end), role, 1)?;
        }
        Ok(())
    }

    /// Draws a filled circle.
    pub fn dot(&mut self, at: (i32, i32), radius: u32, role: ColorRole) -> Result<(), DrawError> {
        Ok(self.backend.draw_circle(at, radius, &stroke(role, 1), true)?)
    }

    /// Draws the outline of a circle.
    pub fn ring(&mut self, at: (i32, i32), radius: u32, role: ColorRole) -> Result<(), DrawError> {
        Ok(self.backend.draw_circle(at, radius, &stroke(role, 2), false)?)
    }

    /// Draws a filled square standing on a corner.
    pub fn diamond(&mut self, (x, y): (i32, i32), radius: i32, role: ColorRole) -> Result<(), DrawError> {
        let corners = [(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)];
        Ok(self.backend.fill_polygon(corners, &stroke(role, 1))?)
    }

    /// Draws a hollow square.
    pub fn square(&mut self, at: (i32, i32), radius: i32, role: ColorRole) -> Result<(), DrawError> {
        let area = Area::around(at, radius);
        self.rectangle(area, ColorRole::Surface)?;
        self.frame(area, role, 2)
    }

    /// Adds a tooltip to an area.
    pub fn tip(&mut self, area: Area, text: &str) {
        let _ = writeln!(
            self.tips,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" \
             pointer-events=\"all\"><title>{}</title></rect>",
            area.left,
            area.top,
            area.width().max(1),
            area.height().max(1),
            escaped(text)
        );
    }
}

impl Area {
    /// The square around a point, with half of its side as radius.
    pub fn around((x, y): (i32, i32), radius: i32) -> Self {
        Self { left: x - radius, top: y - radius, right: x + radius, bottom: y + radius }
    }

    /// The estimated area of a text.
    pub fn around_text((x, y): (i32, i32), text: &str, font: Font) -> Self {
        let width = text_width(text, font.size);
        let left = match font.align {
            Align::Left => x,
            Align::Middle => x - width / 2,
            Align::Right => x - width,
        };
        Self { left, top: y - font.size * 5 / 8, right: left + width, bottom: y + font.size * 5 / 8 }
    }

    /// Width in pixels.
    pub fn width(self) -> i32 {
        self.right - self.left
    }

    /// Height in pixels.
    pub fn height(self) -> i32 {
        self.bottom - self.top
    }

    /// Whether two areas share a point.
    pub fn meets(self, other: Self) -> bool {
        self.left <= other.right && other.left <= self.right && self.top <= other.bottom && other.top <= self.bottom
    }

    /// Whether all of the other area is in this one.
    pub fn holds(self, other: Self) -> bool {
        self.left <= other.left && other.right <= self.right && self.top <= other.top && other.bottom <= self.bottom
    }
}

impl Font {
    /// Regular text of this size.
    pub fn new(size: i32, role: ColorRole) -> Self {
        Self { size, role, bold: false, align: Align::Left }
    }

    /// The same in bold.
    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    /// The same with another alignment.
    pub fn align(self, align: Align) -> Self {
        Self { align, ..self }
    }

    fn style(self) -> TextStyle<'static> {
        let family = FontFamily::Name("system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif");
        let weight = if self.bold { FontStyle::Bold } else { FontStyle::Normal };
        let horizontal = match self.align {
            Align::Left => HPos::Left,
            Align::Middle => HPos::Center,
            Align::Right => HPos::Right,
        };
        let font = (family, f64::from(self.size) * FONT_SCALE, weight).into_font();
        let colour = self.role.colour().to_backend_color();
        TextStyle { font, color: colour, pos: Pos::new(horizontal, VPos::Center) }
    }
}

/// The estimated width of a text in pixels.
pub fn text_width(text: &str, size: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * ADVANCE).ceil() as i32
}

fn stroke(role: ColorRole, width: u32) -> ShapeStyle {
    ShapeStyle::from(role.colour()).stroke_width(width)
}

fn escaped(text: &str) -> String {
    clean(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Removes the characters that XML cannot represent.
fn clean(text: &str) -> String {
    let written = |character: &char| match character {
        '\n' | '\t' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        other => !other.is_control(),
    };
    text.chars().filter(written).collect()
}
