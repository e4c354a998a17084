//! Embedding, norms, rotary embedding, activation.

use super::{Numbers, compare, linear::sums_of_squares, text, tolerance, values};
use crate::{
    device::{Buffer, Device, DeviceError, Element},
    launch::{Added, JoinNormed, Kernels, Parts, RmsNorm, RotaryRows, Rotation, Rows},
    reference::{Rope, RopeScaling, rms_norm, sigmoid, silu_gate},
};

/// Shares of the most parts that are added up; sums of such parts are exact for types of 2 bytes.
const NINE: [f32; Kernels::MOST_ADDENDS] = [0.0625, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.0625];

/// Rows of a table, written into a wider buffer; tokens outside the vocabulary do not fault.
pub fn check_embed(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(1);
    let (vocabulary, width, stride) = (50, 72, 152);
    let table = numbers.floats(vocabulary * width, element);
    let tokens = [3, 49, 0, 50, -1];
    let (on_device, ids) = (upload(device, &table, element)?, device.upload(&tokens).map_err(text)?);
    let out = device.zeros(tokens.len() * stride * element.bytes()).map_err(text)?;
    kernels
        .embed(Rows { at: out.slice(), stride }, on_device.slice(), ids.slice(), tokens.len(), width, vocabulary)
        .map_err(text)?;
    let found = values(device, out.slice(), element)?;
    // The two tokens outside the vocabulary read its first row.
    for (row, token) in [3, 49, 0, 0, 0].into_iter().enumerate() {
        compare("embed", &found[row * stride..][..width], &table[token * width..][..width], 0.0)?;
        compare(
            "embed, beyond the row",
            &found[row * stride + width..][..stride - width],
            &vec![0.0; stride - width],
            0.0,
        )?;
    }
    Ok(())
}

/// With and without residual, kept sums and gathered rows; widths below and above a block's.
pub fn check_rms_norm(device: &Device, element: Element) -> Result<(), String> {
    check_norm(device, element, Kernels::rms_norm)?;
    check_norm(device, element, Kernels::rms_norm_shared)
}

