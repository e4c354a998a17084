//! Drawn tokens, compared with the definition in double precision and with their expected
//! distribution.

use super::{Numbers, select::chosen_of, text};
use crate::{
    device::{Device, Element},
    launch::{Kernels, Logits, SamplingState},
};

/// The sampling settings of a slot.
#[derive(Clone, Copy, Debug)]
struct SlotSampling {
    temperature: f32,
    top_p: f32,
    top_k: i32,
    min_p: f32,
    seed: u64,
}

const PLAIN: SlotSampling = SlotSampling { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, seed: 0 };

/// 53 random bits, a function of seed and position.
pub(super) fn random_bits(seed: u64, position: usize) -> u64 {
    let mix = |mut value: u64| {
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    };
    let mixed = mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ (position as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
    mix(mixed) >> 11
}

/// Tokens and their weights by ascending id; `None` if the choice is greedy, or there is no token.
fn distribution(logits: &[f32], settings: SlotSampling) -> Option<Vec<(usize, f64)>> {
    let scaled =
        logits.iter().map(|logit| if logit.is_nan() { f32::NEG_INFINITY } else { logit / settings.temperature });
    let scaled: Vec<f32> = scaled.collect();
    let largest = scaled.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if settings.temperature == 0.0 || !largest.is_finite() {
        return None;
    }
    let mut kept: Vec<(usize, f64)> = scaled.iter().map(|value| f64::from(value - largest).exp()).enumerate().collect();
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if settings.top_k > 0 {
        kept.truncate(settings.top_k as usize);
    }
    if settings.top_p < 1.0 {
        let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
        let mut before = 0.0;
        let enough = kept.iter().position(|(_, weight)| {
            let reached = before >= f64::from(settings.top_p) * total;
            before += weight;
            reached
        });
        kept.truncate(enough.unwrap_or(kept.len()).max(1));
    }
    if settings.min_p > 0.0 {
        kept.retain(|(_, weight)| *weight >= f64::from(settings.min_p));
    }
    kept.sort_unstable_by_key(|(id, _)| *id);
    Some(kept)
}

fn pick(weights: &[(usize, f64)], uniform: f64) -> usize {
    let mut left = uniform * weights.iter().map(|(_, weight)| weight).sum::<f64>();
    let found = weights.iter().find(|(_, weight)| {
        left -= weight;
        left < 0.0
    });
    found.or(weights.iter().rev().find(|(_, weight)| *weight > 0.0)).map_or(0, |(id, _)| *id)
}

/// Whether a token satisfies the definition, allowing for rounding of the random number and the
/// bounds.
fn is_right(logits: &[f32], settings: SlotSampling, position: usize, found: i32) -> bool {
    let uniform = random_bits(settings.seed, position) as f64 / (1_u64 << 53) as f64;
    let near = [0.0, 1.0, -1.0];
    near.iter().any(|share| {
        let top_p = if settings.top_p < 1.0 { settings.top_p + share * 1e-6 } else { settings.top_p };
        near.iter().any(|least| {
            let min_p = settings.min_p * (1.0 + least * 1e-6);
            match distribution(logits, SlotSampling { top_p, min_p, ..settings }) {
                None => found == chosen_of(logits),
                Some(weights) => near.iter().any(|by| {
                    let uniform = (uniform + f64::from(*by) * 2e-6).clamp(0.0, 1.0 - 1e-9);
                    pick(&weights, uniform) as i32 == found
                }),
            }
        })
    })
}

/// Draws a token for each row of logits with the settings of the row's slot.
fn draw(
    device: &Device,
    logits: &[f32],
    (vocabulary, stride): (usize, usize),
    settings: &[SlotSampling],
    slots: &[i32],
    positions: &[i32],
) -> Result<Vec<i32>, String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let rows = slots.len();
    let on_device = device.upload(logits).map_err(text)?;
    let floats =
        |value: fn(&SlotSampling) -> f32| device.upload(&settings.iter().map(value).collect::<Vec<_>>()).map_err(text);
    let (temperature, top_p, min_p) =
        (floats(|slot| slot.temperature)?, floats(|slot| slot.top_p)?, floats(|slot| slot.min_p)?);
    let top_k = device.upload(&settings.iter().map(|slot| slot.top_k).collect::<Vec<_>>()).map_err(text)?;
    let seed = device.upload(&settings.iter().map(|slot| slot.seed).collect::<Vec<_>>()).map_err(text)?;
    let (slots, positions) = (device.upload(slots).map_err(text)?, device.upload(positions).map_err(text)?);
    let chosen = device.allocate(rows * 4).map_err(text)?;
    let logits = Logits { at: on_device.slice(), stride, rows, vocabulary };
    let state = SamplingState {
        slots: settings.len(),
        temperature: temperature.slice(),
        top_p: top_p.slice(),
        top_k: top_k.slice(),
        min_p: min_p.slice(),
        seed: seed.slice(),
    };
    kernels.argmax_rows(chosen.slice(), logits).map_err(text)?;
    kernels.sample_rows(chosen.slice(), logits, slots.slice(), positions.slice(), state).map_err(text)?;
    device.download(chosen.slice()).map_err(text)
}

