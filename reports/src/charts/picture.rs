//! Renders a drawing as a PNG, for viewers that do not support SVG.

use std::sync::{Arc, LazyLock};

use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{
        Options, Tree,
        fontdb::{Database, Source},
    },
};

use crate::error::ReportError;

/// Pixels per unit of the drawing: sharp on dense screens and in print.
const SCALE: f32 = 2.0;

/// Embedded fonts, so that a machine without fonts draws the same.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    for font in [
        include_bytes!("../../fonts/DejaVuSans.ttf").as_slice(),
        include_bytes!("../../fonts/DejaVuSans-Bold.ttf").as_slice(),
    ] {
        fonts.load_font_source(Source::Binary(Arc::new(font)));
    }
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

/// Renders a drawing in its light colours.
///
/// # Errors
/// When the drawing cannot be parsed or rendered.
pub fn png(name: &str, svg: &str) -> Result<Vec<u8>, ReportError> {
    let failed = |reason: String| ReportError::Chart { chart: name.to_owned(), reason };
    let options = Options { fontdb: FONTS.clone(), font_family: "DejaVu Sans".into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed("it has no size".into()))?;
    let mut picture =
        Pixmap::new(size.width(), size.height()).ok_or_else(|| failed("it is too large for a picture".into()))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
    picture.encode_png().map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::{
        ChartFormat,
        canvas::{self, Font},
        palette::ColorRole,
    };

    /// Checks whether a text leaves pixels in a picture.
    fn check(text: &str, expected: bool) {
        let draw = |text: &str| {
            let svg = canvas::drawing(ChartFormat::Narrow, 40, "a text", |canvas| {
                canvas.text((20, 20), text, Font::new(14, ColorRole::Ink).bold())
            });
            png("a text", &svg.expect("a drawing")).expect("a picture")
        };
        assert_eq!(draw(text) != draw(" "), expected, "{text}");
    }

    #[test]
    fn letters_are_drawn_without_the_fonts_of_the_system() {
        for text in ["a", "7", "×", "≈", "−", "–", "—", "·", "≤", "→", "…", "±", "µ", "%"] {
            check(text, true);
        }
        check("   ", false);
    }
}
