//! The kind of accelerator that a launch is written for.

use launch::Launch;
use schemas::flags::Key;
use serde::Deserialize;

use super::Context;

/// A kind of accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Platform {
    Cuda,
    Rocm,
    /// Ascend NPUs, which a plugin of vLLM and a device of SGLang serve.
    Ascend,
    /// Intel's GPUs.
    Xpu,
    Other,
}

impl Platform {
    /// Whether the engine's own code runs on it, without a plugin.
    pub(super) fn is_gpu(self) -> bool {
        matches!(self, Self::Cuda | Self::Rocm)
    }
}

/// Substrings of words of a launch, its image and its variables, each of one platform.
const MARKS: [(&str, Platform); 9] = [
    ("ascend", Platform::Ascend),
    ("hccl", Platform::Ascend),
    ("npu", Platform::Ascend),
    ("rocm", Platform::Rocm),
    ("aiter", Platform::Rocm),
    ("hip_visible_devices", Platform::Rocm),
    ("mi300x", Platform::Rocm),
    ("mi355x", Platform::Rocm),
    ("xpu", Platform::Xpu),
];

/// The platform that a launch names: by `--device`, by its image, its variables, its program or its
/// backends, or else the one that the text around it names. `None` if there is none, which on most
/// texts is CUDA.
pub(super) fn platform_of(context: &Context<'_>) -> Option<Platform> {
    let launch = context.launch;
    if let Some(device) = launch.text(Key::Device).filter(|device| device.value != "auto") {
        return Some(match device.value.split(':').next().unwrap_or_default() {
            "cuda" if is_marked(launch, Platform::Rocm) => Platform::Rocm,
            "cuda" => Platform::Cuda,
            "npu" => Platform::Ascend,
            "xpu" => Platform::Xpu,
            _ => Platform::Other,
        });
    }
    let marked =
        [Platform::Ascend, Platform::Rocm, Platform::Xpu].into_iter().find(|platform| is_marked(launch, *platform));
    marked.or(context.hardware.platform)
}

fn is_marked(launch: &Launch, platform: Platform) -> bool {
    let marks = || MARKS.iter().filter(|(_, own)| *own == platform).map(|(mark, _)| *mark);
    let has = |text: &str| {
        let text = text.to_ascii_lowercase();
        marks().any(|mark| is_word(&text, mark))
    };
    let values = launch.arguments.iter().filter(|argument| !argument.in_branch).flat_map(|argument| &argument.values);
    let words = launch.program.iter().chain(values).filter_map(|word| word.value.known());
    words.chain(launch.image.as_deref()).chain(launch.environment.keys().map(String::as_str)).any(has)
}

/// Whether a text contains a mark that is not the inside of a longer word.
fn is_word(text: &str, mark: &str) -> bool {
    let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
    let bytes = text.as_bytes();
    text.match_indices(mark).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !is_letter(before) && !is_letter(bytes.get(at + mark.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_whole_word() {
        for (text, mark, expected) in [
            ("vllm-ascend:v0.14", "ascend", true),
            ("ascend_rt_visible_devices", "ascend", true),
            ("descendants", "ascend", false),
            ("input", "npu", false),
            ("npu:0", "npu", true),
            ("waiter", "aiter", false),
            ("sgl-dev:sglang-0.5.14-rocm720", "rocm", true),
            ("vllm-openai-xpu:nightly", "xpu", true),
        ] {
            assert_eq!(is_word(text, mark), expected, "{text}");
        }
    }
}
