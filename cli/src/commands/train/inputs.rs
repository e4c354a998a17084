//! Checks the files that a training file names.

use std::path::Path;

use schemas::{diagnostic::Diagnostic, text::Source, train::TrainFile};

use crate::sweep_inputs::{missing, model};

/// The training file with the folders of its models; checks that every file it names exists.
///
/// # Errors
/// With a finding at the key that names the missing file.
pub fn resolve(mut file: TrainFile, folder: &Path, source: &Source) -> Result<TrainFile, Box<Diagnostic>> {
    file.models.target = model(&["models", "target"], &file.models.target, folder, source)?;
    if !file.models.draft.is_empty() {
        file.models.draft = model(&["models", "draft"], &file.models.draft, folder, source)?;
    }
    for (at, set) in file.prompts.iter().enumerate() {
        let name = [&set.file, &set.input_ids, &set.log].into_iter().flatten().next();
        if let Some(wrong) = name.and_then(|name| missing(&["prompts"], Some(at), name, folder)) {
            return Err(Box::new(wrong.locate(source)));
        }
    }
    let general = file.general.as_ref().and_then(|general| missing(&["general", "file"], None, &general.file, folder));
    general.map_or(Ok(file), |wrong| Err(Box::new(wrong.locate(source))))
}
