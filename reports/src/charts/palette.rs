//! Colours by role. A drawing uses roles, and the page's theme defines their colours.
//!
//! The drawing library writes fixed colours. So each role has a unique light colour, by which it is
//! recognised in the drawing and given a class. Viewers without style sheets show the light
//! colours. Hues follow Okabe and Ito (distinguishable under the common colour-vision
//! deficiencies), and no two roles differ in hue alone.

use std::fmt::Write;

use plotters::style::RGBColor;

/// The role of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorRole {
    /// Text and main lines.
    Ink,
    /// Secondary text and axes.
    Muted,
    /// Grid lines.
    Grid,
    /// The background of a chart.
    Surface,
    /// The chosen configuration.
    Chosen,
    /// The engine's default.
    Default,
    /// No speculation.
    Baseline,
    /// Any other configuration.
    Candidate,
    /// The draft part of a round.
    Draft,
    /// The verify part.
    Verify,
    /// The extend part.
    Extend,
    /// The rest of a round.
    Rest,
    /// Text on the draft part, which is light in both themes.
    DraftText,
    /// A load, by its index among the measured loads.
    Load(usize),
    /// A cell of the heat map: −4 (far slower) to 4 (far faster).
    Heat(i32),
    /// Text on a cell of the heat map.
    HeatText(i32),
}

/// Number of loads with a distinct colour; the others share the last.
pub const LOAD_COLOURS: usize = 8;

/// Steps of the heat map on either side of its middle.
pub const HEAT_STEPS: i32 = 4;

const TABLE: &[(ColorRole, &str, u32, u32)] = &[
    (ColorRole::Ink, "ink", 0x1b1f24, 0xe8ebef),
    (ColorRole::Muted, "muted", 0x57606a, 0x9aa4b0),
    (ColorRole::Grid, "grid", 0xe2e6ea, 0x2d343c),
    (ColorRole::Surface, "surface", 0xffffff, 0x161b22),
    (ColorRole::Chosen, "chosen", 0x0067a8, 0x58b4f0),
    (ColorRole::Default, "default", 0xc75300, 0xf59b4c),
    (ColorRole::Baseline, "baseline", 0x3f4750, 0xc9d1d9),
    (ColorRole::Candidate, "candidate", 0x87919c, 0x7d8894),
    (ColorRole::Draft, "draft", 0xe69f00, 0xe6ab2e),
    (ColorRole::Verify, "verify", 0x0072b2, 0x3d95d4),
    (ColorRole::Extend, "extend", 0x009e73, 0x2fb98d),
    (ColorRole::Rest, "rest", 0xb9c1c9, 0x5b6570),
    (ColorRole::DraftText, "drafttext", 0x1d1303, 0x1f1504),
    (ColorRole::Load(0), "load0", 0x46135f, 0xc7a2ff),
    (ColorRole::Load(1), "load1", 0x3f4d8f, 0x93a7ff),
    (ColorRole::Load(2), "load2", 0x2a7090, 0x62bdf2),
    (ColorRole::Load(3), "load3", 0x1f928b, 0x42d0bd),
    (ColorRole::Load(4), "load4", 0x3ca55c, 0x74dc86),
    (ColorRole::Load(5), "load5", 0x7ea32d, 0xb3dc52),
    (ColorRole::Load(6), "load6", 0xb08e12, 0xe9d24c),
    (ColorRole::Load(7), "load7", 0xc06a14, 0xffb05c),
    (ColorRole::Heat(-4), "heat-4", 0xb24a00, 0xd9670f),
    (ColorRole::Heat(-3), "heat-3", 0xd97a35, 0xa9521a),
    (ColorRole::Heat(-2), "heat-2", 0xf0ac78, 0x7d421f),
    (ColorRole::Heat(-1), "heat-1", 0xf9dcc3, 0x533323),
    (ColorRole::Heat(0), "heat0", 0xf1f2f4, 0x30363e),
    (ColorRole::Heat(1), "heat1", 0xcfe3f2, 0x1f3f58),
    (ColorRole::Heat(2), "heat2", 0x94c3e3, 0x1d5a85),
    (ColorRole::Heat(3), "heat3", 0x4593c8, 0x2676ab),
    (ColorRole::Heat(4), "heat4", 0x005b99, 0x4da9e8),
    // Not quite white: a light colour identifies its role, so none occurs twice.
    (ColorRole::HeatText(-4), "heattext-4", 0xfffefe, 0x0d0a07),
    (ColorRole::HeatText(-3), "heattext-3", 0x140a02, 0xfffaf5),
    (ColorRole::HeatText(-2), "heattext-2", 0x1f1409, 0xfbeee4),
    (ColorRole::HeatText(-1), "heattext-1", 0x241a12, 0xf5e6da),
    (ColorRole::HeatText(0), "heattext0", 0x1c2025, 0xe9ecef),
    (ColorRole::HeatText(1), "heattext1", 0x101d28, 0xe0edf7),
    (ColorRole::HeatText(2), "heattext2", 0x0b1822, 0xedf6fd),
    (ColorRole::HeatText(3), "heattext3", 0x050d13, 0xfafdff),
    (ColorRole::HeatText(4), "heattext4", 0xfdfeff, 0x050c12),
];

