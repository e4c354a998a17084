//! Finds the models that a launch names, and caches the results.

use std::{collections::HashMap, fmt, path::Path};

use schemas::model::{ModelFacts, published};

use crate::{FactsFolder, Files, GatheredFacts, HubCache, ModelPlaces, gather, names::is_id};

/// The sources of facts: always the file system; the cache and the hub if given.
#[derive(Debug, Default)]
pub struct Sources {
    cache: Option<HubCache>,
    hub: Option<Box<dyn ModelSource>>,
    found: HashMap<(String, String, ModelPlaces), Option<FoundFacts>>,
}

/// A server from which files of models can be read.
pub trait ModelSource: fmt::Debug + Send {
    /// The files of a model at a revision, if the names can be those of one. Nothing is requested
    /// yet.
    fn files(&self, id: &str, revision: &str) -> Option<Box<dyn Files>>;
}

/// The result of looking for a model.
#[derive(Clone, Debug, Default)]
pub struct FoundFacts {
    /// The facts; `None` if its files exist but are unusable.
    pub facts: Option<ModelFacts>,
    /// What could not be read, and why.
    pub notes: Vec<String>,
}

impl Sources {
    /// Looks in folders, then in `cache`, then on `hub`.
    pub fn new(cache: Option<HubCache>, hub: Option<Box<dyn ModelSource>>) -> Self {
        Self { cache, hub, found: HashMap::new() }
    }

    /// The checkpoint for a name in a launch: a folder, or the id of a model at a revision. `None`
    /// if there is none.
    pub fn find(&mut self, name: &str, revision: &str, wanted: ModelPlaces) -> Option<&FoundFacts> {
        let key = (name.to_owned(), revision.to_owned(), wanted);
        if !self.found.contains_key(&key) {
            let found = self.look(name, revision, wanted);
            self.found.insert(key.clone(), found);
        }
        self.found.get(&key)?.as_ref()
    }

    /// The facts of a model at a place, a folder or an id, without its tokenizer; where there are
    /// none, those that are published under its name.
    pub fn find_or_published(&mut self, place: &str, name: &str) -> FoundFacts {
        let FoundFacts { facts, notes } = self.find(place, "main", ModelPlaces::default()).cloned().unwrap_or_default();
        FoundFacts { facts: facts.or_else(|| published::find(name).map(|row| row.facts(name))), notes }
    }

    fn look(&self, name: &str, revision: &str, wanted: ModelPlaces) -> Option<FoundFacts> {
        if Path::new(name).is_dir() {
            return Some(read(&FactsFolder::new(name), name, wanted));
        }
        // A folder on another machine usually has the name of its model.
        let id = if is_id(name) { name } else { published::id_of(name)? };
        let taken = (id != name).then(|| format!("; {name} is assumed to be {id}, by its name"));
        let files: Box<dyn Files> = match self.cache.as_ref().and_then(|cache| cache.find(id, revision)) {
            Some(folder) => Box::new(FactsFolder::new(folder)),
            None => self.hub.as_ref()?.files(id, revision)?,
        };
        let mut found = read(files.as_ref(), name, wanted);
        if let (Some(facts), Some(taken)) = (&mut found.facts, taken) {
            facts.origin.push_str(&taken);
        }
        Some(found)
    }
}

fn read(files: &dyn Files, name: &str, wanted: ModelPlaces) -> FoundFacts {
    match gather(files, name, wanted) {
        Ok(GatheredFacts { facts, notes }) => FoundFacts { facts: Some(facts), notes },
        Err(error) => FoundFacts { facts: None, notes: vec![error.to_string()] },
    }
}
