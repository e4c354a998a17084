//! Grammars of structured output, compiled by llguidance for the model's vocabulary.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::{Constraint, Follow, Grammar, text::Text};
use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie},
};
use serde_json::{Value, json};

use super::{
    error::ApiError,
    fields::{Fields, integer},
};

/// Longest grammar that is taken, in bytes.
const LONGEST: usize = 1 << 20;
/// White space between the parts of JSON: a space, or a line with its indentation, so that no output is made of nothing else.
const WHITE_SPACE: &str = r"( |\n[ \t]{0,16})?";
/// llguidance marks special tokens by a byte that no text has.
const SPECIAL: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// What an output has to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// JSON of a schema.
    Schema(Value),
    /// A text that a regular expression matches as a whole.
    Regex(String),
    /// A grammar in llguidance's own language, made by this server.
    Lark(String),
}

/// Compiles grammars. The vocabulary is prepared on first use.
pub struct Grammars {
    text: Option<Text>,
    vocabulary: usize,
    ends: Vec<u32>,
    factory: OnceLock<Result<ParserFactory, String>>,
}

/// A compiled grammar, at its start.
struct Compiled(Mutex<Matcher>);

/// Where an output is in its grammar.
struct Following {
    /// Locked only because it is never used from two threads at once, which its type does not tell.
    matcher: Mutex<Matcher>,
    failure: Option<String>,
}

impl Form {
    /// Reads `response_format` and the names that SGLang and vLLM have for the same: `json_schema`, `regex`,
    /// `structured_outputs`, `guided_json`, `guided_regex`, `guided_choice`.
    ///
    /// # Errors
    /// When one is wrong, or two are given.
    pub fn read(fields: &mut Fields) -> Result<Option<(&'static str, Self)>, ApiError> {
        let mut found: Vec<(&'static str, Self)> = Vec::new();
        if let Some(form) = response_format(fields)? {
            found.push(("response_format", form));
        }
        for name in ["json_schema", "guided_json"] {
            if let Some(schema) = fields.value(name) {
                found.push((name, Self::Schema(schema_of(fields, name, schema)?)));
            }
        }
        for name in ["regex", "guided_regex"] {
            if let Some(regex) = fields.text(name)?.filter(|regex| !regex.is_empty()) {
                found.push((name, Self::Regex(regex)));
            }
        }
        let choices = fields.texts("guided_choice", 1024)?;
        if !choices.is_empty() {
            found.push(("guided_choice", Self::of_choices(&choices)));
        }
        let mut structured = fields.object("structured_outputs")?;
        if let Some(schema) = structured.value("json") {
            found.push(("structured_outputs", Self::Schema(schema_of(&structured, "json", schema)?)));
        }
        if let Some(regex) = structured.text("regex")? {
            found.push(("structured_outputs", Self::Regex(regex)));
        }
        let choices = structured.texts("choice", 1024)?;
        if !choices.is_empty() {
            found.push(("structured_outputs", Self::of_choices(&choices)));
        }
        if structured.flag("json_object")? {
            found.push(("structured_outputs", Self::any_object()));
        }
        structured.finish()?;
        if let [(first, _), (second, _), ..] = &found[..] {
            let message = format!("{second}: the output already has a form, given by {first}; leave one out");
            return Err(fields.complain(second, message));
        }
        Ok(found.pop())
    }

    /// Any JSON object.
    pub fn any_object() -> Self {
        Self::Schema(json!({"type": "object"}))
    }

    /// One of some texts.
    fn of_choices(choices: &[String]) -> Self {
        let quoted: Vec<String> = choices.iter().map(|choice| Value::from(choice.as_str()).to_string()).collect();
        Self::Lark(format!("start: {}", quoted.join(" | ")))
    }

    fn top_level(&self) -> TopLevelGrammar {
        match self {
            Self::Schema(schema) => TopLevelGrammar::from_json_schema(normalized(schema.clone())),
            Self::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Self::Lark(grammar) => TopLevelGrammar::from_lark(grammar.clone()),
        }
    }

    /// Length of the grammar in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Schema(schema) => schema.to_string().len(),
            Self::Regex(text) | Self::Lark(text) => text.len(),
        }
    }
}

/// A schema as llguidance takes it: with only this much white space, and integers written as such.
pub fn normalized(mut schema: Value) -> Value {
    write_integers(&mut schema);
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    if let Some(fields) = schema.as_object_mut() {
        let options = fields.entry("x-guidance").or_insert_with(|| json!({}));
        if let Some(options) = options.as_object_mut() {
            options.entry("whitespace_pattern").or_insert_with(|| WHITE_SPACE.into());
        }
    }
    schema
}

