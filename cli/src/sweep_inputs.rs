//! Checks the inputs of a sweep file before anything is loaded: the files and models that it names,
//! and what the sweep would refuse about them. `lint` and `sweep` share these checks; errors point
//! to the line that names the input.

use std::{ffi::OsString, fs, path::Path};

use facts::is_id;
use schemas::{
    diagnostic::{Diagnostic, Severity},
    sweep::{OneWorkload, SweepDraft, SweepFile},
    text::{Source, nearest},
    toml_file::FieldError,
};
use tuner::{
    error::tidy,
    sweep::{SweepRefusal, refusals},
};

use crate::{checkpoint, data_set, home};

/// The sweep file with the paths of its models and prompts, if nothing is wrong with its inputs.
///
/// # Errors
/// With the findings, in the order of the file.
pub fn resolve(file: SweepFile, folder: &Path, source: &Source) -> Result<SweepFile, Vec<Diagnostic>> {
    check(file, folder, source, InputModels::Needed)
}

/// The findings of [`resolve`]. That a model is missing which may be on another machine (an id, an
/// absolute path) is a warning; then nothing is said of what depends on it.
pub fn findings(file: SweepFile, folder: &Path, source: &Source) -> Vec<Diagnostic> {
    check(file, folder, source, InputModels::MayBeElsewhere).err().unwrap_or_default()
}

/// Whether the models have to be on this machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputModels {
    Needed,
    MayBeElsewhere,
}

fn check(
    mut file: SweepFile,
    folder: &Path,
    source: &Source,
    models: InputModels,
) -> Result<SweepFile, Vec<Diagnostic>> {
    let mut found: Vec<Diagnostic> = expand(&mut file).into_iter().map(|wrong| wrong.locate(source)).collect();
    let mut missing_models = false;
    if file.models.model_shape.is_none() {
        let keys: [(&'static [&'static str], &mut String); 2] =
            [(&["models", "target"], &mut file.models.target), (&["models", "draft"], &mut file.models.draft)];
        for (key, name) in keys {
            // Without a draft, the target's own MTP layer drafts.
            if name.is_empty() {
                continue;
            }
            let elsewhere =
                models == InputModels::MayBeElsewhere && (is_id(name) || Path::new(name.as_str()).is_absolute());
            match model(key, name, folder, source) {
                Ok(path) => *name = path,
                Err(finding) if elsewhere => {
                    missing_models = true;
                    found.push(may_be_elsewhere(*finding));
                }
                Err(finding) => {
                    missing_models = true;
                    found.push(*finding);
                }
            }
        }
    }
    for (at, draft) in file.drafts.iter_mut().enumerate() {
        let elsewhere =
            models == InputModels::MayBeElsewhere && (is_id(&draft.path) || Path::new(&draft.path).is_absolute());
        if draft.path.is_empty() {
            continue;
        }
        match model_folder(&["drafts"], &draft.path, folder) {
            // Its name in results stays that of the path as it is written.
            Ok(path) => {
                draft.name = draft.display_name();
                draft.path = path;
            }
            Err(error) if elsewhere => {
                missing_models = true;
                found.push(may_be_elsewhere(error.element(at).key("path").locate(source)));
            }
            Err(error) => {
                missing_models = true;
                found.push(error.element(at).key("path").locate(source));
            }
        }
    }
    for (at, name) in file.workload.prompt_files.iter_mut().enumerate() {
        match data_set::file(folder, name) {
            Ok(path) => *name = path,
            Err(error) => {
                found.push(FieldError::at(&["workload", "prompt_files"], error.to_string()).element(at).locate(source))
            }
        }
    }
    if let Some(name) = &mut file.workload.prompts {
        match data_set::file(folder, name) {
            Ok(path) => *name = path,
            Err(error) => found.push(FieldError::at(&["workload", "prompts"], error.to_string()).locate(source)),
        }
    }
    found.extend(missing_files(&file, folder).into_iter().map(|wrong| wrong.locate(source)));
    if found.is_empty() && !missing_models {
        let wrong = |SweepRefusal { key, element, reason, help }: SweepRefusal| {
            let wrong = FieldError::at(key, reason);
            let wrong = element.map_or(wrong.clone(), |at| wrong.element(at));
            help.map_or(wrong.clone(), |help| wrong.help(help)).locate(source)
        };
        for OneWorkload { file, .. } in file.each_workload() {
            let new = refusals(&file, folder).into_iter().map(wrong).filter(|one| !found.contains(one));
            found.extend(new.collect::<Vec<_>>());
        }
    }
    found.sort_by_key(|finding| finding.span.start);
    if found.is_empty() { Ok(file) } else { Err(found) }
}

