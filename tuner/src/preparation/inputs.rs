//! What a sweep measures and on what, and what follows from it before anything is loaded: the
//! space, the experiment, the options of the engine.

use std::path::PathBuf;

use engine::{
    DeviceChoice, EngineOptions, ShapePolicy,
    checkpoint::Folder,
    load,
    options::{default_shape, default_shape_of, fp8_compute, kv_cache, nodes_of, quantization},
    spec::TextSpec,
};
use schemas::{
    drafting::vllm_method,
    sweep::{OneDraft, SweepFile, SystemKind},
    tree::{NodeSource, TreeShape},
    tuned::PolicyRow,
};

use crate::{
    TunerError,
    prediction::{acceptance, guide::AcceptanceTable},
    results::{outcome, selection::Comparison},
    space::{Expanded, LeftOut, expand, settings, together},
    strategy::{self, Experiment, Shard},
    trials::{configuration::TableRow, record::CandidateRole},
};

/// What a sweep measures, and on what: all that decides its meaning.
#[derive(Clone, Debug)]
pub struct SweepInputs {
    /// The sweep file.
    pub file: SweepFile,
    /// The folder that its relative paths refer to.
    pub folder: PathBuf,
    /// The part of the sweep to measure; `None` for all of it.
    pub shard: Option<Shard>,
    /// Device to run on, in place of the file's.
    pub device: Option<DeviceChoice>,
}

impl SweepInputs {
    /// The acceptance table that the sweep file imports, if any.
    ///
    /// # Errors
    /// As [`acceptance::import`].
    pub fn imported(&self) -> Result<Option<AcceptanceTable>, TunerError> {
        acceptance::import(&self.folder, &self.file.models)
    }

    /// The configurations of the whole sweep, regardless of the shard; with imported acceptance,
    /// only the ones that it covers.
    ///
    /// # Errors
    /// When a table cannot be read, or the target's configuration cannot.
    pub fn space(&self, imported: Option<&AcceptanceTable>) -> Result<Expanded, TunerError> {
        let file = &self.file;
        if !file.has_several_drafts() {
            return self.space_of_one(file, imported);
        }
        let (mut parts, mut left_out) = (Vec::new(), Vec::new());
        for OneDraft { name, file } in file.each_draft() {
            match self.unfit(&file)? {
                Some(reason) => left_out.push(LeftOut { draft: name, reason }),
                None => parts.push((name, self.space_of_one(&file, imported)?)),
            }
        }
        if parts.is_empty() {
            let reasons = left_out.iter().map(|LeftOut { draft, reason }| format!("{draft}: {reason}"));
            let reasons: Vec<String> = reasons.collect();
            return Err(TunerError::Configuration(format!("no draft can be loaded ({})", reasons.join("; "))));
        }
        Ok(together(parts, left_out))
    }

    /// Why spectune's own engine does not load a draft, as far as its headers tell; `None` for a
    /// server, which may load it from elsewhere.
    fn unfit(&self, file: &SweepFile) -> Result<Option<String>, TunerError> {
        if !file.system.is_in_process() {
            return Ok(None);
        }
        let options = self.options_of(file, "", &Expanded::default())?;
        Ok(load::draft_algorithm(&options).err().map(|error| error.to_string()))
    }

    /// The configurations of a sweep of one draft.
    fn space_of_one(&self, file: &SweepFile, imported: Option<&AcceptanceTable>) -> Result<Expanded, TunerError> {
        let tables = file.space.tables.iter().map(|path| self.table(path)).collect::<Result<Vec<_>, _>>()?;
        let nodes = self.nodes(file);
        let mut space = expand(&file.space, &file.knobs, &tables, nodes, self.default(file, nodes)?);
        if matches!(nodes, NodeSource::Block(_)) && file.system.kind != SystemKind::Spectune {
            // Other engines verify a block as a chain, whatever the number of branches.
            space.entrants.retain(|one| one.configuration.shape.topk <= 1);
        }
        if file.system.kind == SystemKind::Vllm {
            only_chains(&mut space, &file.models.algorithm);
        }
        if let Some(table) = imported {
            space.retain_covered(|one| acceptance::length_of(table, one).is_ok());
        }
        Ok(space)
    }

