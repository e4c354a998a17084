//! Container images whose entry point is the engine: the words after the image are the engine's arguments.

use schemas::{
    container::{RUNTIMES, RunOptions},
    engines::Engine,
};

use crate::images::engine_of_image;

/// An image that is run.
pub struct Run {
    /// The index of its name.
    pub at: usize,
    /// The index of the first word after it.
    pub first: usize,
    pub engine: Option<Engine>,
}

/// The image that some words run.
pub fn run(texts: &[&str]) -> Option<Run> {
    let program = texts.iter().position(|text| RUNTIMES.contains(&text.rsplit('/').next().unwrap_or_default()))?;
    if texts.get(program + 1) == Some(&"compose") {
        return None;
    }
    let run = texts.iter().skip(program).position(|text| matches!(*text, "run" | "create"))? + program;
    let at = run + 1 + RunOptions::parse(&texts[run + 1..]).image?;
    let image = texts.get(at)?;
    let named = engine_of_image(image);
    // An unknown name, or one of another publisher, may be an image too.
    Some(Run { at, first: at + 1, engine: named })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(run(&words).and_then(|run| words.get(run.at).copied()), Some(image), "{command}");
        }
        assert!(run(&["docker", "ps", "-a"]).is_none());
        assert!(run(&["docker", "compose", "run", "server", "bash"]).is_none());
    }
}
