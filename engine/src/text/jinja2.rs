//! What Jinja2 and Python's strings offer to chat templates in addition to Jinja in Rust, and where
//! the two differ.

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    value::{Kwargs, Rest, ValueKind, from_args},
};
use minijinja_contrib::pycompat;

use super::{operators, percent, python, python_values};

/// Longest text that a filter fills up with spaces or zeros.
const WIDEST: usize = 1 << 16;

/// Adds tests, filters and methods to an environment.
pub fn add(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(method);
    environment.set_formatter(python_values::format);
    environment.add_filter("string", python_values::to_text);
    environment.add_filter("tojson", python::to_json);
    environment.add_filter(operators::REMAINDER, percent::remainder);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("center", |text: &str, width: Option<usize>| center(text, width.unwrap_or(80)));
    environment.add_filter("truncate", truncate);
    environment.add_filter("wordcount", |text: &str| words(text).count());
    // None cannot be iterated over, but texts and undefined values can.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: &Value| {
        use ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(value.kind(), String | Seq | Map | Iterable | Undefined)
    });
}

/// The number of characters or items; 0 of an undefined value.
fn length(value: &Value) -> Result<usize, Error> {
    match value.len() {
        Some(length) => Ok(length),
        None if value.is_undefined() => Ok(0),
        // Slices.
        None if value.kind() == ValueKind::Iterable => Ok(value.try_iter()?.count()),
        None => {
            let reason = format!("a value of type {} has no length", value.kind());
            Err(Error::new(ErrorKind::InvalidOperation, reason))
        }
    }
}

/// Methods of Python's strings and lists.
fn method(state: &State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return match (value.kind(), name) {
            (ValueKind::Seq | ValueKind::Iterable, "index") => {
                let (item,): (&Value,) = from_args(args)?;
                let at = value.try_iter()?.position(|other| other == *item);
                at.map(Value::from).ok_or_else(|| missing("the item", "the list"))
            }
            _ => pycompat::unknown_method_callback(state, value, name, args),
        };
    };
    let one = || {
        let (argument,): (&str,) = from_args(args)?;
        Ok::<_, Error>(argument)
    };
    Ok(match name {
        "removeprefix" => text.strip_prefix(one()?).unwrap_or(text).into(),
        "removesuffix" => text.strip_suffix(one()?).unwrap_or(text).into(),
        "partition" => {
            let (before, separator, after) = around(text, text.find(separator(one()?)?), one()?, (text, "", ""));
            [before, separator, after].into_iter().collect()
        }
        "rpartition" => {
            let (before, separator, after) = around(text, text.rfind(separator(one()?)?), one()?, ("", "", text));
            [before, separator, after].into_iter().collect()
        }
        "index" => character_index(text, text.find(one()?))?,
        "rindex" => character_index(text, text.rfind(one()?))?,
        "rsplit" => rsplit(text, args)?,
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let digits = text.trim_start_matches(['+', '-']);
            let sign = &text[..(text.len() - digits.len()).min(1)];
            let zeros = checked(width)?.saturating_sub(text.chars().count());
            format!("{sign}{}{}", "0".repeat(zeros), &text[sign.len()..]).into()
        }
        _ => return pycompat::unknown_method_callback(state, value, name, args),
    })
}

fn missing(what: &str, place: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("index: {what} is not in {place}"))
}

fn separator(text: &str) -> Result<&str, Error> {
    let empty = || Error::new(ErrorKind::InvalidOperation, "the separator is empty");
    if text.is_empty() { Err(empty()) } else { Ok(text) }
}

fn checked(width: usize) -> Result<usize, Error> {
    let wide = || Error::new(ErrorKind::InvalidOperation, format!("the width is {width}, expected at most {WIDEST}"));
    if width > WIDEST { Err(wide()) } else { Ok(width) }
}

/// The texts before, of and after a separator at a place.
fn around<'a>(
    text: &'a str,
    at: Option<usize>,
    separator: &'a str,
    none: (&'a str, &'a str, &'a str),
) -> (&'a str, &'a str, &'a str) {
    at.map_or(none, |at| (&text[..at], separator, &text[at + separator.len()..]))
}

fn character_index(text: &str, at: Option<usize>) -> Result<Value, Error> {
    at.map(|at| text[..at].chars().count().into()).ok_or_else(|| missing("the text", "the string"))
}

/// `rsplit(sep=None, maxsplit=-1)`.
fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (by, most, options): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
    let by = by.or(options.get("sep")?);
    let most = most.or(options.get("maxsplit")?).and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    options.assert_all_used()?;
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = text;
    match by {
        Some(by) => {
            separator(by)?;
            while let Some((before, after)) = rest.rsplit_once(by).filter(|_| parts.len() < most) {
                parts.push(after);
                rest = before;
            }
            parts.push(rest);
        }
        None => {
            rest = rest.trim_end();
            while let Some((before, after)) = rest.rsplit_once(char::is_whitespace).filter(|_| parts.len() < most) {
                parts.push(after);
                rest = before.trim_end();
            }
            // White space at the start separates nothing.
            parts.extend(Some(rest).filter(|rest| !rest.is_empty()));
        }
    }
    Ok(parts.into_iter().rev().collect())
}