    /// Defines the experiment. The space is reduced to the part of the shard.
    ///
    /// # Errors
    /// When the search cannot cover it.
    pub fn experiment(&self, space: &mut Expanded) -> Result<Experiment, TunerError> {
        let file = &self.file;
        if let Some(shard) = self.shard {
            space.entrants = shard.select(&space.entrants);
        }
        let experiment = Experiment {
            entrants: space.entrants.clone(),
            loads: settings::loads(file),
            repeats: file.search.repeats,
            metric: file.objective.metric,
            looks: Comparison::from_sweep(file).looks,
            restarts: !file.system.is_in_process(),
        };
        strategy::check(&file.search, &experiment)?;
        Ok(experiment)
    }

    /// What the draft makes of a shape.
    fn nodes(&self, file: &SweepFile) -> NodeSource {
        let models = &file.models;
        match NodeSource::named(&models.algorithm) {
            NodeSource::Beams => NodeSource::Beams,
            texts @ NodeSource::Text(_) => texts,
            // A server may load the draft from elsewhere.
            unknown => nodes_of(&self.folder.join(&models.draft)).unwrap_or(unknown),
        }
    }

    /// The engine's default shape; our own engine uses SGLang's.
    fn default(&self, file: &SweepFile, nodes: NodeSource) -> Result<TreeShape, TunerError> {
        if let NodeSource::Block(block) = nodes {
            return Ok(block.chain());
        }
        let models = &file.models;
        // Our defaults of look-ups are those of the engine that has them.
        if let Some(rule) = TextSpec::named(&models.algorithm) {
            return Ok(rule.default_shape());
        }
        if file.system.kind == SystemKind::Vllm {
            // One token per MTP layer. For a head there is no default; three is the number in
            // vLLM's documentation.
            return Ok(TreeShape::chain(if models.algorithm.eq_ignore_ascii_case("NEXTN") { 1 } else { 3 }));
        }
        Ok(match &models.model_shape {
            Some(shape) => default_shape_of(shape, &models.algorithm)?,
            None => default_shape(&self.folder.join(&models.target), &models.algorithm)?,
        })
    }

