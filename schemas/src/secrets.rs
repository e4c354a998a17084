//! Secret values of commands and environments: what counts as one, and how they are hidden wherever
//! a command, an environment or a server's answer is shown or stored.
//!
//! Names decide: environment variables whose name contains KEY, TOKEN, SECRET or PASSWORD, or the
//! word PASS, PAT or CRED, and flags such as `--api-key` and `--hf-token`; also passwords in URLs.
//! Where a text comes from elsewhere, such as a server's log, the [`Secrets`] of its command are
//! searched for by value.

use serde_json::Value;

use crate::text::is_variable_name;

/// What is shown instead of a secret value.
pub const HIDDEN: &str = "***";

/// Parts of the name of an environment variable that holds a secret.
const PARTS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// Words of the name of an environment variable that holds a secret.
const WORDS: [&str; 5] = ["PASS", "PAT", "CRED", "CREDS", "PASSPHRASE"];
/// Last words of the name of a flag whose value is a secret.
const LAST_WORDS: [&str; 9] =
    ["key", "keys", "apikey", "token", "secret", "password", "passwd", "passphrase", "credentials"];
/// Shortest value that is searched for in texts: shorter ones would hide parts of ordinary words.
const SHORTEST: usize = 4;

/// Whether the value of an environment variable is a secret.
pub fn is_secret_variable(name: &str, value: &str) -> bool {
    let name = name.to_uppercase();
    // Counts of tokens and switches of tokenizers are no secrets.
    let counts = ["TOKENS", "TOKENIZER"].iter().fold(name.clone(), |rest, word| rest.replace(word, ""));
    let is_plain = value.parse::<f64>().is_ok() || matches!(value, "true" | "false" | "True" | "False");
    let searched = if is_plain { &counts } else { &name };
    PARTS.iter().any(|part| searched.contains(part))
        || searched.split('_').any(|word| WORDS.contains(&word))
        || without_password(value, &mut Vec::new()) != value
}

/// Whether the value of a flag, or of the key of a JSON object, is a secret. Leading dashes do not
/// matter.
pub fn is_secret_flag(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_lowercase().replace('_', "-");
    let last = name.rsplit(['-', '.']).next().unwrap_or_default();
    LAST_WORDS.contains(&last)
}

/// The value of an environment variable as it may be shown.
pub fn masked_value<'a>(name: &str, value: &'a str) -> &'a str {
    if is_secret_variable(name, value) && !value.is_empty() { HIDDEN } else { value }
}

/// The words of a command as they may be shown.
pub fn masked_words(words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    scan(words, &mut found)
}

/// A shell text as it may be shown: assignments, flags and `Bearer` headers are recognised by their
/// names.
pub fn masked_text(text: &str) -> String {
    let mut found = Vec::new();
    scan_text(text, &mut found)
}

/// Lines of a file as they may be shown, each byte of a secret replaced by a star: places in the
/// text stay what they are.
pub fn starred(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let mut found = Vec::new();
        scan_text(line, &mut found);
        // A variable is not a secret, only its value is.
        found.retain(|value| value.len() >= SHORTEST && !value.starts_with('$') && value != HIDDEN);
        found.iter().fold(line.to_owned(), |line, value| line.replace(value, &"*".repeat(value.len())))
    });
    lines.collect()
}

/// A JSON value as it may be shown: values of secret keys are hidden, and texts are read as
/// commands.
pub fn masked_json(value: &Value) -> Value {
    let mut found = Vec::new();
    scan_json(value, &mut found)
}

