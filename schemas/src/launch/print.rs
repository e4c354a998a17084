//! Prints a launch as one command line: the form in which launches are compared, and which parses back to the same
//! launch.

use std::fmt;

use super::{
    Argument, Engine, Launch, Syntax, Value,
    arguments::split::is_flag,
    quoting::quoted,
    shell::{Command, Reader, Statement},
};
use crate::text::Span;

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
        for argument in &self.arguments {
            let flag = self.flag_of(argument);
            // A value that looks like a flag would be read as one unless it is joined to its flag by `=`.
            if let [value] = argument.values.as_slice()
                && let Some(text) = value.value.known().filter(|text| is_flag(text))
            {
                write!(formatter, " {}", quoted(&format!("{flag}={text}")))?;
                continue;
            }
            if is_flag(&flag) {
                write!(formatter, " {}", quoted(&flag))?;
            }
            for value in &argument.values {
                match &value.value {
                    Value::Known(text) => write!(formatter, " {}", quoted(text))?,
                    Value::Unknown(text) if is_one_word(text) => write!(formatter, " {text}")?,
                    Value::Unknown(text) => write!(formatter, " {}", quoted(text))?,
                }
            }
        }
        Ok(())
    }
}

/// Whether a shell takes the text as one word, so that it needs no quotes: an expansion, a quoted text, a placeholder.
fn is_one_word(text: &str) -> bool {
    // A word after it shows what a backslash at its end does.
    let command = format!("x {text} y");
    let mut statements = Reader::new(&command, Span::new(0, command.len()));
    let Some(Statement::Command(Command { assignments, words, writes: None })) = statements.next() else {
        return false;
    };
    let [_, word, _] = words.as_slice() else { return false };
    let is_all = statements.next().is_none() && statements.into_troubles().is_empty();
    is_all && assignments.is_empty() && word.span == Span::new(2, 2 + text.len())
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
    use crate::{
        launch::{Options, from_arguments, parse},
        text::Source,
    };

    #[test]
    fn brackets_with_signs_of_a_shell_are_quoted() {
        for (word, expected) in
            [("[a]", "[a]"), ("[a;", "'[a;'"), ("[a<b]", "'[a<b]'"), ("<a", "'<a'"), ("<A!>", "'<A!>'")]
        {
            let (_, launch, _) = from_arguments(&["--model-path".to_owned(), word.to_owned()]);
            assert_eq!(launch.to_string(), format!("spectune serve --model-path {expected}"));
        }
    }

    #[test]
    fn an_empty_value_before_a_bracket_stays() {
        let (_, launch, _) = from_arguments(&["--model-path", "--a=", "[A"].map(str::to_owned));
        let printed = launch.to_string();
        let again = parse(&Source::new("x.sh", printed.clone()), &Options::default());
        assert_eq!(again.launches[0].to_string(), printed);
    }
}
