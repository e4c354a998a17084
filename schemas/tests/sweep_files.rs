//! Every sweep file and training file that ships is accepted by the reader and by the published
//! schema.

use std::{fs, path::PathBuf};

use schemas::{diagnostic::Diagnostic, json_schema::PublishedSchema, sweep::SweepFile, text::Source, train::TrainFile};

/// Checks the files of a folder. Their first line names the schema by its path relative to the
/// folder.
fn check(folder: &str, name: &str, schema_path: &str, read: fn(&Source) -> Result<(), Box<Diagnostic>>) {
    let schema = PublishedSchema::find(name).expect("a schema").text();
    let schema = serde_json::from_str(&schema).expect("JSON");
    let validator = jsonschema::draft7::new(&schema).expect("a draft-07 schema");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        count += 1;
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.starts_with(&format!("#:schema {schema_path}\n")), "{name}: the first line names the schema");
        let value: toml::Value = toml::from_str(&text).expect("TOML");
        let value = serde_json::to_value(value).expect("TOML is JSON");
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        if let Err(finding) = read(&Source::new(&name, text)) {
            panic!("{name}: {}", finding.message);
        }
    }
    assert!(count > 0, "no file ships in {}", folder.display());
}

#[test]
fn every_shipped_sweep_file_fits_reader_and_schema() {
    check("sweeps", "sweep", "../schemas/json/sweep.schema.json", |source| SweepFile::read(source).map(|_| ()));
}

#[test]
fn every_shipped_training_file_fits_reader_and_schema() {
    check("sweeps/train", "train", "../../schemas/json/train.schema.json", |source| {
        TrainFile::read(source).map(|_| ())
    });
}
