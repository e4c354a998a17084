//! Values that argparse cannot read: words where a number must be.

use schemas::{
    engines::Engine,
    finding::Finding,
    flags::{self, Takes, ValueKind, is_size},
    keywords::Callee,
    text::shortened,
};

use super::{
    super::{Argument, placeholder, problems},
    bounds,
};

/// Reports values of flags that take a number and have something else. No parser refuses those of a
/// call: they fail where the engine computes with them.
pub(super) fn bad_values(arguments: &[Argument], engine: Engine, callee: Option<Callee>, findings: &mut Vec<Finding>) {
    for argument in arguments {
        findings.extend(bounds::beyond(argument, engine, callee));
        let Some(key) = argument.key else { continue };
        let accepted = flags::sglang().accepted(key.flag().name);
        let is_sized = accepted.is_some_and(|accepted| accepted.kind == ValueKind::Size);
        let (what, is_read): (_, fn(&str) -> bool) = match key.flag().takes {
            Takes::Integer if is_sized => ("…", is_size),
            Takes::Integer | Takes::Integers => ("int", is_integer),
            // Python's numbers: underscores between digits, and blanks around them.
            Takes::Number => ("float", |text| text.trim().replace('_', "").parse::<f64>().is_ok()),
            // vLLM's context may be what fits.
            Takes::Size => ("…", |text| is_size(text) || text.trim().eq_ignore_ascii_case("auto")),
            Takes::Nothing | Takes::Text | Takes::Choice(_) | Takes::Texts => continue,
        };
        // A list of flags has commas after the names of their values.
        let may_replace =
            |text: &str| placeholder::may_replace_number(&argument.flag.value, text.strip_suffix(',').unwrap_or(text));
        let is_bad = |text: &str| !is_read(text) && !may_replace(text);
        let bad = argument.values.iter().find(|value| value.value.known().is_some_and(is_bad));
        if let Some(bad) = bad {
            let shown = shortened(bad.value.written());
            let message = format!("`{}` takes a number, but got `{shown}`", argument.named(callee));
            let mut finding = problems::BAD_VALUE.at(bad.span, message, "not a number");
            let who = if engine == Engine::Vllm { "vllm" } else { "sglang" };
            if callee.is_none() {
                finding.notes.push(format!("{who}: \"invalid {what} value: '{shown}'\""));
            }
            findings.push(finding);
        }
    }
}

/// Whether Python's `int` takes a text.
fn is_integer(text: &str) -> bool {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text).as_bytes();
    let between = |pair: &[u8]| pair != b"__";
    digits.first().is_some_and(u8::is_ascii_digit)
        && digits.last().is_some_and(u8::is_ascii_digit)
        && digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'_')
        && digits.windows(2).all(between)
}
