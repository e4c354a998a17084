//! The linter's work on any text is bounded, and a finding says so if something is omitted because
//! of it.

use launch::{Options, Parsed, parse};
use schemas::{
    diagnostic::{Diagnostic, Findings, Format, render, tidy},
    finding::settle_all,
    text::Source,
};

fn read(text: &str) -> (Source, Parsed) {
    let source = Source::new("x.sh", text);
    let parsed = parse(&source, &Options::default());
    (source, parsed)
}

fn found(text: &str) -> (Source, Vec<Diagnostic>) {
    let (source, parsed) = read(text);
    let mut found = settle_all(parsed.findings);
    tidy(&mut found);
    (source, found)
}

#[test]
fn of_many_findings_with_one_code_the_first_are_listed_and_the_rest_counted() {
    let (_, found) = found(&format!("sglang serve --model-path a{}", " --no-such-flag".repeat(1000)));
    assert_eq!(found.len(), 64);
    let last = found.last().map(|finding| finding.notes.join(" ")).unwrap_or_default();
    assert!(last.contains("936 more findings of LT09"), "{last}");
}

#[test]
fn of_words_that_belong_to_no_flag_the_first_is_stated() {
    let (_, found) = found("sglang serve --model-path a b c d --tp 2 e");
    let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["LT08", "LT08"]);
}

#[test]
fn a_launch_of_very_many_words_is_cut_and_says_so() {
    let (_, found) = found(&format!("sglang serve --model-path a --cuda-graph-bs{}", " 1".repeat(10_000)));
    assert!(found.iter().any(|finding| finding.code == "LT01"), "{found:?}");
}

#[test]
fn a_place_in_a_very_long_line_is_stated_without_the_line() {
    let (source, found) = found(&format!("sglang serve --model-path {} --no-such-flag", "a".repeat(1 << 20)));
    let text = render(&[Findings { source: &source, diagnostics: &found }], Format::Full, false);
    assert!(text.len() < 1000 && text.contains("x.sh:1:1048604"), "{}", text.chars().take(2000).collect::<String>());
}

/// Each use of a variable copies its value; the memory of all copies is bounded.
#[test]
fn a_long_variable_that_is_used_often_does_not_multiply() {
    for (variable, used) in [("A=\"LONG b\"", " $A"), ("A=( LONG )", " ${A[@]}")] {
        let variable = variable.replace("LONG", &"x".repeat(1 << 18));
        let (_, parsed) = read(&format!("{variable}\nsglang serve --model-path a --x{}", used.repeat(4000)));
        let words = parsed.launches.iter().flat_map(|launch| &launch.arguments).flat_map(|argument| &argument.values);
        let bytes: usize = words.map(|word| word.value.written().len()).sum();
        assert!(bytes <= 1 << 27, "{variable:.20} gives {bytes} bytes");
    }
}

/// A command is checked on each path through a script, up to a small number of paths.
#[test]
fn many_branches_do_not_make_many_launches_of_one_command() {
    let branches: String = (0..1000).map(|tp| format!("if a; then A+=(--tp {tp}); fi\n")).collect();
    let (_, parsed) = read(&format!("{branches}sglang serve --model-path a ${{A[@]}} ${{A[@]}}"));
    assert_eq!(parsed.launches.len(), 8);
}

/// Variables are copied into here-documents and into the here-documents nested in them.
#[test]
fn a_long_variable_in_a_here_document_does_not_multiply() {
    let used = " $A".repeat(4000);
    let text = format!("A={}\nbash <<E\nsglang serve --model-path a --x{used}\nE\n", "x".repeat(1 << 15));
    let (_, parsed) = read(&text.repeat(4));
    let words = parsed.launches.iter().flat_map(|launch| &launch.arguments).flat_map(|argument| &argument.values);
    let bytes: usize = words.map(|word| word.value.written().len()).sum();
    assert!(bytes <= 1 << 20, "{bytes} bytes");
}

/// Each here-document may be long, so only a limited number of them is read.
#[test]
fn of_many_here_documents_some_are_read() {
    let (_, parsed) = read(&"bash <<E\nsglang serve --model-path a\nE\n".repeat(1000));
    assert_eq!(parsed.launches.len(), 256);
}
