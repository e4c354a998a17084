//! Versions as texts write them.

use schemas::version::EngineVersion;

/// The three-part version at the start of a text, and its length in bytes.
pub(super) fn version_at(text: &str) -> Option<(EngineVersion, usize)> {
    let digits = text.strip_prefix('v').unwrap_or(text);
    let skipped = text.len() - digits.len();
    let mut length = 0;
    for number in 0..3 {
        let rest = digits.get(length..)?;
        let rest = if number > 0 { rest.strip_prefix('.')? } else { rest };
        let width = rest.bytes().take_while(u8::is_ascii_digit).count();
        if width == 0 || width > 3 {
            return None;
        }
        length += width + usize::from(number > 0);
    }
    for ending in [".post", "rc"] {
        if let Some(rest) = digits.get(length..)?.strip_prefix(ending) {
            let width = rest.bytes().take_while(u8::is_ascii_digit).count();
            length += if width > 0 { ending.len() + width } else { 0 };
        }
    }
    let rest = digits.get(length..)?;
    let goes_on = rest.starts_with(|letter: char| letter.is_ascii_digit()) || is_far_from_its_tag(rest);
    (!goes_on).then_some((digits.get(..length)?.parse().ok()?, skipped + length))
}

/// Whether a version with this text after its numbers says nothing of the release: that of a commit
/// far from the tag that it is numbered by (`.dev9039+g90c446848`), or of someone's own branch
/// (`.dev280+our.branch.20260810`).
pub(super) fn is_far_from_its_tag(rest: &str) -> bool {
    let Some(build) = rest.strip_prefix(".dev") else { return false };
    let digits = build.bytes().take_while(u8::is_ascii_digit).count();
    let label = build.get(digits..).and_then(|rest| rest.strip_prefix('+'));
    digits >= 4 || label.is_some_and(|label| !is_label_of_project(label))
}

/// Whether the label of a build is one that the projects' own builds have: a commit, a day, a
/// platform.
fn is_label_of_project(label: &str) -> bool {
    let first = label.split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default();
    let is_commit = first
        .strip_prefix('g')
        .is_some_and(|hash| hash.len() >= 6 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_commit || ["cpu", "cu1", "d20", "precompiled", "rocm", "xpu"].iter().any(|platform| first.starts_with(platform))
}

/// Filters out versions that no engine can have: some vendors number their images by year.
pub(super) fn plausible(version: EngineVersion) -> Option<EngineVersion> {
    (version.release[0] == 0 && version.release[1] > 0).then_some(version)
}
