//! Writes reports of synthetic trials, to inspect their layout:
//! `cargo run -p reports --example synthetic -- FOLDER`.

use std::{error::Error, path::PathBuf};

use reports::ReportInput;

#[path = "../tests/common/mod.rs"]
mod common;

use common::{
    guide::{error, guide},
    synthetic::{Synthetic, fingerprint, tuned},
};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).ok_or("give a folder for the reports")?;
    let synthetic = Synthetic::default();
    let mut sweep = synthetic.sweep("synthetic");
    sweep.guide = Some(guide(&synthetic));
    sweep.tuned = Some(tuned());
    let mut later = Synthetic { acceptance: 0.70, seed: 7, ..synthetic.clone() }.sweep("later");
    let newer = tuner::trials::record::Fingerprint { driver: "made-up driver".into(), ..fingerprint() };
    for record in &mut later.records {
        record.id.push('*');
        record.fingerprint = newer.clone();
    }
    eprintln!("predictions are made {} too high at the larger batch sizes", error(8));
    for (name, sweeps) in [("one", vec![sweep.clone()]), ("two", vec![sweep, later])] {
        let input = ReportInput { sweeps, compare: false };
        for path in reports::write(&input, &folder.join(name))? {
            eprintln!("wrote {}", path.display());
        }
        print!("{}", reports::terminal_table(&input, 120));
    }
    Ok(())
}
