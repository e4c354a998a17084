//! Prediction errors for round times that the model was not fitted to: designed points are timed
//! and fitted, then 30 other points of (shape, batch) are predicted and timed, and the designed
//! ones are timed again. Source of the figures in `docs/notes/tuner.md`.
//!
//! - `held_out time DEVICE MODEL_SHAPE|FOLDER SEED,… FILE [POINTS [any]]` times all points, writes
//!   them to FILE (JSON) and reports. Each seed holds out a separate set of 30 points. By default,
//!   as many points are fitted as guided search times. Batches are those for which graphs are
//!   captured, as in a sweep, where all others are padded to them; with `any`, every batch up
//!   to 64.
//! - `held_out read FILE [DRAWS]` reports on the timed points of FILE without a device, to evaluate
//!   changes to the model and the design. DRAWS times, a third of the held-out points is drawn and
//!   predicted from as many of the other points as were designed.

mod measured;
mod report;
mod timing;

use std::{error::Error, path::Path};

use tuner::prediction::latency::design::MOST_POINTS;

use crate::{
    measured::Measured,
    timing::{Request, time},
};

const USAGE: &str =
    "expected: held_out time DEVICE MODEL_SHAPE|FOLDER SEED,… FILE [POINTS [any]], or held_out read FILE [DRAWS]";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["time", device, model, seeds, file, more @ ..] => {
            let request = Request {
                device: device.parse()?,
                model: (*model).into(),
                seeds: seeds.split(',').map(str::parse).collect::<Result<_, _>>()?,
                points: more.first().map_or(Ok(MOST_POINTS), |points| points.parse())?,
                any: more.get(1) == Some(&"any"),
            };
            report::all(&time(&request, Path::new(file))?, 0)
        }
        ["read", file, more @ ..] => {
            let draws = more.first().map_or(Ok(0), |draws| draws.parse())?;
            report::all(&Measured::read(Path::new(file))?, draws)
        }
        _ => Err(USAGE.into()),
    }
}
