//! Pages: the blocks of commands in Markdown.

use std::rc::Rc;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use schemas::text::{Source, Span};

use super::{
    context::{TextContext, TextForm},
    document::{Document, ReadDocument},
    kind::TextKind,
    origin::Pieces,
    span_map::{MappedPart, SpanMap},
};

/// Maximum number of blocks per page.
const MOST_BLOCKS: usize = 4096;

/// A block under construction.
struct CodeBlock {
    info: String,
    text: String,
    pieces: SpanMap<()>,
}

/// The code blocks of a page, each as a document without the marks of quotations and lists around
/// it. A page without blocks is one block.
pub(super) fn read(source: &Source, context: &TextContext) -> ReadDocument {
    let mut documents = Vec::new();
    let mut open: Option<CodeBlock> = None;
    for (event, range) in Parser::new(source.text()).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let info = match kind {
                    CodeBlockKind::Fenced(info) => info.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                open = Some(CodeBlock { info, text: String::new(), pieces: SpanMap::default() });
            }
            Event::Text(text) => {
                if let Some(block) = &mut open {
                    block.add(&text, Span::new(range.start, range.end));
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                documents
                    .extend(open.take().filter(|_| documents.len() < MOST_BLOCKS).map(|block| block.document(context)));
            }
            _ => {}
        }
    }
    if documents.is_empty() {
        let whole = Span::new(0, source.text().len());
        documents.push(Document::part_of(source, whole, TextKind::Script, context.inner(TextForm::Page)));
    }
    ReadDocument { documents, ..ReadDocument::default() }
}

impl CodeBlock {
    fn add(&mut self, text: &str, place: Span) {
        let start = self.text.len();
        self.text.push_str(text);
        // All pieces are of one whole: an edit may span several lines.
        self.pieces.push(MappedPart { text: Span::new(start, self.text.len()), place, whole: 0, with: () });
    }

    fn document(self, context: &TextContext) -> Document {
        let (kind, is_shell) = TextKind::from_block(&self.info, &self.text);
        let is_list = kind == TextKind::Script && lists_flags(&self.text);
        let form = if is_shell && !is_list { TextForm::ShellBlock } else { TextForm::Page };
        let context = TextContext { is_list, ..context.inner(form) };
        Document::new(kind, self.text, Rc::new(Pieces(self.pieces)), context)
    }
}

/// Whether a block has flags only, one a line, and none of its lines is continued: no one pastes it
/// into a shell.
fn lists_flags(text: &str) -> bool {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.clone().count() > 1 && lines.clone().all(|line| line.starts_with("--") && !line.ends_with('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of a page with their kinds, and the text of each in the page.
    fn check(text: &str, expected: &[(&str, TextKind, TextForm)]) {
        let source = Source::new("x.md", text);
        let read = read(&source, &TextContext::default());
        let found: Vec<(&str, TextKind, TextForm)> =
            read.documents.iter().map(|one| (one.text.as_str(), one.kind, one.context.form)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn each_block_has_the_kind_of_its_language() {
        use TextForm::{Page, ShellBlock};
        check(
            "a\n```bash\nb\n```\n```yaml\nc: d\n```\n",
            &[("b\n", TextKind::Script, ShellBlock), ("c: d\n", TextKind::Yaml, Page)],
        );
        check("````md\n```sh\na\n```\n````\n", &[("```sh\na\n```\n", TextKind::Script, Page)]);
        check("- x\n  ```\n  a\n  ```\n", &[("a\n", TextKind::Script, Page)]);
        check("x\n\n    a\n    b\n", &[("a\nb\n", TextKind::Script, Page)]);
        check("```sh\n--a 1\n--b\n```\n", &[("--a 1\n--b\n", TextKind::Script, Page)]);
        check("```sh\n--a \\\n--b\n```\n", &[("--a \\\n--b\n", TextKind::Script, ShellBlock)]);
        check("~~~\na\n", &[("a\n", TextKind::Script, Page)]);
        check("a\n", &[("a\n", TextKind::Script, Page)]);
    }

    #[test]
    fn blocks_of_quotations_are_read_without_their_marks() {
        let text = "> ```sh\n> vllm serve \\\n>   --tp 2\n> ```\n";
        let source = Source::new("x.md", text);
        let read = read(&source, &TextContext::default());
        let document = read.documents.first().expect("a block");
        assert_eq!(document.text, "vllm serve \\\n  --tp 2\n");
        let flag = document.text.find("--tp").expect("a flag");
        assert_eq!(source.slice(document.origin.place(Span::new(flag, flag + 6))), "--tp 2");
    }
}
