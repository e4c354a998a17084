//! What a script says of the environment and of what is installed in it.

use std::sync::Arc;

use super::{
    super::shell::Command,
    Interpreter,
    line::Field,
    surroundings::{MOST_EXPORTED, of_image, of_requirement},
};
use crate::{text::Located, version::EngineVersion};

impl<'a> Interpreter<'a> {
    pub(super) fn export(&mut self, name: &str, field: Field<'_>) {
        if self.exported.len() < MOST_EXPORTED {
            let value = Located::new(field.value.to_value(), field.span);
            Arc::make_mut(&mut self.exported).insert(name.to_owned(), value);
        }
    }

    /// `export NAME` of variables that have their values already.
    pub(super) fn export_by_name(&mut self, command: &Command<'_>) {
        for word in command.words.iter().skip(1) {
            if let Some(name) = word.text()
                && let Some(scalar) = self.scalars.get(name)
            {
                let field = Located::new(scalar.value.clone(), word.span);
                self.export(name, field);
            }
        }
    }

    /// The version of the engine that runs beside these words: of an image that they name, or what is installed.
    pub(super) fn version_beside(&self, words: &[Field<'_>]) -> Option<Located<EngineVersion>> {
        let image = |word: &Field<'_>| Some(Located::new(of_image(word.value.known()?)?, word.span));
        words.iter().find_map(image).or(self.pinned.flatten())
    }

    /// The version that a `pip install` pins. Where two are named, none is known.
    pub(super) fn note_requirement(&mut self, command: &Command<'_>) {
        for word in &command.words {
            if let Some(version) = word.text().and_then(of_requirement) {
                let found = Located::new(version, word.span);
                let agrees = |known: &Located<EngineVersion>| known.value == version;
                self.pinned = match self.pinned {
                    None => Some(Some(found)),
                    Some(known) => Some(known.filter(agrees)),
                };
            }
        }
    }
}
