//! Writes a report of made-up trials, to look at its form: `cargo run -p reports --example synthetic -- FOLDER`.

use std::{error::Error, path::PathBuf};

use reports::ReportInput;

#[path = "../tests/common/synthetic.rs"]
mod synthetic;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).ok_or("name a folder for the report")?;
    let input = ReportInput { sweeps: vec![synthetic::Synthetic::default().sweep("synthetic")] };
    for path in reports::write(&input, &folder)? {
        eprintln!("wrote {}", path.display());
    }
    print!("{}", reports::terminal_table(&input, 120));
    Ok(())
}
