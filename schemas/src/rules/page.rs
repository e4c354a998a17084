//! The page of a rule: the doc comment at the head of its file.
//!
//! A page is Markdown. Its first line is the title `# CODE: name`, its first paragraph the summary. Examples are fenced
//! blocks, which are shown to the reader and run as tests:
//!
//! - `launch bad` is a launch in which the rule finds something, `launch good` one in which it finds nothing. Further
//!   words say what else is known: `toml` (a launch file), `version:0.5.9`, `concurrency:64`, `memory:81559`, and
//!   `also:SD090,SD080` for other rules that find something there as well.
//! - `target` and `draft` after a launch hold fields of the config.json of its models; `partial` says that fields may be
//!   missing. `target-generation` holds the target's generation_config.json, `draft-tensors` the tensors of the draft, one
//!   a line: name, dtype, shape as `4096x12288`.
//! - `target-tokenizer` and `draft-tokenizer` hold a tokenizer.json.

/// A rule's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// `CODE: name`.
    pub title: String,
    /// One sentence.
    pub summary: String,
    /// What follows.
    pub blocks: Vec<Block>,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A heading, without its `##`.
    Heading(String),
    /// A line of text in Markdown; empty between paragraphs.
    Line(String),
    /// A fenced block: the words behind the fence, and the lines in it.
    Fence {
        /// The words.
        info: String,
        /// The lines.
        lines: Vec<String>,
    },
}

impl Page {
    /// The page at the head of a file's text.
    pub(super) fn of_file(text: &str) -> Self {
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
                    Block::Fence { info: info.to_owned(), lines: inside }
                }
                (_, Some(heading)) => Block::Heading(heading.to_owned()),
                _ => Block::Line(line.to_owned()),
            });
        }
        Self { title, summary: summary.join(" "), blocks }
    }

    /// In Markdown, with every fenced block introduced in words.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n\n", self.title, self.summary);
        for block in &self.blocks {
            separate(&mut text, block);
            match block {
                Block::Heading(heading) => text.push_str(&format!("## {heading}\n")),
                Block::Line(line) => text.push_str(&format!("{line}\n")),
                Block::Fence { info, lines } => {
                    text.push_str(&format!("{}\n\n```{}\n", caption(info), language(info)));
                    lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
                    text.push_str("```\n");
                }
            }
        }
        text
    }

    /// For a terminal: headings bare, code indented.
    pub fn plain(&self) -> String {
        let mut text = format!("{}\n\n{}\n\n", self.title, self.summary);
        for block in &self.blocks {
            separate(&mut text, block);
            match block {
                Block::Heading(heading) => text.push_str(&format!("{}\n", heading.to_uppercase())),
                Block::Line(line) => text.push_str(&format!("{line}\n")),
                Block::Fence { info, lines } => {
                    text.push_str(&format!("{}\n\n", caption(info)));
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

/// A fenced block that follows another at once still begins a paragraph.
fn separate(text: &mut String, next: &Block) {
    if matches!(next, Block::Fence { .. }) && !text.ends_with("\n\n") {
        text.push('\n');
    }
}

/// What a fenced block shows, in words.
fn caption(info: &str) -> String {
    let mut words = info.split_whitespace();
    let what = match (words.next(), words.clone().any(|word| word == "bad")) {
        (Some("launch"), true) => "Found here",
        (Some("launch"), false) => "Nothing is found here",
        (Some("target"), _) => "The target's config.json",
        (Some("target-generation"), _) => "The target's generation_config.json",
        (Some("draft"), _) => "The draft's config.json",
        (Some("draft-tensors"), _) => "The draft's tensors",
        (Some("target-tokenizer"), _) => "The target's tokenizer.json",
        (Some("draft-tokenizer"), _) => "The draft's tokenizer.json",
        _ => return String::new(),
    };
    let known: Vec<String> = words
        .filter_map(|word| match word.split_once(':')? {
            ("version", version) => Some(format!("sglang {version}")),
            ("concurrency", requests) => Some(format!("{requests} requests expected to run together")),
            ("memory", memory) => Some(format!("a GPU of {memory} MiB")),
            _ => None,
        })
        .collect();
    if known.is_empty() { format!("{what}:") } else { format!("{what} ({}):", known.join(", ")) }
}

/// The language of a fenced block, for highlighting.
fn language(info: &str) -> &str {
    let mut words = info.split_whitespace();
    match words.next() {
        Some("launch") if words.any(|word| word == "toml") => "toml",
        Some("launch") => "sh",
        Some("target" | "target-generation" | "draft" | "target-tokenizer" | "draft-tokenizer") => "json",
        Some("draft-tensors") => "text",
        _ => info,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "//! # SD999: a-name\n//!\n//! One line,\n//! and another.\n//!\n//! ## Example\n//!\n\
                        //! ```launch bad version:0.5.9\n//! sglang serve\n//! ```\n\nuse x;\n//! no more";

    #[test]
    fn a_page_is_the_head_of_its_file() {
        let page = Page::of_file(FILE);
        assert_eq!((page.title.as_str(), page.summary.as_str()), ("SD999: a-name", "One line, and another."));
        assert_eq!(page.blocks.len(), 3);
        assert_eq!(
            page.plain(),
            "SD999: a-name\n\nOne line, and another.\n\nEXAMPLE\n\nFound here (sglang 0.5.9):\n\n    sglang serve\n"
        );
        assert!(page.markdown().ends_with("Found here (sglang 0.5.9):\n\n```sh\nsglang serve\n```\n"));
    }

    #[test]
    fn a_file_without_a_page_has_an_empty_one() {
        assert_eq!(Page::of_file("use x;"), Page { title: String::new(), summary: String::new(), blocks: Vec::new() });
    }
}
