//! Chat templates: Jinja with the behaviour of transformers.

use std::collections::BTreeMap;

use minijinja::{Environment, Error, ErrorKind, Value};
use serde::{Deserialize, Serialize};

use super::{jinja2, operators, python, python_values::printed, special_tokens::TokenizerConfig};
use crate::{checkpoint::Folder, error::EngineError};

/// Maximum number of steps of a template: templates come from outside, and must terminate.
const FUEL: u64 = 5_000_000;

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant`, …
    pub role: String,
    /// The text of the message.
    pub content: String,
}

/// Further variables of a template, by name, such as Qwen3's `enable_thinking`. They take
/// precedence over the special tokens.
pub type TemplateVariables = serde_json::Map<String, serde_json::Value>;

/// Options for rendering a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatOptions {
    /// The template's own variables.
    pub variables: TemplateVariables,
    /// Tools that the assistant may call, in OpenAI's format; empty for none.
    pub tools: Vec<serde_json::Value>,
    /// Whether the text ends where the assistant's reply starts.
    pub add_generation_prompt: bool,
    /// Whether the text ends with the content of the last message, so that the answer continues it.
    pub continue_final_message: bool,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            variables: TemplateVariables::new(),
            tools: Vec::new(),
            add_generation_prompt: true,
            continue_final_message: false,
        }
    }
}

/// A compiled template, with the environment that transformers gives to templates.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    environment: Environment<'static>,
    special_tokens: BTreeMap<&'static str, String>,
}

impl ChatTemplate {
    /// Reads chat_template.jinja, or the template in the tokenizer's configuration; `None` if
    /// neither contains one. The inner error is the compiler's message if the template does not
    /// compile: a model whose template needs more than this Jinja supports can still complete text.
    ///
    /// # Errors
    /// When the file exists but cannot be read.
    pub fn open(folder: &Folder, config: TokenizerConfig) -> Result<Option<Result<Self, String>>, EngineError> {
        // The separate file is the newer location and takes precedence, as in transformers.
        let Some(source) = folder.optional("chat_template.jinja")?.or(config.chat_template) else { return Ok(None) };
        let template = Self::new(&source, config.special_tokens);
        Ok(Some(template.map_err(|error| format!("{error:#}"))))
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// When the template rejects it, or its output lacks the last message, which the answer should
    /// continue.
    pub fn render(&self, messages: &[impl Serialize], options: &ChatOptions) -> Result<String, EngineError> {
        let ChatOptions { variables, tools, add_generation_prompt, continue_final_message } = options;
        let mut values: BTreeMap<&str, Value> = ["bos_token", "eos_token"].map(|name| (name, Value::from(""))).into();
        values.extend(self.special_tokens.iter().map(|(name, text)| (*name, Value::from(text))));
        let outside = |value: Value| printed(&value);
        values.extend(variables.iter().map(|(name, value)| (name.as_str(), outside(Value::from_serialize(value)))));
        values.extend([
            ("messages", outside(Value::from_serialize(messages))),
            ("add_generation_prompt", (*add_generation_prompt).into()),
            // Omitted values are none, as in transformers, instead of undefined: templates test for
            // either.
            ("tools", if tools.is_empty() { ().into() } else { outside(Value::from_serialize(tools)) }),
            ("documents", ().into()),
        ]);
        let rendered = self.environment.get_template("chat").and_then(|template| template.render(Value::from(values)));
        let rendered = rendered.map_err(|error| {
            let reason = error.detail().map_or_else(|| error.to_string(), ToOwned::to_owned);
            EngineError::InvalidRequest(format!("the chat template rejects these messages: {reason}"))
        })?;
        match (continue_final_message, messages.last()) {
            (true, Some(last)) => up_to_content(rendered, &Value::from_serialize(last)),
            _ => Ok(rendered),
        }
    }

    fn new(source: &str, special_tokens: BTreeMap<&'static str, String>) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        jinja2::add(&mut environment);
        environment.add_function("raise_exception", |reason: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, reason))
        });
        environment.add_function("strftime_now", |format: &str| python::strftime_now(format));
        environment.add_template_owned("chat", operators::replaced(&without_generation_tags(source)))?;
        Ok(Self { source: source.to_owned(), environment, special_tokens })
    }
}

/// A rendered conversation, cut after the content of its last message. As in transformers, the
/// content may have been trimmed by the template.
fn up_to_content(mut rendered: String, message: &Value) -> Result<String, EngineError> {
    let content = message.get_attr("content").ok().and_then(|content| content.as_str().map(ToOwned::to_owned));
    let content = content.unwrap_or_default();
    let Some(at) = rendered.rfind(content.trim()).filter(|_| !content.trim().is_empty()) else {
        return Err(EngineError::InvalidRequest(
            "the chat template omits the content of the last message, so the answer cannot continue it".into(),
        ));
    };
    let whole = content.trim_start();
    let end = if rendered[at..].starts_with(whole) { whole.len() } else { content.trim().len() };
    rendered.truncate(at + end);
    Ok(rendered)
}

/// The block `{% generation %} … {% endgeneration %}` of transformers marks the assistant's
/// replies, for training; here it has no effect.
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
        check_with("{}", template, expected);
    }

    fn check_with(variables: &str, template: &str, expected: Result<&str, &str>) {
        let tokens = BTreeMap::from([("bos_token", "<s>".to_owned()), ("pad_token", "<pad>".to_owned())]);
        let template = ChatTemplate::new(template, tokens).expect("it compiles");
        let variables = serde_json::from_str(variables).expect("an object");
        let options = ChatOptions { variables, ..ChatOptions::default() };
        let message = |role: &str, content: &str| ChatMessage { role: role.into(), content: content.into() };
        let rendered = template.render(&[message("user", " hi "), message("assistant", "yo")], &options);
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
    fn what_is_not_requested_is_none() {
        for name in ["tools", "documents"] {
            check(&format!("{{% if {name} is not none %}}some{{% else %}}none{{% endif %}}"), Ok("none"));
            check(&format!("{{% if {name} is defined %}}defined{{% endif %}}"), Ok("defined"));
            check(&format!("{{% if {name} == none and not {name} %}}none{{% endif %}}"), Ok("none"));
        }
        check("{{ bos_token }}{{ eos_token }}{{ pad_token }}", Ok("<s><pad>"));
    }

    #[test]
    fn further_variables_win_over_special_tokens_only() {
        let thinks = "{% if enable_thinking is defined and enable_thinking is false %}no{% else %}yes{% endif %}";
        check(thinks, Ok("yes"));
        check_with(r#"{"enable_thinking": false}"#, thinks, Ok("no"));
        check_with(r#"{"bos_token": "B", "tools": [1]}"#, "{{ bos_token }}{{ tools is none }}", Ok("BTrue"));
    }

    #[test]
    fn an_answer_may_go_on_from_the_last_message_or_have_no_prompt_for_it() {
        let source =
            "{% for m in messages %}<{{ m.content | trim }}>\n{% endfor %}{% if add_generation_prompt %}go{% endif %}";
        let template = ChatTemplate::new(source, BTreeMap::new()).expect("it compiles");
        let messages = ["hi", " he "].map(|content| ChatMessage { role: "user".into(), content: content.into() });
        let plain = ChatOptions::default();
        let rendered = |options: &ChatOptions| template.render(&messages, options).ok();
        assert_eq!(rendered(&plain).as_deref(), Some("<hi>\n<he>\ngo"));
        let silent = ChatOptions { add_generation_prompt: false, ..plain };
        assert_eq!(rendered(&silent).as_deref(), Some("<hi>\n<he>\n"));
        let onward = ChatOptions { continue_final_message: true, ..silent };
        assert_eq!(rendered(&onward).as_deref(), Some("<hi>\n<he"));
        let nothing = ChatMessage { role: "user".into(), content: " ".into() };
        assert!(template.render(&[nothing], &onward).is_err());
    }

    #[test]
    fn tools_reach_the_template() {
        let template = ChatTemplate::new("{{ tools[0].function.name }}", BTreeMap::new()).expect("it compiles");
        let tools = vec![serde_json::json!({"type": "function", "function": {"name": "look"}})];
        let options = ChatOptions { tools, ..ChatOptions::default() };
        let none: [ChatMessage; 0] = [];
        assert_eq!(template.render(&none, &options).ok().as_deref(), Some("look"));
    }

    #[test]
    fn lists_and_maps_print_as_in_python() {
        let tools = r#"{"given": [{"name": "look", "strict": true, "default": null}]}"#;
        let printed = "[{'name': 'look', 'strict': True, 'default': None}]";
        for source in ["{{ given }}", "{{ '' ~ given }}", "{{ given | string }}", "[{{ given | join }}]"] {
            check_with(tools, source, Ok(printed));
        }
        check_with(tools, "{{ given | tojson }}", Ok(r#"[{"name": "look", "strict": true, "default": null}]"#));
        check_with(tools, "{{ given[0].items() | list | length }}{{ given[0].get('name') }}", Ok("3look"));
        check_with(tools, "{% if given == [{'name': 'look', 'strict': true, 'default': none}] %}y{% endif %}", Ok("y"));
        check("{{ messages[0] }}", Ok("{'role': 'user', 'content': ' hi '}"));
    }

    #[test]
    fn operators_are_those_of_python() {
        check("{{ '%s is %d' % (messages[0].role, 3) }} {{ '%s' % messages[0].role }}", Ok("user is 3 user"));
        check("{{ '' ~ ['a', none] ~ [1] }}{{ 1.0 ~ true }}", Ok("['a', None][1]1.0True"));
        check("{% set l = messages | map(attribute='role') | list %}{{ 'r: ' ~ l }}", Ok("r: ['user', 'assistant']"));
        check("{% for m in messages %}{{ loop.index0 % 2 }}{% endfor %}{{ -7 % 3 }}", Ok("012"));
        check("{{ '%d' % 'x' }}", Err("a real number is required"));
    }

    #[test]
    fn the_line_end_behind_raw_stays() {
        check("{% raw %}\n{{ x }}\n{% endraw %}\ny", Ok("\n{{ x }}\ny"));
        check("{% raw -%}\n x{% endraw %}", Ok("x"));
    }

    #[test]
    fn conversations_without_tools_render_where_templates_ask_whether_tools_can_be_counted() {
        check("{% if tools is iterable and tools | length > 0 %}tools{% endif %}none", Ok("none"));
    }

    #[test]
    fn an_endless_template_is_stopped() {
        check(
            "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}x{% endfor %}{% endfor \
             %}{% endfor %}",
            Err(""),
        );
    }
}
