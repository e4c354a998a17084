//! GPUs by memory and architecture, on which the defaults of engines depend.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::shortened;

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

/// The architecture that decides which kernels a GPU runs: NVIDIA's compute capability, or AMD's
/// generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Architecture {
    /// NVIDIA's, as major and minor.
    Sm(u8, u8),
    /// AMD's data centre generations (MI300 is 3, MI350 is 4).
    Cdna(u8),
}

impl fmt::Display for Architecture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sm(major, minor) => write!(formatter, "SM {major}.{minor}"),
            Self::Cdna(generation) => write!(formatter, "CDNA {generation}"),
        }
    }
}

use Architecture::{Cdna, Sm};

/// Memory by model, as `nvidia-smi --query-gpu=memory.total` prints it, and the architecture.
const MODELS: &[(&str, u64, Architecture)] = &[
    ("A10", 23_028, Sm(8, 6)),
    ("A100-40GB", 40_960, Sm(8, 0)),
    ("A100-80GB", 81_920, Sm(8, 0)),
    ("A100", 81_920, Sm(8, 0)),
    ("A40", 46_068, Sm(8, 6)),
    ("A800", 81_920, Sm(8, 0)),
    ("B200", 183_359, Sm(10, 0)),
    ("B300", 275_040, Sm(10, 3)),
    ("GB10", 124_610, Sm(12, 1)),
    ("GB200", 189_471, Sm(10, 0)),
    ("GB300", 284_208, Sm(10, 3)),
    ("H100", 81_559, Sm(9, 0)),
    ("H100-NVL", 95_830, Sm(9, 0)),
    ("H20", 97_871, Sm(9, 0)),
    ("H20-141GB", 143_771, Sm(9, 0)),
    ("H200", 143_771, Sm(9, 0)),
    ("H800", 81_559, Sm(9, 0)),
    ("L4", 23_034, Sm(8, 9)),
    ("L40", 46_068, Sm(8, 9)),
    ("L40S", 46_068, Sm(8, 9)),
    ("MI300X", 196_592, Cdna(3)),
    ("MI325X", 262_128, Cdna(3)),
    ("MI350X", 294_896, Cdna(4)),
    ("MI355X", 294_896, Cdna(4)),
    ("RTX-3090", 24_576, Sm(8, 6)),
    ("RTX-4090", 24_564, Sm(8, 9)),
    ("RTX-5090", 32_607, Sm(12, 0)),
    ("RTX-PRO-6000", 97_887, Sm(12, 0)),
    ("T4", 15_360, Sm(7, 5)),
];

/// The architecture of the GPUs with this much memory in MiB, if all of them have the same.
pub fn architecture_of(memory: u64) -> Option<Architecture> {
    let mut known = MODELS.iter().filter(|(_, own, _)| *own == memory).map(|(.., architecture)| *architecture);
    let first = known.next()?;
    known.all(|other| other == first).then_some(first)
}

/// The models with this much memory in MiB, as `H100, H800`.
pub fn models_of(memory: u64) -> String {
    let known = MODELS.iter().filter(|(_, own, _)| *own == memory).map(|(model, ..)| *model);
    known.collect::<Vec<_>>().join(", ")
}

/// The text is neither a size nor a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is neither a size in MiB nor a GPU known by name (known: {known})")]
pub struct GpuError {
    text: String,
    known: String,
}

impl FromStr for GpuMemory {
    type Err = GpuError;

    /// Parses a number of MiB, or a model's name in any case, with blanks, underscores or dashes.
    fn from_str(text: &str) -> Result<Self, GpuError> {
        let name = text.trim().to_ascii_uppercase().replace([' ', '_'], "-");
        let size = name.parse().ok().filter(|size| *size > 0);
        let model = || MODELS.iter().find(|(model, ..)| *model == name).map(|(_, memory, _)| *memory);
        size.or_else(model).map(Self).ok_or_else(|| GpuError {
            text: shortened(text),
            known: MODELS.iter().map(|(model, ..)| *model).collect::<Vec<_>>().join(", "),
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
    fn memory_tells_the_architecture_where_models_agree() {
        let of = |name: &str| architecture_of(name.parse::<GpuMemory>().expect("known").0);
        assert_eq!((of("H200"), of("b200"), of("RTX 5090")), (Some(Sm(9, 0)), Some(Sm(10, 0)), Some(Sm(12, 0))));
        assert_eq!((of("L40S"), architecture_of(80_000)), (None, None));
        assert_eq!(models_of(81_559), "H100, H800");
    }

    #[test]
    fn the_table_is_in_order_without_doubles() {
        assert!(MODELS.windows(2).all(|pair| pair[0].0 < pair[1].0 || pair[0].0.starts_with("A100")));
    }
}
