//! Engine versions as engines write them, and ranges of them.

use std::{cmp::Ordering, fmt, str::FromStr};

use crate::text::shortened;

/// A version such as `0.5.9`, `0.5.12.post1`, `0.5.0rc2`.
///
/// Order follows PEP 440 as far as published SGLang and vLLM versions use it:
/// `0.5.0rc2 < 0.5.0 < 0.5.0.post1`. A fourth number, as in vLLM's `0.9.0.1`, counts as a
/// post-release; local version labels after a `+` are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EngineVersion {
    /// Major, minor and patch.
    pub release: [u32; 3],
    /// The number of the release candidate, if it is one.
    pub candidate: Option<u32>,
    /// The number of the post-release, if it is one.
    pub post: Option<u32>,
}

/// The text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an engine version (expected a form such as 0.5.9 or 0.5.12.post1)")]
pub struct VersionError(pub String);

impl EngineVersion {
    /// A plain release.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { release: [major, minor, patch], candidate: None, post: None }
    }

    /// The post-release of this release with this number.
    pub const fn post(self, number: u32) -> Self {
        Self { post: Some(number), ..self }
    }
}

impl FromStr for EngineVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let error = || VersionError(shortened(text));
        let trimmed = text.trim().trim_start_matches('v');
        let trimmed = trimmed.split_once('+').map_or(trimmed, |(public, _build)| public);
        let mut version = Self { release: [0; 3], candidate: None, post: None };
        let mut parts = trimmed.split('.');
        for (place, slot) in version.release.iter_mut().enumerate() {
            let Some(part) = parts.next() else {
                if place == 0 {
                    return Err(error());
                }
                break;
            };
            let (number, candidate) = match part.split_once("rc") {
                Some((number, candidate)) => (number, Some(candidate.parse().map_err(|_| error())?)),
                None => (part, None),
            };
            *slot = number.parse().map_err(|_| error())?;
            version.candidate = version.candidate.or(candidate);
        }
        match parts.next() {
            None => {}
            Some(part) => {
                let number = part.strip_prefix("post").unwrap_or(part);
                version.post = Some(number.parse().map_err(|_| error())?);
            }
        }
        if parts.next().is_some() { Err(error()) } else { Ok(version) }
    }
}

impl Ord for EngineVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        // A release comes after all of its candidates.
        let candidate = |version: &Self| version.candidate.unwrap_or(u32::MAX);
        (self.release, candidate(self), self.post).cmp(&(other.release, candidate(other), other.post))
    }
}

impl PartialOrd for EngineVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.release;
        write!(formatter, "{major}.{minor}.{patch}")?;
        if let Some(candidate) = self.candidate {
            write!(formatter, "rc{candidate}")?;
        }
        if let Some(post) = self.post {
            write!(formatter, ".post{post}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> EngineVersion {
        text.parse().expect("a version")
    }

    #[test]
    fn order_follows_releases_candidates_and_posts() {
        let ordered = ["0.4.7", "0.4.7.post1", "0.4.10", "0.5.0rc2", "0.5.0", "0.5.12", "0.5.12.post1", "0.5.15"];
        for pair in ordered.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{} < {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn printing_and_parsing_agree() {
        for text in ["0.5.23", "0.5.15.post1", "0.5.0rc2"] {
            assert_eq!(version(text).to_string(), text);
        }
        assert_eq!(version("v0.5.9"), EngineVersion::new(0, 5, 9));
        assert_eq!(version("0.9.0.1"), EngineVersion::new(0, 9, 0).post(1));
        assert_eq!(version("0.5.9+cu130"), EngineVersion::new(0, 5, 9));
        assert!("main".parse::<EngineVersion>().is_err());
    }
}