/// The secret values of a command and its environment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Those of the words of a command and of environment variables.
    pub fn from_words<'a>(words: &[String], environment: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut found = Vec::new();
        scan(words, &mut found);
        let secret = |(name, value): &(&str, &str)| is_secret_variable(name, value);
        found.extend(environment.into_iter().filter(secret).map(|(_, value)| value.to_owned()));
        found.retain(|value| value.len() >= SHORTEST && value != HIDDEN);
        // A value that contains another one is hidden first, so that nothing of it is left.
        found.sort_by(|one, other| other.len().cmp(&one.len()).then(one.cmp(other)));
        found.dedup();
        Self(found)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A text with every occurrence of a value hidden.
    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, value| text.replace(value, HIDDEN))
    }
}

impl std::fmt::Debug for Secrets {
    /// The number of values, not the values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// Masks the words of a command, and adds the values to `found`.
fn scan(words: &[String], found: &mut Vec<String>) -> Vec<String> {
    let mut after_flag = false;
    let mut masked = Vec::with_capacity(words.len());
    for word in words {
        // A flag may take several keys: all words up to the next flag are its values.
        if after_flag && !word.starts_with('-') {
            masked.push(hide(word, found));
            continue;
        }
        after_flag = word.starts_with('-') && !word.contains('=') && is_secret_flag(word);
        masked.push(if word.trim().contains(char::is_whitespace) {
            scan_text(word, found)
        } else {
            scan_word(word, found)
        });
    }
    masked
}

/// Masks a single word: `--flag=value`, `NAME=value`, `--env=NAME=value`, a JSON object, a URL with
/// a password.
fn scan_word(word: &str, found: &mut Vec<String>) -> String {
    if word.starts_with('{')
        && let Ok(value @ Value::Object(_)) = serde_json::from_str::<Value>(word)
    {
        let masked = scan_json(&value, found);
        return if masked == value { word.to_owned() } else { masked.to_string() };
    }
    // In a URL, `=` separates a parameter.
    let assigned = word
        .split_once('=')
        .filter(|(name, _)| name.starts_with('-') || is_variable_name(name.trim_start_matches(['"', '\''])));
    let Some((name, value)) = assigned else { return without_password(word, found) };
    // What ends a command or an argument does not belong to the value.
    let (value, end) = value.split_at(value.trim_end_matches([';', ',', ')']).len());
    let plain = unquoted(value);
    let is_secret = match name.starts_with('-') {
        true => is_secret_flag(name),
        false => is_secret_variable(name, plain),
    };
    match is_secret && !plain.is_empty() {
        true => format!("{name}={}{end}", hide(plain, found)),
        false => format!("{name}={}{end}", scan_word(value, found)),
    }
}

/// Masks a text word by word, keeping the blanks between them.
fn scan_text(text: &str, found: &mut Vec<String>) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    let (mut after_flag, mut in_list) = (false, false);
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start().len();
        masked.push_str(&rest[..blanks]);
        rest = &rest[blanks..];
        let length = word_length(rest);
        let (word, after) = rest.split_at(length);
        rest = after;
        if word.is_empty() {
            break;
        }
        let bare = word.trim_matches(['"', '\'', ',', ';', ')', '(']);
        let is_flag = bare.starts_with('-');
        after_flag &= !matches!(word, "&&" | "||" | "|" | "&" | ";" | ">" | ">>" | "<" | "2>&1");
        if after_flag && !is_flag && bare != "\\" {
            masked.push_str(&word.replacen(bare, &hide(bare, found), 1));
            // Only a flag takes several values; a header has one.
            after_flag = in_list && !word.ends_with([';', ',']);
            continue;
        }
        if bare != "\\" {
            let is_bearer = bare.eq_ignore_ascii_case("bearer");
            in_list = is_flag && !bare.contains('=') && is_secret_flag(bare);
            after_flag = is_bearer || in_list;
        }
        masked.push_str(&scan_word(word, found));
    }
    masked
}

/// Length in bytes of the first word; a quoted part belongs to it with its blanks.
fn word_length(text: &str) -> usize {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), character) if open == character => quote = None,
            (Some(_), _) => {}
            // A quote at the start is a quoted text that may hold several words.
            (None, '"' | '\'') if at > 0 && text[..at].ends_with('=') => quote = Some(character),
            (None, character) if character.is_whitespace() => return at,
            (None, _) => {}
        }
    }
    text.len()
}

