//! The accelerators that a text names, in prose, comments, names of nodes and paths.

use schemas::gpu::Architecture::{self, Cdna, Sm};

use super::platform::Platform;

/// What a text says of the accelerators that its launches run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The only architecture that it names.
    pub architecture: Option<Architecture>,
    /// The only platform that it names.
    pub(super) platform: Option<Platform>,
}

/// Names of accelerators, in lower case and without blanks and signs between their parts.
const NAMES: [(&str, Platform, Option<Architecture>); 68] = [
    ("910b", Platform::Ascend, None),
    ("910c", Platform::Ascend, None),
    ("a10", Platform::Cuda, Some(Sm(8, 6))),
    ("a100", Platform::Cuda, Some(Sm(8, 0))),
    ("a40", Platform::Cuda, Some(Sm(8, 6))),
    ("a6000", Platform::Cuda, Some(Sm(8, 6))),
    ("a800", Platform::Cuda, Some(Sm(8, 0))),
    ("arcprob60", Platform::Xpu, None),
    ("arcprob70", Platform::Xpu, None),
    ("ascend", Platform::Ascend, None),
    ("b200", Platform::Cuda, Some(Sm(10, 0))),
    ("b300", Platform::Cuda, Some(Sm(10, 3))),
    ("davinci", Platform::Ascend, None),
    ("dgxspark", Platform::Cuda, Some(Sm(12, 1))),
    ("dgxsparks", Platform::Cuda, Some(Sm(12, 1))),
    ("gaudi", Platform::Other, None),
    ("gb10", Platform::Cuda, Some(Sm(12, 1))),
    ("gb200", Platform::Cuda, Some(Sm(10, 0))),
    ("gb300", Platform::Cuda, Some(Sm(10, 3))),
    ("gfx1100", Platform::Rocm, None),
    ("gfx1151", Platform::Rocm, None),
    ("gfx1201", Platform::Rocm, None),
    ("gfx90a", Platform::Rocm, Some(Cdna(2))),
    ("gfx942", Platform::Rocm, Some(Cdna(3))),
    ("gfx950", Platform::Rocm, Some(Cdna(4))),
    ("h100", Platform::Cuda, Some(Sm(9, 0))),
    ("h20", Platform::Cuda, Some(Sm(9, 0))),
    ("h200", Platform::Cuda, Some(Sm(9, 0))),
    ("h800", Platform::Cuda, Some(Sm(9, 0))),
    ("l20", Platform::Cuda, Some(Sm(8, 9))),
    ("l4", Platform::Cuda, Some(Sm(8, 9))),
    ("l40", Platform::Cuda, Some(Sm(8, 9))),
    ("l40s", Platform::Cuda, Some(Sm(8, 9))),
    ("mi210", Platform::Rocm, Some(Cdna(2))),
    ("mi250", Platform::Rocm, Some(Cdna(2))),
    ("mi250x", Platform::Rocm, Some(Cdna(2))),
    ("mi300", Platform::Rocm, Some(Cdna(3))),
    ("mi300a", Platform::Rocm, Some(Cdna(3))),
    ("mi300x", Platform::Rocm, Some(Cdna(3))),
    ("mi308x", Platform::Rocm, Some(Cdna(3))),
    ("mi325x", Platform::Rocm, Some(Cdna(3))),
    ("mi350x", Platform::Rocm, Some(Cdna(4))),
    ("mi355x", Platform::Rocm, Some(Cdna(4))),
    ("r9700", Platform::Rocm, None),
    ("rocm", Platform::Rocm, None),
    ("rtx2080ti", Platform::Cuda, Some(Sm(7, 5))),
    ("rtx3080", Platform::Cuda, Some(Sm(8, 6))),
    ("rtx3090", Platform::Cuda, Some(Sm(8, 6))),
    ("rtx4080", Platform::Cuda, Some(Sm(8, 9))),
    ("rtx4090", Platform::Cuda, Some(Sm(8, 9))),
    ("rtx5070ti", Platform::Cuda, Some(Sm(12, 0))),
    ("rtx5080", Platform::Cuda, Some(Sm(12, 0))),
    ("rtx5090", Platform::Cuda, Some(Sm(12, 0))),
    ("rtxpro5000", Platform::Cuda, Some(Sm(12, 0))),
    ("rtxpro6000", Platform::Cuda, Some(Sm(12, 0))),
    ("sm100", Platform::Cuda, Some(Sm(10, 0))),
    ("sm103", Platform::Cuda, Some(Sm(10, 3))),
    ("sm120", Platform::Cuda, Some(Sm(12, 0))),
    ("sm120a", Platform::Cuda, Some(Sm(12, 0))),
    ("sm121", Platform::Cuda, Some(Sm(12, 1))),
    ("sm80", Platform::Cuda, Some(Sm(8, 0))),
    ("sm86", Platform::Cuda, Some(Sm(8, 6))),
    ("sm89", Platform::Cuda, Some(Sm(8, 9))),
    ("sm90", Platform::Cuda, Some(Sm(9, 0))),
    ("strixhalo", Platform::Rocm, None),
    ("torchnpu", Platform::Ascend, None),
    ("v100", Platform::Cuda, Some(Sm(7, 0))),
    ("xpu", Platform::Xpu, None),
];

