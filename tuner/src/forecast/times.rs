//! The time of steps: a sum of costs, or a model that was fitted to timed rounds of one machine.

use std::path::Path;

use schemas::{model::DraftKind, tree::TreeShape};
use serde::{Deserialize, Serialize};

use super::costs::StepCosts;
use crate::{
    TunerError,
    files::atomic_file,
    prediction::latency::{
        RoundModel,
        filling::Filling,
        prefill::{PrefillModel, PrefillStep},
    },
};

/// Version of the format of fitted times.
pub const FORMAT: u32 = 1;
/// Largest file in bytes.
const LARGEST: u64 = 16 << 20;

/// The time of steps.
#[derive(Clone, Debug, PartialEq)]
pub enum StepTimes {
    /// A sum of costs, for rounds that verify any number of rows.
    Sum(StepCosts),
    /// Fitted to timed rounds, for rounds of tree shapes.
    Fitted(Box<FittedTimes>),
}

/// Models of the rounds and prefills that were timed on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FittedTimes {
    /// [`FORMAT`].
    pub format: u32,
    /// What was timed, in words.
    pub source: String,
    /// The kind of draft; missing where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<DraftKind>,
    /// Tree shapes, batches and contexts of the timed points.
    pub timed: TimedPlaces,
    /// Steps that prefill target and draft.
    pub prefill: PrefillModel,
    /// Steps that prefill the target alone, where no round speculates.
    pub prefill_target: PrefillModel,
    /// The model of rounds, in its own format.
    pub rounds: serde_json::Value,
    #[serde(skip)]
    model: Option<RoundModel>,
}

/// Where rounds were timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedPlaces {
    /// Shapes.
    pub shapes: Vec<TreeShape>,
    /// Batches.
    pub batches: Vec<usize>,
    /// Contexts in tokens.
    pub contexts: Vec<usize>,
}

/// Where rounds are simulated: smallest and largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedPlaces {
    /// Requests of a round.
    pub batches: [usize; 2],
    /// Tokens of a request in the cache.
    pub contexts: [usize; 2],
    /// The most verified rows of a round, on average over rounds of equal batch and tree.
    pub rows: f64,
}

/// Times beyond the measured places by more than this factor have a caveat.
const FAR: f64 = 1.5;

impl FittedTimes {
    /// Fitted models with their source.
    ///
    /// # Errors
    /// When a number of the model is not finite.
    pub fn new(
        source: String,
        timed: TimedPlaces,
        model: RoundModel,
        [prefill, prefill_target]: [PrefillModel; 2],
    ) -> Result<Self, TunerError> {
        let wrong = |reason: String| TunerError::Configuration(format!("fitted times: {reason}"));
        let text = model.to_json().map_err(|error| wrong(error.to_string()))?;
        let rounds = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { format: FORMAT, source, draft: None, timed, prefill, prefill_target, rounds, model: Some(model) })
    }

    /// The same times, of a draft of this kind.
    #[must_use]
    pub fn with_draft(self, draft: Option<DraftKind>) -> Self {
        Self { draft, ..self }
    }

    /// The model of rounds.
    pub fn model(&self) -> Option<&RoundModel> {
        self.model.as_ref()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut times: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if times.format != FORMAT {
            return Err(format!("format {}, but this program reads {FORMAT}: time the rounds again", times.format));
        }
        if !times.prefill.is_sound() || !times.prefill_target.is_sound() {
            return Err("prefill: expected times of at least 0".into());
        }
        let model = RoundModel::from_json(&times.rounds.to_string()).map_err(|error| error.to_string())?;
        times.model = Some(model);
        Ok(times)
    }
}

impl StepTimes {
    /// Reads a file of costs, or of fitted times.
    ///
    /// # Errors
    /// When it cannot be read, has another format, or a number in it is impossible.
    pub fn read(path: &Path) -> Result<Self, TunerError> {
        let text =
            atomic_file::read(path, LARGEST).map_err(|source| TunerError::Read { path: path.to_owned(), source })?;
        // Both formats have a version 1, but only fitted times have rounds.
        let is_fitted =
            serde_json::from_str::<serde_json::Value>(&text).is_ok_and(|value| value.get("rounds").is_some());
        let times = match is_fitted {
            true => FittedTimes::parse(&text).map(|times| Self::Fitted(Box::new(times))),
            false => StepCosts::parse(&text).map(Self::Sum),
        };
        times.map_err(|reason| TunerError::Malformed {
            path: path.to_owned(),
            reason: format!("{reason}; `spectune bench … --times-out FILE` writes such files"),
        })
    }

    /// Where they come from, in words.
    pub fn source(&self) -> &str {
        match self {
            Self::Sum(costs) => &costs.source,
            Self::Fitted(times) => &times.source,
        }
    }

    /// A caveat with both ranges if rounds are simulated far outside of the measured places; `None`
    /// if they are not. A sum of costs knows the measured rows only.
    pub fn caveat(&self, simulated: &SimulatedPlaces) -> Option<String> {
        match self {
            Self::Sum(costs) => {
                let [most, _] = *costs.verify_ms.last()?;
                (simulated.rows > FAR * most).then(|| {
                    format!(
                        "rounds verify up to {:.0} rows, and passes of up to {most} rows were measured (--times): the times \
                         of larger ones are extrapolated",
                        simulated.rows
                    )
                })
            }
            Self::Fitted(times) => {
                let parts = [
                    far("batches", &times.timed.batches, simulated.batches),
                    far("contexts", &times.timed.contexts, simulated.contexts),
                ];
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                let extrapolated = || format!("{} (--times): the others are extrapolated", parts.join("; "));
                (!parts.is_empty()).then(extrapolated)
            }
        }
    }

