//! Measures the linter on the most expensive texts at two lengths each, which shows whether its
//! time grows faster than the text. With a folder as argument, writes the texts there instead, so
//! that they can be linted as files.
//!
//! `cargo run -p lint --example worst_texts [FOLDER]`

use std::{env, fs, path::Path, time::Instant};

use lint::report::{ReportOptions, report_text};
use schemas::{
    diagnostic::{Findings, Format, render},
    text::Source,
};

const SHORT: usize = 1 << 18;
const LONG: usize = 1 << 20;

/// A text of any length: a start, and a part that is repeated. A `%` in that part is replaced by
/// the number of the repetition.
struct Text {
    name: &'static str,
    head: &'static str,
    again: &'static str,
}

const fn text(name: &'static str, head: &'static str, again: &'static str) -> Text {
    Text { name, head, again }
}

const SERVE: &str = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct";

const TEXTS: &[Text] = &[
    text("one-word.sh", SERVE, "x"),
    text("words.sh", SERVE, " x"),
    text("stray-words.sh", "sglang serve --model-path a --disable-radix-cache", " x"),
    text("stray-lines.sh", "sglang serve --model-path a --disable-radix-cache", " \\\nx"),
    text("blank-lines.sh", SERVE, "\n"),
    text("prose-lines.sh", "", "Nothing here starts a server.\n"),
    text("one-line-of-prose.sh", "", "nothing here "),
    text("unknown-flags.sh", SERVE, " --speculative-nun-stepz 3"),
    text("unknown-flag-lines.sh", SERVE, " \\\n  --speculative-nun-stepz 3"),
    text("repeated-flags.sh", SERVE, " --speculative-num-steps 3"),
    text("known-flag-lines.sh", SERVE, " \\\n  --speculative-num-steps 3"),
    text("missing-values.sh", SERVE, " --tp"),
    text("double-quotes.sh", SERVE, " \"\""),
    text("open-quotes.sh", SERVE, " \"$("),
    text("single-quotes.sh", SERVE, " 'a b'"),
    text("backslash-blanks.sh", SERVE, " \\ \n --tp 2"),
    text("launches-on-lines.sh", "", "sglang serve --model-path a --speculative-algorithm EAGLE\n"),
    text("launches-on-one-line.sh", "", "sglang serve --model-path a --speculative-algorithm EAGLE;"),
    text("launches-in-quotes.sh", "", "bash -c 'sglang serve --model-path a --speculative-algorithm EAGLE'\n"),
    text("slime-launches.sh", "", "python3 train.py --sglang-speculative-algorithm EAGLE --hf-checkpoint a\n"),
    text("brackets.sh", SERVE, " $("),
    text("closed-brackets.sh", SERVE, " $(a $(b $(c)))"),
    text("braces.sh", SERVE, " ${a:-${b:-${c:-d}}}"),
    text("backquotes.sh", SERVE, " `a`"),
    text("long-list.sh", SERVE, " 1"),
    text("long-graph-list.sh", "sglang serve --model-path a --speculative-algorithm EAGLE --cuda-graph-bs", " 3"),
    text("long-array.sh", "SGLANG_ARGS=(\n --sglang-cuda-graph-bs", " 12\n"),
    text("arrays.sh", "", "A=( --sglang-speculative-algorithm EAGLE )\n"),
    text("array-in-array.sh", "", "A=( ${A[@]} --sglang-tp-size 2 )\n"),
    text("appended-array.sh", "A=( --sglang-dtype half )\n", "A+=( --sglang-tp-size 2 )\n"),
    text("variables.sh", "", "A=1\n"),
    text("used-variables.sh", "A=x\nsglang serve --model-path a", " $A"),
    text("growing-variable.sh", "", "A=\"$A --tp 2\"\n"),
    text("appended-variable.sh", "", "A+=\" --tp 2\"\n"),
    text("exports.sh", "", "export A=1\nsglang serve --model-path a\n"),
    text("exports-on-one-line.sh", "", "export AA=1 && "),
    text("many-exports.sh", "", "export A%=1\nsglang serve --model-path a\n"),
    text("unknown-different-flags.sh", SERVE, " --speculative-num-st%"),
    text("given-twice.sh", SERVE, " --speculative-num-steps %"),
    text("given-twice-lines.sh", SERVE, " \\\n  --speculative-num-steps %"),
    text(
        "hidden-words.sh",
        "python3 train.py --hf-checkpoint a --sglang-speculative-algorithm EAGLE --x 1",
        " \"$A@\"",
    ),
    text("here-documents.sh", "", "cat <<E\nE\n"),
    text("here-documents-that-run.sh", "A=\"--tp 2\"\n", "bash <<E\nsglang serve --model-path a $A\nE\n"),
    text("here-documents-of-one-line.sh", "", "bash <<E | "),
    text("here-document-of-variables.sh", "A=\"--tp 2\"\nbash <<E\nsglang serve --model-path a", " $A"),
    text("blocks.sh", "", "if a; then B=1; "),
    text("functions.sh", "", "f() {\nA=1\n"),
    text("comments.sh", "", "# nothing to see\n"),
    text("comments-then-launch.sh", "sglang serve --model-path a \\\n", "# --tp 2\n"),
    text("comment.sh", "# ", "#"),
    text("suppressions.sh", "", "# spectune: ignore[SD081]\n"),
    text("suppressions-beside.sh", "", "sglang serve --model-path a # spectune: ignore[SD081]\n"),
    text("suppressions-apart.sh", "", "# spectune: ignore[SD081]\nsglang serve --model-path a\n"),
    text("suppression-list.sh", "# spectune: ignore[", "SD081,"),
    text("suppression-words.sh", "# ", "# spectune: ignor"),
    text("suppression-unknown.sh", "", "# spectune: ignore[SD999]\n"),
    text("fences.md", "", "```\n"),
    text("fenced-launches.md", "", "```\nsglang serve --model-path a\n```\n"),
    text("words.toml", "model_path = \"", "x"),
    text("long-list.toml", "cuda_graph_bs = [", "1, "),
    text("nested-lists.toml", "cuda_graph_bs = ", "["),
    text("keys.toml", "", "nothing = 1\n"),
    text("many-keys.toml", "", "key_number_% = 1\n"),
    text("tables.toml", "", "[a]\n"),
    text("comments.toml", "model_path = \"a\"\n", "# nothing\n"),
    text("environment.toml", "model_path = \"a\"\n[environment]\n", "A = \"1\"\n"),
    text("vllm-config.sh", "vllm serve a --speculative-config '", "["),
    text("vllm-flags.sh", "vllm serve a", " --speculative-config.method ngram"),
    text("list.yaml", "args:\n", "  - --tp=2\n"),
    text("nested.yaml", "", "[ "),
    text("nested-map.yaml", "", "{ a: "),
    text("indented.yaml", "", "- "),
];

