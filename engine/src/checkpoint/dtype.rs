//! Names of dtypes in safetensors files.

use kernels::device::Element;

/// The safetensors name of FP8 (e4m3).
pub(super) const E4M3: &str = "F8_E4M3";

/// The name of matrices in MXFP4: safetensors files hold their numbers and scales as bytes.
pub(super) const MXFP4: &str = "MXFP4";

/// The floating-point type with this safetensors name; `None` for other dtypes, including FP8.
pub(super) fn element(dtype: &str) -> Option<Element> {
    match dtype {
        "F32" => Some(Element::F32),
        "F16" => Some(Element::F16),
        "BF16" => Some(Element::BF16),
        _ => None,
    }
}
