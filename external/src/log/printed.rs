//! Values that a Python program printed: literals, JSON, and calls of classes with keywords.

use serde_json::{Map, Number, Value};

/// Nested values beyond this depth are not read.
const DEEPEST: usize = 32;

/// The mapping at the start of a text, `{'name': value}` or `Name(name=value)`: of a line that is
/// cut off, or of which a part is not understood, the entries before it.
pub(super) fn mapping(text: &str) -> Map<String, Value> {
    let mut reader = Reader { rest: text, depth: 0 };
    reader.value().map_or_else(|partial| partial, Some).and_then(as_object).unwrap_or_default()
}

fn as_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(entries) => Some(entries),
        _ => None,
    }
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

/// A value, or what was read of it before the text ended or was not understood.
type Read = Result<Value, Option<Value>>;

impl Reader<'_> {
    fn value(&mut self) -> Read {
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next().ok_or(None)?;
        match first {
            '\'' | '"' => self.string().map(Value::String).ok_or(None),
            '[' => self.items(']'),
            '(' => self.items(')'),
            '{' => self.items('}'),
            '<' => self.object_address().ok_or(None),
            '-' | '0'..='9' | '.' => self.number().ok_or(None),
            _ if first.is_alphabetic() || first == '_' => self.word(),
            _ => Err(None),
        }
    }

    fn take(&mut self, symbol: char) -> bool {
        let rest = self.rest.trim_start();
        let found = rest.strip_prefix(symbol);
        self.rest = found.unwrap_or(rest);
        found.is_some()
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let mut text = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => text.push(match letters.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    other => other,
                }),
                _ if letter == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Some(text);
                }
                _ => text.push(letter),
            }
        }
        None
    }

    fn number(&mut self) -> Option<Value> {
        let end = self.rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || "+-._".contains(letter)));
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let whole = number.parse::<u64>().map(Number::from).or_else(|_| number.parse::<i64>().map(Number::from));
        // JSON has no infinite numbers.
        whole.map_or_else(|_| Some(number.parse::<f64>().ok()?.into()), |whole| Some(Value::Number(whole)))
    }

    /// `<Name object at 0x7f…>`, `<Kind.FULL: 'full'>`.
    fn object_address(&mut self) -> Option<Value> {
        let end = self.rest.find('>')?;
        self.rest = &self.rest[end + 1..];
        Some(Value::Null)
    }

    /// A constant, a name such as `torch.float16`, or a call.
    fn word(&mut self) -> Read {
        let end = self.rest.find(|letter: char| !(letter.is_alphanumeric() || "_.".contains(letter)));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        if rest.starts_with('(') {
            return self.items(')').map(named).map_err(|partial| partial.map(named));
        }
        Ok(match word {
            "True" | "true" => Value::Bool(true),
            "False" | "false" => Value::Bool(false),
            "None" | "null" | "nan" | "inf" => Value::Null,
            _ => Value::String(word.to_owned()),
        })
    }

    /// Items in brackets: an object if they have names or keys, else a list.
    fn items(&mut self, end: char) -> Read {
        self.rest = &self.rest[1..];
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(None);
        }
        let (mut entries, mut list) = (Map::new(), Vec::new());
        let mut is_whole = false;
        loop {
            if self.take(end) {
                is_whole = true;
                break;
            }
            let Ok(item) = self.value() else { break };
            if self.take(':') || self.take('=') {
                let name = item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                let Ok(value) = self.value() else { break };
                entries.insert(name, value);
            } else {
                list.push(item);
            }
            if !self.take(',') {
                is_whole = self.take(end);
                break;
            }
        }
        self.depth -= 1;
        let is_mapping = !entries.is_empty() || (end == '}' && list.is_empty());
        let read = if is_mapping { Value::Object(entries) } else { Value::Array(list) };
        if is_whole { Ok(read) } else { Err(Some(read)) }
    }
}

/// A call without keywords is an object without entries.
fn named(arguments: Value) -> Value {
    if arguments.is_object() { arguments } else { Value::Object(Map::new()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn literals_json_and_calls_are_read() {
        let expected = json!({
            "text": "it's, a)", "list": [1, 2], "pair": [-1, 0.5], "on": true, "off": false, "none": null,
            "inner": {"decode": {"bs": [4], "backend": null}}, "dtype": "torch.float16", "empty": {}, "nothing": [],
        });
        for text in [
            "ServerArgs(text=\"it's, a)\", list=[1, 2], pair=(-1, 0.5), on=True, off=False, none=None, \
             inner=Config(decode=Phase(bs=[4], backend=<Backend.FULL: 'full'>)), dtype=torch.float16, empty={}, nothing=[])",
            "{'text': 'it\\'s, a)', 'list': [1, 2], 'pair': (-1, 0.5,), 'on': True, 'off': False, 'none': None, \
             'inner': {'decode': {'bs': [4], 'backend': None}}, 'dtype': 'torch.float16', 'empty': {}, 'nothing': []} and more",
            r#"{"text": "it's, a)", "list": [1, 2], "pair": [-1, 0.5], "on": true, "off": false, "none": null,
                "inner": {"decode": {"bs": [4], "backend": null}}, "dtype": "torch.float16", "empty": {}, "nothing": []}"#,
        ] {
            assert_eq!(Value::Object(mapping(text)), expected, "{text}");
        }
    }

    #[test]
    fn what_comes_before_a_cut_or_an_unknown_form_is_kept() {
        for text in ["{'a': 1, 'b': [1, 2", "A(a=1, b='x", "A(a=1, b=@, c=2)", "{'a': 1, 'b'", "A(a=1, "] {
            assert_eq!(Value::Object(mapping(text)), json!({"a": 1}), "{text}");
        }
        let deep = "{'a': ".repeat(100_000) + &"[".repeat(100_000);
        for text in ["", "x", "3", "[1]", "{", "A(", "\\", "'", &deep] {
            assert!(mapping(text).is_empty(), "{}", &text[..text.len().min(20)]);
        }
    }
}
