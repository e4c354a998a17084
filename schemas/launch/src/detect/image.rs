//! Container images whose entry point is the engine: the words after the image are the engine's
//! arguments.

use schemas::engines::Engine;

use crate::{
    command::Field,
    images::engine_of_image,
    run_options::{RunOptions, is_runtime},
};

/// Maximum number of words that are tried as the image.
const MOST_TRIED: usize = 16;

/// An image that is run.
pub struct ImageRun {
    /// The index of its name.
    pub at: usize,
    /// The index of the first word after it.
    pub first: usize,
    pub engine: Option<Engine>,
    /// The words that replace the image's entry point.
    pub entry_point: Option<Vec<String>>,
}

/// The image that some words run; `texts` are their texts.
pub fn run(words: &[Field<'_>], texts: &[&str]) -> Option<ImageRun> {
    let program = texts.iter().position(|text| is_runtime(text))?;
    if texts.get(program + 1) == Some(&"compose") {
        return None;
    }
    let run = texts.iter().skip(program).position(|text| matches!(*text, "run" | "create"))? + program;
    let at = image_at(words, texts, run + 1)?;
    let entry_point = entry_point(texts.get(run + 1..at)?);
    // An unknown name, or one of another publisher, may be an image too.
    Some(ImageRun { at, first: at + 1, engine: engine_of_image(texts.get(at)?), entry_point })
}

/// The index of the image. A word that is not known, such as `$OPTIONS`, may hold options, the
/// image or its arguments: a name of an image after it says that it holds options.
fn image_at(words: &[Field<'_>], texts: &[&str], from: usize) -> Option<usize> {
    let mut unknown = Vec::new();
    let mut from = from;
    for _ in 0..MOST_TRIED {
        let Some(at) = RunOptions::parse(texts.get(from..)?).image.map(|at| from + at) else { break };
        let word = words.get(at)?;
        match word.value.known() {
            None => unknown.push(at),
            Some(_) if unknown.is_empty() => return Some(at),
            Some(name) => {
                // The word after a variable may be its value or the image: only names of images
                // decide.
                let is_image = name.contains([':', '/']) && engine_of_image(name).is_some();
                let is_argument = unknown.iter().any(|at| names_image(words, *at)) || !is_image;
                if !is_argument {
                    return Some(at);
                }
                break;
            }
        }
        from = at + 1;
    }
    let is_list = |at: &&usize| words.get(**at).is_some_and(|word| word.value.written().contains(['@', '*']));
    let named = unknown.iter().find(|at| names_image(words, **at));
    named.or_else(|| unknown.iter().find(|at| !is_list(at))).copied()
}

/// The words of `--entrypoint` among options.
fn entry_point(options: &[&str]) -> Option<Vec<String>> {
    let at = options.iter().rposition(|option| option.starts_with("--entrypoint"))?;
    let value = match options.get(at)?.strip_prefix("--entrypoint=") {
        Some(value) => value,
        None => options.get(at + 1)?,
    };
    // Podman takes several words as JSON.
    Some(serde_json::from_str(value).unwrap_or_else(|_| vec![value.to_owned()]))
}

/// Whether a variable says by its name that it holds an image.
fn names_image(words: &[Field<'_>], at: usize) -> bool {
    let written = words.get(at).map(|word| word.value.written().to_ascii_lowercase()).unwrap_or_default();
    ["image", "img", "container"].iter().any(|name| written.contains(name)) && !written.contains(['@', '*'])
}

#[cfg(test)]
mod tests {
    use schemas::text::{Located, Span};

    use super::*;
    use crate::command::CommandText;

    #[test]
    fn the_image_stands_behind_dockers_own_options() {
        for (command, image) in [
            (
                "docker run --gpus all --rm -it -p 80:80 --ipc=host vllm/vllm-openai:v0.20.0 --model m",
                "vllm/vllm-openai:v0.20.0",
            ),
            ("sudo docker run -d --name x --env A=B lmsysorg/sglang --model-path m", "lmsysorg/sglang"),
            ("podman run --device nvidia.com/gpu=all -v /a:/b img", "img"),
        ] {
            assert_eq!(image_of(command).as_deref(), Some(image), "{command}");
        }
        assert_eq!(image_of("docker ps -a"), None);
        assert_eq!(image_of("docker compose run server bash"), None);
    }

    /// The image of a command, in which words that start with `$` are not known.
    fn image_of(command: &str) -> Option<String> {
        let word = |word: &str| {
            let value = if word.starts_with('$') {
                CommandText::Unknown(word.to_owned().into())
            } else {
                CommandText::Known(word.to_owned().into())
            };
            Located::new(value, Span::default())
        };
        let words: Vec<Field<'_>> = command.split(' ').map(word).collect();
        let texts: Vec<&str> = words.iter().map(|word| word.value.known().unwrap_or_default()).collect();
        Some(words.get(run(&words, &texts)?.at)?.value.written().to_owned())
    }

    #[test]
    fn unknown_words_are_options_where_an_image_follows() {
        for (command, image) in [
            ("docker run -d --gpus all ${EXTRA:-} vllm/vllm-openai:v0.26.0 m --x", "vllm/vllm-openai:v0.26.0"),
            ("docker run ${a[@]} $B --device /dev/x lmsysorg/sglang:v0.5.9 --x", "lmsysorg/sglang:v0.5.9"),
            ("docker run -d $IMAGE $MODEL --served-model-name glm", "$IMAGE"),
            ("docker run ${a[@]} $TAG $MODEL --x y", "$TAG"),
            ("docker run ${EXTRA} $IMAGE --model m", "$IMAGE"),
            ("docker run $IMAGE python3 -m sglang.launch_server --x", "$IMAGE"),
            ("docker run $IMAGE --model x vllm/y", "$IMAGE"),
        ] {
            assert_eq!(image_of(command).as_deref(), Some(image), "{command}");
        }
    }
}
