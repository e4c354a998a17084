//! A checkpoint in a folder.

use std::{
    fs::File,
    io::{ErrorKind, Read, Seek, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{Error, FilePart, Files};

/// Maximum number of files that are listed.
const MOST_FILES: usize = 4096;

/// A folder of a downloaded or saved checkpoint.
#[derive(Clone, Debug)]
pub struct FactsFolder {
    path: PathBuf,
}

impl FactsFolder {
    /// The checkpoint in this folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Opens a file, if it exists.
    fn open(&self, name: &str) -> Result<Option<File>, Error> {
        let path = self.path.join(name);
        let malformed = |reason: String| Error::Malformed { place: self.place(name), reason };
        match path.metadata() {
            // Opening a pipe would block until a writer opens it.
            Ok(found) if !found.is_file() => return Err(malformed("it is not a regular file".into())),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return match path.read_link() {
                    Ok(aim) => Err(malformed(format!("it is a link to {}, which does not exist", aim.display()))),
                    Err(_) => Ok(None),
                };
            }
            Err(error) => return Err(self.read(name)(error)),
        }
        File::open(path).map(Some).map_err(self.read(name))
    }

    fn read(&self, name: &str) -> impl Fn(std::io::Error) -> Error {
        let place = self.place(name);
        move |source| Error::Read { place: place.clone(), source }
    }
}

impl Files for FactsFolder {
    fn place(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn whole(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(self.read(name))?;
        if bytes.len() as u64 > limit {
            return Err(Error::TooLarge { place: self.place(name), limit });
        }
        Ok(Some(bytes))
    }

    fn part(&self, name: &str, range: Range<u64>) -> Result<Option<FilePart>, Error> {
        let Some(mut file) = self.open(name)? else { return Ok(None) };
        let size = file.metadata().map_err(self.read(name))?.len();
        file.seek(SeekFrom::Start(range.start)).map_err(self.read(name))?;
        let mut bytes = Vec::new();
        file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes).map_err(self.read(name))?;
        Ok(Some(FilePart { bytes, size }))
    }

    fn safetensors(&self) -> Result<Vec<String>, Error> {
        let entries = self.path.read_dir().map_err(self.read("."))?.take(MOST_FILES);
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter(|name| Path::new(name).extension().is_some_and(is_safetensors)).collect();
        names.sort();
        Ok(names)
    }

    fn most_headers(&self) -> usize {
        MOST_FILES
    }
}

fn is_safetensors(extension: &std::ffi::OsStr) -> bool {
    extension == "safetensors"
}
