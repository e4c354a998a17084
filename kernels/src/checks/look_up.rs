//! Look-ups in texts, compared with the rule as it is worded: for n from the longest, an earlier
//! occurrence of the last n tokens.

use super::{
    Numbers,
    layout::{ints, poisoned, same},
    text,
};
use crate::{
    device::{Device, Element},
    launch::{Kernels, LOOK_UP_RANGES, LOOK_UP_WORDS, LookUpBatch, LookUpOutput, LookUps, SlotTexts},
};

/// The first number of equal tokens of each range, and the share that is expected to be right.
const FIRST: [i32; LOOK_UP_RANGES] = [1, 2, 3, 4, 5, 7, 11];
const SHARES: [f32; LOOK_UP_RANGES] = [0.25, 0.5, 0.75, 0.5, 0.875, 1.0, 0.96];
const WEIGHT: f32 = 4.0;

/// A rule, and what is done with what it finds.
#[derive(Clone, Copy, Debug)]
struct LookUpCase {
    min: usize,
    max: usize,
    earliest: bool,
    steps: usize,
    /// Nodes of a tree and whether missing drafts are filled; `None` for chains.
    trees: Option<(usize, bool)>,
}

/// Slots of which some are in a batch.
struct LookUpTexts {
    batch_slot: Vec<i32>,
    length: Vec<i32>,
    root: Vec<i32>,
    /// `[slots, width]`.
    text: Vec<i32>,
    width: usize,
    counted: Vec<i32>,
}

impl LookUpTexts {
    /// Texts of few different tokens, or of one that repeats a period.
    fn new(numbers: &mut Numbers, batch: usize, longest: usize) -> Self {
        let (slots, width) = (batch + 2, longest + 1 + numbers.below(3));
        let mut batch_slot: Vec<i32> = numbers.shuffled(slots - 1)[..batch].to_vec();
        for slot in &mut batch_slot {
            if numbers.below(7) == 0 {
                *slot = slots as i32 - 1;
            }
        }
        let (mut length, mut root, mut counted, mut text) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..slots {
            let known = numbers.below(longest + 1);
            let (kinds, period) = (1 + numbers.below(6), numbers.below(9));
            let mut tokens: Vec<i32> = Vec::new();
            for at in 0..=known {
                let repeats = at >= period && period > 0 && numbers.below(50) > 0;
                tokens.push(if repeats { tokens[at - period] } else { numbers.below(kinds) as i32 });
            }
            root.push(tokens.pop().unwrap_or_default());
            length.push(known as i32);
            // No token, so that a read past the end of a text is detected.
            tokens.resize(width, -7);
            text.extend(tokens);
            let most_new = [1, 4, 30][numbers.below(3)];
            let new = numbers.below(most_new);
            counted.extend([(known + 1).saturating_sub(new) as i32, numbers.below(9) as i32]);
            let of_ranges: Vec<f32> = (0..LOOK_UP_RANGES).map(|_| numbers.below(9) as f32).collect();
            let more = of_ranges.iter().map(|right| right + numbers.below(5) as f32).collect::<Vec<_>>();
            counted.extend(of_ranges.into_iter().chain(more).map(|count| count.to_bits() as i32));
        }
        Self { batch_slot, length, root, text, width, counted }
    }

    fn slots(&self) -> usize {
        self.length.len()
    }

    /// The slot of a request; `None` for padding.
    fn slot(&self, request: usize) -> Option<usize> {
        let slot = self.batch_slot[request] as usize;
        (slot + 1 < self.slots()).then_some(slot)
    }
}

/// The number of equal tokens, and what follows their occurrence.
fn find<'t>(tokens: &'t [i32], case: &LookUpCase) -> Option<(usize, &'t [i32])> {
    (case.min..=case.max.min(tokens.len().saturating_sub(1))).rev().find_map(|n| {
        let last = &tokens[tokens.len() - n..];
        let mut starts = (0..tokens.len() - n).filter(|start| &tokens[*start..start + n] == last);
        let start = if case.earliest { starts.next() } else { starts.next_back() };
        start.map(|start| (n, &tokens[start + n..]))
    })
}

fn range(equal: usize) -> usize {
    FIRST.iter().rposition(|first| *first as usize <= equal).unwrap_or_default()
}

/// What a request finds: its chain with chances. Adds the root to its text, and counts.
fn plain(texts: &mut LookUpTexts, slot: usize, case: &LookUpCase) -> Vec<(i32, f32)> {
    let known = texts.length[slot] as usize;
    texts.text[slot * texts.width + known] = texts.root[slot];
    let tokens = &texts.text[slot * texts.width..][..=known];
    let counted = &mut texts.counted[slot * LOOK_UP_WORDS..][..LOOK_UP_WORDS];
    let mut counts: Vec<f32> = counted[2..].iter().map(|bits| f32::from_bits(*bits as u32)).collect();
    let most = case.steps.min(counted[1] as usize);
    if case.trees.is_none() {
        for length in counted[0] as usize..tokens.len() {
            let Some((equal, after)) = find(&tokens[..length], case) else { continue };
            counts[range(equal)] += f32::from(u8::from(after[0] == tokens[length]));
            counts[LOOK_UP_RANGES + range(equal)] += 1.0;
        }
        counted[0] = tokens.len() as i32;
        counted[2..].iter_mut().zip(&counts).for_each(|(to, count)| *to = count.to_bits() as i32);
    }
    let Some((equal, after)) = find(tokens, case) else { return Vec::new() };
    let chance = |depth: usize| {
        let at = range(equal + depth);
        ((counts[at] + WEIGHT * SHARES[at]) / (counts[LOOK_UP_RANGES + at] + WEIGHT)).min(1.0).ln()
    };
    after.iter().take(most).enumerate().map(|(depth, token)| (*token, chance(depth))).collect()
}

