//! Every sweep file that ships: the reader takes it, and the published schema says the same.

use std::{fs, path::PathBuf};

use schemas::{json_schema::PublishedSchema, sweep::SweepFile, text::Source};

#[test]
fn every_shipped_sweep_file_fits_reader_and_schema() {
    let schema = PublishedSchema::find("sweep").expect("a schema").text();
    let schema = serde_json::from_str(&schema).expect("JSON");
    let validator = jsonschema::draft7::new(&schema).expect("a draft-07 schema");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../sweeps");
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the folder of sweep files") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        count += 1;
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).expect("a sweep file");
        assert!(
            text.starts_with("#:schema ../schemas/json/sweep.schema.json\n"),
            "{name}: the first line names the schema"
        );
        let value: toml::Value = toml::from_str(&text).expect("TOML");
        let value = serde_json::to_value(value).expect("TOML is JSON");
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        if let Err(finding) = SweepFile::read(&Source::new(&name, text)) {
            panic!("{name}: {}", finding.message);
        }
    }
    assert!(count > 0, "no sweep file ships");
}
