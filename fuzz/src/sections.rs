//! Inputs with several texts, divided into sections by head lines, so that seeds can be read and
//! written by hand.

/// Start of a head line; the rest of the line is the section's name.
const HEAD: &[u8] = b"==== ";

/// The sections of an input as (name, contents). The text before the first head line is a section
/// with an empty name.
pub fn sections(input: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut sections = Vec::new();
    let (mut name, mut start, mut at): (&[u8], usize, usize) = (b"", 0, 0);
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        if let Some(head) = line.strip_prefix(HEAD) {
            sections.push((name, &input[start..at]));
            name = head.trim_ascii();
            start = at + line.len();
        }
        at += line.len();
    }
    sections.push((name, &input[start..]));
    sections
}
