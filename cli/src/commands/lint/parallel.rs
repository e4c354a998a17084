//! Checks several files in parallel.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use super::files::File;

/// Minimum number of files for using several threads.
const FILES_FOR_THREADS: usize = 8;

/// Applies a function to each file on all processors. Duplicates are skipped; results are in the
/// order of the files.
pub(super) fn map<T: Send>(files: &[File], work: impl Fn(&File) -> T + Sync) -> Vec<T> {
    let mut seen = HashSet::new();
    let files: Vec<&File> = files.iter().filter(|file| seen.insert(&file.path)).collect();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(files.len());
    if files.len() < FILES_FOR_THREADS || threads < 2 {
        return files.into_iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some((at, file)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, files.get(at)?)))
        {
            done.push((at, work(file)));
        }
        done
    };
    let mut done: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        // A worker that panicked has reported it; the panic is resumed here.
        joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn every_file_is_seen_once_and_in_order() {
        for count in [0, 1, 7, 8, 500] {
            let named = |number: usize| File { path: PathBuf::from(number.to_string()), found: false };
            let files: Vec<File> = (0..count).chain(0..count).map(named).collect();
            let seen = map(&files, |file| file.path.to_string_lossy().into_owned());
            let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            assert_eq!(seen, expected);
        }
    }
}
