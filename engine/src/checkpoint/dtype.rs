//! Names of dtypes in safetensors files.

use kernels::device::Element;

/// The dtype of such tensors in safetensors.
pub(super) const E4M3: &str = "F8_E4M3";

/// The floating-point type that safetensors names so; `None` of other dtypes, FP8 among them.
pub(super) fn element(dtype: &str) -> Option<Element> {
    match dtype {
        "F32" => Some(Element::F32),
        "F16" => Some(Element::F16),
        "BF16" => Some(Element::BF16),
        _ => None,
    }
}