/// Rows of several kinds: peaked, flat, all ties, broken, infinite, NaN alone.
const STYLES: [fn(&mut Numbers, usize) -> f32; 9] = [
    |numbers, _| numbers.float() * 8.0,
    |numbers, _| (numbers.float() + numbers.float() + numbers.float()) * 6.0,
    |_, _| 2.0,
    |numbers, _| (numbers.float() * 2.0).round(),
    |numbers, at| if at == 3 { 30.0 } else { numbers.float() },
    |numbers, _| [f32::NAN, f32::NEG_INFINITY, numbers.float(), 1.0][numbers.below(4)],
    |numbers, at| if at % 5 == 4 { f32::INFINITY } else { numbers.float() },
    // So flat that a filter's bound is among more tokens than a list holds.
    |numbers, _| numbers.float() * 1e-3,
    |numbers, _| [f32::NAN, f32::NEG_INFINITY][numbers.below(2)],
];

fn random_settings(numbers: &mut Numbers) -> SlotSampling {
    let share = |numbers: &mut Numbers| (numbers.float() + 1.0) / 2.0;
    let temperature = [0.0, 1e-40, 1e-3, 0.3, 1.0, 1.0, 2.5][numbers.below(7)];
    let top_p =
        if numbers.below(2) == 0 { 1.0 } else { [0.0, 0.999, share(numbers), share(numbers)][numbers.below(4)] };
    let top_k = if numbers.below(2) == 0 { 0 } else { [1, 2, 50, 1000, 5000, 1 << 30][numbers.below(6)] };
    let min_p = if numbers.below(3) > 0 { 0.0 } else { [1.0, 0.1, share(numbers)][numbers.below(3)] };
    SlotSampling { temperature, top_p, top_k, min_p, seed: numbers.bits() }
}

/// Every filter alone and combined, on every kind of row, from one token to a large vocabulary.
pub fn check_sample_rows(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(50);
    let rows = 24;
    for (turn, vocabulary) in [1, 2, 5, 50, 1000, 4099, 6000, 6000, 32_000, 128_256].into_iter().enumerate() {
        let rows = if vocabulary > 100_000 { 6 } else { rows };
        let stride = vocabulary + turn % 3;
        let first = numbers.below(STYLES.len());
        let logits: Vec<f32> = (0..rows * stride)
            .map(|at| {
                if at % stride < vocabulary {
                    STYLES[(first + at / stride) % STYLES.len()](&mut numbers, at % stride)
                } else {
                    1e9
                }
            })
            .collect();
        let settings: Vec<SlotSampling> = (0..rows).map(|_| random_settings(&mut numbers)).collect();
        let slots: Vec<i32> = (0..rows).map(|_| numbers.below(rows) as i32).collect();
        let positions: Vec<i32> = (0..rows).map(|_| numbers.below(100_000) as i32).collect();
        let found = draw(device, &logits, (vocabulary, stride), &settings, &slots, &positions)?;
        for (row, token) in found.iter().enumerate() {
            let (own, settings) = (&logits[row * stride..][..vocabulary], settings[slots[row] as usize]);
            if !is_right(own, settings, positions[row] as usize, *token) {
                return Err(format!("token {token} drawn in row {row} of {vocabulary} logits with {settings:?}"));
            }
        }
        // The same rows alone: the result must not depend on the batch.
        let alone = rows - 1;
        let again = draw(
            device,
            &logits[alone * stride..],
            (vocabulary, stride),
            &settings,
            &slots[alone..],
            &positions[alone..],
        )?;
        if again[0] != found[alone] {
            return Err(format!(
                "a row of {vocabulary} logits draws {} alone and {} in a batch",
                again[0], found[alone]
            ));
        }
    }
    Ok(())
}

/// Chi-square test of many draws over seeds and over positions, without and with filters.
pub fn check_sampled_distribution(device: &Device) -> Result<(), String> {
    let logits: [f32; 8] = [0.3, -1.2, 1.9, 0.0, 1.1, -0.4, 0.9, f32::NEG_INFINITY];
    let draws = 1500;
    for (settings, by_seed) in [
        (PLAIN, true),
        (SlotSampling { temperature: 0.7, ..PLAIN }, false),
        (SlotSampling { top_k: 5, top_p: 0.85, ..PLAIN }, true),
        (SlotSampling { temperature: 1.6, min_p: 0.25, ..PLAIN }, false),
    ] {
        let all: Vec<f32> = logits.iter().copied().cycle().take(draws * logits.len()).collect();
        let slot_settings: Vec<SlotSampling> =
            (0..draws as u64).map(|seed| SlotSampling { seed: if by_seed { seed } else { 7 }, ..settings }).collect();
        let slots: Vec<i32> = (0..draws as i32).collect();
        let positions: Vec<i32> = (0..draws as i32).map(|at| if by_seed { 11 } else { at }).collect();
        let found = draw(device, &all, (logits.len(), logits.len()), &slot_settings, &slots, &positions)?;
        let weights = distribution(&logits, settings).unwrap_or_default();
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut statistic = 0.0;
        let mut free: f64 = -1.0;
        let mut counted = 0;
        for (id, weight) in weights.iter().filter(|(_, weight)| *weight > 0.0) {
            let count = found.iter().filter(|token| **token as usize == *id).count();
            let expected = weight / total * draws as f64;
            statistic += (count as f64 - expected).powi(2) / expected;
            free += 1.0;
            counted += count;
        }
        // Wilson and Hilferty's approximation at one in a hundred thousand.
        let spread = 2.0 / (9.0 * free);
        let bound = free * (1.0 - spread + 4.26 * spread.sqrt()).powi(3);
        if counted != draws || statistic > bound {
            return Err(format!(
                "{settings:?}: chi-square {statistic:.1} over {bound:.1}, {} draws outside the distribution",
                draws - counted
            ));
        }
    }
    Ok(())
}
