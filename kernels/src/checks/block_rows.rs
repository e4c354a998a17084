//! Rows of a block head: kept keys and values, and the latent vectors of a Markov head.

use super::{Numbers, compare, text, tolerance, values};
use crate::{
    device::{Buffer, Device, Element},
    launch::{ContextRows, Kernels, MarkovOrder, MarkovStates, MarkovTokens, RotaryRows, Rows},
    reference::{Rope, RopeScaling, rms_norm},
};

const EPSILON: f32 = 1e-6;

fn upload(device: &Device, values: &[f32], element: Element) -> Result<Buffer, String> {
    device.upload(&element.encode(values)).map_err(text)
}

/// Keys and values of several layers, with and without norms, some rows of which go nowhere.
pub fn check_write_context(device: &Device, element: Element) -> Result<(), String> {
    for (layers, kv_heads, head_dim, normed) in
        [(1, 1, 64, false), (3, 2, 128, true), (2, 3, 96, true), (5, 1, 256, false)]
    {
        check_context(device, element, [layers, kv_heads, head_dim], normed)?;
    }
    Ok(())
}

fn check_context(
    device: &Device,
    element: Element,
    [layers, kv_heads, head_dim]: [usize; 3],
    normed: bool,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new((layers * head_dim) as u64);
    let what = format!("context of {layers} layers, {kv_heads} heads of {head_dim}, norms: {normed}");
    let (positions, cache_rows, width) = (60, 9, kv_heads * head_dim);
    let rope = Rope::new(head_dim, 10_000.0, RopeScaling::None);
    // The first and the last position and the last cache row; −1 writes nowhere.
    let (at, write) = ([0_i32, 59, 17], [8_i32, -1, 3]);
    let kv = numbers.floats(at.len() * layers * 2 * width, element);
    let norms = numbers.floats(layers * head_dim, element);
    let before = numbers.floats(layers * 2 * cache_rows * width, element);
    let (kv_on, norms_on) = (upload(device, &kv, element)?, upload(device, &norms, element)?);
    let cache = upload(device, &before, element)?;
    let table = device.upload(&rope.table(positions)).map_err(text)?;
    let (position, rows) = (device.upload(&at).map_err(text)?, device.upload(&write).map_err(text)?);
    kernels
        .write_context(ContextRows {
            kv: kv_on.slice(),
            rotary: RotaryRows { table: table.slice(), positions, position: position.slice() },
            write: rows.slice(),
            cache: cache.slice(),
            key_norms: normed.then_some((norms_on.slice(), EPSILON)),
            rows: at.len(),
            layers,
            kv_heads,
            head_dim,
        })
        .map_err(text)?;
    let mut expected = before;
    for (row, to) in write.into_iter().enumerate().filter(|(_, to)| *to >= 0) {
        for layer in 0..layers {
            let own = &kv[(row * layers + layer) * 2 * width..][..2 * width];
            let (keys, own_values) = own.split_at(width);
            let mut keys = match normed {
                true => rms_norm(keys, &norms[layer * head_dim..(layer + 1) * head_dim], EPSILON),
                false => keys.to_vec(),
            };
            rope.apply(&mut keys, &[at[row] as usize]);
            for (plane, values) in [keys.as_slice(), own_values].into_iter().enumerate() {
                let start = ((layer * 2 + plane) * cache_rows + to as usize) * width;
                expected[start..start + width].copy_from_slice(values);
            }
        }
    }
    compare(&what, &values(device, cache.slice(), element)?, &expected, 2.0 * tolerance(element))
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Inputs and cells of the kinds of Markov heads, with and without a state.
pub fn check_markov(device: &Device, element: Element) -> Result<(), String> {
    for (rows, rank, width) in [(1, 8, 16), (5, 256, 40), (3, 264, 8)] {
        for state in [None, Some(false), Some(true)] {
            check_cell(device, element, [rows, rank, width], state)?;
        }
    }
    Ok(())
}

/// `state` says whether the head has a state, and if so, whether there is one yet.
fn check_cell(
    device: &Device,
    element: Element,
    [rows, rank, width]: [usize; 3],
    state: Option<bool>,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new((rows * rank + width) as u64);
    let what = format!("Markov head of rank {rank}, {rows} rows, state: {state:?}");
    let vocabulary = 11;
    let mut random = |count: usize| numbers.floats(count, element);
    let (embedding, hidden, states) = (random(vocabulary * rank), random(4 * width), random(6 * rank));
    let joint = random(rows * 3 * rank);
    let mut ints = |below: usize| (0..rows).map(|_| numbers.below(below) as i32).collect::<Vec<i32>>();
    let (token, base, source) = (ints(vocabulary), ints(4), ints(6));
    let up = |values: &[i32]| device.upload(values).map_err(text);
    let (token_on, base_on, source_on) = (up(&token)?, up(&base)?, up(&source)?);
    let embedding_on = upload(device, &embedding, element)?;
    let (hidden_on, states_on) = (upload(device, &hidden, element)?, upload(device, &states, element)?);
    let joint_on = upload(device, &joint, element)?;
    let tokens = MarkovTokens { embedding: embedding_on.slice(), vocabulary, rank, token: token_on.slice() };
    let before = MarkovStates { at: states_on.slice(), source: source_on.slice() };
    let before = state.filter(|there| *there).map(|_| before);
    let order = match state {
        None => MarkovOrder::HiddenFirst,
        Some(_) => MarkovOrder::StateFirst(before),
    };
    let inputs = width + rank * if state.is_some() { 2 } else { 1 };
    let bytes = element.bytes();
    let allocate = |count: usize| device.zeros(count * bytes).map_err(text);
    let (out, latent, after) = (allocate(rows * inputs)?, allocate(rows * rank)?, allocate(rows * rank)?);
    let hidden_rows = (Rows { at: hidden_on.slice(), stride: width }, width);
    kernels.markov_inputs(out.slice(), tokens, hidden_rows, base_on.slice(), order, rows).map_err(text)?;

    let of = |values: &[f32], width: usize, row: i32| values[row as usize * width..][..width].to_vec();
    let state_of = |row: usize| match state {
        Some(true) => of(&states, rank, source[row]),
        _ => vec![0.0; rank],
    };
    let expected: Vec<f32> = (0..rows)
        .flat_map(|row| {
            let (e, h) = (of(&embedding, rank, token[row]), of(&hidden, width, base[row]));
            match state {
                None => [h, e].concat(),
                Some(_) => [state_of(row), e, h].concat(),
            }
        })
        .collect();
    compare(&format!("{what}, inputs"), &values(device, out.slice(), element)?, &expected, 0.0)?;

    let (mut expected_latent, mut expected_state) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let own = &joint[row * 3 * rank..][..3 * rank];
        match state {
            None => {
                let e = of(&embedding, rank, token[row]);
                let gates = &joint[row * rank..][..rank];
                expected_latent.extend(gates.iter().zip(e).map(|(gate, e)| sigmoid(*gate) * e));
            }
            Some(_) => {
                for (at, before) in state_of(row).into_iter().enumerate() {
                    let gate = sigmoid(own[at]);
                    expected_state.push(gate * before + (1.0 - gate) * own[rank + at].tanh());
                    expected_latent.push(own[2 * rank + at].tanh());
                }
            }
        }
    }
    match state {
        None => kernels.markov_gate(latent.slice(), joint_on.slice(), tokens, rows).map_err(text)?,
        Some(_) => {
            let cell = kernels.markov_cell(latent.slice(), after.slice(), joint_on.slice(), before, rank, rows);
            cell.map_err(text)?;
            let found = values(device, after.slice(), element)?;
            compare(&format!("{what}, states"), &found, &expected_state, tolerance(element))?;
        }
    }
    compare(&format!("{what}, latent"), &values(device, latent.slice(), element)?, &expected_latent, tolerance(element))
}
