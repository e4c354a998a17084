//! Prompts, their split into training, choosing and judging, and the target's answers.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::Path,
    time::Instant,
};

use engine::{Engine, ReplayText, Request};
use schemas::{train::Stop, training_record::SetFacts};
use serde::{Deserialize, Serialize};

use crate::{error::TrainingError, statistics::Random};

/// Number of requests answered between two checks of the time limit and writes to disk.
const TOGETHER: usize = 64;

/// With fewer judging prompts, the interval of the ratio of accept lengths is not reliable.
const FEWEST_JUDGING: usize = 5;

/// A prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingPrompt {
    /// The request to the target.
    pub request: Request,
    /// The target's answer, if known.
    pub answer: Option<Vec<u32>>,
}

/// Prompts of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedPrompts {
    /// Its name in the report.
    pub name: String,
    /// In the order of their file.
    pub prompts: Vec<TrainingPrompt>,
}

/// The use of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextRole {
    /// For training.
    Training,
    /// For choosing among checkpoints.
    Choosing,
    /// For judging the chosen checkpoint.
    Judging,
    /// For showing losses on other prompts.
    General,
}

/// A prompt with its set and role.
#[derive(Clone, Debug)]
pub struct PlacedText {
    /// Index of its set; the number of sets for general prompts.
    pub set: usize,
    /// Its role.
    pub role: TextRole,
    /// The prompt.
    pub prompt: TrainingPrompt,
}

/// All prompts of a run.
#[derive(Debug)]
pub struct Placements {
    /// Ordered by set and file.
    pub prompts: Vec<PlacedText>,
    /// Names of the sets.
    pub names: Vec<String>,
    /// Repeated prompts that were omitted, by set.
    repeated: Vec<usize>,
}