fn scan_json(value: &Value, found: &mut Vec<String>) -> Value {
    match value {
        Value::Object(map) => {
            let field = |(name, value): (&String, &Value)| {
                let is_secret = is_secret_flag(name) && !matches!(value, Value::Null | Value::Bool(_));
                let masked = match (is_secret, value) {
                    (true, Value::String(text)) if text.is_empty() => value.clone(),
                    (true, Value::String(text)) => Value::String(hide(text, found)),
                    (true, _) => Value::String(HIDDEN.to_owned()),
                    (false, _) => scan_json(value, found),
                };
                (name.clone(), masked)
            };
            Value::Object(map.iter().map(field).collect())
        }
        Value::Array(items) if items.iter().all(Value::is_string) && !items.is_empty() => {
            let words: Vec<String> = items.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            scan(&words, found).into_iter().map(Value::String).collect()
        }
        Value::Array(items) => items.iter().map(|item| scan_json(item, found)).collect(),
        Value::String(text) => Value::String(scan_text(text, found)),
        other => other.clone(),
    }
}

/// Hides the password of `https://user:password@host`.
fn without_password(word: &str, found: &mut Vec<String>) -> String {
    let mut hidden = || {
        let (scheme, rest) = word.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (user, _) = rest[..end].rsplit_once('@')?;
        let (name, password) = user.split_once(':')?;
        let masked = hide(password, found);
        Some(format!("{scheme}://{name}:{masked}{}", &rest[user.len()..]))
    };
    hidden().unwrap_or_else(|| word.to_owned())
}

fn hide(value: &str, found: &mut Vec<String>) -> String {
    found.push(value.to_owned());
    HIDDEN.to_owned()
}

