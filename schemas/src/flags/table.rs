//! The rows of the table, in alphabetical order.

use super::{Flag, Key, Takes, list::with_flags};

macro_rules! takes {
    (Choice [$($word:literal),*]) => { Takes::Choice(&[$($word),*]) };
    ($takes:ident) => { Takes::$takes };
}

macro_rules! rows {
    ($($key:ident $field:ident $whose:ident $takes:ident $([$($word:literal),*])? $help:literal;)*) => {
        /// Every flag that spectune knows.
        pub const FLAGS: &[Flag] = &[$(Flag {
            key: Key::$key,
            name: {
                const NAME: [u8; stringify!($field).len()] = with_dashes(stringify!($field));
                text(&NAME)
            },
            takes: takes!($takes $([$($word),*])?),
            ours: is(stringify!($whose), "ours"),
            of_slime: is(stringify!($whose), "slime"),
            help: $help,
        }),*];
    };
}

with_flags!(rows);

/// The name of a field with dashes for underscores.
const fn with_dashes<const LENGTH: usize>(field: &str) -> [u8; LENGTH] {
    let mut name = [0; LENGTH];
    let mut at = 0;
    while at < LENGTH {
        let byte = field.as_bytes()[at];
        name[at] = if byte == b'_' { b'-' } else { byte };
        at += 1;
    }
    name
}

const fn text(name: &'static [u8]) -> &'static str {
    match std::str::from_utf8(name) {
        Ok(text) => text,
        Err(_) => panic!("names of fields are ASCII"),
    }
}

const fn is(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}
