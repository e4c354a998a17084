//! Where and with what figures were measured.

use serde::{Deserialize, Serialize};

use crate::{Engine, options::Fp8Compute};

/// Where and with what figures were measured: they are comparable if their fingerprints are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// `cpu` or `cuda:N`.
    pub device: String,
    /// Name of the processor or GPU.
    pub device_name: String,
    /// Driver version of a GPU; empty on the CPU.
    pub driver: String,
    /// Number of threads on a CPU, of multiprocessors on a GPU.
    pub units: usize,
    /// Engine and its version, such as `spectune 0.1.0`.
    pub engine: String,
    /// Hash of the target's files.
    pub target: String,
    /// Hash of the draft's files; empty without a draft.
    pub draft: String,
    /// Hash of prompts, lengths and sampling, or of random lengths and their seed.
    pub workload: String,
    /// The engine's settings that affect a round and stay the same over a sweep, in words; the
    /// algorithm comes first.
    pub settings: String,
}

impl Fingerprint {
    /// The fingerprint of what an engine measures under a workload with this hash. `algorithm` is
    /// named in place of the engine's, for figures of several drafts; `limit` is a limit of running
    /// requests in words, if one is set.
    pub fn from_engine(engine: &Engine, algorithm: Option<&str>, limit: &str, workload: String) -> Self {
        let device = engine.device();
        let own = || engine.options().algorithm.as_deref().unwrap_or("no draft");
        Self {
            device: device.device,
            device_name: device.name,
            driver: device.driver,
            units: device.units,
            engine: crate::NAME_AND_VERSION.into(),
            target: engine.identity().target.clone(),
            draft: engine.identity().draft.clone().unwrap_or_default(),
            workload,
            settings: settings(algorithm.unwrap_or_else(own), engine, limit),
        }
    }

    /// The fingerprint without everything that concerns only the draft: of the settings, the
    /// algorithm, which comes first.
    pub fn without_draft(&self) -> Self {
        // The algorithm is the first of the settings, and belongs to the draft.
        let settings = self.settings.split_once(", ").map_or("", |(_, rest)| rest).to_owned();
        Self { draft: String::new(), settings, ..self.clone() }
    }

    /// The differences from another, each with both values; empty if they agree.
    pub fn difference(&self, other: &Self) -> String {
        let words = |(name, there, here)| format!("{name} {there}, now {here}");
        self.differences(other).into_iter().map(words).collect::<Vec<_>>().join("; ")
    }

    /// The differences from another: name, value here, value there; an empty value is shown as
    /// "none".
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let fields = |one: &Self| {
            let Self { device, device_name, driver, units, engine, target, draft, workload, settings } = one.clone();
            [
                ("device", device),
                ("processor or GPU", device_name),
                ("driver", driver),
                ("threads or multiprocessors", units.to_string()),
                ("engine", engine),
                ("target", target),
                ("draft", draft),
                ("workload", workload),
                ("settings", settings),
            ]
        };
        let pairs = fields(self).into_iter().zip(fields(other)).filter(|(this, that)| this != that);
        let named = |value: String| if value.is_empty() { "none".to_owned() } else { value };
        pairs.map(|((name, this), (_, that))| (name, named(this), named(that))).collect()
    }
}

/// The part of a fingerprint in which two measurements on one machine can differ, the algorithm
/// first.
fn settings(algorithm: &str, engine: &Engine, limit: &str) -> String {
    let options = engine.options();
    let captured = match options.capture_sizes.as_slice() {
        [] => String::new(),
        sizes => format!(", capture sizes {}", sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
    };
    let quantised = options.quantization.map_or_else(String::new, |by| format!(" as {}", by.name()));
    let products = match engine.identity().fp8_compute {
        Some(Fp8Compute::Products) => " with fp8 products",
        Some(Fp8Compute::Weights) | None => "",
    };
    let cache = options.kv_cache.word().map_or_else(String::new, |word| format!(", KV cache {word}"));
    format!(
        "{algorithm}, dtype {}{quantised}{products}{cache}, context {}, page size {}, prefill of {} tokens{limit}{captured}",
        options.dtype,
        engine.capacity().context_length,
        options.page_size,
        options.chunked_prefill_size
    )
}
