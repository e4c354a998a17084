//! Which kernel is the fastest for a shape, ours or one of the library's: measured once on the device, then kept on disk.
//!
//! The library ranks its algorithms by a model of the device, and is at times wrong by half.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Algorithm, Fastest, Matmul, MatmulPlan, Operands, Rivals};
use crate::device::{Device, DeviceError, Properties, cache};

/// Algorithms that are timed.
const MOST_ALGORITHMS: usize = 16;
/// Runs of those that may be the fastest.
const MOST_RUNS: usize = 5;
/// Those whose first timed run is within this factor of the best are timed again.
const NEAR: f64 = 1.15;
/// Time of the runs after the first of each, on the device.
const BUDGET: Duration = Duration::from_millis(5);
/// Part by which a kernel has to be faster than one before it (rivals first, then in the library's order): less is noise.
const GAIN: f64 = 0.02;

/// Version of what is kept and of how it is found.
const FORMAT: u32 = 2;
/// Bytes of what is kept: 0 and the words of an algorithm, or 1 and the number of a rival.
const BYTES: usize = 72;

/// Times rivals and the algorithms of a plan, which is left with the fastest of its own if that is the fastest of all;
/// `None` where nothing could be timed.
///
/// Each run is like one in a pass: a graph, a short kernel ahead and one behind, with which kernels of ours overlap and the
/// library's do not; and second-level cache is full of something else, as other layers' weights have gone through.
///
/// # Safety
/// The operands are as long as the shapes of the plan say.
pub(super) unsafe fn fastest(
    device: &Device,
    plan: &mut dyn MatmulPlan,
    operands: Operands<'_>,
    rivals: Rivals<'_>,
) -> Result<Option<Fastest>, DeviceError> {
    let Operands { y, x, w, workspace } = operands;
    let Rivals { rivals, neighbour, behind_library } = rivals;
    let algorithms = plan.algorithms(MOST_ALGORITHMS)?;
    // Where memory is short, the workspace has to do: then small weights are timed warm.
    let other = device.allocate(2 * device.properties().cache_bytes).ok();
    let other = other.as_ref().map_or(workspace, |buffer| buffer.slice());
    let (begin, end) = (device.event()?, device.event()?);
    let mut loaded = vec![false; rivals.len() + algorithms.len()];
    let at_place = |at: usize| match (rivals.get(at), algorithms.get(at.saturating_sub(rivals.len()))) {
        (Some(_), _) => Some(Fastest::Rival(at)),
        (None, Some(Algorithm { words, workspace: needed })) => {
            (*needed <= workspace.bytes()).then_some(Fastest::Library(*words))
        }
        (None, None) => None,
    };
    let best = pick(rivals.len() + algorithms.len(), |at| {
        let Some(candidate) = at_place(at) else { return Ok(None) };
        if matches!(candidate, Fastest::Library(words) if !plan.choose(words)) {
            return Ok(None);
        }
        let run = || match rivals.get(at) {
            Some(rival) => rival(),
            // SAFETY: the caller's promise; the workspace is as long as the algorithm needs.
            None => unsafe { plan.run(y.address(), x.address(), w.address(), workspace.address()) }
                .and_then(|()| behind_library.map_or(Ok(()), |behind| behind())),
        };
        if !loaded[at] {
            // Kernels are loaded when they first run, and the library says only then of some that they cannot.
            if neighbour().and_then(|()| run()).is_err() {
                return Ok(None);
            }
            loaded[at] = true;
        }
        let graph = device.capture(|| neighbour().and_then(|()| run()).and_then(|()| neighbour()))?;
        // While the device writes this, the host launches the rest.
        device.fill(other, 0)?;
        device.record(&begin)?;
        device.run(&graph)?;
        device.record(&end)?;
        end.wait()?;
        end.since(&begin).map(Some)
    })?;
    let best = best.and_then(at_place);
    Ok(best.filter(|best| match best {
        Fastest::Library(words) => plan.choose(*words),
        Fastest::Rival(_) => true,
    }))
}

/// The index below `count` with the shortest time. `time` runs one and says how long it took, `None` for one that cannot
/// run. All run once, those near the best again; among equals the first wins.
fn pick<E>(count: usize, mut time: impl FnMut(usize) -> Result<Option<Duration>, E>) -> Result<Option<usize>, E> {
    let mut times: Vec<(usize, Duration)> = Vec::new();
    for at in 0..count {
        times.extend(time(at)?.map(|time| (at, time)));
    }
    let Some(least) = times.iter().map(|(_, time)| *time).min() else { return Ok(None) };
    times.retain(|(_, time)| time.as_secs_f64() <= least.as_secs_f64() * NEAR);
    let mut spent = Duration::ZERO;
    for _ in 1..MOST_RUNS {
        if times.len() < 2 || spent >= BUDGET {
            break;
        }
        for (at, least) in &mut times {
            // What disturbs a run only makes it longer.
            if let Some(again) = time(*at)? {
                *least = again.min(*least);
                spent += again;
            }
        }
    }
    let mut best: Option<(usize, Duration)> = None;
    for (at, time) in times {
        if best.is_none_or(|(_, least)| time.as_secs_f64() < least.as_secs_f64() * (1.0 - GAIN)) {
            best = Some((at, time));
        }
    }
    Ok(best.map(|(at, _)| at))
}

