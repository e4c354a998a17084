//! Scripts with line ends of Windows: a backslash before CR LF continues no line.

use schemas::{
    diagnostic::Severity,
    text::{Source, Span},
};

use super::{Parsed, kind::is_script_name, problems};

const CONTINUED: &str = "\\\r\n";

/// Reports the first continued line of a launch in such a script.
pub(super) fn report(source: &Source, parsed: &mut Parsed) {
    let text = source.text();
    if !text.contains(CONTINUED) || !(is_script_name(source.name()) || text.starts_with("#!")) {
        return;
    }
    let first = parsed.launches.iter().find_map(|launch| {
        let at = text.get(launch.span.range())?.find(CONTINUED)?;
        Some((launch.span.start + at, launch.doubts()))
    });
    let Some((at, doubts)) = first else { return };
    let message = "the line ends in CR LF: a shell takes the CR for a word, and the command ends here";
    let mut found = problems::BROKEN_LINE.at(Span::new(at, at + 1), message, "not followed by the end of the line");
    // Git converts line ends on checkout, so the file here may not be the one that runs.
    found.notes.push("a checkout with converted line ends is not affected".into());
    found.help = Some("convert the file to LF, such as with `dos2unix`".into());
    found.doubts.extend(doubts);
    parsed.findings.push(found.at_most(Severity::Warning).by_lines());
}
