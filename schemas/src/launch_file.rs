//! Our TOML launch file: SGLang's flags in snake case, each optional.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flags::with_flags;

/// The engine that a launch file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// SGLang's server.
    Sglang,
    /// slime, which passes the flags on to SGLang.
    Slime,
    /// spectune's own engine.
    Spectune,
}

macro_rules! value {
    (Nothing) => { bool };
    (Text) => { String };
    (Choice) => { String };
    (Integer) => { i64 };
    (Size) => { i64 };
    (Number) => { f64 };
    (Integers) => { Vec<i64> };
    (Texts) => { Vec<String> };
}

/// Makes the struct, with a field for each flag that launch files have.
macro_rules! launch_file {
    (@ [$($fields:tt)*]) => {
        /// A launch of an engine: its flags under SGLang's own names, in snake case. A switch is on
        /// where it is `true`.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct LaunchFile {
            /// The engine that runs it (default: spectune's own).
            pub engine: Option<EngineName>,
            /// The engine's version, such as "0.5.9".
            pub engine_version: Option<String>,
            $($fields)*
            /// Environment variables of the engine.
            pub environment: BTreeMap<String, String>,
        }
    };
    (@ [$($fields:tt)*] $key:ident $field:ident slime $takes:ident $help:literal; $($rest:tt)*) => {
        launch_file! { @ [$($fields)*] $($rest)* }
    };
    (@ [$($fields:tt)*] $key:ident $field:ident command_line $takes:ident $help:literal; $($rest:tt)*) => {
        launch_file! { @ [$($fields)*] $($rest)* }
    };
    (@ [$($fields:tt)*] $key:ident $field:ident $whose:ident $takes:ident $([$($word:literal),*])? $help:literal; $($rest:tt)*) => {
        launch_file! { @ [$($fields)* #[doc = $help] pub $field: Option<value!($takes)>,] $($rest)* }
    };
    ($($rows:tt)*) => {
        launch_file! { @ [] $($rows)* }
    };
}

with_flags!(launch_file);
