//! Checks that the files and models of a sweep file exist; errors point to the line that names them.

use std::{ffi::OsString, fs, path::Path};

use facts::is_id;
use schemas::{
    diagnostic::Diagnostic,
    sweep::SweepFile,
    text::{Source, nearest},
    toml_file::Wrong,
};
use tuner::error::tidy;

use crate::checkpoint;

/// A finding for each missing file: prompts, tables, acceptance. Models are not checked, since they may be on another
/// machine.
pub fn files(file: &SweepFile, folder: &Path, source: &Source) -> Vec<Diagnostic> {
    let workload = &file.workload;
    let single: [(&'static [&'static str], Option<&String>); 4] = [
        (&["workload", "prompts"], workload.prompts.as_ref()),
        (&["workload", "input_ids"], workload.input_ids.as_ref()),
        (&["workload", "trace"], workload.trace.as_ref()),
        (&["models", "acceptance", "file"], file.models.acceptance.as_ref().map(|from| &from.file)),
    ];
    let single = single.into_iter().filter_map(|(key, name)| missing(key, None, name?, folder));
    let tables = file.space.tables.iter().enumerate();
    let tables = tables.filter_map(|(at, name)| missing(&["space", "tables"], Some(at), name, folder));
    single.chain(tables).map(|wrong| wrong.locate(source)).collect()
}

/// The sweep file with the folders of its models; checks that every file it names exists.
///
/// # Errors
/// With a finding at the key that names the missing file.
pub fn resolve(mut file: SweepFile, folder: &Path, source: &Source) -> Result<SweepFile, Box<Diagnostic>> {
    if file.models.model_shape.is_none() {
        file.models.target = model(&["models", "target"], &file.models.target, folder, source)?;
        // Without a draft, the target's own MTP layer drafts.
        if !file.models.draft.is_empty() {
            file.models.draft = model(&["models", "draft"], &file.models.draft, folder, source)?;
        }
    }
    match files(&file, folder, source).into_iter().next() {
        Some(finding) => Err(Box::new(finding)),
        None => Ok(file),
    }
}

/// The folder of a model, relative to the folder of the file that names it.
///
/// # Errors
/// With a finding at the key, when it does not exist.
pub fn model(
    key: &'static [&'static str],
    name: &str,
    folder: &Path,
    source: &Source,
) -> Result<String, Box<Diagnostic>> {
    let wrong = match checkpoint::folder(folder, name) {
        Ok(found) if folder.join(&found).is_dir() => return Ok(found),
        Ok(_) if folder.join(name).exists() => {
            Wrong::at(key, format!("{} is a file, not a checkpoint folder", tidy(&folder.join(name)).display()))
        }
        Ok(_) => nothing(key, None, "folder", name, folder),
        // A name that may be a hub id may also be a mistyped folder.
        Err(error) => {
            let near = near(&folder.join(name)).filter(|_| is_id(name));
            let wrong = Wrong::at(key, error.to_string());
            near.map_or(wrong.clone(), |near| wrong.help(format!("did you mean the folder {near}?")))
        }
    };
    Err(Box::new(wrong.locate(source)))
}

/// A finding if the file is missing, or a folder is in its place.
pub fn missing(key: &'static [&'static str], element: Option<usize>, name: &str, folder: &Path) -> Option<Wrong> {
    let path = folder.join(name);
    if path.is_dir() {
        let wrong = Wrong::at(key, format!("{} is a folder, but a file is expected", tidy(&path).display()));
        return Some(element.map_or(wrong.clone(), |at| wrong.element(at)));
    }
    (!path.exists()).then(|| nothing(key, element, "file", name, folder))
}

fn nothing(key: &'static [&'static str], element: Option<usize>, what: &str, name: &str, folder: &Path) -> Wrong {
    let path = tidy(&folder.join(name));
    let wrong = Wrong::at(key, format!("there is no {what} {}", path.display()));
    let wrong = element.map_or(wrong.clone(), |at| wrong.element(at));
    wrong.help(match near(&path) {
        Some(near) => format!("did you mean {near}? Paths are relative to the folder of the file that names them"),
        None => "paths are relative to the folder of the file that names them".into(),
    })
}

/// A similar name in the same folder, if any.
fn near(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names: Vec<OsString> =
        fs::read_dir(parent).ok()?.take(10_000).flatten().map(|entry| entry.file_name()).collect();
    let names: Vec<&str> = names.iter().filter_map(|name| name.to_str()).collect();
    nearest(name, &names).map(ToOwned::to_owned)
}
