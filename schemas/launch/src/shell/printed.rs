//! Substitutions that print a here-document: `$(cat <<EOF … EOF)`.

use schemas::text::Span;

use super::{HereDocument, WordPart};

/// The here-document that a substitution prints. `inside` is the text of the substitution, which
/// starts at offset `start`; `quoted` whether it is in double quotes.
pub(super) fn printed<'a>(inside: &str, start: usize, quoted: bool) -> Option<WordPart<'a>> {
    let (command, rest) = inside.split_once("<<")?;
    let (rest, strips_tabs) = rest.strip_prefix('-').map_or((rest, false), |rest| (rest, true));
    let (first, lines) = rest.split_once('\n')?;
    let first = first.trim_start_matches([' ', '\t']);
    let width = first.find([' ', '\t', '|', '\r', ';']).unwrap_or(first.len());
    let (written, later) = first.split_at_checked(width)?;
    let delimiter = written.trim_matches(['"', '\'']).trim_start_matches('\\');
    let is_name = !delimiter.is_empty() && delimiter.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if command.trim() != "cat" || !is_name || !keeps_words(later) {
        return None;
    }
    let body_start = inside.len() - lines.len();
    let mut at = 0;
    for line in lines.split_inclusive('\n') {
        let text = line.trim_end_matches(['\n', '\r']);
        let text = if strips_tabs { text.trim_start_matches('\t') } else { text };
        if text == delimiter {
            let is_all = lines.get(at + line.len()..).is_some_and(|rest| rest.trim().is_empty());
            let body = Span::new(start + body_start, start + body_start + at);
            return is_all.then_some(WordPart::Printed {
                body,
                is_verbatim: written != delimiter,
                strips_tabs,
                quoted,
            });
        }
        at += line.len();
    }
    None
}

/// Whether the commands that the document is piped through leave its words as they are: those that
/// put blanks in place of the ends of lines.
fn keeps_words(later: &str) -> bool {
    let later = later.trim();
    let command = later.strip_prefix('|').map(str::trim_start);
    later.is_empty()
        || command.is_some_and(|command| command == "xargs" || (command.starts_with("tr ") && command.ends_with("' '")))
}

/// The here-document of a part that prints one.
pub(crate) fn document<'a>(body: Span, is_verbatim: bool, strips_tabs: bool) -> HereDocument<'a> {
    HereDocument { body, is_quoted: is_verbatim, strips_tabs, stages: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(inside: &str) -> Option<String> {
        match printed(inside, 0, false)? {
            WordPart::Printed { body, .. } => inside.get(body.range()).map(str::to_owned),
            _ => None,
        }
    }

    #[test]
    fn only_a_document_that_cat_prints_whole_is_read() {
        assert_eq!(body("cat <<EOF\n--a 1\n--b\nEOF\n").as_deref(), Some("--a 1\n--b\n"));
        assert_eq!(body(" cat <<-'X'\n\t--a\n\tX\n").as_deref(), Some("\t--a\n"));
        assert_eq!(body("cat << \"EOF\" | tr '\\n' ' '\n--a\nEOF").as_deref(), Some("--a\n"));
        for other in ["cat <<EOF | grep a\n--a\nEOF\n", "cat <<EOF\n--a\n", "cat <<EOF\n--a\nEOF\nls\n", "cat <<<a\nb"]
        {
            assert_eq!(body(other), None, "{other}");
        }
    }
}
