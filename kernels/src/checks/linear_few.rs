//! Linear layers of up to 4 rows.

use super::{Numbers, compare, linear::Layer, text};
use crate::{
    device::{Device, Element},
    launch::Kernels,
};

/// Ragged ends, layers whose inputs two blocks share and others, bias, float results, rows apart; and that each row has the
/// same bits whatever the number of rows.
pub fn check_linear_few(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(13);
    for (inputs, outputs) in [(128, 64), (72, 40), (2184, 17), (4616, 50), (520, 70), (9224, 60)] {
        check_product(&kernels, &mut numbers, inputs, outputs)?;
    }
    Ok(())
}

fn check_product(kernels: &Kernels, numbers: &mut Numbers, inputs: usize, outputs: usize) -> Result<(), String> {
    let (device, most) = (kernels.device(), 4);
    let layer = Layer::random(kernels, numbers, [inputs, outputs], most)?;
    let mut all_bits: Option<Vec<u32>> = None;
    for rows in [most, 3, 1] {
        let y = device.allocate(rows * outputs * 4).map_err(text)?;
        kernels.linear_few(layer.operands(&y, rows)).map_err(text)?;
        let found: Vec<f32> = device.download(y.slice()).map_err(text)?;
        let what = format!("few linear {inputs}→{outputs}, {rows} rows");
        compare(&what, &found, &layer.expected[..rows * outputs], 1e-4)?;
        let bits: Vec<u32> = found.iter().map(|value| value.to_bits()).collect();
        if all_bits.get_or_insert_with(|| bits.clone())[..bits.len()] != bits {
            return Err(format!("{what}: bits depend on the number of rows"));
        }
    }
    Ok(())
}
