//! Inputs of several texts: sections with a head line of their own, so that seeds can be read and written by hand.

/// What stands before the name of a section on its line.
const HEAD: &[u8] = b"==== ";

/// The sections of an input, each with its name. What stands before the first head is a section without a name.
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
