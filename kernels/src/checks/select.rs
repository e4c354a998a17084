//! The best values of rows, compared with a sort.

use std::cmp::Ordering;

use super::{Numbers, text};
use crate::{
    device::{Device, Element, Slice},
    launch::{Kernels, Logits, LogprobRows, MOST_SELECTED, NOT_FINITE, TopK},
    reference::finite_argmax,
};

/// Maximum error of a log-probability: the sum of exponentials is in f32.
const TOLERANCE: f32 = 2e-5;

/// Rows that are hard to select from, each in a different way.
const STYLES: [fn(&mut Numbers, usize, usize) -> f32; 11] = [
    |numbers, _, _| numbers.float() * 12.0,
    // Ties, also between the two zeros.
    |numbers, _, _| (numbers.float() * 2.0).round(),
    |_, _, _| 1.5,
    // All of the best in one thread, and the best last.
    |_, at, _| at as f32 * 1e-3,
    |_, at, vocabulary| (vocabulary - at) as f32 * 1e-3,
    |numbers, _, _| [f32::NAN, f32::NEG_INFINITY, numbers.float()][numbers.below(3)],
    |_, _, _| f32::NEG_INFINITY,
    |_, _, _| f32::NAN,
    |numbers, _, _| if numbers.below(3) == 0 { f32::INFINITY } else { numbers.float() },
    // The last numbers before the infinities.
    |numbers, _, _| [f32::NAN, f32::MIN, f32::NEG_INFINITY][numbers.below(3)],
    |numbers, _, _| [f32::MAX, f32::NAN, numbers.float()][numbers.below(3)],
];

/// Indices of a row, best first: ties to the lower index, NaN last.
fn order(row: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (row[*a], row[*b]);
        a.is_nan().cmp(&b.is_nan()).then(b.partial_cmp(&a).unwrap_or(Ordering::Equal))
    });
    order
}

/// Log-probabilities of a row, with NaN counted as impossible.
pub(super) fn log_softmax(row: &[f32]) -> Vec<f32> {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shift = if largest.is_finite() {
        let sum: f64 = row.iter().filter(|value| !value.is_nan()).map(|value| f64::from(value - largest).exp()).sum();
        f64::from(largest) + sum.ln()
    } else {
        f64::from(largest)
    };
    let sane = |value: f32| if value.is_nan() { f32::NEG_INFINITY } else { value };
    row.iter().map(|value| sane((f64::from(*value) - shift) as f32)).collect()
}

fn check_log(what: &str, found: f32, expected: f32) -> Result<(), String> {
    let near = found == expected || (found - expected).abs() <= TOLERANCE * (1.0 + expected.abs());
    if near { Ok(()) } else { Err(format!("{what}: log-probability {found}, expected {expected}")) }
}

/// A matrix of rows in all styles; values between the rows must not count.
fn rows(numbers: &mut Numbers, count: usize, vocabulary: usize, stride: usize) -> Vec<f32> {
    let first = numbers.below(STYLES.len());
    let value = |numbers: &mut Numbers, row: usize, at: usize| {
        if at < vocabulary { STYLES[(first + row) % STYLES.len()](numbers, at, vocabulary) } else { 1e30 }
    };
    (0..count * stride).map(|at| value(numbers, at / stride, at % stride)).collect()
}