fn check_batch(
    device: &Device,
    numbers: &mut Numbers,
    batch: usize,
    longest: usize,
    case: LookUpCase,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let what = format!("look-ups in texts of up to {longest} tokens, batch {batch}, {case:?}");
    let mut texts = LookUpTexts::new(numbers, batch, longest);
    let upload = |values: &[i32]| device.upload(values).map_err(text);
    let (batch_slot, length, root) = (upload(&texts.batch_slot)?, upload(&texts.length)?, upload(&texts.root)?);
    let (text_of, counted, first) = (upload(&texts.text)?, upload(&texts.counted)?, upload(&FIRST)?);
    let share = device.upload(&SHARES).map_err(text)?;
    let look_ups = LookUps {
        slots: texts.slots(),
        text: SlotTexts { at: text_of.slice(), width: texts.width },
        counted: counted.slice(),
        range_first: first.slice(),
        range_share: share.slice(),
        weight: WEIGHT,
        min: case.min,
        max: case.max,
        earliest: case.earliest,
    };
    let steps = case.steps;
    let of = LookUpBatch { batch, steps, batch_slot: batch_slot.slice(), length: length.slice(), root: root.slice() };
    let width = case.trees.map_or(steps, |(nodes, _)| nodes);
    let (found, one, other) =
        (poisoned(device, batch)?, poisoned(device, batch * width)?, poisoned(device, batch * width)?);
    let mut expected = [ints(device, &found)?, ints(device, &one)?, ints(device, &other)?];
    let output = match case.trees {
        None => LookUpOutput::Chains { length: found.slice(), token: one.slice(), chance: other.slice() },
        Some((nodes, filled)) => LookUpOutput::Trees { nodes, token: one.slice(), parent: other.slice(), filled },
    };
    kernels.look_up(look_ups, of, output).map_err(text)?;

    let mut chances = vec![None; batch * width];
    for request in 0..batch {
        let slot = texts.slot(request);
        let chain = slot.map_or_else(Vec::new, |slot| plain(&mut texts, slot, &case));
        let row = request * width;
        match case.trees {
            None => {
                expected[0][request] = chain.len() as i32;
                for (at, (token, chance)) in (row..).zip(&chain) {
                    expected[1][at] = *token;
                    chances[at] = Some(*chance);
                }
            }
            Some((nodes, filled)) => {
                let root = slot.map_or(0, |slot| texts.root[slot]);
                let most = slot.map_or(0, |slot| steps.min(texts.counted[slot * LOOK_UP_WORDS + 1] as usize));
                for draft in 0..nodes - 1 {
                    let exists = draft < if filled { most } else { chain.len() };
                    expected[1][row + 1 + draft] = chain.get(draft).map_or(root, |one| one.0);
                    expected[2][row + 1 + draft] = if exists { draft as i32 } else { -1 };
                }
            }
        }
    }
    // The last digit of a logarithm may differ.
    let written = ints(device, &other)?;
    for ((at, chance), found) in chances.iter().enumerate().zip(&written) {
        let Some(chance) = chance else { continue };
        let found = f32::from_bits(*found as u32);
        if (found - chance).abs() > 2e-6 * chance.abs().max(1e-3) {
            return Err(format!("{what}, chance {at}: found {found}, expected {chance}"));
        }
        expected[2][at] = written[at];
    }
    same(&format!("{what}, lengths"), &ints(device, &found)?, &expected[0])?;
    same(&format!("{what}, tokens"), &ints(device, &one)?, &expected[1])?;
    same(&format!("{what}, chances or parents"), &written, &expected[2])?;
    same(&format!("{what}, text"), &ints(device, &text_of)?, &texts.text)?;
    same(&format!("{what}, counts"), &ints(device, &counted)?, &texts.counted)
}

/// Short texts and texts longer than a block has threads, each rule, chains and trees.
pub fn check_look_up(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(58);
    for (batch, longest) in [(1, 1), (9, 12), (40, 70), (3, 1400)] {
        for earliest in [false, true] {
            for (min, max) in [(1, 3), (2, 16), (5, 5), (1, 256)] {
                let steps = 1 + numbers.below(9);
                let nodes = steps + 1 + numbers.below(3);
                for trees in [None, Some((nodes, false)), Some((nodes, true))] {
                    let case = LookUpCase { min, max, earliest, steps, trees };
                    check_batch(device, &mut numbers, batch, longest, case)?;
                }
            }
        }
    }
    Ok(())
}
