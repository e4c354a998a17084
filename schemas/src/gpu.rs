//! GPUs that engines choose their defaults by.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The memory of one GPU in MiB, as `nvidia-smi` prints it and as engines compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "SizeOrName")]
#[schemars(with = "SizeOrName")]
pub struct GpuMemory(pub u64);

/// How it is written: MiB, or a GPU's name.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum SizeOrName {
    /// In MiB.
    Size(u64),
    /// Such as H200.
    Name(String),
}

impl TryFrom<SizeOrName> for GpuMemory {
    type Error = GpuError;

    fn try_from(written: SizeOrName) -> Result<Self, GpuError> {
        match written {
            SizeOrName::Size(size) => size.to_string().parse(),
            SizeOrName::Name(name) => name.parse(),
        }
    }
}

/// Memory by model, as `nvidia-smi --query-gpu=memory.total` prints it.
const MODELS: &[(&str, u64)] = &[
    ("A10", 23_028),
    ("A100-40GB", 40_960),
    ("A100-80GB", 81_920),
    ("A100", 81_920),
    ("A40", 46_068),
    ("A800", 81_920),
    ("B200", 183_359),
    ("B300", 275_040),
    ("GB200", 189_471),
    ("H100", 81_559),
    ("H100-NVL", 95_830),
    ("H20", 97_871),
    ("H20-141GB", 143_771),
    ("H200", 143_771),
    ("H800", 81_559),
    ("L4", 23_034),
    ("L40", 46_068),
    ("L40S", 46_068),
    ("MI300X", 196_592),
    ("RTX-3090", 24_576),
    ("RTX-4090", 24_564),
    ("RTX-5090", 32_607),
    ("T4", 15_360),
];

/// The text is neither a size nor a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is neither a size in MiB nor a GPU known by name (known: {known})")]
pub struct GpuError {
    text: String,
    known: String,
}

impl FromStr for GpuMemory {
    type Err = GpuError;

    /// A number of MiB, or a model's name in any case, with blanks or dashes.
    fn from_str(text: &str) -> Result<Self, GpuError> {
        let name = text.trim().to_ascii_uppercase().replace([' ', '_'], "-");
        let size = name.parse().ok().filter(|size| *size > 0);
        let model = || MODELS.iter().find(|(model, _)| *model == name).map(|(_, memory)| *memory);
        size.or_else(model).map(Self).ok_or_else(|| GpuError {
            text: text.chars().take(64).collect(),
            known: MODELS.iter().map(|(model, _)| *model).collect::<Vec<_>>().join(", "),
        })
    }
}

impl fmt::Display for GpuMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} MiB", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_names_are_read() {
        for (text, expected) in [("143771", 143_771), ("H200", 143_771), ("rtx 4090", 24_564), ("a100-40gb", 40_960)] {
            assert_eq!(text.parse(), Ok(GpuMemory(expected)), "{text}");
        }
        for text in ["", "0", "-5", "80GB", "Z9000"] {
            assert!(text.parse::<GpuMemory>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_table_is_in_order_without_doubles() {
        assert!(MODELS.windows(2).all(|pair| pair[0].0 < pair[1].0 || pair[0].0.starts_with("A100")));
    }
}