impl Placements {
    /// Assigns a role to each prompt. A prompt that occurs twice, in any set, counts once: judging
    /// prompts must not be trained on.
    ///
    /// # Errors
    /// When a set has too few prompts to hold some out.
    pub fn new(
        sets: Vec<LoadedPrompts>,
        general: Vec<TrainingPrompt>,
        stop: &Stop,
        seed: u64,
    ) -> Result<Self, TrainingError> {
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        let (mut names, mut prompts, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        let all: usize = sets.iter().map(|set| set.prompts.len()).sum();
        for (number, set) in sets.into_iter().enumerate() {
            let given = set.prompts.len();
            let kept: Vec<TrainingPrompt> =
                // Across all sets: a prompt that was trained on must not be one that judges.
                set.prompts.into_iter().filter(|prompt| seen.insert(prompt.request.input_ids.clone())).collect();
            repeated.push(given - kept.len());
            let most = (stop.most_held_out * given).div_ceil(all.max(1));
            let held_out = ((kept.len() as f64 * stop.held_out).round() as usize).min(most).max(2);
            if kept.len() <= held_out {
                return Err(TrainingError::Configuration(format!(
                    "the set {:?} has only {} distinct prompts: {held_out} are held out, and none is left for training; give more",
                    set.name,
                    kept.len()
                )));
            }
            let order = Random::new(seed ^ (number as u64) << 32).permutation(kept.len());
            let mut roles = vec![TextRole::Training; kept.len()];
            for (at, place) in order.into_iter().take(held_out).enumerate() {
                // Judging prompts first: an odd one counts where the verdict is made.
                roles[place] = if at % 2 == 0 { TextRole::Judging } else { TextRole::Choosing };
            }
            prompts.extend(kept.into_iter().zip(roles).map(|(prompt, role)| PlacedText { set: number, role, prompt }));
            names.push(set.name);
        }
        let general = general.into_iter().filter(|prompt| seen.insert(prompt.request.input_ids.clone()));
        prompts.extend(general.map(|prompt| PlacedText { set: names.len(), role: TextRole::General, prompt }));
        Ok(Self { prompts, names, repeated })
    }

    /// Refuses a run whose heads could not be compared at its end. An answer that is too short has
    /// no text, and judges nothing; without texts, the target has not answered yet.
    ///
    /// # Errors
    /// When too few prompts judge.
    pub fn check_judging(&self, texts: Option<&[Option<ReplayText>]>) -> Result<(), TrainingError> {
        let has_text = |at: usize| texts.is_none_or(|texts| texts.get(at).is_some_and(Option::is_some));
        let judges = |(at, one): &(usize, &PlacedText)| one.role == TextRole::Judging && has_text(*at);
        let judging = self.prompts.iter().enumerate().filter(judges).count();
        if judging >= FEWEST_JUDGING {
            return Ok(());
        }
        let prompts = self.prompts.iter().filter(|one| one.role != TextRole::General).count();
        let which = if texts.is_some() { " with an answer of at least 4 tokens" } else { "" };
        Err(TrainingError::Configuration(format!(
            "too few judging prompts{which} for a comparison of heads ({judging}, and {FEWEST_JUDGING} are needed): give more \
             prompts than {prompts}, or raise stop.held_out (half of the held-out prompts judge)"
        )))
    }

    /// Facts about the sets, for the report.
    pub fn facts(&self, texts: &[Option<ReplayText>]) -> Vec<SetFacts> {
        let fact = |(number, name): (usize, &String)| {
            let count = |role| self.prompts.iter().filter(|one| one.set == number && one.role == role).count();
            let trained =
                self.prompts.iter().zip(texts).filter(|(one, _)| one.set == number && one.role == TextRole::Training);
            SetFacts {
                name: name.clone(),
                training: count(TextRole::Training),
                choosing: count(TextRole::Choosing),
                judging: count(TextRole::Judging),
                training_tokens: trained.filter_map(|(_, text)| Some(text.as_ref()?.output_tokens() as u64)).sum(),
                repeated: self.repeated[number],
            }
        };
        self.names.iter().enumerate().map(fact).collect()
    }
}

/// A line of the file of answers.
#[derive(Serialize, Deserialize)]
struct AnswerLine {
    at: usize,
    output_ids: Vec<u32>,
}

/// Answers all prompts, except those already answered in the file, and appends each new answer to
/// the file. A prompt whose answer is too short to train on has no text. `watch` receives the
/// progress, and may stop: then the result is `None`.
///
/// # Errors
/// When the file cannot be read or written, or the engine fails.
pub fn answer(
    engine: &mut Engine,
    placements: &Placements,
    path: &Path,
    watch: &mut dyn FnMut(AnswerProgress) -> bool,
) -> Result<Option<Vec<Option<ReplayText>>>, TrainingError> {
    let mut answers: BTreeMap<usize, Vec<u32>> = read(path)?;
    for (at, placed) in placements.prompts.iter().enumerate() {
        if let Some(answer) = &placed.prompt.answer {
            // Answers that come with the prompts replace those of an earlier run.
            answers.insert(at, answer.clone());
        }
    }
    let missing: Vec<usize> = (0..placements.prompts.len()).filter(|at| !answers.contains_key(at)).collect();
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(TrainingError::write(path))?;
    let (begin, all) = (Instant::now(), missing.len());
    let mut tokens = 0;
    for (chunk, places) in missing.chunks(TOGETHER).enumerate() {
        let seconds = begin.elapsed().as_secs_f64();
        if !watch(AnswerProgress { done: chunk * TOGETHER, all, tokens, seconds }) {
            return Ok(None);
        }
        let requests = places.iter().map(|at| placements.prompts[*at].prompt.request.clone()).collect();
        let mut lines = String::new();
        for (at, completion) in places.iter().zip(engine.run(requests)?) {
            tokens += completion.output_ids.len();
            let answer = AnswerLine { at: *at, output_ids: completion.output_ids };
            lines.push_str(&serde_json::to_string(&answer).unwrap_or_default());
            lines.push('\n');
            answers.insert(*at, answer.output_ids);
        }
        file.write_all(lines.as_bytes()).and_then(|()| file.sync_data()).map_err(TrainingError::write(path))?;
    }
    watch(AnswerProgress { done: all, all, tokens, seconds: begin.elapsed().as_secs_f64() });
    let text = |(at, placed): (usize, &PlacedText)| {
        let (request, output) = (&placed.prompt.request, answers.get(&at)?);
        // A draft looks two tokens ahead, and replay needs a round.
        (output.len() > 3).then(|| ReplayText {
            tokens: [request.input_ids.as_slice(), output].concat(),
            prompt_tokens: request.input_ids.len(),
            sampling: request.sampling.clone(),
        })
    };
    Ok(Some(placements.prompts.iter().enumerate().map(text).collect()))
}

/// Progress of answering.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnswerProgress {
    /// Number of prompts answered now.
    pub done: usize,
    /// Number of prompts to answer.
    pub all: usize,
    /// Number of tokens in the answers.
    pub tokens: usize,
    /// Seconds so far.
    pub seconds: f64,
}