/// Vocabularies from one token to the maximum, aligned and unaligned accesses, maps, ties and
/// broken values.
pub fn check_top_k_rows(device: &Device) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let mut numbers = Numbers::new(20);
    let vocabularies = [1, 3, 9, 64, 1000, 4095, 4096, 4097, 8200, 32_000, 128_256, 262_144];
    for (turn, vocabulary) in vocabularies.into_iter().enumerate() {
        let row_count = if vocabulary > 40_000 { 2 } else { 9 };
        let stride = vocabulary + [0, 4, 3][turn % 3];
        let logits = rows(&mut numbers, row_count, vocabulary, stride);
        let on_device = device.upload(&logits).map_err(text)?;
        let map: Vec<i32> = (0..vocabulary).map(|_| numbers.below(1 << 20) as i32).collect();
        let map_on_device = device.upload(&map).map_err(text)?;
        for count in [1, 2, 3, 8, 10, 32, MOST_SELECTED] {
            let mapped = numbers.below(2) == 0;
            let ids = device.allocate(row_count * count * 4).map_err(text)?;
            let logprobs = device.allocate(row_count * count * 4).map_err(text)?;
            let top = TopK {
                ids: ids.slice(),
                logprobs: logprobs.slice(),
                logits: Logits { at: on_device.slice(), stride, rows: row_count, vocabulary },
                count,
                token_map: mapped.then_some(map_on_device.slice()),
            };
            kernels.top_k_rows(top).map_err(text)?;
            let found: Vec<i32> = device.download(ids.slice()).map_err(text)?;
            let found_logs: Vec<f32> = device.download(logprobs.slice()).map_err(text)?;
            for (at, row) in logits.chunks(stride).enumerate() {
                let row = &row[..vocabulary];
                let logs = log_softmax(row);
                let what = format!("top {count} of row {at} of {vocabulary}");
                let mut best = order(row).into_iter();
                for place in at * count..(at + 1) * count {
                    let (id, log) = best.next().map_or((0, f32::NEG_INFINITY), |index| {
                        (if mapped { map[index] } else { index as i32 }, logs[index])
                    });
                    if found[place] != id {
                        return Err(format!("{what}: id {} at rank {}, expected {id}", found[place], place % count));
                    }
                    check_log(&what, found_logs[place], log)?;
                }
            }
        }
    }
    Ok(())
}

/// A row has the same bits alone and in a batch that leaves it fewer blocks.
pub fn check_top_k_among_many(device: &Device) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let mut numbers = Numbers::new(23);
    for (row_count, vocabulary, count) in [(40, 9001, 8), (100, 8192, 10), (300, 12_000, 3)] {
        let logits: Vec<f32> = (0..row_count * vocabulary).map(|_| numbers.float() * 12.0).collect();
        let on_device = device.upload(&logits).map_err(text)?;
        let best = |first: usize, rows: usize| -> Result<(Vec<i32>, Vec<u32>), String> {
            let ids = device.allocate(rows * count * 4).map_err(text)?;
            let logprobs = device.allocate(rows * count * 4).map_err(text)?;
            let at = on_device.range(first * vocabulary * 4..on_device.bytes());
            let logits = Logits { at, stride: vocabulary, rows, vocabulary };
            let top = TopK { ids: ids.slice(), logprobs: logprobs.slice(), logits, count, token_map: None };
            kernels.top_k_rows(top).map_err(text)?;
            Ok((device.download(ids.slice()).map_err(text)?, device.download(logprobs.slice()).map_err(text)?))
        };
        let (ids, logprobs) = best(0, row_count)?;
        for row in [0, 1, row_count / 2, row_count - 1] {
            let (own_ids, own_logprobs) = best(row, 1)?;
            let range = row * count..(row + 1) * count;
            if own_ids != ids[range.clone()] || own_logprobs != logprobs[range] {
                return Err(format!("top {count} of row {row} of {vocabulary} differ among {row_count} rows"));
            }
        }
    }
    Ok(())
}

/// The expected result of [`Kernels::argmax_rows`] for a row.
pub(super) fn chosen_of(row: &[f32]) -> i32 {
    finite_argmax(row).map_or(NOT_FINITE, |index| index as i32)
}

