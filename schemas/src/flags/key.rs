//! The meaning of a flag, regardless of its name in an engine or version.

use super::list::with_flags;

macro_rules! keys {
    ($($key:ident $field:ident $whose:ident $takes:ident $([$($word:literal),*])? $help:literal;)*) => {
        /// A flag that spectune knows, by its meaning. Names differ between engines and versions;
        /// the key does not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Key {
            $(#[doc = $help] $key),*
        }

        impl Key {
            /// Every key, in alphabetical order.
            pub const ALL: &'static [Self] = &[$(Self::$key),*];
        }
    };
}

with_flags!(keys);
