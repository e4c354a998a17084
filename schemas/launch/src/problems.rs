//! Problems that several readers find.

pub(super) use schemas::problems::*;
use schemas::{
    diagnostic::{Edit, Fix, Safety},
    finding::Finding,
    text::{Source, Span},
};

use super::{Parsed, shell::Trouble};

pub(super) fn too_large(source: &Source) -> Parsed {
    let message =
        format!("the text has {} bytes; the limit for a launch text is {}", source.text().len(), super::LONGEST_TEXT);
    let mut finding = TOO_LARGE.at(Span::default(), message, "not read");
    finding.help = Some("give the script or command line that starts the engine, not its log".into());
    Parsed { launches: Vec::new(), findings: vec![finding] }
}

pub(super) fn too_many_words(first: Span, most: usize) -> Finding {
    let message = format!("the launch has more than {most} words; the rest is not read");
    let mut finding = TOO_LARGE.at(first, message, "not read from here on");
    finding.help = Some("give the script or command line that starts the engine, not its log".into());
    finding
}

pub(super) fn of_trouble(trouble: Trouble) -> Finding {
    match trouble {
        Trouble::Unclosed(span) => {
            UNCLOSED.at(span, "this quote or substitution is not closed", "read as plain text from here")
        }
        Trouble::UnclosedArray(span) => {
            let mut finding = UNCLOSED.at(span, "this array is not closed", "no `)` ends it");
            finding.help = Some("write `)` on the line after its last flag".into());
            finding
        }
        Trouble::BlankAfterBackslash { span, is_odd } => {
            let blank = if is_odd { "a no-break space (U+00A0)" } else { "a space" };
            let message = format!("{blank} after the backslash: the line is not continued, so the command ends here");
            let mut finding =
                BROKEN_LINE.at(span, message, "the backslash must be the last character of the line").by_lines();
            finding.help = Some("remove the space after the backslash".into());
            let edit = Edit { span: Span::new(span.start + 1, span.end), replacement: String::new() };
            let description = "remove the space after the backslash".into();
            finding.fix = Some(Fix { description, safety: Safety::Safe, edits: vec![edit] });
            finding
        }
        Trouble::CommentAfterBackslash(span) => {
            let message = "a comment after the backslash: the line is not continued, so the command ends here";
            let mut finding =
                BROKEN_LINE.at(span, message, "the backslash must be the last character of the line").by_lines();
            finding.help = Some("move the comment out of the command".into());
            finding
        }
    }
}