/// Where the choice for a shape on a device is kept; `None` without a cache folder.
pub(super) fn path(device: &Properties, library: &str, matmul: Matmul) -> Option<PathBuf> {
    let Matmul { rows, inputs, outputs, element, result } = matmul;
    let shape = format!("{rows} {inputs} {outputs} {} {}", element.name(), result.name());
    let machine = format!("{} {:?} {}", device.name, device.capability, device.multiprocessors);
    let mut key = blake3::Hasher::new();
    for part in [format!("{FORMAT}"), machine, device.driver.clone(), library.to_owned(), shape] {
        key.update(&(part.len() as u64).to_le_bytes());
        key.update(part.as_bytes());
    }
    let key = key.finalize().to_hex();
    cache::folder().map(|folder| folder.join(format!("product-{}.algorithm", &key[..32])))
}

/// What a file keeps; `None` if there is none, or it is damaged.
pub(super) fn load(path: &Path) -> Option<Fastest> {
    let whole = (BYTES + blake3::OUT_LEN) as u64;
    fs::metadata(path).ok().filter(|file| file.len() == whole)?;
    let bytes = cache::read(path)?;
    let mut words = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let kind = words.next()?;
    let mut kept = [0; 8];
    for (to, word) in kept.iter_mut().zip(words) {
        *to = word;
    }
    match (kind, kept) {
        (0, words) => Some(Fastest::Library(words)),
        (1, [number, ..]) => usize::try_from(number).ok().map(Fastest::Rival),
        _ => None,
    }
}

/// Keeps what was found.
pub(super) fn store(path: &Path, found: Fastest) -> std::io::Result<()> {
    let mut words = [0; BYTES / 8];
    match found {
        Fastest::Library(algorithm) => words[1..].copy_from_slice(&algorithm),
        Fastest::Rival(number) => words[..2].copy_from_slice(&[1, number as u64]),
    }
    cache::write(path, words.map(u64::to_le_bytes).as_flattened())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Element;

    fn picked(times: &[&[Option<u64>]]) -> (Option<usize>, usize) {
        let mut runs = vec![0; times.len()];
        let found = pick(times.len(), |at| {
            let time = times[at][runs[at].min(times[at].len() - 1)];
            runs[at] += 1;
            Ok::<_, ()>(time.map(Duration::from_micros))
        });
        (found.expect("times do not fail"), runs.iter().sum())
    }

    #[test]
    fn the_fastest_is_picked_and_those_far_behind_run_once() {
        assert_eq!(picked(&[&[Some(60)], &[Some(37)], &[None], &[Some(40)]]), (Some(1), 4 + 2 * 4));
    }

    #[test]
    fn the_librarys_order_stands_where_the_gain_is_noise() {
        assert_eq!(picked(&[&[Some(1000)], &[Some(990)], &[Some(985)]]).0, Some(0));
        assert_eq!(picked(&[&[Some(1000)], &[Some(970)], &[Some(960)]]).0, Some(1));
    }

    #[test]
    fn a_run_that_was_disturbed_does_not_decide() {
        assert_eq!(picked(&[&[Some(40)], &[Some(44), Some(30), Some(41)]]).0, Some(1));
        assert_eq!(picked(&[&[Some(44), Some(40)], &[Some(42), Some(42)]]).0, Some(0));
    }

    #[test]
    fn long_products_are_not_repeated_past_the_budget() {
        assert_eq!(picked(&[&[Some(3000)], &[Some(3100)]]), (Some(0), 4));
        assert_eq!(picked(&[&[None], &[None]]), (None, 2));
    }

    #[test]
    fn a_choice_is_read_back_and_a_damaged_one_searched_again() {
        let path = std::env::temp_dir().join(format!("spectune-algorithm-test-{}", std::process::id()));
        let words = [1, u64::MAX, 3, 0, 5, 6, 7, 1 << 63];
        store(&path, Fastest::Rival(1)).expect("a writable folder");
        assert_eq!(load(&path), Some(Fastest::Rival(1)));
        store(&path, Fastest::Library(words)).expect("writable");
        assert_eq!(load(&path), Some(Fastest::Library(words)));
        let whole = fs::read(&path).expect("just written");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).expect("writable");
            assert_eq!(load(&path), None, "byte {at}");
        }
        fs::write(&path, &whole[..BYTES]).expect("writable");
        assert_eq!(load(&path), None);
        // A sound file of another length is not ours.
        cache::write(&path, &[0; BYTES + 8]).expect("writable");
        assert_eq!(load(&path), None);
        // Nor is one of a kind that this version does not know.
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
        let matmul = Matmul { rows: 32, inputs: 14336, outputs: 4096, element: Element::BF16, result: Element::BF16 };
        let library = "cuBLASLt 130000";
        let all = [
            path(&device, library, matmul),
            path(&device, "cuBLASLt 130001", matmul),
            path(&Properties { driver: "13.1".into(), ..device.clone() }, library, matmul),
            path(&Properties { name: "NVIDIA H100".into(), ..device.clone() }, library, matmul),
            path(&device, library, Matmul { rows: 33, ..matmul }),
            path(&device, library, Matmul { result: Element::F32, ..matmul }),
        ];
        // Without a home there is no cache, and nothing to tell apart.
        if cache::folder().is_some() {
            let different: std::collections::HashSet<_> = all.iter().flatten().collect();
            assert_eq!(different.len(), all.len());
        }
    }
}