fn center(text: &str, width: usize) -> Result<String, Error> {
    let spaces = checked(width)?.saturating_sub(text.chars().count());
    // As Python: of an odd number, the left side has more if the width is odd.
    let left = spaces / 2 + (spaces & width & 1);
    Ok(format!("{}{text}{}", " ".repeat(left), " ".repeat(spaces - left)))
}

/// `truncate(length=255, killwords=False, end='...', leeway=5)`.
fn truncate(text: &str, args: Rest<Value>) -> Result<String, Error> {
    let parsed: (Option<usize>, Option<bool>, Option<String>, Option<usize>, Kwargs) = from_args(&args)?;
    let (length, kill, end, leeway, options) = parsed;
    let length = length.or(options.get("length")?).unwrap_or(255);
    let kill = kill.or(options.get("killwords")?).unwrap_or(false);
    let end = end.or(options.get("end")?).unwrap_or_else(|| "...".into());
    let leeway = leeway.or(options.get("leeway")?).unwrap_or(5);
    options.assert_all_used()?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text.to_owned());
    }
    let kept: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    let kept = if kill { &kept } else { kept.rsplit_once(' ').map_or(kept.as_str(), |(before, _)| before) };
    Ok(format!("{kept}{end}"))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    text.split(move |character| !is_word(character)).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> Result<String, String> {
        let mut environment = Environment::new();
        add(&mut environment);
        environment.render_str(source, ()).map_err(|error| error.to_string())
    }

    fn check(source: &str, expected: &str) {
        assert_eq!(render(source).as_deref(), Ok(expected), "{source}");
    }

    #[test]
    fn tests_of_kinds_and_lengths_are_those_of_jinja2() {
        for (value, iterable, sequence) in [
            ("none", false, false),
            ("3", false, false),
            ("true", false, false),
            ("'abc'", true, true),
            ("[1]", true, true),
            ("{'a': 1}", true, true),
            ("[1, 2][1:]", true, true),
            ("missing", true, true),
        ] {
            let found = render(&format!("{{{{ {value} is iterable }}}} {{{{ {value} is sequence }}}}"));
            let name = |is: bool| if is { "True" } else { "False" };
            assert_eq!(found, Ok(format!("{} {}", name(iterable), name(sequence))), "{value}");
        }
        check("{{ missing | length }} {{ [1, 2, 3][1:] | length }} {{ 'añb' | count }}", "0 2 3");
        assert!(render("{{ none | length }}").is_err_and(|error| error.contains("has no length")));
    }

    #[test]
    fn lists_and_maps_print_as_in_python() {
        check("{{ ['a', none, true] }} {{ {'a': [1.0]} | string }}", "['a', None, True] {'a': [1.0]}");
        check("{{ ['a', none] | tojson }}", r#"["a", null]"#);
        check("{{ ['a'] + ['b'] }} {{ ['a', 'b', 'c'][1:] }}", "['a', 'b'] ['b', 'c']");
    }

    #[test]
    fn strings_have_the_methods_of_python() {
        check("{{ 'a.b.c'.rsplit('.', 1) }} {{ 'a.b.c'.rsplit('.') }}", "['a.b', 'c'] ['a', 'b', 'c']");
        check("{{ ' a  b c '.rsplit() }} {{ ' a  b c '.rsplit(none, 1) }}", "['a', 'b', 'c'] [' a  b', 'c']");
        check("{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('a') }}", "bc abc");
        check("{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }}", "['a', '=', 'b=c'] ['a=b', '=', 'c']");
        check("{{ 'ab'.partition('=') }} {{ 'ab'.rpartition('=') }}", "['ab', '', ''] ['', '', 'ab']");
        check("{{ 'éab'.index('b') }} {{ [3, 4].index(4) }}", "2 1");
        check("{{ '7'.zfill(3) }} {{ '-7'.zfill(3) }} {{ 'abcd'.zfill(3) }}", "007 -07 abcd");
        for wrong in
            ["{{ 'ab'.index('c') }}", "{{ [1].index(2) }}", "{{ 'a'.partition('') }}", "{{ 'a'.zfill(9999999) }}"]
        {
            assert!(render(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn filters_of_jinja2_exist() {
        check("{{ 'one two, three_4' | wordcount }}", "3");
        check("[{{ 'ab' | center(5) }}] [{{ 'abc' | center(6) }}]", "[  ab ] [ abc  ]");
        check("{{ 'foo bar baz qux' | truncate(9) }}", "foo...");
        check("{{ 'foo bar baz qux' | truncate(9, true) }}", "foo ba...");
        check("{{ 'foo bar baz qux' | truncate(11) }}", "foo bar baz qux");
        check("{{ 'foo bar baz qux' | truncate(11, leeway=0, end='!') }}", "foo bar!");
    }
}
