//! Adds noise to a draft, so that training has something to repair:
//!
//!     cargo run --example damage -- TARGET DRAFT OUT STRENGTH SEED
//!
//! Each value of a matrix gets normal noise with STRENGTH times the root mean square of the matrix;
//! norms are not changed. DRAFT is a folder, or `own` for the MTP layer of the target: then OUT is
//! a copy of the target with a damaged layer.

use std::{error::Error, path::PathBuf, process::ExitCode};

use engine::{EngineOptions, ModelFiles};
use training::{
    folder::{Trained, stitch, write_head},
    head::trained_tensors,
    statistics::Random,
};

const USAGE: &str = "expected TARGET DRAFT OUT STRENGTH SEED; DRAFT is a folder, or `own` for the target's MTP layer";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match damage(&words) {
        Ok(matrices) => {
            println!("{matrices} matrices are disturbed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns the number of matrices that were changed.
fn damage(words: &[String]) -> Result<usize, Box<dyn Error>> {
    let [target, draft, out, strength, seed] = words else { return Err(USAGE.into()) };
    let (strength, seed): (f64, u64) = (strength.parse()?, seed.parse()?);
    let own = draft == "own";
    let options = EngineOptions {
        model_path: PathBuf::from(target),
        draft_model_path: (!own).then(|| PathBuf::from(draft)),
        algorithm: own.then(|| "NEXTN".to_owned()),
        ..EngineOptions::default()
    };
    let models = ModelFiles::open(&options)?;
    let spec = models.draft.as_ref().ok_or("there is no draft")?;
    let tensors = trained_tensors(spec, models.target.vocabulary);
    let mut random = Random::new(seed);
    let (mut values, mut matrices) = (Trained::new(), 0);
    for tensor in &tensors {
        let mut disturbed = models.draft_values(tensor)?;
        if tensor.shape.len() > 1 {
            let squares: f64 = disturbed.iter().map(|value| f64::from(*value).powi(2)).sum();
            let size = (squares / disturbed.len().max(1) as f64).sqrt() * strength;
            disturbed.iter_mut().for_each(|value| *value += (random.normal() * size) as f32);
            matrices += 1;
        }
        values.insert(tensor.name.clone(), disturbed);
    }
    let out = PathBuf::from(out);
    if own {
        stitch(&models, &tensors, &values, &out)?
    } else {
        write_head(&models, &tensors, &values, &out)?
    }
    Ok(matrices)
}
