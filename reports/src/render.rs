//! Fills in the page templates.

use minijinja::{AutoEscape, Environment, context, value::Value};

use crate::{charts::palette, definitions, error::ReportError, page::Page};

const STYLE: &str = include_str!("templates/style.css");
const SCRIPT: &str = include_str!("templates/script.js");

/// The self-contained web page: style, script, charts and the raw rows are in it, and it loads nothing.
///
/// # Errors
/// When the template cannot be filled in.
pub fn html(page: &Page, data: &str) -> Result<String, ReportError> {
    let style = format!("{}{STYLE}", palette::page_style());
    render("report.html", page, context! { style, script => SCRIPT, data => inert(data) })
}

/// The Markdown page.
///
/// # Errors
/// When the template cannot be filled in.
pub fn markdown(page: &Page) -> Result<String, ReportError> {
    render("report.md", page, context! {})
}

fn render(name: &'static str, page: &Page, more: Value) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(
        |name| {
            if name.ends_with(".html") { AutoEscape::Html } else { AutoEscape::None }
        },
    );
    environment.add_filter("md", markdown_text);
    environment.add_filter("fenced", fenced);
    let fill = || {
        environment.add_template("report.html", include_str!("templates/report.html"))?;
        environment.add_template("report.md", include_str!("templates/report.md"))?;
        environment.get_template(name)?.render(context! { page, accept_length => definitions::ACCEPT_LENGTH, ..more })
    };
    fill().map_err(|source| ReportError::Page { page: name, source })
}

/// JSON that cannot end the script element that holds it.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Text in which nothing is markup, on one line, so that it may stand in a table.
fn markdown_text(text: String) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' | '\t' => safe.push(' '),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '~' | '#' => safe.extend(['\\', character]),
            control if control.is_control() => {}
            plain => safe.push(plain),
        }
    }
    safe
}

/// Text in a code block, behind a fence that the text does not hold.
fn fenced(text: String) -> String {
    let mut fence = String::from("```");
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}sh\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_is_text() {
        assert_eq!(markdown_text("a|b\n<script>".into()), "a\\|b &lt;script&gt;");
        assert_eq!(fenced("```\nx".into()), "````sh\n```\nx\n````");
        assert_eq!(inert("</script>"), "\\u003c/script\\u003e");
    }
}
