//! Patches: what they make of a text.

use schemas::text::Source;

use super::kind::ending_of;

/// A patch with the lines that are there after it, each byte in its place; `None` for a text that
/// is no patch.
pub(super) fn after(source: &Source) -> Option<Source> {
    if !ending_of(source.name()).is_some_and(|ending| matches!(ending.as_str(), "diff" | "patch")) {
        return None;
    }
    let is_header = |line: &str| ["+++", "---", "@@", "diff ", "index "].iter().any(|sign| line.starts_with(sign));
    // A patch without hunks is a text under such a name.
    source.text().lines().find(|line| line.starts_with("@@"))?;
    let mut text = String::with_capacity(source.text().len());
    for line in source.text().split_inclusive('\n') {
        match line.strip_prefix('+').filter(|_| !is_header(line)) {
            Some(added) => {
                text.push(' ');
                text.push_str(added);
            }
            None if is_header(line) || line.starts_with('-') => text.extend(line.bytes().map(blank)),
            None => text.push_str(line),
        }
    }
    Some(Source::new(source.name(), text))
}

fn blank(byte: u8) -> char {
    if matches!(byte, b'\n' | b'\r') { char::from(byte) } else { ' ' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_a_patch_removes_are_not_read() {
        let text = "--- a/run.sh\n+++ b/run.sh\n@@ -1,2 +1,2 @@\n x \\\n-  --old 1 \\\n+  --new 1 \\\n   --é\n";
        let read = after(&Source::new("a.patch", text)).expect("a patch");
        let lines: Vec<&str> = read.text().lines().map(str::trim_end).collect();
        assert_eq!(lines, ["", "", "", " x \\", "", "   --new 1 \\", "   --é"]);
        assert_eq!(read.text().len(), text.len());
        assert!(after(&Source::new("a.sh", text)).is_none());
        assert!(after(&Source::new("a.patch", "x\n")).is_none());
    }
}
