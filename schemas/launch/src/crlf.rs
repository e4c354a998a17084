//! Scripts with line ends of Windows: a backslash before CR LF continues no line, and the CR at the
//! end of a command is a part of its last word.

use schemas::{
    diagnostic::Severity,
    text::{Source, Span},
};

use super::{Parsed, kind::is_script_name, problems};

const CONTINUED: &str = "\\\r\n";

/// Reports the first continued line of a launch in such a script.
pub(super) fn report(source: &Source, parsed: &mut Parsed) {
    let text = source.text();
    if !text.contains("\r\n") || !(is_script_name(source.name()) || text.starts_with("#!")) {
        return;
    }
    let first = parsed.launches.iter().find_map(|launch| {
        let at = text.get(launch.span.range())?.find(CONTINUED)?;
        Some((launch.span.start + at, launch.doubts()))
    });
    // A number has the CR around it, which Python's number parsing accepts.
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let last = || {
        parsed.launches.iter().find_map(|launch| {
            let word = text.get(launch.span.range())?.split_ascii_whitespace().next_back()?;
            let ends = text.get(launch.span.end..)?.starts_with("\r\n") && !is_number(word);
            ends.then(|| (launch.span.end - word.len(), launch.doubts()))
        })
    };
    let message = match first {
        Some(_) => "the line ends in CR LF: a shell takes the CR for a word, and the command ends here",
        None => "the line ends in CR LF: a shell takes the CR for a part of the last word",
    };
    let Some((at, doubts)) = first.or_else(last) else { return };
    let mut found = problems::BROKEN_LINE.at(Span::new(at, at + 1), message, "not followed by the end of the line");
    // Git converts line ends on checkout, so the file here may not be the one that runs.
    found.notes.push("a checkout with converted line ends is not affected".into());
    found.help = Some("convert the file to LF, such as with `dos2unix`".into());
    found.doubts.extend(doubts);
    parsed.findings.push(found.at_most(Severity::Warning).by_lines());
}
