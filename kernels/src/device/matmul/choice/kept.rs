//! The file in which the fastest algorithm for a shape is stored.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::super::{Fastest, Matmul};
use crate::device::{Properties, cache};

/// Version of the file format and of the search.
const FORMAT: u32 = 4;
/// Bytes of a file: parts and words of an algorithm, or 0 parts and the index of one of our
/// kernels.
const BYTES: usize = 72;
/// Maximum number of parts.
const MOST_PARTS: usize = 8;

/// Path of the choice for a shape on a device; `None` without a cache folder.
pub fn path(device: &Properties, library: &str, matmul: Matmul) -> Option<PathBuf> {
    let Matmul { rows, inputs, outputs, element, fp8, result, most_parts } = matmul;
    let name = fp8.map_or(element.name().to_owned(), |fp8| format!("{fp8:?}"));
    let shape = format!("{rows} {inputs} {outputs} {name} {} {most_parts}", result.name());
    let machine = format!("{} {:?} {}", device.name, device.capability, device.multiprocessors);
    let mut key = blake3::Hasher::new();
    for part in [format!("{FORMAT}"), machine, device.driver.clone(), library.to_owned(), shape] {
        key.update(&(part.len() as u64).to_le_bytes());
        key.update(part.as_bytes());
    }
    let key = key.finalize().to_hex();
    cache::folder().map(|folder| folder.join(format!("product-{}.algorithm", &key[..32])))
}

/// Loads a file; `None` if it does not exist or is damaged.
pub fn load(path: &Path) -> Option<Fastest> {
    let whole = (BYTES + blake3::OUT_LEN) as u64;
    fs::metadata(path).ok().filter(|file| file.len() == whole)?;
    let bytes = cache::read(path)?;
    let mut words = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let parts = usize::try_from(words.next()?).ok()?;
    let mut kept = [0; 8];
    for (to, word) in kept.iter_mut().zip(words) {
        *to = word;
    }
    match (parts, kept) {
        (0, [number, ..]) => usize::try_from(number).ok().map(Fastest::Own),
        (1..=MOST_PARTS, words) => Some(Fastest::Library { parts, words }),
        _ => None,
    }
}

/// Stores a choice.
pub fn store(path: &Path, found: Fastest) -> std::io::Result<()> {
    let mut words = [0; BYTES / 8];
    match found {
        Fastest::Library { parts, words: algorithm } => {
            words[0] = parts as u64;
            words[1..].copy_from_slice(&algorithm);
        }
        Fastest::Own(number) => words[1] = number as u64,
    }
    cache::write(path, words.map(u64::to_le_bytes).as_flattened())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Element;
    use crate::{
        device::matmul::Fp8Product,
        reference::{Fp8Rows, Fp8Scales},
    };

    #[test]
    fn a_choice_is_read_back_and_a_damaged_one_searched_again() {
        let path = std::env::temp_dir().join(format!("spectune-algorithm-test-{}", std::process::id()));
        let words = [1, u64::MAX, 3, 0, 5, 6, 7, 1 << 63];
        store(&path, Fastest::Own(1)).expect("a writable folder");
        assert_eq!(load(&path), Some(Fastest::Own(1)));
        store(&path, Fastest::Library { parts: 2, words }).expect("writable");
        assert_eq!(load(&path), Some(Fastest::Library { parts: 2, words }));
        let whole = fs::read(&path).expect("just written");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).expect("writable");
            assert_eq!(load(&path), None, "byte {at}");
        }
        fs::write(&path, &whole[..BYTES]).expect("writable");
        assert_eq!(load(&path), None);
        // An intact file of another length is invalid.
        cache::write(&path, &[0; BYTES + 8]).expect("writable");
        assert_eq!(load(&path), None);
        // So is one of an unknown kind.
        cache::write(&path, &[7; BYTES]).expect("writable");
        assert_eq!(load(&path), None);
        fs::remove_file(&path).expect("removable");
        assert_eq!(load(&path), None);
    }

    #[test]
    fn choices_are_kept_apart_by_whatever_they_depend_on() {
        let device = Properties {
            name: "NVIDIA H200".into(),
            driver: "13.0".into(),
            multiprocessors: 132,
            capability: (9, 0),
            cache_bytes: 60 << 20,
            shared_bytes: 227 << 10,
            most_cluster: 1,
            emulated: false,
        };
        let matmul = Matmul {
            rows: 32,
            inputs: 14336,
            outputs: 4096,
            element: Element::BF16,
            fp8: None,
            result: Element::BF16,
            most_parts: 1,
        };
        let fp8 = Fp8Product { weights: Fp8Scales::Channels, rows: Fp8Rows::Row };
        let library = "cuBLASLt 130000";
        let all = [
            path(&device, library, matmul),
            path(&device, "cuBLASLt 130001", matmul),
            path(&Properties { driver: "13.1".into(), ..device.clone() }, library, matmul),
            path(&Properties { name: "NVIDIA H100".into(), ..device.clone() }, library, matmul),
            path(&device, library, Matmul { rows: 33, ..matmul }),
            path(&device, library, Matmul { result: Element::F32, ..matmul }),
            path(&device, library, Matmul { most_parts: 2, ..matmul }),
            path(&device, library, Matmul { fp8: Some(fp8), ..matmul }),
        ];
        // Without a home directory there is no cache to distinguish.
        if cache::folder().is_some() {
            let different: std::collections::HashSet<_> = all.iter().flatten().collect();
            assert_eq!(different.len(), all.len());
        }
    }
}
