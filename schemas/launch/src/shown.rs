//! Launches that a text only shows, records or tests: they may never be run as written, or the text's quotes and escapes are not
//! those of a shell. Findings in them have a doubt for that.

use schemas::{
    finding::Doubt,
    text::{Source, Span},
};

use super::{
    Launch, Parsed, Syntax,
    kind::{Kind, base_of, is_page_name},
    script,
};

/// File name endings of languages that are not parsed, and of logs and patches. Sorted.
const FOREIGN: [&str; 57] = [
    "adoc",
    "bat",
    "bats",
    "c",
    "cc",
    "cjs",
    "cmake",
    "cmd",
    "cpp",
    "cs",
    "csv",
    "cu",
    "dart",
    "diff",
    "ex",
    "exs",
    "fish",
    "go",
    "gradle",
    "groovy",
    "h",
    "htm",
    "html",
    "java",
    "jl",
    "js",
    "jsonl",
    "jsx",
    "kt",
    "log",
    "lua",
    "mediawiki",
    "mjs",
    "mts",
    "nix",
    "nu",
    "org",
    "patch",
    "php",
    "pl",
    "plist",
    "ps1",
    "psm1",
    "r",
    "rb",
    "rs",
    "swift",
    "tex",
    "textile",
    "ts",
    "tsx",
    "typ",
    "vb",
    "vbs",
    "wiki",
    "xml",
    "zig",
];

/// Rarer endings of the same kinds.
const RARE: [&str; 8] = ["hpp", "kts", "ndjson", "scala", "sql", "svelte", "tsv", "vue"];

/// Languages of fenced blocks whose quoting is not that of a POSIX shell, or that record what was run.
const FOREIGN_FENCES: [&str; 16] = [
    "bat",
    "batch",
    "cmd",
    "csharp",
    "dos",
    "elixir",
    "fish",
    "kotlin",
    "nix",
    "nushell",
    "php",
    "powershell",
    "ps1",
    "pwsh",
    "ruby",
    "swift",
];

/// Info strings of fenced blocks without a language.
const PLAIN_FENCES: [&str; 5] = ["", "plain", "plaintext", "text", "txt"];

/// Folders of a project's tests, and of their inputs and expected outputs.
const TESTS: [&str; 4] = ["__tests__", "test", "testing", "tests"];
const FIXTURES: [&str; 9] =
    ["__fixtures__", "__snapshots__", "fixture", "fixtures", "golden", "goldens", "snapshots", "test_data", "testdata"];

/// HTML entities in place of characters with a meaning in a shell.
const ENTITIES: [&str; 7] = ["&quot;", "&#39;", "&#x27;", "&#34;", "&apos;", "&amp;", "&lt;"];

/// Marks the launches that are only shown, and the findings in them.
pub(super) fn mark(source: &Source, parsed: &mut Parsed) {
    if parsed.launches.is_empty() {
        return;
    }
    let is_foreign = is_foreign(source.name()) || is_of_test(source.name());
    // In other formats, keys look like the titles of a record.
    let is_script = Kind::of(source) == Kind::Script;
    let page = Page::of(source);
    for launch in &mut parsed.launches {
        let is_recorded = is_script && (is_recorded(source, launch) || (page.is_page && is_labelled(source, launch)));
        launch.is_shown |= is_foreign || is_recorded || page.shows(launch) || is_escaped(source, launch);
    }
    let shown = Places::of(parsed.launches.iter().filter(|one| one.is_shown));
    // In a block of shell commands such a list may be one that is run; the rest of the launch is checked as usual.
    let lists = Places::of(parsed.launches.iter().filter(|one| page.is_list(one)));
    for found in &mut parsed.findings {
        let doubts = [(Doubt::Shown, shown.contain(found.span)), (Doubt::List, lists.contain(found.span))];
        found.doubts.extend(doubts.into_iter().filter(|(_, is_so)| *is_so).map(|(doubt, _)| doubt));
    }
}

/// The places of launches, which may overlap, in the order of their starts.
struct Places(Vec<Span>);

impl Places {
    fn of<'a>(launches: impl Iterator<Item = &'a Launch>) -> Self {
        let mut spans: Vec<Span> = launches.map(|one| one.span).collect();
        spans.sort();
        // Each span is extended to the end of the longest span that starts at it or before it.
        let mut end = 0;
        for span in &mut spans {
            end = end.max(span.end);
            span.end = end;
        }
        Self(spans)
    }

    fn contain(&self, place: Span) -> bool {
        let begun = self.0.partition_point(|launch| launch.start <= place.start);
        begun.checked_sub(1).and_then(|last| self.0.get(last)).is_some_and(|launch| place.end <= launch.end)
    }
}

/// Whether a text is in a language that is not parsed, by its name.
fn is_foreign(name: &str) -> bool {
    let base = base_of(name).to_ascii_lowercase();
    let ending = base.rsplit_once('.').map_or("", |(_, ending)| ending);
    FOREIGN.binary_search(&ending).is_ok() || RARE.contains(&ending) || base == "cmakelists.txt"
}

