//! A launch as one command line: the form in which two launches can be compared, and which reads back as the same one.

use std::fmt;

use super::{Engine, Launch, Value, edit};

impl fmt::Display for Launch {
    /// The arguments in order, quoted for a shell, behind the program's name (slime's flags have none).
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            match &value.value {
                Value::Known(text) => write!(formatter, "{name}={} ", edit::quoted(text))?,
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
            let positional = argument.flag.value.as_str();
            if positional.starts_with('-') {
                write!(formatter, " {}", edit::quoted(positional))?;
            }
            let values = argument.values.iter().map(|value| &value.value);
            let whole = Value::Unknown(positional.to_owned());
            let own = (argument.values.is_empty() && !positional.starts_with('-')).then_some(&whole);
            for value in own.into_iter().chain(values) {
                match value {
                    Value::Known(text) => write!(formatter, " {}", edit::quoted(text))?,
                    Value::Unknown(text) => write!(formatter, " {text}")?,
                }
            }
        }
        Ok(())
    }
}