fn check_norm(
    device: &Device,
    element: Element,
    launch: fn(&Kernels, RmsNorm<'_>) -> Result<(), DeviceError>,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let rms_norm_of = |norm: RmsNorm<'_>| launch(&kernels, norm).map_err(text);
    let mut numbers = Numbers::new(2);
    for width in [64, 136, 4096, 8192, 12288] {
        let rows = 5;
        let (x, y) = (numbers.floats(rows * width, element), numbers.floats(rows * width, element));
        let weight = numbers.floats(width, element);
        let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        let sum = element.decode(&element.encode(&sum));
        let (stream, added, w) =
            (upload(device, &x, element)?, upload(device, &y, element)?, upload(device, &weight, element)?);
        let out = device.zeros(rows * width * element.bytes()).map_err(text)?;
        let kept = device.zeros(rows * 2 * width * element.bytes()).map_err(text)?;
        let norm = RmsNorm {
            out: rows_of(&out, width),
            stream: rows_of(&stream, width),
            add: None,
            weight: w.slice(),
            keep: None,
            source: None,
            rows,
            width,
            epsilon: 1e-5,
        };
        let what = format!("rms_norm of {width}");
        rms_norm_of(norm)?;
        compare(&what, &values(device, out.slice(), element)?, &rms_norm(&x, &weight, 1e-5), tolerance(element))?;
        let map = device.upload(&[4_i32, 0, 2]).map_err(text)?;
        let keep = Rows { at: kept.slice(), stride: 2 * width };
        let of_source = RmsNorm { source: Some(map.slice()), keep: Some(keep), rows: 3, ..norm };
        rms_norm_of(of_source)?;
        let gathered: Vec<f32> = [4, 0, 2].into_iter().flat_map(|row| &x[row * width..][..width]).copied().collect();
        let expected = rms_norm(&gathered, &weight, 1e-5);
        compare(&what, &values(device, out.slice(), element)?, &expected, tolerance(element))?;
        let found = values(device, kept.slice(), element)?;
        compare("the kept row", &found[2 * width..][..width], &gathered[width..][..width], tolerance(element) / 4.0)?;
        rms_norm_of(RmsNorm { add: Some(Added::Rows(rows_of(&added, width))), keep: Some(keep), ..norm })?;
        compare(&what, &values(device, out.slice(), element)?, &rms_norm(&sum, &weight, 1e-5), tolerance(element))?;
        compare("the residual stream", &values(device, stream.slice(), element)?, &sum, tolerance(element) / 4.0)?;
        let found = values(device, kept.slice(), element)?;
        compare("the kept sum", &found[2 * width..][..width], &sum[width..][..width], tolerance(element) / 4.0)?;

        // Linear layers in float32 are never divided into parts.
        if element == Element::F32 {
            continue;
        }
        let expected = values(device, out.slice(), element)?;
        for shares in [&[0.5, 0.5][..], &[0.5, 0.25, 0.25], &NINE] {
            let (again, parts) = (upload(device, &x, element)?, InParts::shared_by(device, &y, shares)?);
            let add = Some(Added::Parts(parts.parts()));
            rms_norm_of(RmsNorm { stream: rows_of(&again, width), add, ..norm })?;
            compare("rms_norm after parts", &values(device, out.slice(), element)?, &expected, 0.0)?;
            compare(
                "the stream after parts",
                &values(device, again.slice(), element)?,
                &sum,
                tolerance(element) / 4.0,
            )?;
        }
        let parts = InParts::upload(device, &y)?;
        let add = Some(Added::Parts(parts.parts()));
        check_unscaled(&kernels, RmsNorm { keep: Some(keep), add, ..norm }, [&x, &sum, &weight])?;
        check_unscaled(
            &kernels,
            RmsNorm { add: Some(Added::Rows(rows_of(&added, width))), ..norm },
            [&x, &sum, &weight],
        )?;
        check_unscaled(&kernels, norm, [&x, &x, &weight])?;
        kernels.add_parts(out.slice(), false, parts.parts(), rows, width).map_err(text)?;
        compare("parts added up", &values(device, out.slice(), element)?, &y, 0.0)?;
        let out = device.allocate(rows * width * 4).map_err(text)?;
        kernels.add_parts(out.slice(), true, parts.parts(), rows, width).map_err(text)?;
        compare("parts added up in float", &device.download(out.slice()).map_err(text)?, &y, 0.0)?;
    }
    Ok(())
}

/// A norm without the scale, of a stream that is `x` and becomes `sum`.
fn check_unscaled(kernels: &Kernels, norm: RmsNorm<'_>, [x, sum, weight]: [&[f32]; 3]) -> Result<(), String> {
    let (device, element) = (kernels.device(), kernels.element());
    let RmsNorm { out, keep, rows, width, .. } = norm;
    let stream = upload(device, x, element)?;
    let squares = device.allocate(Kernels::squares_bytes(rows, width)).map_err(text)?;
    let norm = RmsNorm { stream: rows_of(&stream, width), ..norm };
    let unscaled = kernels.rms_norm_unscaled(norm, squares.slice()).map_err(text)?;
    compare(
        "the stream of a norm without scale",
        &values(device, stream.slice(), element)?,
        sum,
        tolerance(element) / 4.0,
    )?;
    let weighted: Vec<f32> = sum.iter().enumerate().map(|(at, value)| value * weight[at % width]).collect();
    compare("a norm without scale", &values(device, out.at, element)?, &weighted, tolerance(element))?;
    let found = sums_of_squares(device, unscaled, rows)?;
    let expected: Vec<f32> = sum.chunks(width).map(|row| row.iter().map(|value| value * value).sum()).collect();
    compare("sums of squares", &found, &expected, tolerance(element))?;
    let Some(keep) = keep else { return Ok(()) };
    let kept = values(device, keep.at, element)?;
    let kept: Vec<f32> = kept.chunks(keep.stride).flat_map(|row| &row[..width]).copied().collect();
    compare("what a norm without scale keeps", &kept, sum, tolerance(element) / 4.0)
}

/// Embeddings and features with separate norms, gathered or not; the values in the stream; tokens
/// outside the vocabulary.
pub fn check_join_normed(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(5);
    let (vocabulary, tokens, source) = (20, [3_i32, 19, -1, 20], [2_i32, 0, 5, 5]);
    for width in [72, 4096, 12288] {
        let table = numbers.floats(vocabulary * width, element);
        // Wider than what is read of them, so that a wrong stride is detected.
        let features = numbers.floats(6 * (width + 8), element);
        let weights = [numbers.floats(width, element), numbers.floats(width, element)];
        let on_device = |values: &[f32]| upload(device, values, element);
        let (t, f, token_norm, feature_norm) =
            (on_device(&table)?, on_device(&features)?, on_device(&weights[0])?, on_device(&weights[1])?);
        let position = device.upload(&[7_i32, 0, 1, 0]).map_err(text)?;
        let (token, map) = (device.upload(&tokens).map_err(text)?, device.upload(&source).map_err(text)?);
        let joined = device.zeros(tokens.len() * 2 * width * element.bytes()).map_err(text)?;
        let stream = device.zeros(tokens.len() * width * element.bytes()).map_err(text)?;
        let ways = [(false, false, false), (true, true, false), (true, false, false), (true, false, true)];
        for (gathered, stream_is_normed, zero_first) in ways {
            let join = JoinNormed {
                joined: joined.slice(),
                table: t.slice(),
                vocabulary,
                token: token.slice(),
                token_norm: token_norm.slice(),
                features: Rows { at: f.slice(), stride: width + 8 },
                source: gathered.then_some(map.slice()),
                feature_norm: feature_norm.slice(),
                stream: rows_of(&stream, width),
                stream_is_normed,
                zero_first: zero_first.then_some(position.slice()),
                rows: tokens.len(),
                width,
                epsilon: 1e-5,
            };
            kernels.join_normed(join).map_err(text)?;
            let found = values(device, joined.slice(), element)?;
            let streamed = values(device, stream.slice(), element)?;
            for (row, token) in [3, 19, 0, 0].into_iter().enumerate() {
                let what = format!("join_normed of {width}, row {row}, gathered {gathered}");
                let (left, right) = found[row * 2 * width..][..2 * width].split_at(width);
                let expected = match zero_first && row % 2 == 1 {
                    true => vec![0.0; width],
                    false => rms_norm(&table[token * width..][..width], &weights[0], 1e-5),
                };
                compare(&what, left, &expected, tolerance(element))?;
                let from = if gathered { source[row] as usize } else { row };
                let feature = &features[from * (width + 8)..][..width];
                compare(&what, right, &rms_norm(feature, &weights[1], 1e-5), tolerance(element))?;
                let expected = if stream_is_normed { right } else { feature };
                compare(&what, &streamed[row * width..][..width], expected, 0.0)?;
            }
        }
    }
    Ok(())
}

/// Residual without norm; rows moved by source and target.
pub fn check_add_and_gather(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(3);
    let (rows, width) = (4, 72);
    let (x, y) = (numbers.floats(rows * width, element), numbers.floats(rows * width, element));
    let (stream, add) = (upload(device, &x, element)?, upload(device, &y, element)?);
    let keep = device.zeros(rows * width * element.bytes()).map_err(text)?;
    kernels
        .add_rows(
            rows_of(&stream, width),
            Some(Added::Rows(rows_of(&add, width))),
            Some(rows_of(&keep, width)),
            rows,
            width,
        )
        .map_err(text)?;
    let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
    compare("add_rows", &values(device, stream.slice(), element)?, &sum, tolerance(element) / 2.0)?;
    compare("add_rows, kept", &values(device, keep.slice(), element)?, &sum, tolerance(element) / 2.0)?;
    if element != Element::F32 {
        let (again, parts) = (upload(device, &x, element)?, InParts::upload(device, &y)?);
        kernels.add_rows(rows_of(&again, width), Some(Added::Parts(parts.parts())), None, rows, width).map_err(text)?;
        let expected = values(device, stream.slice(), element)?;
        compare("add_rows, of parts", &values(device, again.slice(), element)?, &expected, 0.0)?;
    }
    let out = device.zeros(rows * width * element.bytes()).map_err(text)?;
    let (source, target) =
        (device.upload(&[2_i32, -1, 0]).map_err(text)?, device.upload(&[1_i32, 0, 3]).map_err(text)?);
    kernels
        .gather_rows(rows_of(&out, width), Some(target.slice()), rows_of(&add, width), Some(source.slice()), 3, width)
        .map_err(text)?;
    // A source of −1 writes zeros, and row 2 is not a destination.
    let zeros = vec![0.0; width];
    let expected = [&zeros, &y[2 * width..3 * width], &zeros, &y[..width]].concat();
    compare("gather_rows", &values(device, out.slice(), element)?, &expected, 0.0)
}

/// Activations and gates of outputs: widths with a ragged end; large gates do not overflow.
pub fn check_silu_gate(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(4);
    for width in [40, 384, 3000] {
        let rows = 3;
        let mut x = numbers.floats(rows * 2 * width, element);
        x.iter_mut().step_by(7).for_each(|value| *value *= 64.0);
        let x = element.decode(&element.encode(&x));
        let mut expected = Vec::new();
        for row in x.chunks_exact(2 * width) {
            expected.extend(silu_gate(&row[..width], &row[width..]));
        }
        let (gate_up, out) =
            (upload(device, &x, element)?, device.zeros(rows * width * element.bytes()).map_err(text)?);
        kernels.silu_gate(out.slice(), gate_up.slice(), rows, width).map_err(text)?;
        compare(
            &format!("silu_gate of {width}"),
            &values(device, out.slice(), element)?,
            &expected,
            tolerance(element),
        )?;
        // In place, with the other half as gates.
        let gates = Rows { at: gate_up.range(width * element.bytes()..gate_up.bytes()), stride: 2 * width };
        kernels.sigmoid_gate(rows_of(&gate_up, 2 * width), gates, rows, width).map_err(text)?;
        let found = values(device, gate_up.slice(), element)?;
        for (found, x) in found.chunks_exact(2 * width).zip(x.chunks_exact(2 * width)) {
            let expected: Vec<f32> = x[..width].iter().zip(&x[width..]).map(|(x, gate)| x * sigmoid(*gate)).collect();
            compare(&format!("sigmoid_gate of {width}"), &found[..width], &expected, tolerance(element))?;
        }
    }
    Ok(())
}

/// All kinds of scaling and head sizes, with and without per-head norms; rows that write nowhere.
pub fn check_rotation(device: &Device, element: Element) -> Result<(), String> {
    let scalings = [
        RopeScaling::None,
        RopeScaling::Linear { factor: 4.0 },
        RopeScaling::Llama3 { factor: 8.0, low_frequency_factor: 1.0, high_frequency_factor: 4.0, original: 64.0 },
        RopeScaling::Yarn {
            factor: 4.0,
            original: 64.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: 1.1,
            truncate: true,
        },
    ];
    for (scaling, (head_dim, heads, kv_heads)) in
        scalings.into_iter().zip([(64, 2, 1), (96, 5, 1), (128, 8, 2), (256, 4, 4)])
    {
        for (normed, in_parts) in [(false, false), (true, false), (false, true), (true, true)] {
            if in_parts && element == Element::F32 {
                continue;
            }
            check_one_rotation(device, element, scaling, [head_dim, heads, kv_heads], normed, in_parts)?;
        }
    }
    Ok(())
}

fn check_one_rotation(
    device: &Device,
    element: Element,
    scaling: RopeScaling,
    [head_dim, heads, kv_heads]: [usize; 3],
    normed: bool,
    in_parts: bool,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(head_dim as u64);
    let (positions, cache_rows) = (300, 16);
    let rope = Rope::new(head_dim, 10_000.0, scaling);
    let at = [0_usize, 299, 17, 64];
    let write = [5_i32, 0, -1, 15];
    let width = (heads + 2 * kv_heads) * head_dim;
    let qkv = numbers.floats(at.len() * width, element);
    let (query_norm, key_norm) = (numbers.floats(head_dim, element), numbers.floats(head_dim, element));
    let parts = in_parts.then(|| InParts::upload(device, &qkv)).transpose()?;
    // Given parts, the kernel reads the values from them and only writes its results here.
    let on_device = if in_parts {
        device.zeros(qkv.len() * element.bytes()).map_err(text)?
    } else {
        upload(device, &qkv, element)?
    };
    let table = device.upload(&rope.table(positions)).map_err(text)?;
    let position = device.upload(&at.map(|at| at as i32)).map_err(text)?;
    let rows = device.upload(&write).map_err(text)?;
    let cache_bytes = cache_rows * kv_heads * head_dim * element.bytes();
    let (keys, values_) = (device.zeros(cache_bytes).map_err(text)?, device.zeros(cache_bytes).map_err(text)?);
    let norms = (upload(device, &query_norm, element)?, upload(device, &key_norm, element)?);
    kernels
        .rotate_and_write(Rotation {
            qkv: on_device.slice(),
            parts: parts.as_ref().map(InParts::parts),
            rotary: RotaryRows { table: table.slice(), positions, position: position.slice() },
            write: rows.slice(),
            keys: keys.slice(),
            values: values_.slice(),
            fp8: None,
            norms: normed.then_some((norms.0.slice(), norms.1.slice(), 1e-6)),
            rows: at.len(),
            heads,
            kv_heads,
            head_dim,
        })
        .map_err(text)?;
    let found = values(device, on_device.slice(), element)?;
    let (keys, cached) = (values(device, keys.slice(), element)?, values(device, values_.slice(), element)?);
    let kv_width = kv_heads * head_dim;
    for (row, position) in at.into_iter().enumerate() {
        let own = &qkv[row * width..][..width];
        let (query, rest) = own.split_at(heads * head_dim);
        let (key, value) = rest.split_at(kv_width);
        let turned = |x: &[f32], weight: &[f32]| {
            let mut x = if normed { rms_norm(x, weight, 1e-6) } else { x.to_vec() };
            rope.apply(&mut x, &[position]);
            x
        };
        let what = format!("rotation of {head_dim} ({scaling:?}, normed {normed}, in parts {in_parts}), row {row}");
        compare(&what, &found[row * width..][..heads * head_dim], &turned(query, &query_norm), tolerance(element))?;
        if let Ok(to) = usize::try_from(write[row]) {
            compare(&what, &keys[to * kv_width..][..kv_width], &turned(key, &key_norm), tolerance(element))?;
            compare(&what, &cached[to * kv_width..][..kv_width], value, 0.0)?;
        }
    }
    Ok(())
}

/// Values in the parts of a linear layer.
pub(super) struct InParts {
    sums: Buffer,
    count: usize,
}

impl InParts {
    /// Three parts of each value, whose sum is exact for types of 2 bytes.
    pub fn upload(device: &Device, values: &[f32]) -> Result<Self, String> {
        Self::shared_by(device, values, &[0.5, 0.25, 0.25])
    }

    /// Parts with these shares of each value.
    fn shared_by(device: &Device, values: &[f32], shares: &[f32]) -> Result<Self, String> {
        let sums: Vec<f32> = shares.iter().flat_map(|share| values.iter().map(move |value| value * share)).collect();
        Ok(Self { sums: device.upload(&sums).map_err(text)?, count: shares.len() })
    }

    pub fn parts(&self) -> Parts<'_> {
        Parts { at: self.sums.slice(), count: self.count }
    }
}

fn upload(device: &Device, values: &[f32], element: Element) -> Result<Buffer, String> {
    device.upload(&element.encode(values)).map_err(text)
}

/// Contiguous rows.
fn rows_of(buffer: &Buffer, width: usize) -> Rows<'_> {
    Rows { at: buffer.slice(), stride: width }
}
