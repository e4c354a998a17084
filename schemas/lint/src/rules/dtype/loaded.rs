//! The default dtypes of target and draft.

use schemas::{algorithm::Algorithm, flags::Key};

use crate::rules::{Context, Finding};

/// The dtypes of target and draft, which differ.
pub(super) struct LoadedDtype {
    pub target: String,
    pub draft: String,
}

impl LoadedDtype {
    /// The dtypes, if each model follows its own config and they differ.
    pub fn apart(context: &Context<'_>) -> Option<Self> {
        // A separate model shares neither hidden states nor embedding with the target.
        if matches!(context.algorithm()?, Algorithm::Standalone | Algorithm::Ngram) {
            return None;
        }
        let auto = context.launch.text(Key::Dtype).is_some_and(|dtype| dtype.value.eq_ignore_ascii_case("auto"));
        if !auto && !context.is_absent(Key::Dtype) {
            return None;
        }
        let target = context.resolved.target_dtype.as_ref()?.value.clone();
        let draft = context.resolved.draft_dtype.as_ref()?.value.clone();
        (target != draft).then_some(Self { target, draft })
    }

    /// The resulting failure.
    pub fn end(&self, context: &Context<'_>) -> &'static str {
        if captures(context) { "the capture of CUDA graphs fails" } else { "the first request kills the engine" }
    }

    /// The finding with this message and label.
    pub fn finding(&self, context: &Context<'_>, message: String, label: String) -> Finding {
        let graphs = captures(context);
        let key = Key::Dtype;
        let lines: Vec<String> = [self.target.as_str(), self.draft.as_str()]
            .into_iter()
            .map(|dtype| format!("`{}`", context.line(key, dtype)))
            .collect();
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, label)
            .related(context.span(Key::ModelPath), format!("loaded in {}", self.target))
            .sglang_says(format!(
                "{}expected mat1 and mat2 to have the same dtype, but got: c10::{} != c10::{}",
                if graphs { "Capture cuda graph failed: " } else { "RuntimeError: " },
                torch_name(&self.target),
                torch_name(&self.draft)
            ))
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help(format!("{} {}: each casts target and draft", context.add_or_write(key), lines.join(" or ")))
            .fix(
                schemas::diagnostic::Safety::Unsafe,
                format!("load both in {}", self.target),
                context.set(key, &self.target),
            )
    }
}

/// Whether graphs are captured (the default).
fn captures(context: &Context<'_>) -> bool {
    context.resolved.capture_sizes.as_ref().is_none_or(|sizes| !sizes.value.is_empty())
}

/// The name in PyTorch's messages.
fn torch_name(dtype: &str) -> &str {
    match dtype {
        "float16" => "Half",
        "bfloat16" => "BFloat16",
        "float32" => "Float",
        "float64" => "Double",
        other => other,
    }
}
