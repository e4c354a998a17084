//! The accelerators that the environment of a launch shows to it.

use schemas::text::Span;

use super::{
    Context, Finding,
    platform::{Platform, platform_of},
    support,
};

/// Variables by which a runtime hides accelerators, with the platforms whose runtime reads them.
const VARIABLES: [(&str, &[Platform]); 4] = [
    ("ASCEND_RT_VISIBLE_DEVICES", &[Platform::Ascend]),
    ("CUDA_VISIBLE_DEVICES", &[Platform::Cuda, Platform::Rocm]),
    ("HIP_VISIBLE_DEVICES", &[Platform::Rocm]),
    ("ROCR_VISIBLE_DEVICES", &[Platform::Rocm]),
];

/// The accelerators that a variable leaves visible.
pub(super) struct VisibleDevices {
    pub variable: &'static str,
    pub count: usize,
    pub span: Span,
}

/// The fewest accelerators that a variable of the launch leaves visible, if one names them.
fn visible(context: &Context<'_>) -> Option<VisibleDevices> {
    // Without a name of another platform, a text is mostly about CUDA.
    let platform = platform_of(context);
    let is_read = |platforms: &[Platform]| {
        let is_own = |own: Platform| platforms.contains(&own);
        platform.map_or(is_own(Platform::Cuda) || is_own(Platform::Rocm), is_own)
    };
    let own = VARIABLES.iter().filter(|(_, platforms)| is_read(platforms));
    let named = own.filter_map(|(name, _)| {
        let value = context.launch.variable(name)?;
        Some(VisibleDevices { variable: name, count: count(value.value)?, span: value.span })
    });
    named.min_by_key(|devices| devices.count)
}

/// What is reported if fewer accelerators are visible than the `needed` ones of a node, and which
/// those are.
pub(super) fn too_few(context: &Context<'_>, needed: usize) -> Option<(VisibleDevices, Finding)> {
    let visible = visible(context).filter(|visible| visible.count < needed)?;
    let shown = support::count(visible.count, "device");
    let message = format!("`{}` shows {shown}, and the ranks of this node take {needed}", visible.variable);
    let finding =
        Finding::new(visible.span, message, shown).help(format!("name {needed} devices, or start fewer ranks"));
    Some((visible, finding))
}

/// The number of devices that a value names by number or by identifier; `None` if it names none, or
/// something else.
fn count(value: &str) -> Option<usize> {
    let is_named = |part: &&str| {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number || ["GPU-", "MIG-"].iter().any(|prefix| part.starts_with(prefix))
    };
    let mut parts: Vec<&str> = value.split(',').map(str::trim).collect();
    // A comma at the end names nothing.
    parts.pop_if(|last| last.is_empty());
    let mut distinct = parts.clone();
    distinct.sort_unstable();
    distinct.dedup();
    // A device that is named twice hides all.
    (!parts.is_empty() && distinct.len() == parts.len() && parts.iter().all(is_named)).then_some(parts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_by_number_or_identifier() {
        for (value, expected) in [
            ("0", Some(1)),
            ("0,1, 2", Some(3)),
            ("4,5,", Some(2)),
            ("GPU-8932f937,MIG-1a", Some(2)),
            ("", None),
            ("-1", None),
            ("0,-1", None),
            ("0,0", None),
            ("0-3", None),
            ("all", None),
            ("<ids>", None),
        ] {
            assert_eq!(count(value), expected, "{value}");
        }
    }
}
