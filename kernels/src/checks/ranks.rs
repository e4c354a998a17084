//! Exchanges between the ranks of a group, compared with sums and rows computed on the host.

use super::{Numbers, compare, text, tolerance, values};
use crate::{
    device::{Alarm, Device, Element, Mail},
    launch::{Added, Gathered, Kernels, Parts, RmsNorm, Rows},
};

/// Rows, width, and number of parts of a rank's result; 0 for whole rows.
const SUMS: [(usize, usize, usize); 7] =
    [(1, 64, 0), (1, 4096, 4), (3, 48, 1), (33, 256, 2), (5, 512, 0), (150, 96, 9), (2, 64, 0)];
/// Rows and tokens.
const LOGITS: [(usize, usize); 4] = [(1, 24), (3, 1000), (2, 4099), (40, 512)];

/// Runs consecutive exchanges, so that a line that is written too early is detected, and compares
/// bits among ranks.
///
/// # Errors
/// A description of the difference.
pub fn check_ranks(devices: &[Device], element: Element) -> Result<(), String> {
    let (mail, _) = Mail::open(devices).map_err(text)?;
    let alarm = mail[0].alarm().clone();
    let sums: Vec<_> = std::thread::scope(|scope| {
        let run = |(device, mail): (&Device, Mail)| {
            let (device, alarm) = (device.clone(), alarm.clone());
            // The other ranks would wait forever for one that has failed.
            scope.spawn(move || rank(&device, &mail, element).inspect_err(|_| Alarm::ring(&alarm)))
        };
        let threads: Vec<_> = devices.iter().zip(mail).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a rank panicked".into()))).collect()
    });
    let sums = sums.into_iter().collect::<Result<Vec<_>, String>>()?;
    match sums.iter().position(|other| *other != sums[0]) {
        Some(rank) => Err(format!("rank {rank} has other bits than rank 0")),
        None => Ok(()),
    }
}

/// A rank's summand, part by part.
fn parts_of(rank: usize, at: usize, (rows, width, parts): (usize, usize, usize), element: Element) -> Vec<Vec<f32>> {
    let mut numbers = Numbers::new((1000 * at + rank) as u64);
    (0..parts.max(1)).map(|_| numbers.floats(rows * width, element)).collect()
}

/// Runs the exchanges of one rank; returns the bytes of all sums.
fn rank(device: &Device, mail: &Mail, element: Element) -> Result<Vec<u8>, String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut found = Vec::new();
    for (at, sum) in SUMS.into_iter().chain(SUMS).enumerate() {
        let (rows, width, parts) = sum;
        let own = parts_of(mail.rank(), at, sum, element);
        let out = device.zeros(rows * width * element.bytes()).map_err(text)?;
        let to = Rows { at: out.slice(), stride: width };
        let given = match parts {
            0 => device.upload(&element.encode(&own[0])),
            _ => device.upload(&own.concat()),
        };
        let given = given.map_err(text)?;
        let add = match parts {
            0 => Added::Rows(Rows { at: given.slice(), stride: width }),
            count => Added::Parts(Parts { at: given.slice(), count }),
        };
        kernels.sum_ranks(mail, to, add, rows, width).map_err(text)?;
        let mut expected = vec![0.0_f32; rows * width];
        for rank in 0..mail.ranks() {
            for part in parts_of(rank, at, sum, element) {
                expected.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
            }
        }
        let what = format!("{rows} rows of {width} in {parts} parts over {} ranks", mail.ranks());
        compare(&what, &values(device, out.slice(), element)?, &expected, tolerance(element))?;
        found.extend(device.download::<u8>(out.slice()).map_err(text)?);
        if kernels.suits_sum_and_norm(mail, rows, width) {
            check_normed(&kernels, mail, &what, add, (rows, width), &expected)?;
        }
    }
    for (at, (rows, vocabulary)) in LOGITS.into_iter().enumerate() {
        check_logits(&kernels, mail, at, rows, vocabulary)?;
    }
    Ok(found)
}