/// The largest of many rows, twice; some have no finite one, and in some it is the largest or
/// smallest finite float.
pub fn check_argmax_rows(device: &Device) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let mut numbers = Numbers::new(21);
    for (row_count, vocabulary, stride) in
        [(40, 7, 7), (1, 1, 1), (18, 4096, 4096), (9, 5000, 5001), (5, 32_000, 32_000), (3, 128_256, 128_256)]
    {
        let logits = rows(&mut numbers, row_count, vocabulary, stride);
        let on_device = device.upload(&logits).map_err(text)?;
        for _ in 0..2 {
            let chosen = device.allocate(row_count * 4).map_err(text)?;
            let operand = Logits { at: on_device.slice(), stride, rows: row_count, vocabulary };
            kernels.argmax_rows(chosen.slice(), operand).map_err(text)?;
            let found: Vec<i32> = device.download(chosen.slice()).map_err(text)?;
            for (at, row) in logits.chunks(stride).enumerate() {
                let expected = chosen_of(&row[..vocabulary]);
                if found[at] != expected {
                    return Err(format!(
                        "argmax of row {at} of {row_count}, {vocabulary} values: {}, expected {expected}",
                        found[at]
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Rows of a source, with slots that request log-probabilities and slots that do not.
pub fn check_logprob_rows(device: &Device) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let mut numbers = Numbers::new(22);
    let (source_rows, row_count, slots, count) = (6, 11, 4, 20);
    for vocabulary in [5, 4096, 9001] {
        let logits = rows(&mut numbers, source_rows, vocabulary, vocabulary);
        let asks = [3_i32, -1, 0, 20];
        let draw = |numbers: &mut Numbers, bound: usize| -> Vec<i32> {
            (0..row_count).map(|_| numbers.below(bound) as i32).collect()
        };
        let source = draw(&mut numbers, source_rows);
        let token = draw(&mut numbers, vocabulary);
        let slot = draw(&mut numbers, slots);
        let upload = |values: &[i32]| device.upload(values).map_err(text);
        let (asks_there, source_there, token_there, slot_there) =
            (upload(&asks)?, upload(&source)?, upload(&token)?, upload(&slot)?);
        let on_device = device.upload(&logits).map_err(text)?;
        // Rows whose slot requests nothing must stay unchanged.
        let fill = |values: usize| device.zeros(values * 4).map_err(text);
        let (logprobs, top_ids, top_logprobs) = (fill(row_count)?, fill(row_count * count)?, fill(row_count * count)?);
        let operands = LogprobRows {
            logprobs: logprobs.slice(),
            top_ids: top_ids.slice(),
            top_logprobs: top_logprobs.slice(),
            count,
            logits: Logits { at: on_device.slice(), stride: vocabulary, rows: source_rows, vocabulary },
            rows: row_count,
            row_source: Some(source_there.slice()),
            token: token_there.slice(),
            row_slot: slot_there.slice(),
            logprob_count: asks_there.slice(),
        };
        kernels.logprob_rows(operands).map_err(text)?;
        let floats = |from: Slice<'_>| device.download::<f32>(from).map_err(text);
        let (found, found_logs) = (floats(logprobs.slice())?, floats(top_logprobs.slice())?);
        let found_ids: Vec<i32> = device.download(top_ids.slice()).map_err(text)?;
        for at in 0..row_count {
            let what = format!("log-probabilities of row {at} of {vocabulary} values");
            let row = &logits[source[at] as usize * vocabulary..][..vocabulary];
            let logs = log_softmax(row);
            let silent = asks[slot[at] as usize] < 0;
            check_log(&what, found[at], if silent { 0.0 } else { logs[token[at] as usize] })?;
            let mut best = order(row).into_iter();
            for place in at * count..(at + 1) * count {
                let best = best.next();
                let (id, log) = match best {
                    _ if silent => (0, 0.0),
                    Some(index) => (index as i32, logs[index]),
                    None => (0, f32::NEG_INFINITY),
                };
                if found_ids[place] != id {
                    return Err(format!("{what}: id {}, expected {id}", found_ids[place]));
                }
                check_log(&what, found_logs[place], log)?;
            }
        }
    }
    Ok(())
}
