//! Here-documents: where their bodies are, and which commands they are piped through.

use schemas::text::Span;

use super::{HereDocument, MOST_WORDS, ShellReader, ShellStatement, ShellWord, SimpleCommand};

/// Maximum number of here-documents announced on one line for which the reading commands are
/// recorded.
const MOST_ANNOUNCED: usize = 16;

/// Maximum number of commands of a pipeline through which a here-document is followed.
const MOST_STAGES: usize = 8;

/// A here-document that is not read completely yet.
pub(super) struct Announced<'a> {
    delimiter: String,
    body: Option<Span>,
    /// Whether its pipeline has ended.
    is_complete: bool,
    document: HereDocument<'a>,
}

impl<'a> ShellReader<'a> {
    /// Records a here-document whose body starts on the next line.
    pub(super) fn announce(&mut self, delimiter: &ShellWord<'_>, strips_tabs: bool) {
        let Some(text) = delimiter.text().filter(|text| !text.is_empty()) else { return };
        let is_quoted = text.len() != delimiter.span.end - delimiter.span.start;
        let document = HereDocument { body: Span::default(), is_quoted, strips_tabs, stages: Vec::new() };
        let is_complete = self.documents.len() >= MOST_ANNOUNCED;
        self.documents.push(Announced { delimiter: text.to_owned(), body: None, is_complete, document });
    }

    /// Records a command that the announced documents are piped through.
    pub(super) fn pass_documents_through(&mut self, command: &SimpleCommand<'a>) {
        let followed = self.documents.iter_mut().take(MOST_ANNOUNCED);
        for announced in followed.filter(|announced| !announced.is_complete) {
            let stages = &mut announced.document.stages;
            if stages.len() < MOST_STAGES && command.words.len() < MOST_WORDS {
                stages.push(command.clone());
            }
        }
    }

    /// Records the end of a pipeline.
    pub(super) fn complete_documents(&mut self) {
        self.documents.iter_mut().take(MOST_ANNOUNCED).for_each(|announced| announced.is_complete = true);
    }

    /// Skips the bodies that start here, and emits the documents that are complete.
    pub(super) fn read_documents(&mut self) {
        let announced = std::mem::take(&mut self.documents);
        for mut announced in announced {
            let body = match announced.body {
                Some(body) => body,
                None => match self.body(&announced.delimiter) {
                    Some(body) => body,
                    // Without an end, its lines are read as commands.
                    None => return,
                },
            };
            if announced.is_complete {
                self.push_statement(ShellStatement::HereDocument(HereDocument { body, ..announced.document }));
            } else {
                announced.body = Some(body);
                self.documents.push(announced);
            }
        }
    }

    /// Skips a body and the line that ends it.
    fn body(&mut self, delimiter: &str) -> Option<Span> {
        if self.document_hopeless {
            return None;
        }
        let start = self.at;
        let mut line_start = start;
        while line_start < self.bytes().len() {
            let rest = self.bytes().get(line_start..).unwrap_or_default();
            let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            if self.slice(line_start, line_start + length).trim() == delimiter {
                self.at = (line_start + length + 1).min(self.bytes().len());
                return Some(Span::new(start, line_start));
            }
            line_start += length + 1;
        }
        self.document_hopeless = true;
        None
    }
}
