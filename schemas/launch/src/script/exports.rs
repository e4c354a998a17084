//! What a script says about the environment and the packages installed in it.

use std::sync::Arc;

use schemas::text::Located;

use super::{
    super::{
        command::Field,
        evidence::{StatedVersion, version_in_image, version_in_requirement},
        shell::{ShellWord, SimpleCommand},
    },
    Interpreter, anything,
    surroundings::MOST_EXPORTED,
};

impl<'a> Interpreter<'a> {
    pub(super) fn export(&mut self, name: &str, field: Field<'_>) {
        if self.exported.len() < MOST_EXPORTED {
            let value = Located::new(field.value.to_value(), field.span);
            if self.exported.get(name).is_some_and(|known| known.value != value.value) {
                self.varied.insert(name.to_owned());
            }
            Arc::make_mut(&mut self.exported).insert(name.to_owned(), value);
        }
    }

    /// `export NAME` of variables that already have a value.
    pub(super) fn export_by_name(&mut self, command: &SimpleCommand<'_>) {
        for word in command.words.iter().skip(1) {
            if let Some(name) = word.text()
                && let Some(scalar) = self.scalars.get(name)
            {
                let field = Located::new(scalar.value.clone(), word.span);
                self.export(name, field);
            }
        }
    }

    /// `unset NAME`: nothing that runs later gets the variable. In a block, which may not run, it
    /// is unknown.
    pub(super) fn unset(&mut self, command: &SimpleCommand<'a>) {
        let words = command.words.iter().skip(1);
        let names =
            words.filter_map(ShellWord::name).take_while(|name| name != "-f").filter(|name| !name.starts_with('-'));
        for name in names {
            if let Some(scalar) = self.scalars.get_mut(name.as_ref()) {
                (scalar.value, scalar.literal) = (anything(&name), None);
            }
            let exported = Arc::make_mut(&mut self.exported);
            match exported.get_mut(name.as_ref()) {
                Some(variable) if !self.blocks.is_empty() => variable.value = anything(&name).to_value(),
                _ => _ = exported.remove(name.as_ref()),
            }
        }
    }

    /// The version of the engine that these words run: from an image that they name, or from the
    /// installed package.
    pub(super) fn version_among(&self, words: &[Field<'_>]) -> Option<StatedVersion> {
        let image = |word: &Field<'_>| version_in_image(word.value.known()?, word.span);
        words.iter().find_map(image).or(self.pinned.flatten())
    }

    /// Records the version that a `pip install` pins. If two are named, the version is unknown.
    pub(super) fn note_requirement(&mut self, command: &SimpleCommand<'_>) {
        for word in &command.words {
            if let Some(found) = word.text().and_then(|text| version_in_requirement(text, word.span)) {
                let agrees =
                    |known: &StatedVersion| (known.engine, known.version.value) == (found.engine, found.version.value);
                self.pinned = match self.pinned {
                    None => Some(Some(found)),
                    Some(known) => Some(known.filter(agrees)),
                };
            }
        }
    }
}