/// Maximum number of words between the first and the last part of a name, `RTX PRO 6000`.
const MOST_PARTS: usize = 3;

/// Maximum length of a name.
const LONGEST: usize = 12;

impl Hardware {
    /// The accelerators that a text names; one of several kinds is none.
    pub fn named_in(text: &str) -> Self {
        let parts: Vec<&str> =
            text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).collect();
        let (mut architectures, mut platforms) = (Vec::new(), Vec::new());
        // Most words begin no name; this costs less than three searches for each.
        let may_begin = |part: &&str| {
            part.bytes().next().is_some_and(|byte| b"abdghlmrsx0123456789".contains(&byte.to_ascii_lowercase()))
        };
        for at in (0..parts.len()).filter(|at| parts.get(*at).is_some_and(may_begin)) {
            let mut name = String::new();
            let mut longest = None;
            // A name may be written in several parts: `RTX PRO 6000`, `rtx-4090`.
            for part in parts.iter().skip(at).take(MOST_PARTS) {
                name.push_str(&part.to_ascii_lowercase());
                if name.len() > LONGEST {
                    break;
                }
                // A count may precede a name: `8xH200`.
                let bare = name.trim_start_matches(|letter: char| letter.is_ascii_digit()).strip_prefix('x');
                let found = |name: &str| NAMES.binary_search_by(|(own, ..)| (*own).cmp(name)).ok();
                longest = found(&name).or_else(|| found(bare?)).or(longest);
            }
            let Some((_, platform, architecture)) = longest.and_then(|at| NAMES.get(at)) else { continue };
            if !platforms.contains(platform) {
                platforms.push(*platform);
            }
            if let Some(architecture) = architecture.filter(|architecture| !architectures.contains(architecture)) {
                architectures.push(architecture);
            }
        }
        // A text that names several kinds of hardware does not say which one it runs on.
        let platform = if let [platform] = platforms.as_slice() { Some(*platform) } else { None };
        let architecture = if let [architecture] = architectures.as_slice() { Some(*architecture) } else { None };
        Self { architecture: architecture.filter(|_| platform.is_some()), platform }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted_by_key(|(name, ..)| *name));
    }

    #[test]
    fn a_text_names_its_accelerators() {
        for (text, platform, architecture) in [
            ("on 2x RTX PRO 6000 (sm_120)", Some(Platform::Cuda), Some(Sm(12, 0))),
            ("# DGX Spark, GB10", Some(Platform::Cuda), Some(Sm(12, 1))),
            ("8xH200 or 8xB200", Some(Platform::Cuda), None),
            ("8xH200 and H100", Some(Platform::Cuda), Some(Sm(9, 0))),
            ("MI300X with ROCm 7", Some(Platform::Rocm), Some(Cdna(3))),
            ("Ascend 910B", Some(Platform::Ascend), None),
            ("Intel Arc Pro B70", Some(Platform::Xpu), None),
            ("H200 or MI355X", None, None),
            ("--port 30000 a1000 ch100", None, None),
        ] {
            assert_eq!(Hardware::named_in(text), Hardware { platform, architecture }, "{text}");
        }
    }
}
