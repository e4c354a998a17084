//! Whether the program of a server is installed, found out without starting the server.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::brief_call::exit_code;

/// Longest time that an interpreter has to look a module up.
const LONGEST_LOOKUP: Duration = Duration::from_secs(30);
/// Looks up a module without importing it.
const LOOK_UP: &str = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec(sys.argv[1]) else 3)";
/// The exit code of [`LOOK_UP`] without the module.
const NO_MODULE: i32 = 3;

/// What is known of a server's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// It is installed; for a module, in the Python of this name.
    Installed {
        /// The program, or the module.
        name: String,
        /// The file of the program; of a module, the Python that has it.
        place: String,
    },
    /// There is no such program.
    NoProgram {
        /// Its name or path.
        name: String,
    },
    /// The Python has no such module.
    NoModule {
        /// The Python, as the command names it.
        python: String,
        /// The package that has the module.
        module: String,
    },
    /// Not known.
    Unknown,
}

/// Looks up the program of a command that starts a server in a folder (this process's by default),
/// with these variables in addition to the environment.
pub fn look_up(command: &[String], env: &BTreeMap<String, String>, folder: Option<&Path>) -> ProgramState {
    let Some((program, arguments)) = command.split_first() else { return ProgramState::Unknown };
    let Some(file) = file_of(program, env, folder) else {
        return ProgramState::NoProgram { name: program.clone() };
    };
    let Some((options, module)) = module(program, arguments) else {
        return ProgramState::Installed { name: program.clone(), place: file.display().to_string() };
    };
    let mut python = Command::new(program);
    python.args(options).args(["-c", LOOK_UP, module]).envs(env);
    if let Some(folder) = folder {
        python.current_dir(folder);
    }
    match exit_code(&mut python, LONGEST_LOOKUP) {
        Some(0) => ProgramState::Installed { name: module.to_owned(), place: program.clone() },
        Some(NO_MODULE) => ProgramState::NoModule { python: program.clone(), module: module.to_owned() },
        _ => ProgramState::Unknown,
    }
}

/// The options of a Python that runs a module, and the package of the module.
fn module<'a>(program: &str, arguments: &'a [String]) -> Option<(&'a [String], &'a str)> {
    let name = Path::new(program).file_name()?.to_str()?;
    let at = arguments.iter().position(|word| word == "-m")?;
    let (options, rest) = arguments.split_at(at);
    let are_options = options.iter().all(|word| word.starts_with('-'));
    let package = rest.get(1)?.split('.').next()?;
    (name.starts_with("python") && are_options && !package.is_empty()).then_some((options, package))
}

/// The file that the operating system would run.
fn file_of(program: &str, env: &BTreeMap<String, String>, folder: Option<&Path>) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        let path = folder.map_or_else(|| path.clone(), |folder| folder.join(path));
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let path = env.get("PATH").map(Into::into).or_else(|| env::var_os("PATH"))?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a Python that has the package `known` alone, and its variables.
    fn python() -> (tempfile::TempDir, BTreeMap<String, String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "#!/bin/sh\nfor word; do last=$word; done\n[ \"$last\" = known ] || exit 3\n";
        // Another process writes it: a file that this one has open for writing cannot be run, and
        // other tests start processes, which inherit what is open.
        let mut write = Command::new("sh");
        write.args(["-c", "printf '%s' \"$1\" > \"$0\" && chmod 755 \"$0\""]);
        let written = write.arg(folder.path().join("python3.12")).arg(script).status();
        assert!(written.is_ok_and(|status| status.success()));
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        (folder, BTreeMap::from([("PATH".to_owned(), path)]))
    }

    fn found(text: &str, env: &BTreeMap<String, String>, folder: Option<&Path>) -> ProgramState {
        look_up(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), env, folder)
    }

    #[test]
    fn a_module_is_looked_up_in_the_python_that_runs_it() {
        let (folder, env) = python();
        let installed = |name: &str, place: &str| ProgramState::Installed { name: name.into(), place: place.into() };
        assert_eq!(found("python3.12 -u -m known.launch_server --x", &env, None), installed("known", "python3.12"));
        let missing = ProgramState::NoModule { python: "python3.12".into(), module: "other".into() };
        assert_eq!(found("python3.12 -m other.launch_server", &env, None), missing);
        // Of a script, and where the meaning of an option is not known, only the program is looked
        // up.
        let file = folder.path().join("python3.12").display().to_string();
        for text in ["python3.12 serve.py -m other", "python3.12 -X dev -m other"] {
            assert_eq!(found(text, &env, None), installed("python3.12", &file), "{text}");
        }
        assert_eq!(
            found("./python3.12 serve.py", &env, Some(folder.path())),
            installed("./python3.12", "./python3.12")
        );
    }

    #[test]
    fn a_program_that_does_not_exist_is_noticed() {
        let (folder, env) = python();
        for text in ["vllm-of-nowhere serve m", "./python3.12 -m known", "/nowhere/python3 -m known"] {
            let name = text.split(' ').next().expect("a word").to_owned();
            assert_eq!(found(text, &env, None), ProgramState::NoProgram { name }, "{text}");
        }
        assert_eq!(look_up(&[], &env, Some(folder.path())), ProgramState::Unknown);
    }
}
