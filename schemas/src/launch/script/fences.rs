//! Markdown: the blocks of it that hold commands.

use crate::text::{Source, Span};

/// What opens and closes a block of Markdown.
const FENCES: [&str; 2] = ["```", "~~~"];

/// The fenced blocks of a text that has any, otherwise all of it. A script that begins with `#!` is read as a whole:
/// a fence in it is part of a text that it prints. Without that line nothing is known, and launches are pasted from Markdown
/// under any name.
pub fn regions(source: &Source) -> Vec<Span> {
    let text = source.text();
    let mut regions = Vec::new();
    if is_script(source) || !FENCES.iter().any(|fence| text.contains(fence)) {
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

fn is_script(source: &Source) -> bool {
    source.text().starts_with("#!")
}
