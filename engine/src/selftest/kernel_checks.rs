//! The checks of kernels, by name.

use kernels::{
    checks::{CHECKS, UNTYPED_CHECKS},
    device::{Device, Element},
};

use super::Scope;
use crate::EngineError;

/// A check of a kernel; its error says what is wrong.
pub struct KernelCheck {
    pub name: String,
    pub run: Box<CheckFunction>,
}

type CheckFunction = dyn Fn(&Device) -> Result<(), String>;

/// The requested checks: those that run in each element type, then the others.
pub fn kernel_checks(scope: Scope<'_>) -> Result<Vec<KernelCheck>, EngineError> {
    let mut checks = Vec::new();
    for element in [Element::F32, Element::F16, Element::BF16] {
        checks.extend(CHECKS.iter().map(|(name, check)| KernelCheck {
            name: format!("{name}, {}", element.name()),
            run: Box::new(move |device| check(device, element)),
        }));
    }
    checks
        .extend(UNTYPED_CHECKS.iter().map(|(name, check)| KernelCheck { name: (*name).into(), run: Box::new(check) }));
    let Scope::Kernels(texts) = scope else { return Ok(checks) };
    let texts_in_lower_case: Vec<String> = texts.iter().map(|text| text.to_lowercase()).collect();
    let is_requested = |check: &KernelCheck| {
        let name = check.name.to_lowercase();
        texts_in_lower_case.iter().any(|text| name.contains(text))
    };
    let (chosen, others): (Vec<_>, Vec<_>) = checks.into_iter().partition(is_requested);
    if chosen.is_empty() {
        let names: Vec<String> = others.into_iter().map(|check| check.name).collect();
        let (requested, names) = (texts.join(" or "), names.join("; "));
        return Err(EngineError::Configuration(format!(
            "no kernel check has {requested} in its name; available: {names}"
        )));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Result<Vec<String>, EngineError> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Ok(kernel_checks(Scope::Kernels(&texts))?.into_iter().map(|check| check.name).collect())
    }

    #[test]
    fn kernels_are_chosen_by_a_part_of_their_name() {
        assert_eq!(names(&["embed, b", "decode"]).expect("there are such"), ["embed, bfloat16", "decode_begin"]);
        let none = names(&["no such"]).expect_err("there is none").to_string();
        assert!(none.contains("no such") && none.contains("decode_begin"), "{none}");
    }
}
