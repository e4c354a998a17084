//! The page of a rule: the doc comment at the head of its file.
//!
//! A page is Markdown. Its first line is the title `# CODE: name`, its first paragraph the summary.
//! Examples are fenced blocks, which are shown to the reader and also run as tests:
//!
//! - `launch bad` is a launch in which the rule finds something, `launch good` one in which it
//!   finds nothing. Further words say what else is known: `toml` (a launch file), `version:0.5.9`,
//!   `concurrency:64`, `memory:81559`, and `also:SD090,SD080` for other rules that find something
//!   there as well, and `pair` for a text with two engines.
//! - `target` and `draft` after a launch hold fields of the config.json of its models; `partial`
//!   says that fields may be missing. `target-generation` holds the target's
//!   generation_config.json, `target-tensors` and `draft-tensors` the tensors of a model, one a
//!   line: name, dtype, shape as `4096x12288`.
//! - `target-tokenizer` and `draft-tokenizer` hold a tokenizer.json.
//!
//! In text, `{sglang versions}` and `{vllm versions}` are the number and the range of the versions
//! that the generated tables of flags, values and variables were read from.

use std::str::FromStr;

use schemas::engines::Engine;

/// A rule's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePage {
    /// `CODE: name`.
    pub title: String,
    /// One sentence.
    pub summary: String,
    /// The rest of the page.
    pub blocks: Vec<PageBlock>,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageBlock {
    /// A heading, without its `##`.
    Heading(String),
    /// A line of text in Markdown; empty between paragraphs.
    Line(String),
    /// A fenced block.
    Fence {
        /// The words after the fence.
        info: String,
        /// The lines inside it.
        lines: Vec<String>,
    },
}

/// The content of a fenced block: the first word after the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Launch,
    Target,
    TargetGeneration,
    TargetTensors,
    TargetTokenizer,
    Draft,
    DraftTensors,
    DraftTokenizer,
}

impl FromStr for BlockKind {
    type Err = ();

    fn from_str(info: &str) -> Result<Self, ()> {
        Ok(match info.split_whitespace().next() {
            Some("launch") => Self::Launch,
            Some("target") => Self::Target,
            Some("target-generation") => Self::TargetGeneration,
            Some("target-tensors") => Self::TargetTensors,
            Some("target-tokenizer") => Self::TargetTokenizer,
            Some("draft") => Self::Draft,
            Some("draft-tensors") => Self::DraftTensors,
            Some("draft-tokenizer") => Self::DraftTokenizer,
            _ => return Err(()),
        })
    }
}

impl RulePage {
    /// Parses the page at the head of a file's text.
    pub(super) fn from_file(text: &str) -> Self {
        let mut lines =
            text.lines().map_while(|line| line.strip_prefix("//!")).map(|line| line.strip_prefix(' ').unwrap_or(line));
        let title = lines.next().unwrap_or_default().trim_start_matches("# ").to_owned();
        let mut lines = lines.skip_while(|line| line.is_empty());
        let summary: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let mut blocks = Vec::new();
        while let Some(line) = lines.next() {
            blocks.push(match (line.strip_prefix("```"), line.strip_prefix("## ")) {
                (Some(info), _) => {
                    let inside = lines.by_ref().take_while(|line| *line != "```").map(str::to_owned).collect();
                    PageBlock::Fence { info: info.to_owned(), lines: inside }
                }
                (_, Some(heading)) => PageBlock::Heading(heading.to_owned()),
                _ => PageBlock::Line(with_versions(line)),
            });
        }
        Self { title, summary: summary.join(" "), blocks }
    }

    /// The page as Markdown, with a caption before every fenced block.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n\n", self.title, self.summary);
        for block in &self.blocks {
            separate(&mut text, block);
            match block {
                PageBlock::Heading(heading) => text.push_str(&format!("## {heading}\n")),
                PageBlock::Line(line) => text.push_str(&format!("{line}\n")),
                PageBlock::Fence { info, lines } => {
                    text.push_str(&format!("{}\n\n```{}\n", caption(info, lines), language(info)));
                    lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
                    text.push_str("```\n");
                }
            }
        }
        text
    }

    /// The page for a terminal: headings without markup, code indented.
    pub fn plain(&self) -> String {
        let mut text = format!("{}\n\n{}\n\n", self.title, self.summary);
        for block in &self.blocks {
            separate(&mut text, block);
            match block {
                PageBlock::Heading(heading) => text.push_str(&format!("{}\n", heading.to_uppercase())),
                PageBlock::Line(line) => text.push_str(&format!("{line}\n")),
                PageBlock::Fence { info, lines } => {
                    text.push_str(&format!("{}\n\n", caption(info, lines)));
                    for line in lines {
                        text.push_str(format!("    {line}").trim_end());
                        text.push('\n');
                    }
                }
            }
        }
        text
    }
}

