//! The processes of this host, from the files of the operating system.

use std::{collections::HashSet, fs};

/// The ids of all processes.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// These processes and all of `all` below them.
pub fn with_descendants(mut found: HashSet<u32>, all: &[u32]) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = all.iter().filter_map(|pid| Some((*pid, parent(*pid)?))).collect();
    loop {
        let children = parents.iter().filter(|(_, parent)| found.contains(parent)).map(|(pid, _)| *pid);
        let new: Vec<u32> = children.filter(|pid| !found.contains(pid)).collect();
        if new.is_empty() {
            return found.into_iter().collect();
        }
        found.extend(new);
    }
}

/// The parent of a process that has not ended.
fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.next()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_known() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent(u32::MAX), None);
    }
}
