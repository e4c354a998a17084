//! The number of data-parallel ranks of the attention layers.

use schemas::flags::Key;

use crate::Launch;

impl Launch {
    /// Number of data-parallel ranks of the attention layers; the running requests are divided
    /// among them. `None` if it depends on a size that is set elsewhere, or on a switch in a branch
    /// that may not run.
    pub fn attention_ranks(&self) -> Option<usize> {
        let may_have = |key: Key| self.perhaps.contains(&key);
        let size_of = |key: Key| match self.has(key) {
            _ if may_have(key) => None,
            true => self.count(key).map(|ranks| ranks.value.max(1)),
            false => Some(1),
        };
        if self.has(Key::AttnDpSize) || may_have(Key::AttnDpSize) {
            return size_of(Key::AttnDpSize);
        }
        match (self.has(Key::EnableDpAttention), may_have(Key::EnableDpAttention)) {
            (true, _) => size_of(Key::DpSize),
            (false, false) => Some(1),
            // With a size of 1 there is one rank, with or without the switch.
            (false, true) => size_of(Key::DpSize).filter(|ranks| *ranks == 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use super::*;
    use crate::{Options, parse};

    /// `flags` has those of the command before the `|`, and those of a branch that may not run
    /// after it.
    fn check(flags: &str, expected: Option<usize>) {
        let (given, perhaps) = flags.split_once('|').unwrap_or((flags, ""));
        let text =
            format!("if a; then A+=(--page-size 1); fi\nif b; then A+=({perhaps}); fi\nsglang serve {given} ${{A[@]}}");
        let parsed = parse(&Source::new("run.sh", text), &Options::default());
        assert_eq!(parsed.launches.first().and_then(Launch::attention_ranks), expected, "{flags}");
    }

    #[test]
    fn ranks_are_known_where_all_that_tells_them_is() {
        for (flags, expected) in [
            ("", Some(1)),
            ("--dp-size 4", Some(1)),
            ("--dp-size $DP", Some(1)),
            ("--enable-dp-attention", Some(1)),
            ("--enable-dp-attention --dp-size 4", Some(4)),
            ("--enable-dp-attention --dp-size $DP", None),
            ("--enable-dp-attention --dp-size=${DP}", None),
            ("--enable-dp-attention --dp-size four", None),
            ("--attn-dp-size 2", Some(2)),
            ("--attn-dp-size 2 --enable-dp-attention --dp-size $DP", Some(2)),
            ("--attn-dp-size $N --enable-dp-attention --dp-size 4", None),
            ("--dp-size 4 | --enable-dp-attention", None),
            ("--dp-size 1 | --enable-dp-attention", Some(1)),
            ("| --enable-dp-attention", Some(1)),
            ("--enable-dp-attention | --dp-size 4", None),
            ("| --dp-size 4", Some(1)),
            ("| --attn-dp-size 4", None),
        ] {
            check(flags, expected);
        }
    }
}