/// A line with the versions that tables were read from.
fn with_versions(line: &str) -> String {
    [Engine::Sglang, Engine::Vllm].into_iter().fold(line.to_owned(), |line, engine| {
        let versions = engine.registered().versions();
        match versions {
            [first, .., last] => {
                let written = format!("{} versions from {first} to {last}", versions.len());
                line.replace(&format!("{{{engine} versions}}"), &written)
            }
            _ => line,
        }
    })
}

/// A fenced block that directly follows another still starts a paragraph.
fn separate(text: &mut String, next: &PageBlock) {
    if matches!(next, PageBlock::Fence { .. }) && !text.ends_with("\n\n") {
        text.push('\n');
    }
}

/// The caption of a fenced block; empty if it is not an example, which no page has.
fn caption(info: &str, lines: &[String]) -> String {
    let Ok(kind) = info.parse() else { return String::new() };
    let words = || info.split_whitespace().skip(1);
    let what = match kind {
        BlockKind::Launch if words().any(|word| word == "bad") => "Found here",
        BlockKind::Launch => "No finding in this example",
        BlockKind::Target => "The target's config.json",
        BlockKind::TargetGeneration => "The target's generation_config.json",
        BlockKind::TargetTensors => "The target's tensors",
        BlockKind::TargetTokenizer => "The target's tokenizer.json",
        BlockKind::Draft => "The draft's config.json",
        BlockKind::DraftTensors => "The draft's tensors",
        BlockKind::DraftTokenizer => "The draft's tokenizer.json",
    };
    let engine = if lines.iter().any(|line| line.starts_with("vllm ")) { "vllm" } else { "sglang" };
    let known: Vec<String> = words()
        .filter_map(|word| match word.split_once(':')? {
            ("version", version) => Some(format!("{engine} {version}")),
            ("concurrency", requests) => Some(format!("{requests} requests expected to run together")),
            ("memory", memory) => Some(format!("a GPU of {memory} MiB")),
            _ => None,
        })
        .collect();
    if known.is_empty() { format!("{what}:") } else { format!("{what} ({}):", known.join(", ")) }
}

/// The language of a fenced block, for highlighting.
fn language(info: &str) -> &str {
    let Ok(kind) = info.parse() else { return info };
    match kind {
        BlockKind::Launch if info.split_whitespace().any(|word| word == "toml") => "toml",
        BlockKind::Launch => "sh",
        BlockKind::TargetTensors | BlockKind::DraftTensors => "text",
        BlockKind::Target
        | BlockKind::TargetGeneration
        | BlockKind::TargetTokenizer
        | BlockKind::Draft
        | BlockKind::DraftTokenizer => "json",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "//! # SD999: a-name\n//!\n//! One line,\n//! and another.\n//!\n//! ## Example\n//!\n\
                        //! ```launch bad version:0.5.9\n//! sglang serve\n//! ```\n\nuse x;\n//! no more";

    #[test]
    fn a_page_is_the_head_of_its_file() {
        let page = RulePage::from_file(FILE);
        assert_eq!((page.title.as_str(), page.summary.as_str()), ("SD999: a-name", "One line, and another."));
        assert_eq!(page.blocks.len(), 3);
        assert_eq!(
            page.plain(),
            "SD999: a-name\n\nOne line, and another.\n\nEXAMPLE\n\nFound here (sglang 0.5.9):\n\n    sglang serve\n"
        );
        assert!(page.markdown().ends_with("Found here (sglang 0.5.9):\n\n```sh\nsglang serve\n```\n"));
    }

    #[test]
    fn versions_in_a_text_are_those_of_the_tables() {
        let page = RulePage::from_file("//! # A: b\n//!\n//! A.\n//!\n//! Read from {vllm versions}.");
        let read = Engine::Vllm.registered().versions().len();
        assert!(page.plain().contains(&format!("Read from {read} versions from 0.6.6.post1 to ")), "{}", page.plain());
        for definition in crate::rules::RULES {
            assert!(!definition.page().plain().contains(" versions}"), "{}", definition.code);
        }
    }

    #[test]
    fn a_file_without_a_page_has_an_empty_one() {
        assert_eq!(
            RulePage::from_file("use x;"),
            RulePage { title: String::new(), summary: String::new(), blocks: Vec::new() }
        );
    }
}
