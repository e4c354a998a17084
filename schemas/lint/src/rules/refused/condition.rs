//! One condition of a row: what must be known of a flag.

use launch::Argument;
use schemas::{
    engines::Engine,
    flags::{self, Key},
    text::Span,
};
use serde::Deserialize;

use crate::rules::Context;

/// What must be known of a flag. Without a test the flag must be given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Condition {
    /// The name without dashes.
    flag: String,
    /// The flag must be absent; no other test applies.
    #[serde(default)]
    absent: bool,
    /// The flag may be absent too.
    #[serde(default)]
    or_absent: bool,
    /// Its value is one of these.
    #[serde(default)]
    is: Vec<String>,
    /// Its value is none of these.
    #[serde(default)]
    not: Vec<String>,
    /// Its value contains one of these.
    #[serde(default)]
    parts: Vec<String>,
    /// Its value contains none of these.
    #[serde(default)]
    no_parts: Vec<String>,
    /// Its value is above this number.
    above: Option<i64>,
    /// Its value is above the product of these flags.
    #[serde(default)]
    above_flags: Vec<String>,
    /// Its value is below the product of these flags.
    #[serde(default)]
    below_flags: Vec<String>,
    /// Its value is not below the product of these flags.
    #[serde(default)]
    not_below_flags: Vec<String>,
    /// Its value is not that of this flag.
    is_not_flag: Option<String>,
    /// Its value is not a multiple of the product of these flags.
    #[serde(default)]
    not_multiple_of: Vec<String>,
    /// Its value does not divide the product of these flags.
    #[serde(default)]
    does_not_divide: Vec<String>,
}

impl Condition {
    /// The places that show that it holds (none for an absent flag); `None` if it does not hold or
    /// is not known to.
    pub(super) fn holds(&self, context: &Context<'_>) -> Option<Option<Span>> {
        if self.absent || self.or_absent {
            if is_absent(context, &self.flag) {
                return Some(None);
            }
            if self.absent {
                return None;
            }
        }
        let argument = given(context, &self.flag)?;
        let value = argument.values.first().map(|value| value.value.known());
        if self.has_no_test() {
            // A switch that a program turns on may be off.
            return (value != Some(None)).then_some(Some(argument.span));
        }
        let value = value??;
        (self.is_text(value) && self.is_number(context, value)?).then_some(Some(argument.span))
    }

    /// The flags that it names.
    pub(super) fn flags(&self) -> impl Iterator<Item = &str> {
        let compared = [&self.above_flags, &self.below_flags, &self.not_below_flags].into_iter();
        let compared = compared.chain([&self.not_multiple_of, &self.does_not_divide]).flatten();
        std::iter::once(&self.flag).chain(compared).chain(&self.is_not_flag).map(String::as_str)
    }

    fn has_no_test(&self) -> bool {
        let texts = [&self.is, &self.not, &self.parts, &self.no_parts];
        texts.iter().all(|list| list.is_empty()) && self.above.is_none() && self.flags().count() == 1
    }

    fn is_text(&self, value: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|word| word == value);
        let has = |list: &[String]| list.iter().any(|part| value.contains(part.as_str()));
        (self.is.is_empty() || is_in(&self.is))
            && !is_in(&self.not)
            && (self.parts.is_empty() || has(&self.parts))
            && !has(&self.no_parts)
    }

    /// Whether the tests on numbers hold; `None` if a number is not known.
    fn is_number(&self, context: &Context<'_>, value: &str) -> Option<bool> {
        let is_compared = self.above.is_some() || self.flags().count() > 1;
        if !is_compared {
            return Some(true);
        }
        let value: i64 = value.trim().parse().ok()?;
        let mut holds = self.above.is_none_or(|least| value > least);
        let mut test = |flags: &[String], is_so: fn(i64, i64) -> bool| {
            if !flags.is_empty() {
                holds &= is_so(value, product(context, flags)?);
            }
            Some(())
        };
        test(&self.above_flags, |value, other| value > other)?;
        test(&self.below_flags, |value, other| value < other)?;
        test(&self.not_below_flags, |value, other| value >= other)?;
        test(&self.not_multiple_of, |value, other| other > 0 && value % other != 0)?;
        test(&self.does_not_divide, |value, other| value > 0 && other % value != 0)?;
        test(self.is_not_flag.as_slice(), |value, other| value != other)?;
        Some(holds)
    }
}

/// The product of the values of flags, of which an absent one counts as 1. `None` if a value is
/// unknown, or if all are absent, since the engine's default may be another.
fn product(context: &Context<'_>, flags: &[String]) -> Option<i64> {
    let mut product: i64 = 1;
    for flag in flags {
        product = product.checked_mul(number(context, flag)?)?;
    }
    Some(product)
}

/// The value of a flag; 1 for ranks that are not given. slime derives tensor parallelism from its
/// own flags.
fn number(context: &Context<'_>, flag: &str) -> Option<i64> {
    if flag == "tp-size" {
        // slime's flag may be in another array.
        let is_slime = context.launch.engine == Engine::Slime;
        if is_slime && !context.launch.has(Key::RolloutNumGpusPerEngine) {
            return None;
        }
        // What is not in the text may state it.
        if !is_slime && given(context, flag).is_none() && !is_absent(context, flag) {
            return None;
        }
        return i64::try_from(context.resolved.tp_size.as_ref()?.value).ok();
    }
    if let Some(argument) = given(context, flag) {
        return argument.values.first()?.value.known()?.trim().parse().ok();
    }
    let is_one_by_default = flag.ends_with("parallel-size") || matches!(flag, "pp-size" | "dp-size" | "nnodes");
    (is_one_by_default && is_absent(context, flag)).then_some(1)
}

/// The value of a flag as it is shown in a message.
pub(super) fn shown(context: &Context<'_>, flag: &str) -> Option<String> {
    if let Some(argument) = given(context, flag) {
        return Some(argument.values.first()?.value.known()?.to_owned());
    }
    Some(number(context, flag)?.to_string())
}

/// The last argument of a flag, unless a branch adds it or its opposite follows.
fn given<'a>(context: &Context<'a>, flag: &str) -> Option<&'a Argument> {
    let opposite = format!("no-{flag}");
    let names = [flag, opposite.as_str()];
    let is_own = |argument: &&Argument| names.iter().any(|name| is_flag(context, argument, name));
    let last = context.launch.arguments.iter().rfind(is_own)?;
    let is_off = matches!(last.known(), Some("false" | "False"));
    (!last.in_branch && !is_off && is_flag(context, last, flag)).then_some(last)
}

/// Whether a flag is certainly not given: nowhere in the text, and by nothing that is unknown.
pub(super) fn is_absent(context: &Context<'_>, flag: &str) -> bool {
    let launch = context.launch;
    let key = flags::FLAGS.iter().find(|known| known.name == flag).map(|known| known.key);
    let is_perhaps = key.is_some_and(|key: Key| launch.perhaps.contains(&key) || launch.has(key));
    let is_overridden = launch.engine == Engine::Slime && launch.has(Key::SglangConfig);
    launch.is_complete()
        && !is_perhaps
        && !is_overridden
        && !launch.arguments.iter().any(|argument| is_flag(context, argument, flag))
}

fn is_flag(context: &Context<'_>, argument: &Argument, flag: &str) -> bool {
    argument.is_flag(context.launch.engine, flag)
}
