//! Facts about the models of launches.

use std::{collections::BTreeSet, path::Path};

use anyhow::bail;
use facts::{FactsFolder, FoundFacts, GatheredFacts, HubCache, ModelPlaces, ModelSource, Sources, gather};
use launch::Launch;
use lint::published_models;
use schemas::{flags::Key, model::ModelFacts};

use super::Arguments;
use crate::terminal;

/// Sources of facts, and the facts of the models that the user names.
pub(super) struct ModelFactsCache {
    target: Option<ModelFacts>,
    draft: Option<ModelFacts>,
    sources: Sources,
    /// Notes already printed: a broken file is reported once, regardless of the number of launches
    /// that name it.
    said: BTreeSet<String>,
}

impl ModelFactsCache {
    /// Reads the folders named by the user, which must exist.
    pub fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let mut known = Self {
            target: None,
            draft: None,
            sources: Sources::new(HubCache::from_environment(), hub(arguments)),
            said: BTreeSet::new(),
        };
        known.target = known.named(arguments.model_path.as_deref())?;
        known.draft = known.named(arguments.speculative_draft_model_path.as_deref())?;
        Ok(known)
    }

    /// Facts of a folder named by the user.
    fn named(&mut self, folder: Option<&Path>) -> anyhow::Result<Option<ModelFacts>> {
        let Some(folder) = folder else { return Ok(None) };
        if !folder.is_dir() {
            bail!("{} is not a folder; give the folder that holds the model's config.json", folder.display());
        }
        let name = folder.display().to_string();
        let GatheredFacts { facts, notes } = gather(&FactsFolder::new(folder), &name, ModelPlaces { tokenizer: true })?;
        self.say(notes);
        Ok(Some(facts))
    }

    /// Facts of a launch's target and draft: of the folder named by the user, else of the launch's
    /// own model if it can be read, else the published facts about it.
    pub fn for_launch(&mut self, launch: &Launch) -> (Option<ModelFacts>, Option<ModelFacts>) {
        let (target, draft) = published_models::facts_of(launch);
        let target = self.target.clone().or_else(|| self.find(launch, Key::ModelPath)).or(target);
        let draft = self.draft.clone().or_else(|| self.find(launch, Key::SpeculativeDraftModelPath)).or(draft);
        (target, draft)
    }

    fn find(&mut self, launch: &Launch, key: Key) -> Option<ModelFacts> {
        let name = launch.text(key)?.value;
        let revision = match key {
            Key::SpeculativeDraftModelPath => Key::SpeculativeDraftModelRevision,
            _ => Key::Revision,
        };
        let revision = launch.text(revision).map_or("main", |revision| revision.value);
        // Only a draft with its own vocabulary can disagree with the target's.
        let standalone =
            launch.text(Key::SpeculativeAlgorithm).is_some_and(|name| name.value.eq_ignore_ascii_case("STANDALONE"));
        let found = self.sources.find(name, revision, ModelPlaces { tokenizer: standalone })?;
        let FoundFacts { facts, notes } = found.clone();
        self.say(notes);
        facts
    }

    fn say(&mut self, notes: Vec<String>) {
        for note in notes {
            if self.said.insert(note.clone()) {
                terminal::note(&format!("note: {note}"));
            }
        }
    }
}

/// The hub, if the user allows it to be asked.
#[cfg(feature = "hub")]
fn hub(arguments: &Arguments) -> Option<Box<dyn ModelSource>> {
    arguments.hub.then(|| Box::new(facts::Hub::from_environment()) as Box<dyn ModelSource>)
}

#[cfg(not(feature = "hub"))]
fn hub(_arguments: &Arguments) -> Option<Box<dyn ModelSource>> {
    None
}