    /// The costs, if times are a sum.
    pub fn costs(&self) -> Option<&StepCosts> {
        if let Self::Sum(costs) = self { Some(costs) } else { None }
    }

    /// A round in ms: `rows` verified rows of these requests in their graph, and `prefilled` prompt
    /// tokens in the same pass. Fitted times know only the rows of shapes.
    ///
    /// # Errors
    /// When the time of this number of rows is unknown.
    pub fn round(&self, shape: TreeShape, filling: Filling, rows: usize, prefilled: usize) -> Result<f64, TunerError> {
        let batch = filling.places;
        match self {
            Self::Sum(costs) => Ok(costs.round(shape, batch, rows, filling.tokens_per_place(), prefilled)),
            Self::Fitted(times) if rows == shape.verified_rows(batch) => {
                // In the pass of the round, so without the fixed cost of a prefill step.
                let prompt = prefilled as f64 * times.prefill.token_ms;
                Ok(times.model.as_ref().map_or(f64::NAN, |model| model.filled_ms(shape, filling)) + prompt)
            }
            Self::Fitted(_) => Err(TunerError::Configuration(format!(
                "the time of {rows} rows at batch {batch} is unknown: the fitted times are those of whole trees"
            ))),
        }
    }

    /// A round of a shape in ms, in a full graph.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn shape(&self, shape: TreeShape, batch: usize, context: f64) -> Result<f64, TunerError> {
        self.round(shape, Filling::full(batch, context), shape.verified_rows(batch), 0)
    }

    /// A step that only prefills, in ms; `speculates` is whether the draft reads prompts too.
    pub fn prefill(&self, step: &PrefillStep, speculates: bool) -> f64 {
        match self {
            Self::Sum(costs) => costs.prefill(step.tokens, speculates),
            Self::Fitted(times) if speculates => times.prefill.step(step),
            Self::Fitted(times) => times.prefill_target.step(step),
        }
    }
}

/// Both ranges in words, if one is far outside of the other.
fn far(what: &str, measured: &[usize], [least, most]: [usize; 2]) -> Option<String> {
    let (first, last) = (*measured.iter().min()?, *measured.iter().max()?);
    let is_far = most as f64 > FAR * last as f64 || FAR * (least as f64) < first as f64;
    is_far.then(|| format!("{what} of {least} to {most} are simulated, and rounds of {first} to {last} were measured"))
}

impl From<StepCosts> for StepTimes {
    fn from(costs: StepCosts) -> Self {
        Self::Sum(costs)
    }
}

#[cfg(test)]
mod tests {
    use engine::spec::ModelCost;

    use super::*;
    use crate::prediction::latency::{LatencyMachine, Point, TimedSample};

    #[test]
    fn fitted_times_are_read_as_they_were_written_and_know_whole_trees_only() {
        let machine = LatencyMachine { cost: ModelCost::default(), bandwidth: 1e12, few_rows: 32 };
        let point = Point { shape: TreeShape::chain(2), batch: 4, context: 100.0 };
        let model = RoundModel::fit(machine, &[TimedSample::full(point, vec![7.0; 4])]).expect("it fits");
        let prefill = [(2.0, 0.5), (1.0, 0.25)].map(|(step_ms, token_ms)| PrefillModel {
            step_ms,
            token_ms,
            prompt_ms: 1.5,
            ..PrefillModel::default()
        });
        let timed = TimedPlaces { shapes: vec![point.shape], batches: vec![4], contexts: vec![100] };
        let times = FittedTimes::new("by hand".into(), timed, model, prefill).expect("finite");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("times.json");
        std::fs::write(&path, serde_json::to_string(&times).expect("it is data")).expect("writable");
        let read = StepTimes::read(&path).expect("it is read");
        let own = StepTimes::Fitted(Box::new(times));
        let ms = |times: &StepTimes| times.shape(point.shape, 4, 100.0).expect("known");
        assert!((ms(&read) - 7.0).abs() < 0.05 && (ms(&read) - ms(&own)).abs() < 1e-9, "{}", ms(&read));
        let step = PrefillStep { tokens: 10, prompts: 2, pairs: 55 };
        assert!((read.prefill(&step, true) - 10.0).abs() < 1e-9 && (read.prefill(&step, false) - 6.5).abs() < 1e-9);
        assert!(read.round(point.shape, Filling::full(4, 100.0), 7, 0).is_err());
        let caveat = |batches, contexts| read.caveat(&SimulatedPlaces { batches, contexts, rows: 9.0 });
        assert_eq!(caveat([3, 6], [90, 150]), None);
        let found = caveat([1, 64], [90, 1000]).expect("both are far away");
        for words in ["batches of 1 to 64", "rounds of 4 to 4", "contexts of 90 to 1000", "rounds of 100 to 100"] {
            assert!(found.contains(words), "{found}");
        }
        std::fs::write(&path, r#"{"format": 9, "rounds": {}}"#).expect("writable");
        assert!(StepTimes::read(&path).is_err());
    }
}
