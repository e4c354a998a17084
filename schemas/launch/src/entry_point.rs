//! What a container image starts by itself, and commands that it does not take.
//!
//! Words after an image are arguments of its entry point unless the launch replaces that:
//! `--entrypoint` of `docker run`, `entrypoint` of compose, `command` of Kubernetes.

use schemas::{
    finding::{Doubt, Finding},
    text::Span,
};

use super::{
    images::{self, EntryPoint},
    problems,
    programs::{self, ProgramRole},
};

/// What runs an image, which decides how its entry point is replaced and how a command is split
/// into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    /// `docker run` and programs like it.
    Docker,
    Compose,
    /// A manifest of Kubernetes itself, which is run as it is.
    Kubernetes,
    /// Anything else, which may add to the command.
    Other,
}

/// Reports the first word after an image if its entry point does not take it.
pub(super) fn check(image: &str, word: &str, span: Span, runner: Runner) -> Option<Finding> {
    let found = match images::entry_point(image)? {
        EntryPoint::Server if is_program(word) => {
            let message =
                format!("the image starts `vllm serve` itself, so `{word}` and what follows are arguments of it");
            let mut found = problems::IMAGE_ENTRY_POINT.at(span, message, "an argument of `vllm serve`");
            let replace = match runner {
                Runner::Docker => "set `--entrypoint` before the image",
                Runner::Compose => "put the program under `entrypoint`",
                Runner::Kubernetes | Runner::Other => "put the program under `command`",
            };
            found.help = Some(format!("begin with the model, without the program, or {replace}"));
            found.notes.push("vllm says: `error: unrecognized arguments`".into());
            found
        }
        EntryPoint::Nothing if word.starts_with("--") => {
            let message = format!("the image starts no server itself, so `{word}` is run as a program");
            let mut found = problems::IMAGE_ENTRY_POINT.at(span, message, "not a program");
            found.help = Some("begin with `python3 -m sglang.launch_server`".into());
            // No release states what its image starts.
            found.doubt(Doubt::OtherImage)
        }
        _ => return None,
    };
    Some(if runner == Runner::Other { found.doubt(Doubt::OtherRuntime) } else { found })
}

/// Whether a word is a program, not a model: a command of the engine, an interpreter or a shell.
fn is_program(word: &str) -> bool {
    // Names of models have a slash too.
    let name = if word.starts_with('/') { programs::base(word) } else { word };
    !name.contains('/')
        && (matches!(name, "serve" | "vllm")
            || programs::has(name, ProgramRole::Tool)
            || programs::has(name, ProgramRole::Shell))
}

#[cfg(test)]
mod tests {
    use schemas::{diagnostic::Severity, finding::settle_all, text::Source};

    use super::*;
    use crate::{Options, parse};

    /// The severity of the finding about the entry point, if there is one.
    fn found(name: &str, text: &str) -> Option<Severity> {
        let parsed = parse(&Source::new(name, text), &Options::default());
        assert_eq!(parsed.launches.len(), 1, "{text}");
        let code = problems::IMAGE_ENTRY_POINT.code;
        settle_all(parsed.findings).iter().find(|one| one.code == code).map(|one| one.severity)
    }

    #[test]
    fn a_program_after_an_image_that_starts_one_is_an_error() {
        let image = "vllm/vllm-openai:v0.17.1";
        for command in
            ["vllm serve org/m", "serve org/m", "python3 -m vllm.entrypoints.openai.api_server --model org/m"]
        {
            let run = format!("docker run --gpus all -p 80:80 {image} {command} --port 80\n");
            assert_eq!(found("run.sh", &run), Some(Severity::Error), "{run}");
            let replaced = format!("docker run --gpus all --entrypoint env {image} {command} --port 80\n");
            assert_eq!(found("run.sh", &replaced), None, "{replaced}");
            let compose = format!("services:\n  a:\n    image: {image}\n    command: {command} --port 80\n");
            assert_eq!(found("compose.yaml", &compose), Some(Severity::Error), "{compose}");
            let replaced =
                format!("{compose}    entrypoint: {}\n", if command.starts_with("serve") { "vllm" } else { "env" });
            assert_eq!(found("compose.yaml", &replaced), None, "{replaced}");
        }
        let script =
            |options: &str| format!("docker run --gpus all {options} {image} bash -c \"vllm serve org/m --port 80\"\n");
        assert_eq!(found("run.sh", &script("")), Some(Severity::Error));
        assert_eq!(found("run.sh", &script("--entrypoint env")), None);
        let pod = |key: &str| {
            format!(
                "kind: Pod\nspec:\n  containers:\n  - image: {image}\n    {key}: [vllm, serve, org/m, --port, '80']\n"
            )
        };
        assert_eq!(found("pod.yaml", &pod("args")), Some(Severity::Error));
        assert_eq!(found("pod.yaml", &pod("command")), None);
        // Akash's `command` replaces the entry point, as that of Kubernetes does.
        let akash =
            format!("services:\n  a:\n    image: {image}\n    command: [vllm, serve, org/m]\ndeployment: {{}}\n");
        assert_eq!(found("deploy.yaml", &akash), None);
        // Another kind of resource may add the program.
        assert_eq!(found("pod.yaml", &pod("args").replace("Pod", "Server")), Some(Severity::Warning));
    }

    #[test]
    fn the_models_and_flags_of_an_entry_point_are_sound() {
        for text in [
            "docker run --gpus all vllm/vllm-openai:v0.17.1 org/m --port 80\n",
            "docker run --gpus all vllm/vllm-openai:v0.17.1 --model org/m --port 80\n",
            "docker run --gpus all lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --model-path org/m\n",
            "docker run --gpus all me/vllm-openai:v0.17.1 vllm serve org/m --port 80\n",
        ] {
            assert_eq!(found("run.sh", text), None, "{text}");
        }
        let bare = "docker run --gpus all lmsysorg/sglang:v0.5.9 --model-path org/m --tp 2\n";
        assert_eq!(found("run.sh", bare), Some(Severity::Warning));
    }
}