/// Whether a text is a Python test or the input of one, by its name. Shell scripts in a folder of tests are not included: they may
/// start a server.
fn is_of_test(name: &str) -> bool {
    let base = base_of(name).to_ascii_lowercase();
    let stem = base.split('.').next().unwrap_or_default();
    let in_folder = |folders: &[&str]| {
        let folders_of_name = name.rsplit(['/', '\\']).skip(1);
        folders_of_name.map(str::to_ascii_lowercase).any(|folder| folders.contains(&folder.as_str()))
    };
    let is_json = base.ends_with(".json");
    match Kind::of_name(name) {
        Some(Kind::Python) => {
            let is_named = stem.starts_with("test_") || stem.ends_with("_test") || stem == "conftest";
            is_named || in_folder(&TESTS) || in_folder(&FIXTURES)
        }
        Some(Kind::Yaml) => in_folder(&FIXTURES) || (is_json && in_folder(&TESTS)),
        _ => false,
    }
}

/// Whether a launch contains HTML entities, or escapes of Markdown.
fn is_escaped(source: &Source, launch: &Launch) -> bool {
    let written = source.slice(launch.span);
    written.contains("\\--") || (written.contains('&') && ENTITIES.iter().any(|entity| written.contains(entity)))
}

/// The text before the program in its line.
fn before<'a>(source: &'a Source, launch: &Launch) -> &'a str {
    source.text().get(source.line_start(launch.anchor.start)..launch.anchor.start).unwrap_or_default()
}

/// Whether a word with a colon precedes a launch in a page: `GPU 0: vllm serve …`.
fn is_labelled(source: &Source, launch: &Launch) -> bool {
    before(source, launch).split_whitespace().any(|word| word.ends_with(':'))
}

/// Whether the line of a launch is one of a log, or of a list of processes.
fn is_recorded(source: &Source, launch: &Launch) -> bool {
    let mut words = before(source, launch).split_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_level = |word: &str| {
        let word = word.trim_matches(['[', ']', '(', ')', ':']);
        ["CRITICAL", "DEBUG", "ERROR", "INFO", "WARN", "WARNING"].contains(&word)
    };
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_time = |word: &str| {
        word.starts_with(|letter: char| letter.is_ascii_digit() || letter == '[') && word.contains([':', '-'])
    };
    // The start of a sentence or a title: programs and variables are not written like that.
    let is_title = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().unwrap_or_default();
        word.chars().any(|letter| !letter.is_ascii() && letter.is_alphabetic())
            || (first.is_uppercase() && letters.next().is_some_and(|next| next.is_lowercase() || next == ':'))
    };
    // `user 4321 12.3 1.2 vllm serve …`, as `ps` writes it.
    let is_process = is_number(second) && words.next().is_some_and(is_number);
    is_level(first)
        || is_level(second)
        || is_time(first)
        || is_title(first)
        || is_process
        || (is_number(first) && !second.is_empty())
}

/// The code blocks of a page.
struct Page<'a> {
    source: &'a Source,
    is_page: bool,
    /// The place and the info string of each block that is read, in the order of the text.
    blocks: Vec<(Span, &'a str)>,
}

impl<'a> Page<'a> {
    fn of(source: &'a Source) -> Self {
        let regions = script::regions(source).into_iter();
        let blocks: Vec<_> = regions.filter_map(|region| Some((region.span, region.info?))).collect();
        Self { source, is_page: is_page_name(source.name()) || !blocks.is_empty(), blocks }
    }

    /// Whether a launch is in a sentence, or in a block of another language.
    fn shows(&self, launch: &Launch) -> bool {
        if !self.is_page {
            return false;
        }
        let at = launch.anchor.start;
        if self.blocks.is_empty() {
            return !self.is_indented(at);
        }
        let begun = self.blocks.partition_point(|(block, _)| block.start <= at);
        let Some((_, info)) = begun.checked_sub(1).and_then(|last| self.blocks.get(last)) else { return false };
        let language = info.split([' ', ',', '{', '}']).find(|word| !word.is_empty()).unwrap_or_default();
        let language = language.to_ascii_lowercase();
        FOREIGN_FENCES.contains(&language.as_str())
            || (PLAIN_FENCES.contains(&language.as_str()) && self.is_list(launch))
    }

    /// Whether a launch in a page is a list of arguments: several lines without a backslash.
    fn is_list(&self, launch: &Launch) -> bool {
        let written = self.source.slice(launch.span);
        let is_list = launch.syntax == Syntax::CommandLine && written.contains('\n') && !written.contains('\\');
        self.is_page && is_list
    }

    /// Whether a line is indented like a code block.
    fn is_indented(&self, at: usize) -> bool {
        let line = self.source.text().get(self.source.line_start(at)..at).unwrap_or_default();
        line.starts_with("    ") || line.starts_with('\t')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted() {
        assert!(FOREIGN.is_sorted());
    }

    #[test]
    fn names_tell_tests() {
        for name in
            ["tests/test_a.py", "a_test.py", "conftest.py", "tests/helpers.py", "a/fixtures/x.yaml", "tests/x.json"]
        {
            assert!(is_of_test(name), "{name}");
        }
        for name in ["run.py", "tests/run.sh", "tests/pod.yaml", "latest/x.json", "contest.py"] {
            assert!(!is_of_test(name), "{name}");
        }
    }
}
