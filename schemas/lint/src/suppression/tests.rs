use schemas::{
    diagnostic::{Diagnostic, fix},
    text::Source,
};

use crate::{
    report::{ReportOptions, report_text},
    rules::Selection,
};

fn look(source: &Source, selection: &Selection) -> Vec<Diagnostic> {
    report_text(source, &ReportOptions { selection: selection.clone(), ..ReportOptions::default() }).findings
}

/// Checks the codes that are found, and the text after its safe fixes.
fn check(name: &str, text: &str, codes: &[&str], fixed: &str) {
    let source = Source::new(name, text);
    let found = look(&source, &Selection::default());
    let found_codes: Vec<&str> = found.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!(found_codes, codes, "{text}\n{found:#?}");
    assert_eq!(fix::apply(&source, &found, false).text, fixed);
}

const ARRAY: &str = "SGLANG_ARGS=(\n  --sglang-speculative-algorithm EAGLE\n  --sglang-speculative-num-steps 3\n  \
                     --sglang-speculative-eagle-topk 1\n  --sglang-speculative-num-draft-tokens 9 TAIL\n  \
                     --sglang-max-running-requests 8\n  --sglang-speculative-draft-model-path head\n)\n";

#[test]
fn a_comment_suppresses_on_its_line_and_is_unused_elsewhere() {
    let with = |tail: &str| ARRAY.replace("TAIL", tail);
    check("x.sh", &with("# plain"), &["SD023"], &with("# plain").replace("tokens 9", "tokens 4"));
    for comment in ["SD023", "SD02", "topk1-drafts-adjusted", "tree"] {
        let text = with(&format!("# spectune: ignore[{comment}]"));
        check("x.sh", &text, &[], &text);
    }
    let text = with("# spectune: ignore[SD023, SD081] both");
    check("x.sh", &text, &["LT10"], &text.replace("SD023, SD081", "SD023"));
    let moved = with("").replace("steps 3", "steps 3 # spectune: ignore[SD023]");
    check("x.sh", &moved, &["LT10", "SD023"], &with("").replace("tokens 9", "tokens 4"));
    let twice = with("# spectune: ignore[SD023, sd023]");
    check("x.sh", &twice, &["LT10"], &twice.replace("SD023, sd023", "SD023"));
}

#[test]
fn a_comment_above_counts_for_a_whole_continued_command() {
    let command = "sglang serve --model-path x --speculative-algorithm EAGLE \\\n  --speculative-draft-model-path h \\\n  \
                   --speculative-num-steps 3 --speculative-eagle-topk 1 --max-running-requests 8 \\\n  \
                   --speculative-num-draft-tokens 9\n";
    let above = format!("# spectune: ignore[SD023] measured\n{command}");
    check("x.sh", &above, &[], &above);
    let apart = format!("# spectune: ignore[SD023]\n\n{command}");
    check("x.sh", &apart, &["LT10", "SD023"], &format!("\n{command}").replace("tokens 9", "tokens 4"));
    let file = format!("ls\n{command}\n# spectune: ignore-file[tree]\n");
    check("x.sh", &file, &[], &file);
}

#[test]
fn a_launch_file_takes_the_same_comments() {
    let file = "engine = \"sglang\"\nmodel_path = \"x\"\nspeculative_algorithm = \"EAGLE\"\nspeculative_num_steps = 3\n\
                speculative_eagle_topk = 1\nspeculative_num_draft_tokens = 9 # spectune: ignore[SD023]\n\
                max_running_requests = 8\nspeculative_draft_model_path = \"h\"\n";
    check("x.toml", file, &[], file);
}

#[test]
fn wrong_comments_and_those_for_rules_that_no_one_looks_for() {
    let text = ARRAY.replace("TAIL", "# spectune: ignore[SD023, SD9999]");
    check("x.sh", &text, &["LT11"], &text);
    let text = ARRAY.replace("TAIL", "# spectune: ignore[SD023, SD081]");
    let selection = Selection::new(&["SD02", "LT"], &[]).expect("known");
    assert_eq!(look(&Source::new("x.sh", text.clone()), &selection), []);
    let selection = Selection::new(&[], &["LT10"]).expect("known");
    assert_eq!(look(&Source::new("x.sh", text.clone()), &selection), []);
    let text = format!("# spectune: ignore-file[LT10]\n{text}");
    check("x.sh", &text, &[], &text);
}
