//! Checks the files that a training file names.

use std::path::Path;

use schemas::{diagnostic::Diagnostic, text::Source, toml_file::FieldError, train::TrainFile};

use crate::{
    data_set,
    sweep_inputs::{missing, model, with_home},
};

/// The training file with the folders of its models; checks that every file it names exists.
///
/// # Errors
/// With a finding at the key that names the missing file.
pub fn resolve(mut file: TrainFile, folder: &Path, source: &Source) -> Result<TrainFile, Box<Diagnostic>> {
    if let Some(wrong) = expand(&mut file).into_iter().next() {
        return Err(Box::new(wrong.locate(source)));
    }
    file.models.target = model(&["models", "target"], &file.models.target, folder, source)?;
    if !file.models.draft.is_empty() {
        file.models.draft = model(&["models", "draft"], &file.models.draft, folder, source)?;
    }
    let sets = file.prompts.iter_mut().enumerate().filter_map(|(at, set)| Some((Some(at), set.file.as_mut()?)));
    let general = file.general.as_mut().map(|general| (None, &mut general.file));
    for (at, name) in sets.chain(general) {
        match data_set::file(folder, name) {
            Ok(path) => *name = path,
            Err(error) => {
                let key: &'static [&'static str] = if at.is_some() { &["prompts"] } else { &["general", "file"] };
                let wrong = FieldError::at(key, error.to_string());
                return Err(Box::new(at.map_or(wrong.clone(), |at| wrong.element(at).key("file")).locate(source)));
            }
        }
    }
    for (at, set) in file.prompts.iter().enumerate() {
        let named = [("file", &set.file), ("input_ids", &set.input_ids), ("log", &set.log)];
        let named = named.into_iter().find_map(|(key, name)| Some((key, name.as_ref()?)));
        let wrong = named.and_then(|(key, name)| Some(missing(&["prompts"], Some(at), name, folder)?.key(key)));
        if let Some(wrong) = wrong {
            return Err(Box::new(wrong.locate(source)));
        }
    }
    let general = file.general.as_ref().and_then(|general| missing(&["general", "file"], None, &general.file, folder));
    general.map_or(Ok(file), |wrong| Err(Box::new(wrong.locate(source))))
}

/// Replaces `~` in all paths.
fn expand(file: &mut TrainFile) -> Vec<FieldError> {
    let mut wrong = Vec::new();
    wrong.extend(with_home(&["models", "target"], &mut file.models.target));
    wrong.extend(with_home(&["models", "draft"], &mut file.models.draft));
    for (at, set) in file.prompts.iter_mut().enumerate() {
        let paths = [&mut set.file, &mut set.input_ids, &mut set.log].into_iter().flatten();
        wrong.extend(paths.filter_map(|path| Some(with_home(&["prompts"], path)?.element(at))));
    }
    wrong.extend(file.general.as_mut().and_then(|general| with_home(&["general", "file"], &mut general.file)));
    wrong
}