/// The answers in a file. An incomplete line, as left by a kill, ends it and is cut off.
fn read(path: &Path) -> Result<BTreeMap<usize, Vec<u32>>, TrainingError> {
    let mut answers = BTreeMap::new();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(answers),
        Err(error) => return Err(TrainingError::read(path)(error)),
    };
    let (mut reader, mut line, mut whole) = (BufReader::new(file), Vec::new(), 0_u64);
    loop {
        line.clear();
        let count = reader.read_until(b'\n', &mut line).map_err(TrainingError::read(path))?;
        let parsed = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice::<AnswerLine>(line).ok());
        // A line that a crash has cut off; those after it cannot exist.
        let Some(answer) = parsed else { break };
        whole += count as u64;
        answers.insert(answer.at, answer.output_ids);
    }
    if !line.is_empty() {
        let file = OpenOptions::new().write(true).open(path).map_err(TrainingError::write(path))?;
        file.set_len(whole).map_err(TrainingError::write(path))?;
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use engine::{SamplingParams, StopConditions};

    use super::*;

    fn prompt(token: u32) -> TrainingPrompt {
        let request =
            Request { input_ids: vec![token], sampling: SamplingParams::default(), stop: StopConditions::default() };
        TrainingPrompt { request, answer: None }
    }

    fn set(name: &str, tokens: std::ops::Range<u32>) -> LoadedPrompts {
        LoadedPrompts { name: name.into(), prompts: tokens.map(prompt).collect() }
    }

    #[test]
    fn what_judges_never_trains() {
        let general = (0..12).map(prompt).collect();
        let placed =
            Placements::new(vec![set("a", 0..10), set("b", 5..40)], general, &Stop::default(), 7).expect("enough");
        let mut seen = HashSet::new();
        assert!(placed.prompts.iter().all(|one| seen.insert(one.prompt.request.input_ids.clone())));
        assert_eq!(placed.repeated, [0, 5]);
        let count = |set, role| placed.prompts.iter().filter(|one| one.set == set && one.role == role).count();
        assert_eq!(
            (count(0, TextRole::Judging), count(0, TextRole::Choosing), count(0, TextRole::Training)),
            (1, 1, 8)
        );
        assert_eq!(
            (count(1, TextRole::Judging), count(1, TextRole::Choosing), count(1, TextRole::Training)),
            (3, 3, 24)
        );
        assert_eq!(count(2, TextRole::General), 0, "all of them are in a set");
        Placements::new(vec![set("few", 0..2)], Vec::new(), &Stop::default(), 7).expect_err("too few");
    }

    #[test]
    fn too_few_judging_prompts_are_noticed_before_and_after_the_answers() {
        let placed = |prompts| {
            Placements::new(vec![set("a", 0..prompts)], Vec::new(), &Stop::default(), 7).expect("some are left")
        };
        let refusal = placed(40).check_judging(None).expect_err("4 of 40 judge").to_string();
        assert!(refusal.contains("for a comparison of heads (4, and 5 are needed)"), "{refusal}");
        assert!(refusal.contains("more prompts than 40"), "{refusal}");
        let enough = placed(50);
        enough.check_judging(None).expect("5 of 50 judge");
        let text = || ReplayText { tokens: vec![1; 9], prompt_tokens: 1, sampling: SamplingParams::default() };
        let mut texts: Vec<Option<ReplayText>> = enough.prompts.iter().map(|_| Some(text())).collect();
        enough.check_judging(Some(&texts)).expect("all have an answer");
        let judging = enough.prompts.iter().position(|one| one.role == TextRole::Judging).expect("one judges");
        texts[judging] = None;
        let refusal = enough.check_judging(Some(&texts)).expect_err("one has none").to_string();
        assert!(refusal.contains("judging prompts with an answer of at least 4 tokens"), "{refusal}");
    }

    #[test]
    fn a_torn_answer_is_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("answers.jsonl");
        std::fs::write(&path, "{\"at\":3,\"output_ids\":[1,2]}\n{\"at\":4,\"outp").expect("written");
        assert_eq!(read(&path).expect("read"), BTreeMap::from([(3, vec![1, 2])]));
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "{\"at\":3,\"output_ids\":[1,2]}\n");
    }
}
