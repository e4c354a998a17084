//! Placeholders in place of values: for the reader to replace, or for a template or another program
//! to fill in.

/// Whether a word is certainly a placeholder, whatever flag it follows: an ellipsis, `<model>`,
/// `[EAGLE|NGRAM]`. JSON has quotes or digits after its bracket.
pub fn is_placeholder(word: &str) -> bool {
    let is_inside = |open: char, close: char| {
        word.strip_prefix(open).and_then(|rest| rest.strip_suffix(close)).is_some_and(begins_as_name)
    };
    // A pipe between two names ends the first word.
    let is_opened = word.strip_prefix(['[', '<']).is_some_and(begins_as_name);
    is_ellipsis(word) || is_opened || is_inside('{', '}')
}

/// Whether a word is the first one of a placeholder of several words: `[your model]`,
/// `{your model}`.
pub fn opens_placeholder(word: &str) -> bool {
    [('[', ']'), ('{', '}')].iter().any(|(open, close)| {
        word.strip_prefix(*open).is_some_and(|rest| begins_as_name(rest) && !rest.contains([*close, ',']))
    })
}

/// Whether a word is the ellipsis of documentation, for omitted text.
pub fn is_ellipsis(word: &str) -> bool {
    word == "…" || (word.len() > 2 && word.bytes().all(|byte| byte == b'.'))
}

/// Whether a text is cut short in documentation, or left to a template.
pub fn has_ellipsis(text: &str) -> bool {
    ["...", "…", "{{"].iter().any(|mark| text.contains(mark))
}

/// Whether a text is cut short, or contains a `<name>` for the reader to replace.
pub fn is_cut(text: &str) -> bool {
    let is_name = |inside: &str| {
        let in_name = |letter: char| letter.is_ascii_alphanumeric() || " _-/.|".contains(letter);
        begins_as_name(inside) && inside.chars().all(in_name)
    };
    has_ellipsis(text)
        || text.split('<').skip(1).any(|rest| rest.split_once('>').is_some_and(|(inside, _)| is_name(inside)))
}

/// Whether a value of several words names what the reader puts there: `your port`, `<your port>`,
/// `http://your host`.
pub fn is_readers_own(value: &str) -> bool {
    let is_own = |text: &str| ["your ", "Your ", "YOUR "].iter().any(|own| text.starts_with(own));
    // Most values have one word.
    value.contains(' ')
        && (is_own(value.trim_start_matches(['<', '[', '{']))
            || value.match_indices(':').any(|(at, _)| value.get(at + 1..).is_some_and(is_own)))
}

fn begins_as_name(inside: &str) -> bool {
    inside.starts_with(|first: char| first.is_ascii_alphabetic()) && !inside.contains(['"', '\'', ':'])
}

/// Whether a text contains non-ASCII characters and no digit: a word of a page in place of the
/// reader's value.
fn is_word_of_page(text: &str) -> bool {
    !text.is_ascii() && !text.bytes().any(|byte| byte.is_ascii_digit())
}

/// Whether a word is not the value itself: a shell's pattern (`{1..8}`), a placeholder (`N`, `[N]`,
/// `0.xx`, a word of a page in another script), something that a program fills in (`%d`, `%PORT%`,
/// `@port@`), several alternatives (`1/2/4`), or what is left of an escape that another program
/// reads first.
pub fn may_replace_value(text: &str) -> bool {
    is_word_of_page(text)
        || text.contains(['，', '；', '。', '：', '（', '、'])
        || text.contains(['{', '}', '[', ']', '<', '>', '*', '?', '$', '…', '«', '»'])
        || text.contains("...")
        || text.starts_with(char::is_whitespace)
        || (!text.is_empty() && text.bytes().all(|byte| byte == b'\\'))
        || text.starts_with(['%', '@', '#', '~', '≈', '≥', '≤'])
        || ["your", "my_", "my-", "some_", "some-", "the_", "the-"].iter().any(|own| text.starts_with(own))
        || is_upper(text)
        || is_crossed_out(text)
        || is_choice(text)
}

/// Whether a word after a flag that takes a number is a placeholder: in addition a name of several
/// words (`num_gpus`), and a part of the flag's name (`--max-model-len length`).
pub fn may_replace_number(flag: &str, text: &str) -> bool {
    let is_name = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte));
    let mut words = flag.trim_start_matches('-').split(['-', '_']).filter(|word| word.len() > 2);
    let is_own = text.len() > 2 && words.any(|word| word.starts_with(text) || text.starts_with(word));
    let starts = text.starts_with(|letter: char| letter.is_ascii_lowercase());
    may_replace_value(text) || (starts && is_name && (text.contains(['_', '-']) || is_own))
}

