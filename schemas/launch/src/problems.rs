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

/// Says how much of a vLLM launch is checked.
pub(super) fn vllm_unread(anchor: Span) -> Finding {
    let message = "vLLM launch: of combinations of flags, those of the speculative configuration and those refused at start are checked";
    VLLM_UNREAD.at(anchor, message, "not checked")
}

/// Reports that a format is not read.
pub(super) fn unread(source: &Source, format: &str) -> Finding {
    let mut finding = no_launch(source);
    finding.message = format!("this is {format}, which is not read");
    let help = "give the command line with which it starts the engine, or a script or manifest that contains it";
    finding.help = Some(help.into());
    finding
}

/// Reports that a text has no launch.
pub(super) fn no_launch(source: &Source) -> Finding {
    let end = source.text().find('\n').unwrap_or(source.text().len());
    let mut finding = NO_LAUNCH.at(Span::new(0, end), "no launch was found in this text", "");
    finding.help = Some(
        "give a command line such as `python3 -m sglang.launch_server …`, a script with `SGLANG_ARGS=( … )`, the flags \
         alone, a launch file in TOML, or a manifest or config file in YAML"
            .into(),
    );
    finding
}

/// Reports a server without the model that its parser requires.
pub(super) fn without_model(anchor: Span) -> Finding {
    let mut finding = WITHOUT_MODEL.at(anchor, "the server is started without a model", "no `--model-path`").by_words();
    finding.notes.push("sglang says: `error: the following arguments are required: --model-path/--model`".into());
    finding.help = Some("add `--model-path` with the model".into());
    finding
}

pub(super) fn too_many_words(first: Span, most: usize) -> Finding {
    let message = format!("the launch has more than {most} words; the rest is not read");
    let mut finding = TOO_LARGE.at(first, message, "not read from here on");
    finding.help = Some("give the script or command line that starts the engine, not its log".into());
    finding
}

pub(super) fn trouble_finding(trouble: Trouble) -> Finding {
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
