//! Fixes that depend on values from outside the text.

use launch::{Launch, Setting};
use schemas::{
    diagnostic::{Diagnostic, Edit, Safety},
    text::{Source, Span},
};

/// A fix that writes a value is not safe where that value, or one that belongs to it, comes from a
/// variable: it may be another one when the text is run.
pub(super) fn doubt_fix(source: &Source, launch: &Launch, found: &mut Diagnostic) {
    let is_expanded = |span: Span| source.slice(span).contains('$');
    let settings = || launch.settings.iter().filter(|(key, _)| key.flag().name.starts_with("speculative"));
    let varies = settings().any(|(_, setting)| setting.values.iter().any(|value| is_expanded(value.span)));
    let is_of_shape = |edit: &Edit| {
        let overlaps = |span: Span| edit.span.start < span.end && span.start < edit.span.end;
        let replaces = settings().filter_map(|(_, setting)| setting.value).any(overlaps);
        replaces || edit.replacement.contains("--speculative")
    };
    let misses = |edit: &Edit| launch.settings.values().any(|setting| misses_value(source, setting, edit.span));
    let is_wrong = |edit: &Edit| splits_escape(source, edit.span) || misses(edit);
    found.fix = found.fix.take().filter(|fix| !fix.edits.iter().any(is_wrong));
    let Some(fix) = &mut found.fix else { return };
    let depends = |edit: &Edit| is_expanded(edit.span) || (varies && is_of_shape(edit));
    if fix.edits.iter().any(depends) {
        fix.safety = Safety::Unsafe;
    }
    let of_launch = |edit: &Edit| launch.span.start <= edit.span.start && edit.span.end <= launch.span.end;
    if let Some(word) = launch.open_word()
        && fix.edits.iter().any(|edit| is_of_shape(edit) || of_launch(edit))
    {
        fix.safety = Safety::Unsafe;
        found.notes.push(format!("`{}` may give flags that change this", word.flag.value));
    }
}

/// Whether a span counts as the place of a setting's value, but the text there is another one: a
/// part of a text that was not read letter by letter has the place of the whole.
fn misses_value(source: &Source, setting: &Setting, span: Span) -> bool {
    let text = source.slice(span).trim_matches(['"', '\'']);
    let ([value], Some(place)) = (&setting.values[..], setting.value) else { return false };
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let is_read = !text.contains(['$', '%', '{']);
    place == span && is_read && value.value.known().is_some_and(|value| is_plain(value) && value != text)
}

/// Whether the first letter of a span is escaped by the backslash before it, as that of a variable
/// in a here-document is.
fn splits_escape(source: &Source, span: Span) -> bool {
    let before = source.slice(Span::new(source.line_start(span.start), span.start));
    let backslashes = before.len() - before.trim_end_matches('\\').len();
    backslashes % 2 == 1 && source.slice(span).starts_with(['$', '`', '"', '\''])
}

#[cfg(test)]
mod tests {
    use schemas::{diagnostic::Safety, text::Source};

    use crate::report::{ReportOptions, report_text};

    const CHAIN: &str = "sglang serve --model-path m --speculative-algorithm EAGLE --speculative-draft-model-path d \
        --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens";

    fn safety(text: &str) -> Option<Safety> {
        let found = report_text(&Source::new("run.sh", text), &ReportOptions::default()).findings;
        let found = found.into_iter().find(|one| one.code == "SD023").expect(text);
        let notes_word = found.notes.iter().any(|note| note.contains("may give flags"));
        assert_eq!(notes_word, text.contains(" $EXTRA") || text.contains("$@"), "{text}");
        found.fix.map(|fix| fix.safety)
    }

    #[test]
    fn a_fix_next_to_a_word_that_may_hold_flags_is_not_safe() {
        assert_eq!(safety(&format!("{CHAIN} 8\n")), Some(Safety::Safe));
        assert_eq!(safety(&format!("{CHAIN} 8 $EXTRA\n")), Some(Safety::Unsafe));
        assert_eq!(safety(&format!("{CHAIN} 8 \"$@\"\n")), Some(Safety::Unsafe));
    }

    #[test]
    fn an_escaped_variable_of_a_here_document_is_not_edited() {
        let script = |number: &str| format!("cat > run.sh <<E\nN=8\n{CHAIN} {number}\nE\n");
        assert_eq!(safety(&script("\\${N}")), None);
        assert_eq!(safety(&script("8")), Some(Safety::Safe));
    }

    /// A unit after its safe fixes.
    fn fixed(unit: &str) -> String {
        let source = Source::new("a.service", unit);
        let report = report_text(&source, &ReportOptions::default());
        assert!(report.findings.iter().any(|one| one.code == "SD023"), "{unit}");
        let mut edits: Vec<_> = report.findings.into_iter().filter_map(|one| one.fix).collect();
        edits.retain(|fix| fix.safety == Safety::Safe);
        let mut text = unit.to_owned();
        let mut edits: Vec<_> = edits.into_iter().flat_map(|fix| fix.edits).collect();
        edits.sort_by_key(|edit| std::cmp::Reverse(edit.span.start));
        edits.iter().for_each(|edit| text.replace_range(edit.span.range(), &edit.replacement));
        text
    }

    #[test]
    fn a_fix_in_a_variable_of_a_unit_replaces_the_number_or_nothing() {
        let unit = |variable: &str| {
            format!(
                "[Service]\nEnvironment={variable}\nExecStart=/usr/bin/python3 -m sglang.launch_server --model-path m $SPEC\n"
            )
        };
        let flags = CHAIN.replace("sglang serve --model-path m ", "");
        let double = unit(&format!("\"SPEC={flags} 8\""));
        assert_eq!(fixed(&double), double.replace(" 8\"", " 4\""));
        let single = unit(&format!("'SPEC={flags} 8' A=b"));
        assert_eq!(fixed(&single), single.replace(" 8'", " 4'"));
        // A value with quotes within has no places for its parts.
        let pieces = unit(&format!("\"SPEC={flags}\"\" 8\""));
        assert_eq!(fixed(&pieces), pieces);
    }
}
