//! Renders the page templates.

use minijinja::{AutoEscape, Environment, context, value::Value};

use serde::Serialize;

use crate::{charts::palette, definitions, error::ReportError};

const STYLE: &str = include_str!("templates/style.css");
const SCRIPT: &str = include_str!("templates/script.js");

/// The templates of a page in both formats: the common macros, followed by the page's own template.
pub struct Template {
    html: (&'static str, &'static str),
    markdown: (&'static str, &'static str),
}

/// Templates of the sweep report.
pub const REPORT: Template = Template {
    html: ("report.html", concat!(include_str!("templates/macros.html"), include_str!("templates/report.html"))),
    markdown: ("report.md", concat!(include_str!("templates/macros.md"), include_str!("templates/report.md"))),
};

/// Templates of the training report.
pub const TRAINING: Template = Template {
    html: ("training.html", concat!(include_str!("templates/macros.html"), include_str!("templates/training.html"))),
    markdown: ("training.md", concat!(include_str!("templates/macros.md"), include_str!("templates/training.md"))),
};

/// Templates of the report of running servers.
pub const RUNNING: Template = Template {
    html: ("running.html", concat!(include_str!("templates/macros.html"), include_str!("templates/running.html"))),
    markdown: ("running.md", concat!(include_str!("templates/macros.md"), include_str!("templates/running.md"))),
};

/// The self-contained web page: it contains style, script, charts and the raw rows, and loads
/// nothing.
///
/// # Errors
/// When the template cannot be rendered.
pub fn html(template: &Template, page: &impl Serialize, data: &str) -> Result<String, ReportError> {
    let style = format!("{}{STYLE}", palette::page_style());
    render(template.html, page, context! { style, script => SCRIPT, data => inert(data) })
}

/// The Markdown page.
///
/// # Errors
/// When the template cannot be rendered.
pub fn markdown(template: &Template, page: &impl Serialize) -> Result<String, ReportError> {
    render(template.markdown, page, context! {})
}

fn render(
    (name, text): (&'static str, &'static str),
    page: &impl Serialize,
    more: Value,
) -> Result<String, ReportError> {
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
    environment.add_filter("sentence", sentence);
    let fill = || {
        environment.add_template(name, text)?;
        environment.get_template(name)?.render(context! { page, accept_length => definitions::ACCEPT_LENGTH, ..more })
    };
    fill().map_err(|source| ReportError::Page { page: name, source })
}

/// JSON without characters that could end the enclosing script element.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Text on one line with all markup escaped, for use in a table.
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

/// A phrase with a capital letter and a full stop.
fn sentence(phrase: String) -> String {
    let mut characters = phrase.trim_end_matches('.').chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).chain(['.']).collect()
}

/// Text in a code block of a language (`sh` by default), with a fence that does not occur in the
/// text.
fn fenced(text: String, language: Option<String>) -> String {
    let mut fence = String::from("```");
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}{}\n{}\n{fence}", language.as_deref().unwrap_or("sh"), text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_is_text() {
        assert_eq!(markdown_text("a|b\n<script>".into()), "a\\|b &lt;script&gt;");
        assert_eq!(fenced("```\nx".into(), None), "````sh\n```\nx\n````");
        assert_eq!(sentence("ärger: no word".into()), "Ärger: no word.");
        assert_eq!(inert("</script>"), "\\u003c/script\\u003e");
    }
}