fn unquoted(value: &str) -> &str {
    let inner = |quote| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn words(text: &[&str]) -> Vec<String> {
        text.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn starred_lines_hide_values_and_keep_every_place() {
        let check = |line: &str, expected: &str| {
            let starred = starred(line);
            assert_eq!((starred.as_str(), starred.len()), (expected, line.len()));
        };
        check("  --api-key sk-very-secret --port 3\n", "  --api-key ************** --port 3\n");
        check("export HF_TOKEN=hf_secret\npython3 x --tp 2\n", "export HF_TOKEN=*********\npython3 x --tp 2\n");
        check("x --api-key $KEY_OF_MINE\n", "x --api-key $KEY_OF_MINE\n");
        check("-H 'Authorization: Bearer sk-four'\n", "-H 'Authorization: Bearer *******'\n");
        check("--model-path m --max-tokens 12\n", "--model-path m --max-tokens 12\n");
    }

    #[test]
    fn names_with_a_telling_word_and_passwords_in_addresses_are_secrets() {
        for (name, value) in
            [("DB_PASS", "x"), ("GITHUB_PAT", "x"), ("CRED", "x"), ("HTTPS_PROXY", "http://u:pw@proxy:3128")]
        {
            assert!(is_secret_variable(name, value), "{name}");
        }
        for (name, value) in
            [("PATTERN", "x"), ("PWD", "/home"), ("HTTPS_PROXY", "http://proxy:3128"), ("PATH", "/bin")]
        {
            assert!(!is_secret_variable(name, value), "{name}");
        }
    }

    #[test]
    fn names_decide_what_is_secret() {
        for (name, value, secret) in [
            ("HF_TOKEN", "abc", true),
            ("OPENAI_API_KEY", "1234", true),
            ("db_password", "x", true),
            ("MY_SECRET_ID", "x", true),
            ("CUDA_VISIBLE_DEVICES", "0", false),
            ("VLLM_MAX_TOKENS", "8192", false),
            ("TOKENIZERS_PARALLELISM", "false", false),
            ("API_TOKENS", "a,b", true),
        ] {
            assert_eq!(is_secret_variable(name, value), secret, "{name}");
        }
        for (flag, secret) in [
            ("--api-key", true),
            ("--admin_api_key", true),
            ("--hf-token", true),
            ("--ssl-keyfile-password", true),
            ("--ssl-keyfile", false),
            ("--speculative-token-map", false),
            ("--max-total-tokens", false),
            ("--tokenizer-path", false),
            ("speculative_num_draft_tokens", false),
        ] {
            assert_eq!(is_secret_flag(flag), secret, "{flag}");
        }
    }

    #[test]
    fn commands_are_shown_without_values() {
        let check = |given: &[&str], expected: &[&str]| assert_eq!(masked_words(&words(given)), expected, "{given:?}");
        check(
            &["vllm", "serve", "m", "--api-key", "one", "two", "--port", "1"],
            &["vllm", "serve", "m", "--api-key", HIDDEN, HIDDEN, "--port", "1"],
        );
        check(&["--api-key=abc", "--port=3"], &["--api-key=***", "--port=3"]);
        check(
            &["docker", "run", "-e", "HF_TOKEN=abc", "--env=HF_TOKEN=abc", "x"],
            &["docker", "run", "-e", "HF_TOKEN=***", "--env=HF_TOKEN=***", "x"],
        );
        check(
            &[
                "bash",
                "-c",
                "export HF_TOKEN='a b'; python3 s.py --api-key abc && curl -H 'Authorization: Bearer x1' u",
            ],
            &["bash", "-c", "export HF_TOKEN=***; python3 s.py --api-key *** && curl -H 'Authorization: Bearer ***' u"],
        );
        check(&["--config", "{\"hf_token\":\"abc\",\"k\":3}"], &["--config", "{\"hf_token\":\"***\",\"k\":3}"]);
        check(&["http://me:abc@host:3/x?q=1"], &["http://me:***@host:3/x?q=1"]);
    }

    #[test]
    fn answers_of_servers_are_shown_without_keys() {
        let answer = json!({"api_key": "abc", "admin_api_key": null, "max_total_num_tokens": 7, "page_size": 1,
                            "launch_command": "python3 -m s --api-key abc --tp 1", "internal_states": [{"api_key": "abc"}]});
        let masked = masked_json(&answer);
        assert!(!masked.to_string().contains("abc"), "{masked}");
        assert_eq!((masked["max_total_num_tokens"].as_u64(), masked["admin_api_key"].is_null()), (Some(7), true));
        assert!(masked["launch_command"].as_str().is_some_and(|text| text.ends_with("--tp 1")), "{masked}");
    }

    #[test]
    fn values_are_hidden_wherever_they_appear() {
        let secrets =
            Secrets::from_words(&words(&["s", "--api-key", "sk-12345"]), [("HF_TOKEN", "hf_abcdef"), ("A", "plain")]);
        let log = "ServerArgs(api_key='sk-12345') 401 for hf_abcdef, plain";
        assert_eq!(secrets.hide(log), "ServerArgs(api_key='***') 401 for ***, plain");
        assert_eq!(format!("{secrets:?}"), "2 secrets");
        assert!(Secrets::from_words(&words(&["--api-key", "***"]), []).is_empty());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ -~ä\\n'\"={}:@/-]{0,60}") {
            let _ = masked_text(&text);
            let _ = masked_words(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        }

        #[test]
        fn a_key_is_never_left(key in "[a-zA-Z0-9_]{6,20}", before in "[a-z ]{0,20}") {
            for text in [format!("{before} HF_TOKEN={key} x"), format!("{before} --api-key {key}"), format!("{before} --api-key={key}")] {
                let masked = masked_text(&text);
                prop_assume!(!before.contains(&key));
                prop_assert!(!masked.contains(&key), "{}", masked);
            }
        }
    }
}
