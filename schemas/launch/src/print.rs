//! Prints a launch as one command line: the form in which launches are compared, and which parses
//! back to the same launch.

use std::fmt;

use schemas::text::Span;

use super::{
    Argument, Engine, Launch, Syntax, Value,
    arguments::flag_names::is_flag,
    quoting::quoted,
    shell::{ShellReader, ShellStatement, SimpleCommand},
};

impl fmt::Display for Launch {
    /// The environment, the program and the arguments in order, quoted for a shell.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.environment.iter() {
            match &value.value {
                Value::Known(text) => write!(formatter, "{name}={} ", quoted(text))?,
                Value::Unknown(text) => write!(formatter, "{name}={text} ")?,
            }
        }
        formatter.write_str(match self.engine {
            Engine::Sglang => "python3 -m sglang.launch_server",
            Engine::Slime => "python3 train.py",
            Engine::Vllm => "vllm serve",
            Engine::Spectune => "spectune serve",
        })?;
        let mut arguments = self.arguments.iter().peekable();
        while let Some(argument) = arguments.next() {
            let flag = self.flag_of(argument);
            let before_word = arguments.peek().is_some_and(|next| !is_flag(&self.flag_of(next)));
            // A value that looks like a flag would be read as one unless it is joined to its flag
            // by `=`, and so would words after the value be read as further ones.
            if let [value] = argument.values.as_slice()
                && is_flag(&flag)
                && (before_word || value.value.known().is_some_and(is_flag))
            {
                match &value.value {
                    // A placeholder of plain text is none after `=`.
                    Value::Unknown(text) if bare(text) == Bare::Expanded => {
                        write!(formatter, " {}={text}", quoted(&flag))?;
                    }
                    value => write!(formatter, " {}", quoted(&format!("{flag}={}", value.written())))?,
                }
                continue;
            }
            if is_flag(&flag) {
                write!(formatter, " {}", quoted(&flag))?;
            }
            for value in &argument.values {
                match &value.value {
                    Value::Unknown(text) if bare(text) != Bare::Different => write!(formatter, " {text}")?,
                    value => write!(formatter, " {}", quoted(value.written()))?,
                }
            }
        }
        Ok(())
    }
}

/// What a shell reads where a text is written without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bare {
    /// One word that has this text.
    Itself,
    /// One word with something to expand, or a placeholder.
    Expanded,
    /// Anything else.
    Different,
}

fn bare(text: &str) -> Bare {
    // A word after it shows what a backslash at its end does.
    let command = format!("x {text} y");
    let mut statements = ShellReader::new(&command, Span::new(0, command.len()));
    let Some(ShellStatement::Command(SimpleCommand { assignments, words, writes: None, is_negated: false })) =
        statements.next()
    else {
        return Bare::Different;
    };
    let [_, word, _] = words.as_slice() else { return Bare::Different };
    let is_all = statements.next().is_none() && statements.into_troubles().is_empty();
    let is_one = is_all && assignments.is_empty() && word.span == Span::new(2, 2 + text.len());
    match word.text() {
        _ if !is_one => Bare::Different,
        Some(read) if read != text => Bare::Different,
        Some(_) => Bare::Itself,
        None => Bare::Expanded,
    }
}

impl Launch {
    /// The flag in its command-line spelling.
    fn flag_of(&self, argument: &Argument) -> String {
        match argument.key.filter(|_| self.syntax == Syntax::Toml) {
            Some(key) => self.dashed(key, key.flag().name),
            None => argument.flag.value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use crate::{Options, from_arguments, parse};

    #[test]
    fn brackets_with_signs_of_a_shell_are_quoted() {
        for (word, expected) in
            [("[a]", "[a]"), ("[a;", "'[a;'"), ("[a<b]", "'[a<b]'"), ("<a", "'<a'"), ("<A!>", "'<A!>'")]
        {
            let (_, launch) = from_arguments(&["--model-path".to_owned(), word.to_owned()]);
            assert_eq!(launch.to_string(), format!("spectune serve --model-path {expected}"));
        }
    }

    #[test]
    fn words_after_a_joined_value_stay_apart_from_it() {
        for words in [
            ["--model-path", "--a=", "[A", "b"],
            ["--model-path", "--a=", "\u{1400}", "[A"],
            ["--model-path", "--a=b", "c*d", "[A"],
            ["--model-path", "---", ":::", "b"],
            ["--model-path", "{a}", "", "b"],
        ] {
            let (_, launch) = from_arguments(&words.map(str::to_owned));
            let printed = launch.to_string();
            let again = parse(&Source::new("x.sh", printed.clone()), &Options::default());
            assert_eq!(again.launches[0].to_string(), printed);
        }
    }
}
