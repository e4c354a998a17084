//! Arguments by the engine's name for their flag.

use super::{Argument, Engine, Launch};

impl Launch {
    /// The last argument of a flag of the engine, by its name without prefix; aliases, short names
    /// and abbreviations count. An earlier one has no effect.
    pub fn argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().rfind(|argument| argument.is_flag(self.engine, name))
    }
}

impl Argument {
    /// Whether it is a flag of the engine with this name without prefix, or one that stands for it.
    pub fn is_flag(&self, engine: Engine, name: &str) -> bool {
        let written = self.flag.value.as_str();
        // Some names are in no table: those that only a fork or a plugin has.
        engine.canonical_flag(written).is_some_and(|canonical| canonical == name)
            || engine.flag_name(written).is_some_and(|own| own == name)
    }
}
