//! The settings file of each launch: `spectune.toml` in its folder, or in the nearest one above.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use lint::rules::Selection;
use schemas::settings::{FILE_NAME, LintSettings, SettingsFile};

use crate::{setup, wrong_file::WrongFile};

/// Settings by the folder of the launches.
pub(super) struct AppliedSettings {
    /// The settings for all files, if the user names a file or disables settings.
    fixed: Option<Arc<LintSettings>>,
    by_folder: Mutex<HashMap<PathBuf, Arc<LintSettings>>>,
}

impl AppliedSettings {
    /// Uses the named file, no settings if isolated, or else the nearest file.
    pub fn new(named: Option<&Path>, isolated: bool) -> anyhow::Result<Self> {
        let fixed = match named {
            Some(file) => Some(Arc::new(read(file)?)),
            None => isolated.then(Arc::default),
        };
        Ok(Self { fixed, by_folder: Mutex::default() })
    }

    /// The settings for a launch file; for standard input, those of the current folder.
    pub fn for_file(&self, file: &Path) -> anyhow::Result<Arc<LintSettings>> {
        if let Some(fixed) = &self.fixed {
            return Ok(Arc::clone(fixed));
        }
        let folder = if file.as_os_str() == "-" { None } else { file.parent() };
        let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut by_folder = self.by_folder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_folder.get(folder) {
            return Ok(Arc::clone(known));
        }
        // A missing folder is reported when its file is read.
        let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let nearest = absolute.ancestors().map(|above| above.join(FILE_NAME)).find(|candidate| candidate.is_file());
        let settings = Arc::new(nearest.map_or_else(|| Ok(LintSettings::default()), |file| read(&file))?);
        by_folder.insert(folder.to_owned(), Arc::clone(&settings));
        Ok(settings)
    }
}

fn read(file: &Path) -> anyhow::Result<LintSettings> {
    let source = setup::read_source(file)?;
    Ok(SettingsFile::read(&source, Selection::check).map_err(|finding| WrongFile::new(source, finding))?.lint)
}