impl Text {
    fn with_length(&self, length: usize) -> String {
        let mut text = self.head.to_owned();
        for number in 0.. {
            let again = self.again.replace('%', &number.to_string());
            if text.len() + again.len() > length {
                break;
            }
            text.push_str(&again);
        }
        text
    }
}

/// Lints a text as `spectune lint` does. Returns the milliseconds until everything is found, the
/// milliseconds until it is printed, and the number of findings.
fn look(name: &str, text: String) -> (f64, f64, usize) {
    let begin = Instant::now();
    let source = Source::new(name, text);
    let found = report_text(&source, &ReportOptions::default()).findings;
    let looked = begin.elapsed().as_secs_f64() * 1e3;
    let printed = render(&[Findings { source: &source, diagnostics: &found }], Format::Full, false);
    std::hint::black_box(printed);
    (looked, begin.elapsed().as_secs_f64() * 1e3, found.len())
}

fn main() -> std::io::Result<()> {
    let argument = env::args().nth(1);
    if let Some(folder) = argument.as_deref().filter(|argument| Path::new(argument).is_dir()) {
        for text in TEXTS {
            fs::write(Path::new(folder).join(text.name), text.with_length(LONG))?;
        }
        return Ok(());
    }
    println!("{:<28} {:>10} {:>10} {:>10} {:>7} {:>9}", "text", "256 KiB", "1 MiB", "printed", "growth", "findings");
    let wanted = |text: &&Text| argument.as_deref().is_none_or(|part| text.name.contains(part));
    for text in TEXTS.iter().filter(wanted) {
        let (_, short, _) = look(text.name, text.with_length(SHORT));
        let (found, long, count) = look(text.name, text.with_length(LONG));
        println!("{:<28} {short:>7.1} ms {found:>7.1} ms {long:>7.1} ms {:>6.1}x {count:>9}", text.name, long / short);
    }
    Ok(())
}