/// The same sum added to a stream, which is kept and normed.
fn check_normed(
    kernels: &Kernels,
    mail: &Mail,
    what: &str,
    add: Added<'_>,
    (rows, width): (usize, usize),
    sum: &[f32],
) -> Result<(), String> {
    let (device, element, epsilon) = (kernels.device(), kernels.element(), 1e-3);
    let mut numbers = Numbers::new(7);
    let (before, weight) = (numbers.floats(rows * width, element), numbers.floats(width, element));
    let stream = device.upload(&element.encode(&before)).map_err(text)?;
    let weights = device.upload(&element.encode(&weight)).map_err(text)?;
    let [out, kept] = [(); 2].map(|()| device.zeros(rows * width * element.bytes()));
    let (out, kept) = (out.map_err(text)?, kept.map_err(text)?);
    let of = |at| Rows { at, stride: width };
    let norm = RmsNorm {
        out: of(out.slice()),
        stream: of(stream.slice()),
        add: Some(add),
        weight: weights.slice(),
        keep: Some(of(kept.slice())),
        source: None,
        rows,
        width,
        epsilon,
    };
    kernels.sum_ranks_norm(mail, norm).map_err(text)?;
    let after: Vec<f32> = before.iter().zip(sum).map(|(before, sum)| before + sum).collect();
    for (name, buffer) in [("stream", &stream), ("kept", &kept)] {
        compare(&format!("{what}, {name}"), &values(device, buffer.slice(), element)?, &after, tolerance(element))?;
    }
    let normed: Vec<f32> = after
        .chunks_exact(width)
        .flat_map(|row| {
            let scale = (row.iter().map(|x| x * x).sum::<f32>() / width as f32 + epsilon).sqrt().recip();
            row.iter().zip(&weight).map(move |(x, weight)| x * scale * weight).collect::<Vec<_>>()
        })
        .collect();
    compare(&format!("{what}, normed"), &values(device, out.slice(), element)?, &normed, 2.0 * tolerance(element))
}

fn check_logits(kernels: &Kernels, mail: &Mail, at: usize, rows: usize, vocabulary: usize) -> Result<(), String> {
    let device = kernels.device();
    let all = Numbers::new(at as u64).floats(rows * vocabulary, Element::F32);
    let part = vocabulary.div_ceil(mail.ranks()).next_multiple_of(8).min(vocabulary / 2 * 2);
    // All parts have one size, so those of the last ranks may overlap.
    let start = (mail.rank() * part).min(vocabulary - part);
    let own: Vec<f32> = all.chunks_exact(vocabulary).flat_map(|row| &row[start..start + part]).copied().collect();
    let own = device.upload(&own).map_err(text)?;
    let out = device.zeros(rows * vocabulary * 4).map_err(text)?;
    let logits = Gathered { out: out.slice(), own: own.slice(), part, vocabulary, rows };
    kernels.gather_ranks(mail, logits).map_err(text)?;
    let found: Vec<f32> = device.download(out.slice()).map_err(text)?;
    match found == all {
        true => Ok(()),
        false => Err(format!("{rows} rows of {vocabulary} logits over {} ranks differ", mail.ranks())),
    }
}

/// The alarm releases a rank that waits for one that never arrives.
///
/// # Errors
/// When it is not released, or no error is reported.
pub fn check_alarm(devices: &[Device]) -> Result<(), String> {
    let (mail, _) = Mail::open(devices).map_err(text)?;
    let alarm = mail[0].alarm().clone();
    let (device, mail) = (&devices[0], &mail[0]);
    let kernels = Kernels::new(device.clone(), Element::F32);
    let rows = device.zeros(256).map_err(text)?;
    let at = Rows { at: rows.slice(), stride: 64 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            alarm.ring();
        });
        kernels.sum_ranks(mail, at, Added::Rows(at), 1, 64).and_then(|()| device.synchronize()).map_err(text)
    })?;
    if alarm.rung() { Ok(()) } else { Err("a rank did not wait".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(count: usize) -> Vec<Device> {
        (0..count).map(|_| Device::emulated().expect("a C++ compiler")).collect()
    }

    #[test]
    fn ranks_sum_and_gather() {
        for (ranks, element) in [(2, Element::BF16), (3, Element::F32), (4, Element::F16)] {
            let devices = devices(ranks);
            assert_eq!(check_ranks(&devices, element), Ok(()), "{ranks} ranks, {element:?}");
        }
    }

    #[test]
    fn an_alarm_ends_a_wait() {
        let devices = devices(2);
        assert_eq!(check_alarm(&devices), Ok(()));
    }
}
