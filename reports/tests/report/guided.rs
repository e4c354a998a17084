//! The guide of a guided sweep, and how far measurements can be trusted.

use std::fs;

use polars_core::prelude::*;
use polars_io::prelude::*;
use reports::Sweep;
use tuner::trials::journal::{Journal, JournalHeader};

use crate::{
    check,
    common::{
        self,
        guide::guide,
        synthetic::{Synthetic, header},
    },
    elsewhere, input, small,
};

/// All shapes of the synthetic space, so that parameters can be separated.
fn whole_space() -> Synthetic {
    Synthetic { shapes: Synthetic::default().shapes, ..small() }
}

fn guided() -> Sweep {
    let synthetic = whole_space();
    Sweep { guide: Some(guide(&synthetic)), ..synthetic.sweep("runs/guided") }
}

fn column(frame: &DataFrame, name: &str) -> Vec<Option<f64>> {
    frame.column(name).expect("a column").f64().expect("numbers").iter().collect()
}

#[test]
fn a_guided_sweep_shows_prediction_next_to_measurement() {
    let html = check(&input(guided()));
    for part in [
        "Predicted against measured",
        "Predicted, not measured",
        "Accept length by shape",
        "Replayed: the draft was run over 64 texts",
        "Round-time model",
        "weights of the target",
        "Capture sizes",
        "slime&#x27;s wide list",
        "Parameter importance",
        "over 20 predicted",
        "time for the draft&#x27;s replay",
        "except where it is marked as predicted",
    ] {
        assert!(html.contains(part), "{part}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    reports::write(&input(guided()), folder.path()).expect("written");
    let frame = ParquetReader::new(fs::File::open(folder.path().join("predictions.parquet")).expect("there"))
        .finish()
        .expect("Parquet");
    assert_eq!(frame.height(), whole_space().shapes.len() * 2, "the whole space, what failed included");
    let sizes = frame.column("batch_size").expect("there").u64().expect("numbers").iter().collect::<Vec<_>>();
    let errors = column(&frame, "relative_error");
    assert_eq!(errors.iter().filter(|error| error.is_none()).count(), 2, "what failed has no error");
    for (size, error) in sizes.into_iter().zip(errors) {
        let expected = common::guide::error(size.expect("a size") as usize);
        assert!(error.is_none_or(|error| (error - expected).abs() < 0.04), "{size:?}: {error:?}");
    }
}

#[test]
fn a_guide_of_another_machine_is_not_shown() {
    let mut sweep = guided();
    sweep.guide.as_mut().expect("a guide").fingerprint.device_name = "another".into();
    let html = check(&input(sweep));
    assert!(html.contains("its predictions were made for a different setup"));
    assert!(!html.contains("Predicted against measured"));
    assert!(html.contains("none is predicted or extrapolated"));
}

#[test]
fn a_guide_next_to_the_journal_is_read_and_a_broken_one_is_a_notice() {
    let synthetic = small();
    let header = JournalHeader { planned: 36, ..header() };
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::create(folder.path(), &header).expect("a journal");
    synthetic.records().iter().take(6).for_each(|record| journal.append(record).expect("written"));
    let check = |text: Option<&str>, there: bool, notices: &[&str]| {
        let path = folder.path().join(tuner::prediction::guide::FILE_NAME);
        match text {
            Some(text) => fs::write(&path, text).expect("written"),
            None => assert!(!path.exists()),
        }
        let sweep = Sweep::read(folder.path()).expect("a journal");
        assert_eq!((sweep.guide.is_some(), sweep.notices.len()), (there, notices.len()), "{:?}", sweep.notices);
        assert!(sweep.notices.iter().zip(notices).all(|(notice, part)| notice.contains(part)), "{:?}", sweep.notices);
    };
    check(None, false, &[]);
    let whole = serde_json::to_string(&guide(&synthetic)).expect("JSON");
    check(Some(&whole), true, &[]);
    check(Some(&whole.replacen("\"format\":1", "\"format\":99", 1)), false, &["format 99, but this program reads 1"]);
    check(Some(&whole[..whole.len() / 2]), false, &["guide.json cannot be used"]);
    check(Some("[]"), false, &["guide.json cannot be used"]);
}

#[test]
fn simulated_acceptance_is_named_wherever_its_figures_stand() {
    let simulated = input(Synthetic { simulated: true, ..small() }.sweep("runs/one"));
    let html = check(&simulated);
    assert!(html.contains("Acceptance was simulated in the trials marked as such"));
    assert!(html.matches("simulated acceptance</span>").count() >= 10, "each configuration is marked");
    assert!(reports::terminal_table(&simulated, 120).contains("simulated acceptance"));
    assert!(!check(&input(small().sweep("runs/one"))).contains("simulated acceptance"));
}

#[test]
fn a_machine_that_slows_down_is_found_out() {
    assert!(check(&input(small().sweep("runs/one"))).contains("No drift"));
    let slower = elsewhere("runs/slower", "", |record| 1.0 - 0.1 * record.trial.repeat as f64);
    let html = check(&input(slower));
    assert!(html.contains("<p>Drift: the last third of the trials is −"), "{html}");
}