/// A missing model, where the file may be for another machine.
fn may_be_elsewhere(finding: Diagnostic) -> Diagnostic {
    let mut notes = finding.notes;
    notes.push("a sweep needs it on the machine on which it runs: if that is another one, this is no error".into());
    Diagnostic { severity: Severity::Warning, notes, ..finding }
}

/// Replaces `~` in all paths.
fn expand(file: &mut SweepFile) -> Vec<FieldError> {
    let SweepFile { models, workload, space, system, .. } = file;
    let mut wrong = Vec::new();
    let single: [(&'static [&'static str], Option<&mut String>); 6] = [
        (&["models", "target"], Some(&mut models.target)),
        (&["models", "draft"], Some(&mut models.draft)),
        (&["models", "acceptance", "file"], models.acceptance.as_mut().map(|from| &mut from.file)),
        (&["workload", "prompts"], workload.prompts.as_mut()),
        (&["workload", "input_ids"], workload.input_ids.as_mut()),
        (&["workload", "trace"], workload.trace.as_mut()),
    ];
    for (key, path) in single {
        wrong.extend(path.and_then(|path| with_home(key, path)));
    }
    let drafts = file.drafts.iter_mut().enumerate();
    wrong.extend(drafts.filter_map(|(at, draft)| Some(with_home(&["drafts"], &mut draft.path)?.element(at))));
    let lists: [(&'static [&'static str], &mut Vec<String>); 4] = [
        (&["workload", "prompt_files"], &mut workload.prompt_files),
        (&["space", "tables"], &mut space.tables),
        (&["system", "command"], &mut system.command),
        (&["system", "extra_args"], &mut system.extra_args),
    ];
    for (key, paths) in lists {
        wrong.extend(paths.iter_mut().enumerate().filter_map(|(at, path)| Some(with_home(key, path)?.element(at))));
    }
    wrong
}

/// Replaces `~` in a path of a file.
pub fn with_home(key: &'static [&'static str], path: &mut String) -> Option<FieldError> {
    match home::expand(path) {
        Ok(whole) => *path = whole,
        Err(message) => return Some(FieldError::at(key, message)),
    }
    None
}

/// An error for each missing file: prompts, tables, acceptance.
fn missing_files(file: &SweepFile, folder: &Path) -> Vec<FieldError> {
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
    let prompts = workload.prompt_files.iter().enumerate();
    let prompts = prompts.filter_map(|(at, name)| missing(&["workload", "prompt_files"], Some(at), name, folder));
    let own = |draft: &SweepDraft| draft.space.clone().unwrap_or_default().tables;
    let own = file.drafts.iter().enumerate().flat_map(|(at, draft)| own(draft).into_iter().map(move |name| (at, name)));
    let own = own.filter_map(|(at, name)| missing(&["drafts"], Some(at), &name, folder));
    single.chain(tables).chain(prompts).chain(own).collect()
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
    model_folder(key, name, folder).map_err(|wrong| Box::new(wrong.locate(source)))
}

/// As [`model`], without the place.
fn model_folder(key: &'static [&'static str], name: &str, folder: &Path) -> Result<String, FieldError> {
    let wrong = match checkpoint::folder(folder, name) {
        Ok(found) if folder.join(&found).is_dir() => return Ok(found),
        Ok(_) if folder.join(name).exists() => {
            FieldError::at(key, format!("{} is a file, not a checkpoint folder", tidy(&folder.join(name)).display()))
        }
        Ok(_) => nothing(key, None, "folder", name, folder),
        // A name that may be a hub id may also be a mistyped folder.
        Err(error) => {
            let near = near(&folder.join(name)).filter(|_| is_id(name));
            let wrong = FieldError::at(key, error.to_string());
            near.map_or(wrong.clone(), |near| wrong.help(format!("did you mean the folder {near}?")))
        }
    };
    Err(wrong)
}

/// A finding if the file is missing, or a folder is in its place.
pub fn missing(key: &'static [&'static str], element: Option<usize>, name: &str, folder: &Path) -> Option<FieldError> {
    let path = folder.join(name);
    if path.is_dir() {
        let wrong = FieldError::at(key, format!("{} is a folder, but a file is expected", tidy(&path).display()));
        return Some(element.map_or(wrong.clone(), |at| wrong.element(at)));
    }
    (!path.exists()).then(|| nothing(key, element, "file", name, folder))
}

fn nothing(key: &'static [&'static str], element: Option<usize>, what: &str, name: &str, folder: &Path) -> FieldError {
    let path = tidy(&folder.join(name));
    let wrong = FieldError::at(key, format!("there is no {what} {}", path.display()));
    let wrong = element.map_or(wrong.clone(), |at| wrong.element(at));
    wrong.help(match near(&path) {
        None if what == "file" && is_id(name) && name.contains('/') => format!(
            "paths are relative to the folder of the file that names them; if this is a data set of the hub, download it \
             with `hf download --repo-type dataset {name}`"
        ),
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