/// Whether a word is a name in capitals: `N`, `TP_SIZE`, `N/A`.
fn is_upper(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_uppercase() || b"_/".contains(&byte))
}

/// Whether digits are replaced by the letter `x`: `80xx`, `0.xx`.
fn is_crossed_out(text: &str) -> bool {
    let in_number = |byte: u8| byte.is_ascii_digit() || b".xX".contains(&byte);
    let crosses = text.bytes().filter(|byte| byte.eq_ignore_ascii_case(&b'x')).count();
    crosses > 1 && text.bytes().all(in_number)
}

/// Whether a text is a number, with a unit or without one.
fn is_number(text: &str) -> bool {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    text.len() - digits.len() <= 2 && digits.parse::<f64>().is_ok()
}

/// Whether a text is a list of alternative numbers, or a range: `1/2/4`, `1|2`, `0.8-0.9`,
/// `32k–128k`.
fn is_choice(text: &str) -> bool {
    let is_several = |parts: Vec<&str>| parts.len() > 1 && parts.iter().all(|part| is_number(part.trim()));
    let signs = ["/", "|", "–", "—", "~", "-", ".."];
    text.parse::<f64>().is_err() && signs.iter().any(|sign| is_several(text.split(sign).collect()))
}

/// Whether JSON that cannot be parsed has a placeholder at the position of the error: a value that
/// is a name in capitals, a single letter, or something that another program fills in. Python's
/// `True` and quoted names are not placeholders.
pub(super) fn is_in_json(text: &str, at: usize) -> bool {
    let (Some(before), Some(rest)) = (text.get(..at), text.get(at..)) else { return false };
    // The parser may stop within the word.
    let start = before
        .rfind(|letter: char| !is_in_name(letter))
        .map_or(0, |last| last + before.get(last..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8));
    let word = text.get(start..).unwrap_or(rest);
    let word = word.split([',', '}', ']']).next().unwrap_or_default().trim();
    let is_value = text.get(..start).unwrap_or_default().trim_end().ends_with([':', '[', ',']);
    let is_letter = word.len() == 1 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_value && !word.is_empty() && (is_letter || word.starts_with('_') || may_replace_json(word))
}

/// As [`may_replace_value`], without what is JSON's own or a shell's that single quotes keep from
/// being filled in.
fn may_replace_json(word: &str) -> bool {
    !word.starts_with(['{', '[', '$', '"', '\'']) && may_replace_value(word)
}

fn is_in_name(letter: char) -> bool {
    letter.is_alphanumeric() || "_%@#".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_stated_from_values() {
        for text in [
            "N",
            "N/A",
            "TP_SIZE",
            "%d",
            "%(tp)s",
            "%PORT%",
            "%%i",
            "@port@",
            "<n>",
            "{tp}",
            "[1,2]",
            "xxxx",
            "80xx",
            "0.xx",
            "X",
            "1/2/4",
            "1|2",
            "0.8-0.95",
            "0.8–0.95",
            "32k-128k",
            "~8000",
            "#GPUs",
            "卡数",
            "$(n)",
        ] {
            assert!(may_replace_value(text), "{text}");
        }
        for text in ["two", "8000", "-1", "1e-5", "0x10", "2,200", "90%", "8k", "auto", "1,", "tp2", "a/b"] {
            assert!(!may_replace_value(text), "{text}");
        }
    }

    #[test]
    fn placeholders_in_json_are_stated_from_mistakes() {
        for text in [r#"{"n": N}"#, r#"{"n": n, "m": 1}"#, r#"{"n": __N__}"#, r#"{"n": %d}"#, r#"{"n":@n@}"#] {
            let error = serde_json::from_str::<serde_json::Value>(text).expect_err(text);
            assert!(is_in_json(text, error.column() - 1), "{text}");
        }
        for text in [r#"{"n": True}"#, "{n: 3}", r#"{"n": three}"#, r#"{'n': 3}"#, r#"{"n": 3 "m": N}"#, r#"{"n": $N}"#]
        {
            let error = serde_json::from_str::<serde_json::Value>(text).expect_err(text);
            assert!(!is_in_json(text, error.column() - 1), "{text}");
        }
    }
}