    /// Reads the table of a tuned file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn table(&self, path: &str) -> Result<Vec<TableRow>, TunerError> {
        let path = self.folder.join(path);
        let tuned = outcome::read_file(&path)?;
        let row = |row: &PolicyRow| TableRow {
            max_running_batch: row.max_running_batch,
            max_context: row.max_context,
            shape: row.shape(),
        };
        Ok(tuned.policy.iter().map(row).collect())
    }

    /// The options of the engine; of several drafts, for the first that takes part.
    ///
    /// # Errors
    /// When the device or the quantisation is unknown.
    pub fn options(&self, space: &Expanded) -> Result<EngineOptions, TunerError> {
        Ok(first(&self.each_options(space)?)?.1)
    }

    /// The options of the engine for each draft that takes part, with its name.
    ///
    /// # Errors
    /// As [`options`](Self::options).
    pub fn each_options(&self, space: &Expanded) -> Result<Vec<(String, EngineOptions)>, TunerError> {
        let takes_part = |one: &OneDraft| space.left_out.iter().all(|out| out.draft != one.name);
        let each = self.file.each_draft().into_iter().filter(takes_part);
        each.map(|OneDraft { name, file }| Ok((name.clone(), self.options_of(&file, &name, space)?))).collect()
    }

    /// The options of the engine for a draft of this name, in the sweep of it alone.
    fn options_of(&self, file: &SweepFile, name: &str, space: &Expanded) -> Result<EngineOptions, TunerError> {
        let SweepFile { models, engine, .. } = file;
        // Pages are reserved for the largest tree of the draft's space, so that the cache has the
        // same size for every shape.
        let own = space.entrants.iter().filter(|one| one.configuration.is_off() || one.configuration.draft == name);
        let largest = own.flat_map(|one| one.configuration.shapes());
        let largest = largest.max_by_key(|shape| shape.num_draft_tokens);
        let random = models.model_shape.is_some();
        Ok(EngineOptions {
            model_path: self.folder.join(&models.target),
            draft_model_path: (!models.draft.is_empty()).then(|| self.folder.join(&models.draft)),
            load_format: if random { engine::options::LoadFormat::Dummy } else { engine::options::LoadFormat::Auto },
            model_shape: models.model_shape.clone(),
            num_layers: models.num_layers,
            algorithm: Some(models.algorithm.clone()),
            second_source: engine::options::second_source(models.second_source.as_deref()),
            policy: largest.map_or_else(|| EngineOptions::default().policy, ShapePolicy::fixed),
            device: match self.device {
                Some(device) => device,
                None => engine.device.parse()?,
            },
            tp_size: engine.tp_size,
            dtype: models.dtype.clone(),
            quantization: quantization("models.quantization", models.quantization.as_deref())?,
            draft_quantization: quantization("models.quantization", models.quantization.as_deref())?,
            fp8_compute: fp8_compute("models.fp8_compute", models.fp8_compute.as_deref())?,
            kv_cache: kv_cache("models.kv_cache_dtype", models.kv_cache_dtype.as_deref())?,
            context_length: engine.context_length,
            max_running_requests: settings::max_running_requests(file, &space.entrants),
            page_size: engine.page_size,
            mem_fraction_static: engine.mem_fraction_static,
            chunked_prefill_size: engine.chunked_prefill_size,
            capture_sizes: engine.capture_sizes.clone(),
            // Otherwise repeats of a workload would find their own prompts in the cache.
            disable_radix_cache: true,
            ..EngineOptions::default()
        })
    }

    /// Hash of the target's files, or its name if it is not a folder.
    pub fn target_hash(&self) -> String {
        self.model_hash(&self.file.models.target)
    }

    /// The hashes of the drafts, with their names if there are several. A draft that cannot be
    /// loaded is one of them: whether it can may change while a sweep is interrupted, and what its
    /// name means may not.
    pub fn draft_hashes(&self) -> String {
        let each = self.file.each_draft();
        let hash = |one: &OneDraft| self.model_hash(&one.file.models.draft);
        match each.as_slice() {
            [only] => hash(only),
            _ => each
                .iter()
                .map(|one| format!("{} {}", one.name, hash(one)).trim_end().to_owned())
                .collect::<Vec<_>>()
                .join(", "),
        }
    }

    /// The algorithms of the drafts, as the first of the settings in a fingerprint.
    pub fn algorithms(&self) -> String {
        self.file.each_draft().iter().map(|one| one.file.models.algorithm.clone()).collect::<Vec<_>>().join("+")
    }

    fn model_hash(&self, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        let hash = Folder::open(&self.folder.join(name)).and_then(|folder| folder.hash());
        hash.unwrap_or_else(|_| name.to_owned())
    }
}

/// The first of several drafts, with its options.
///
/// # Errors
/// When there is none.
pub fn first(drafts: &[(String, EngineOptions)]) -> Result<(String, EngineOptions), TunerError> {
    drafts.first().cloned().ok_or_else(|| TunerError::Configuration("there is no draft to measure".into()))
}

/// Keeps what vLLM can run: it drafts only chains, and has a default number of tokens for some
/// methods only.
fn only_chains(space: &mut Expanded, algorithm: &str) {
    space.entrants.retain(|one| one.configuration.shape.topk <= 1);
    if vllm_method(algorithm).is_none_or(|method| !method.has_default) {
        let defaults = space.entrants.iter_mut().filter(|one| one.role == CandidateRole::EngineDefault);
        defaults.for_each(|one| one.role = CandidateRole::Candidate);
    }
}
