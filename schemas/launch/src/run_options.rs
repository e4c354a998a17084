//! The options of `docker run` and of the programs with the same command line: the table
//! `data/programs.toml`.

use crate::programs::{self, ProgramRole};

/// Whether a program, with or without its folder, runs containers with Docker's command line.
pub fn is_runtime(program: &str) -> bool {
    programs::has(program, ProgramRole::Runtime)
}

/// The words after `run`, up to the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Names without dashes, one letter each for short options, with their values.
    given: Vec<(String, Option<String>)>,
    /// Index of the image in the words; `None` if there is none.
    pub image: Option<usize>,
}

impl RunOptions {
    /// Reads the words after `run`.
    pub fn parse(words: &[impl AsRef<str>]) -> Self {
        let mut found = Self::default();
        let mut at = 0;
        while let Some(word) = words.get(at).map(AsRef::as_ref) {
            let next = || words.get(at + 1).map(|word| word.as_ref().to_owned());
            let mut took_next = false;
            if let Some(long) = word.strip_prefix("--") {
                let (name, joined) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                took_next = joined.is_none() && !programs::is_run_switch(name);
                found.given.push((name.to_owned(), if took_next { next() } else { joined }));
            } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                // `-it`, `-v A:B`, `-vA:B`, `-itv A:B`.
                let taken = letters.chars().take_while(|letter| programs::is_run_letter(*letter)).count();
                found.given.extend(letters.chars().take(taken).map(|letter| (letter.to_string(), None)));
                // Switches are ASCII, so this is a character's start.
                let mut rest = letters[taken..].chars();
                if let Some(letter) = rest.next() {
                    let joined = rest.as_str();
                    took_next = joined.is_empty();
                    let value = if took_next { next() } else { Some(joined.trim_start_matches('=').to_owned()) };
                    found.given.push((letter.to_string(), value));
                }
            } else {
                found.image = Some(at);
                return found;
            }
            at += if took_next { 2 } else { 1 };
        }
        found
    }

    /// The options as words, without those that `leave_out` names.
    pub fn words(&self, leave_out: &[&str]) -> Vec<String> {
        let kept = self.given.iter().filter(|(name, _)| !leave_out.contains(&name.as_str()));
        let words = kept.flat_map(|(name, value)| {
            let dashes = if name.len() == 1 { "-" } else { "--" };
            let is_switch = programs::is_run_switch(name);
            match value {
                // A switch takes its value only after `=`.
                Some(value) if is_switch => vec![format!("{dashes}{name}={value}")],
                Some(value) => vec![format!("{dashes}{name}"), value.clone()],
                None => vec![format!("{dashes}{name}")],
            }
        });
        words.collect()
    }

    /// All values of an option, by its name or letter, in order.
    pub fn values(&self, option: &str) -> impl Iterator<Item = &str> {
        self.given.iter().filter(move |(name, _)| name == option).filter_map(|(_, value)| value.as_deref())
    }

    /// Whether an option is given, by its name or letter.
    pub fn has(&self, option: &str) -> bool {
        self.given.iter().any(|(name, value)| name == option && value.as_deref() != Some("false"))
    }

    /// The last value of an option.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.given.iter().rev().find(|(name, _)| name == option).and_then(|(_, value)| value.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> RunOptions {
        RunOptions::parse(&text.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn the_image_follows_the_options_and_their_values() {
        for (text, image) in [
            ("--gpus all --rm -it -p 80:80 --ipc=host img --model m", Some(7)),
            ("-d --name x --env A=B img", Some(5)),
            ("-itv /a:/b -eA=1 -p80:80 img --name z", Some(4)),
            ("--init=true --read-only img", Some(2)),
            ("--gpus", None),
            ("-", Some(0)),
            ("", None),
        ] {
            assert_eq!(parse(text).image, image, "{text}");
        }
    }

    #[test]
    fn values_are_read_in_every_spelling() {
        let options = parse("-itv /a:/b --net=host --name x -p80:80 -e=A img --rm");
        let value = |name: &str| options.value(name);
        assert_eq!((value("v"), value("net"), value("name")), (Some("/a:/b"), Some("host"), Some("x")));
        assert_eq!((value("p"), value("e"), value("rm")), (Some("80:80"), Some("A"), None));
        assert!(options.has("i") && options.has("t") && !options.has("rm") && !options.has("d"));
        assert!(!parse("--detach=false img").has("detach"));
        let options = parse("-itd --gpus all -v /a:/b -p80:80 --init=true -e A=1 --env B img");
        assert_eq!(options.words(&["i", "t", "d", "p"]).join(" "), "--gpus all -v /a:/b --init=true -e A=1 --env B");
        assert_eq!(options.values("e").chain(options.values("env")).collect::<Vec<_>>(), ["A=1", "B"]);
    }
}