/// Writes `2.0` as `2`, which is the same number to JSON Schema and a wrong type to its readers.
fn write_integers(schema: &mut Value) {
    match schema {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = integer(schema) {
                *schema = whole.into();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(write_integers),
        Value::Object(fields) => fields.values_mut().for_each(write_integers),
        _ => {}
    }
}

fn response_format(fields: &mut Fields) -> Result<Option<Form>, ApiError> {
    const NAME: &str = "response_format";
    let given = fields.value(NAME);
    let Some(given) = given else { return Ok(None) };
    let Value::Object(given) = given else { return Err(fields.wrong(NAME, "an object with a type", &given)) };
    let mut format = Fields::within(NAME, given);
    let form = match format.text("type")?.as_deref() {
        Some("text") => None,
        Some("json_object") => {
            // SGLang takes a schema here too.
            let schema = format.value("schema").map(|schema| schema_of(&format, "schema", schema)).transpose()?;
            Some(schema.map_or_else(Form::any_object, Form::Schema))
        }
        Some("json_schema") => {
            let mut outer = format.object("json_schema")?;
            // A name and a description are for people, and the schema is always kept to.
            let _ = (outer.text("name")?, outer.text("description")?, outer.flag("strict")?);
            let schema = outer.value("schema").ok_or_else(|| outer.complain("schema", "the schema is missing"))?;
            let schema = schema_of(&outer, "schema", schema)?;
            outer.finish()?;
            Some(Form::Schema(schema))
        }
        Some(other) => {
            let message = format!("{NAME}.type is '{other}', expected text, json_object or json_schema");
            return Err(format.complain("type", message));
        }
        None => return Err(format.complain("type", format!("{NAME}.type is missing"))),
    };
    format.finish()?;
    Ok(form)
}

/// A schema as an object, as `true`, or as either in a string.
///
/// # Errors
/// When it is something else.
pub fn schema_of(fields: &Fields, name: &str, given: Value) -> Result<Value, ApiError> {
    let schema = match given {
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|error| fields.complain(name, format!("{name} is not valid JSON: {error}")))?,
        other => other,
    };
    match schema {
        Value::Object(_) | Value::Bool(_) => Ok(schema),
        other => Err(fields.wrong(name, "a JSON schema", &other)),
    }
}

impl Grammars {
    /// For a model whose outputs some tokens end.
    pub fn new(text: Option<Text>, vocabulary: usize, ends: Vec<u32>) -> Self {
        Self { text, vocabulary, ends, factory: OnceLock::new() }
    }

    /// Compiles a grammar from the field `parameter`. This may take a while.
    ///
    /// # Errors
    /// When there is no tokenizer or end token, or it is not a grammar, or too large.
    pub fn compile(&self, parameter: &str, form: &Form) -> Result<Grammar, ApiError> {
        if form.bytes() > LONGEST {
            return Err(ApiError::parameter(parameter, format!("{parameter} is longer than {LONGEST} bytes")));
        }
        let factory = self.factory.get_or_init(|| self.prepare()).as_ref();
        let factory = factory.map_err(|reason| ApiError::parameter(parameter, format!("{parameter}: {reason}")))?;
        let mut matcher = Matcher::new(factory.create_parser(form.top_level()));
        let failure = match matcher.get_error() {
            Some(error) => Some(first_line(&error)),
            // A grammar of which no output is complete, such as a schema that refers to itself alone.
            None => {
                matcher.compute_mask_or_eos().err().map(|error| format!("it allows no output ({})", reason(&error)))
            }
        };
        match failure {
            Some(why) => Err(ApiError::parameter(parameter, format!("{parameter} cannot be followed: {why}"))),
            None => Ok(Grammar(Arc::new(Compiled(Mutex::new(matcher))))),
        }
    }

    fn prepare(&self) -> Result<ParserFactory, String> {
        let text = self.text.as_ref().ok_or("this model has no tokenizer")?;
        let (Some(end), Ok(count)) = (self.ends.first(), u32::try_from(self.vocabulary)) else {
            return Err("this model has no end-of-text token, so that no output is ever complete".into());
        };
        let word = |token: u32| {
            let bytes = text.token(token).bytes;
            if text.is_special(token) { [&[SPECIAL][..], &bytes].concat() } else { bytes }
        };
        let words: Vec<Vec<u8>> = (0..count).map(word).collect();
        let trie = TokTrie::from(&TokRxInfo::new(count, *end), &words).with_eos_tokens(&self.ends);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment).map_err(|error| error.to_string())?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(factory)
    }
}

/// The reason in an error of llguidance, without the grammar that it appends.
fn reason(error: &impl std::fmt::Display) -> String {
    first_line(&error.to_string())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Compiled")
    }
}

impl std::fmt::Debug for Following {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Following").field("failure", &self.failure).finish_non_exhaustive()
    }
}

impl Constraint for Compiled {
    fn start(&self) -> Box<dyn Follow> {
        let matcher = self.0.lock().unwrap_or_else(PoisonError::into_inner).deep_clone();
        Box::new(Following { matcher: Mutex::new(matcher), failure: None })
    }
}

impl Follow for Following {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let matcher = self.matcher.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mask = matcher.compute_mask_or_eos().map_err(|error| reason(&error))?;
        for (token, logit) in logits.iter_mut().enumerate() {
            if token >= mask.len() || !mask.get(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    fn push(&mut self, token: u32) {
        // After its end an output has nothing but further ends.
        let matcher = self.matcher.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.failure.is_none() && !matcher.is_stopped() {
            self.failure = matcher.consume_token(token).err().map(|error| reason(&error));
        }
    }
}
