//! Arguments of SGLang by the engine's name for their flag.

use schemas::flags::{self, Lookup};

use super::{Argument, Engine, Launch};

impl Launch {
    /// The last argument of a flag of SGLang, by its name without dashes; its older names and
    /// abbreviations count.
    pub fn sglang_argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().rfind(|argument| argument.is_sglang(self.engine, name))
    }
}

impl Argument {
    /// Whether it is a flag of SGLang, which slime writes with a prefix, by its name without
    /// dashes.
    pub fn is_sglang(&self, engine: Engine, name: &str) -> bool {
        let prefix = if engine == Engine::Slime { "--sglang-" } else { "--" };
        let Some(written) = self.flag.value.strip_prefix(prefix) else { return false };
        match flags::lookup(written, None) {
            Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => {
                spelling.canonical == name || spelling.name == name
            }
            Lookup::Ambiguous(_) | Lookup::Unknown => false,
        }
    }
}
