//! Flags that set the speculative configuration, or a key of it.

/// The part of the speculative configuration that a flag sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigFlag<'a> {
    /// The whole configuration, as JSON.
    Whole,
    /// One key of it.
    Key(&'a str),
}

/// The part of the speculative configuration that a flag sets, if any. vLLM accepts underscores in
/// place of dashes up to the first dot (`utils/argparse_utils.py`), and `-sc` as short for
/// `--speculative-config` (`engine/arg_utils.py`).
pub(super) fn named(spelling: &str) -> Option<ConfigFlag<'_>> {
    let (flag, key) = match spelling.split_once('.') {
        Some((flag, key)) => (flag, Some(key)),
        None => (spelling, None),
    };
    match (flag.replace('_', "-").as_str(), key) {
        ("--speculative-config" | "-sc", Some(key)) => Some(ConfigFlag::Key(key)),
        ("--speculative-config" | "-sc", None) => Some(ConfigFlag::Whole),
        ("--spec-method", None) => Some(ConfigFlag::Key("method")),
        ("--spec-model" | "--speculative-model", None) => Some(ConfigFlag::Key("model")),
        ("--spec-tokens" | "--num-speculative-tokens", None) => Some(ConfigFlag::Key("num_speculative_tokens")),
        _ => None,
    }
}

/// Whether a flag is `--speculative-config`, or one of its keys after a dot.
pub(super) fn is_config(spelling: &str) -> bool {
    let flag = spelling.split('.').next().unwrap_or_default();
    matches!(flag.replace('_', "-").as_str(), "--speculative-config" | "-sc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_give_the_whole_or_a_key() {
        for (flag, expected) in [
            ("--speculative-config", Some(ConfigFlag::Whole)),
            ("--speculative_config", Some(ConfigFlag::Whole)),
            ("-sc", Some(ConfigFlag::Whole)),
            ("-sc.method", Some(ConfigFlag::Key("method"))),
            ("--speculative_config.num_speculative_tokens", Some(ConfigFlag::Key("num_speculative_tokens"))),
            ("--spec-method", Some(ConfigFlag::Key("method"))),
            ("--spec_tokens", Some(ConfigFlag::Key("num_speculative_tokens"))),
            ("--num-speculative-tokens", Some(ConfigFlag::Key("num_speculative_tokens"))),
            ("--speculative-model", Some(ConfigFlag::Key("model"))),
            ("--spec-model.x", None),
            ("--speculative", None),
            ("-s", None),
        ] {
            assert_eq!(named(flag), expected, "{flag}");
        }
    }
}
