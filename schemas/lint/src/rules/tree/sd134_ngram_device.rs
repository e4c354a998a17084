//! # SD134: ngram-device
//!
//! NGRAM does not run on this device.
//!
//! ## What it does
//!
//! Looks at `--device` under NGRAM.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! Up to 0.5.15 `ValueError: Ngram speculative decoding only supports CUDA device.`; from 0.5.21 on
//! `Ngram speculative decoding only supports CUDA, CPU, or XPU devices.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.9 also:SD108
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --device cpu
//! ```
//!
//! ```launch bad version:0.5.20 also:SD108
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --device xpu
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --device npu
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.16
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --device cpu
//! ```
//!
//! ## Versions
//!
//! CPUs were added in 0.5.16, XPUs in 0.5.21; read in these versions and in those before them.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`; before 0.5.15 `server_args.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD134",
    name: "ngram-device",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Devices of SGLang other than CUDA.
const OTHERS: [&str; 6] = ["cpu", "hpu", "mps", "musa", "npu", "xpu"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Ngram)?;
    let device = context.launch.text(Key::Device).filter(|device| OTHERS.contains(&device.value))?;
    let version = context.version();
    let (also, says): (&[&str], _) = if version >= V0_5_21 {
        (&["cpu", "xpu"], "Ngram speculative decoding only supports CUDA, CPU, or XPU devices.")
    } else if version >= V0_5_16 {
        (&["cpu"], "Ngram speculative decoding only supports CUDA or CPU devices.")
    } else {
        (&[], "Ngram speculative decoding only supports CUDA device.")
    };
    if also.contains(&device.value) {
        return None;
    }
    let message = format!("NGRAM does not run on {} in sglang {version}", device.value);
    Some(
        Finding::new(device.span, message, "not this device")
            .related(context.span(Key::SpeculativeAlgorithm), "looks tokens up")
            .sglang_says(says)
            .by_version()
            .help(format!("run it on CUDA, or take `{}` out", context.flag(Key::SpeculativeAlgorithm))),
    )
}

#[cfg(test)]
mod tests {
    use crate::rules::examples::finds;

    #[test]
    fn devices_are_refused_until_the_version_that_supports_them() {
        for (device, version, is_refused) in [
            ("cpu", "0.5.15.post1", true),
            ("cpu", "0.5.16", false),
            ("xpu", "0.5.20", true),
            ("xpu", "0.5.21", false),
            ("npu", "0.5.22", true),
        ] {
            let text = format!("sglang serve --model-path m --speculative-algorithm NGRAM --device {device}");
            assert_eq!(finds("SD134", &text, version), is_refused, "{device} {version}");
        }
    }
}
