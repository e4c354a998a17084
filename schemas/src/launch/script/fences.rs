//! Markdown: the blocks of it that hold commands.

use crate::text::Span;

/// What opens and closes a block of Markdown.
const FENCES: [&str; 2] = ["```", "~~~"];

/// The fenced blocks of a text that has any, otherwise all of it.
pub fn regions(text: &str) -> Vec<Span> {
    let mut regions = Vec::new();
    if !FENCES.iter().any(|fence| text.contains(fence)) {
        return vec![Span::new(0, text.len())];
    }
    let mut opened: Option<usize> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        let trimmed = line.trim_start();
        if FENCES.iter().any(|fence| trimmed.starts_with(fence)) {
            opened = match opened {
                Some(start) => {
                    regions.push(Span::new(start, at));
                    None
                }
                None => Some(next),
            };
        }
        at = next;
    }
    if let Some(start) = opened {
        regions.push(Span::new(start, text.len()));
    }
    if regions.is_empty() { vec![Span::new(0, text.len())] } else { regions }
}