impl ColorRole {
    /// The colour of the load at this index out of `count`: as far from the others as the palette
    /// allows.
    pub fn load(place: usize, count: usize) -> Self {
        let last = LOAD_COLOURS - 1;
        Self::Load(if count <= 1 { 0 } else { (place * last / (count - 1)).min(last) })
    }

    /// The light colour, for the drawing library.
    pub fn colour(self) -> RGBColor {
        let light = TABLE.iter().find(|row| row.0 == self).map_or(0, |row| row.2);
        RGBColor((light >> 16) as u8, (light >> 8) as u8, light as u8)
    }
}

/// The CSS rules of a page: one variable per colour and theme, and one class per role and use.
pub fn page_style() -> String {
    let variables = |colour: fn(&(ColorRole, &str, u32, u32)) -> u32| {
        TABLE.iter().fold(String::new(), |mut text, row| {
            let _ = write!(text, "--{}:#{:06x};", row.1, colour(row));
            text
        })
    };
    let (light, dark) = (variables(|row| row.2), variables(|row| row.3));
    // Dark on screens only, since paper is white.
    let mut style = format!(
        ":root{{color-scheme:light;{light}}}\n\
         @media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n\
         @media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n"
    );
    for (_, class, ..) in TABLE {
        let _ = writeln!(style, ".f-{class}{{fill:var(--{class})}}.s-{class}{{stroke:var(--{class})}}");
    }
    style
}

/// The CSS rules of a standalone drawing: the other theme's colours.
pub fn file_style() -> String {
    let rules = TABLE.iter().fold(String::new(), |mut text, (_, class, _, dark)| {
        let _ = write!(text, ".f-{class}{{fill:#{dark:06x}}}.s-{class}{{stroke:#{dark:06x}}}");
        text
    });
    format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>")
}

/// Gives every element of a drawing the classes of its colours.
pub fn with_classes(svg: &str) -> String {
    let mut themed = String::with_capacity(svg.len() + svg.len() / 4);
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        let end = rest[start..].find('>').map_or(rest.len(), |end| start + end);
        let tag = &rest[start..end];
        let name = tag.find(char::is_whitespace).unwrap_or(tag.len());
        themed.push_str(&rest[..start + name]);
        let classes: Vec<String> = ["fill", "stroke"].iter().filter_map(|use_| class(tag, use_)).collect();
        if !classes.is_empty() {
            let _ = write!(themed, " class=\"{}\"", classes.join(" "));
        }
        themed.push_str(&tag[name..]);
        rest = &rest[end..];
    }
    themed.push_str(rest);
    themed
}

fn class(tag: &str, attribute: &str) -> Option<String> {
    let value = tag.split_once(&format!(" {attribute}=\"#"))?.1.get(..6)?;
    let colour = u32::from_str_radix(value, 16).ok()?;
    let row = TABLE.iter().find(|row| row.2 == colour)?;
    Some(format!("{}-{}", &attribute[..1], row.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_a_colour_of_its_own() {
        for (place, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..place].iter().all(|other| other.2 != row.2), "{} shares its colour", row.1);
        }
        for count in 0..20 {
            assert!((0..=count).all(|place| ColorRole::load(place, count).colour() != RGBColor(0, 0, 0)));
        }
    }

    #[test]
    fn elements_get_the_classes_of_their_colours() {
        let check = |svg: &str, expected: &str| assert_eq!(with_classes(svg), expected);
        check(r##"<rect fill="#0067A8"/>"##, r##"<rect class="f-chosen" fill="#0067A8"/>"##);
        check(r##"<a fill="none" stroke="#E2E6EA"/>"##, r##"<a class="s-grid" fill="none" stroke="#E2E6EA"/>"##);
        check(r##"<a fill="#123456">1 &lt; 2</a>"##, r##"<a fill="#123456">1 &lt; 2</a>"##);
    }

    #[test]
    fn text_on_the_heat_map_can_be_read() {
        let luminance = |colour: u32| {
            let channel = |shift: u32| {
                let value = f64::from((colour >> shift) & 0xff) / 255.0;
                if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * channel(16) + 0.7152 * channel(8) + 0.0722 * channel(0)
        };
        let contrast = |first: u32, second: u32| {
            let (first, second) = (luminance(first), luminance(second));
            (first.max(second) + 0.05) / (first.min(second) + 0.05)
        };
        let row = |role: ColorRole| TABLE.iter().find(|row| row.0 == role).expect("in the table");
        for step in -HEAT_STEPS..=HEAT_STEPS {
            let (cell, text) = (row(ColorRole::Heat(step)), row(ColorRole::HeatText(step)));
            assert!(contrast(cell.2, text.2) >= 4.5, "light {step}: {}", contrast(cell.2, text.2));
            assert!(contrast(cell.3, text.3) >= 4.5, "dark {step}: {}", contrast(cell.3, text.3));
        }
        for role in [ColorRole::Ink, ColorRole::Muted, ColorRole::Chosen, ColorRole::Default, ColorRole::Baseline] {
            let (row, ground) = (row(role), row(ColorRole::Surface));
            assert!(contrast(row.2, ground.2) >= 4.5, "light {}", row.1);
            assert!(contrast(row.3, ground.3) >= 4.5, "dark {}", row.1);
        }
    }
}
