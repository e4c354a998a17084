//! Chat templates: Jinja as transformers runs it.

use minijinja::{Environment, Error, ErrorKind, context};
use serde::{Deserialize, Serialize};

use super::python;
use crate::{checkpoint::Folder, error::EngineError};

/// Steps a template may take: they come from outside and must end.
const FUEL: u64 = 5_000_000;

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant`, …
    pub role: String,
    /// What was said.
    pub content: String,
}

/// A compiled template, in the environment that transformers gives to templates.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    begin: String,
    end: String,
}

/// What a tokenizer_config.json says of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    chat_template: Option<Template>,
    bos_token: Option<Token>,
    eos_token: Option<Token>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Template {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Added { content: String },
}

impl ChatTemplate {
    /// Reads tokenizer_config.json and chat_template.jinja; `None` where neither has a template, the compiler's words
    /// where it does not compile: a model whose template needs more than this Jinja still completes text.
    ///
    /// # Errors
    /// When a file is there and broken.
    pub fn open(folder: &Folder) -> Result<Option<Result<Self, String>>, EngineError> {
        let name = "tokenizer_config.json";
        let malformed = |file: &str, reason: String| EngineError::Malformed { path: folder.path().join(file), reason };
        let config = match folder.optional(name)? {
            Some(text) => serde_json::from_str(&text).map_err(|error| malformed(name, error.to_string()))?,
            None => Config::default(),
        };
        // The file of its own is the newer place and wins, as in transformers.
        let source = match (folder.optional("chat_template.jinja")?, config.chat_template) {
            (Some(source), _) | (None, Some(Template::One(source))) => source,
            (None, Some(Template::Named(named))) => match named.into_iter().find(|named| named.name == "default") {
                Some(named) => named.template,
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let text = |token: Option<Token>| match token {
            Some(Token::Text(content) | Token::Added { content }) => content,
            None => String::new(),
        };
        let template = Self::new(source, text(config.bos_token), text(config.eos_token));
        Ok(Some(template.map_err(|error| format!("{error:#}"))))
    }

    /// The text of a conversation, up to where the assistant speaks.
    ///
    /// # Errors
    /// When the template refuses it.
    pub fn render(&self, messages: &[impl Serialize]) -> Result<String, EngineError> {
        let values = context! {
            messages => messages, add_generation_prompt => true, bos_token => self.begin, eos_token => self.end,
        };
        let rendered = self.environment.get_template("chat").and_then(|template| template.render(values));
        rendered.map_err(|error| {
            let reason = error.detail().map_or_else(|| error.to_string(), ToOwned::to_owned);
            EngineError::InvalidRequest(format!("the chat template refuses these messages: {reason}"))
        })
    }

    fn new(source: String, begin: String, end: String) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |reason: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, reason))
        });
        environment.add_function("strftime_now", |format: &str| python::strftime_now(format));
        environment.add_filter("tojson", python::to_json);
        environment.add_template_owned("chat", without_generation_tags(&source))?;
        Ok(Self { environment, begin, end })
    }
}

/// transformers' own block `{% generation %} … {% endgeneration %}` marks what the assistant says, for training; here it
/// is a block that changes nothing.
fn without_generation_tags(source: &str) -> String {
    let mut result = String::new();
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        result.push_str(before);
        let word = tag.trim_start_matches(['-', '+']).trim_start();
        let marks = &tag[..tag.len() - word.len()];
        let name = word.split(|character: char| !character.is_alphanumeric() && character != '_').next();
        let (name, replacement) = match name {
            Some(name @ "generation") => (name, "if true"),
            Some(name @ "endgeneration") => (name, "endif"),
            _ => ("", ""),
        };
        result.extend([marks, replacement]);
        rest = &word[name.len()..];
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, expected: Result<&str, &str>) {
        let template = ChatTemplate::new(template.into(), "<s>".into(), "</s>".into()).expect("it compiles");
        let message = |role: &str, content: &str| ChatMessage { role: role.into(), content: content.into() };
        let rendered = template.render(&[message("user", " hi "), message("assistant", "yo")]);
        match (rendered, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn templates_run_as_in_transformers() {
        check(
            "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m.content.strip() }}\n{% endfor %}",
            Ok("<s>[user] hi\n[assistant] yo\n"),
        );
        check("{%- if add_generation_prompt %}\n    {{- 'go' }}\n{%- endif %}", Ok("go"));
        check(
            "{{ messages | tojson }}",
            Ok(r#"[{"role": "user", "content": " hi "}, {"role": "assistant", "content": "yo"}]"#),
        );
        check("{{ {'b': \"<'é&>\", 'a': []} | tojson }}", Ok(r#"{"b": "<'é&>", "a": []}"#));
        check("{{ {'b': 'é', 'a': 1} | tojson(sort_keys=true, ensure_ascii=true) }}", Ok(r#"{"a": 1, "b": "\u00e9"}"#));
        check("{{ {'b': [1, 2]} | tojson(indent=2) }}", Ok("{\n  \"b\": [\n    1,\n    2\n  ]\n}"));
        check("{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}", Ok(r#"[1,{"a":2}]"#));
        check("{{ strftime_now('%Y') | int > 2000 }}", Ok("True"));
        check("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", Ok("user"));
        check(
            "{% for m in messages %}a\n {%- generation -%} {{ m.content }} {%- endgeneration %}{% endfor %}",
            Ok("a hi ayo"),
        );
        check("{{ raise_exception('roles must alternate') }}", Err("roles must alternate"));
    }

    #[test]
    fn an_endless_template_is_stopped() {
        check(
            "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}x{% endfor %}{% endfor %}{% endfor %}",
            Err(""),
        );
    }
}
