//! A command that starts a server in a container.

use external::container::Container;
use launch::{RunOptions, is_runtime};
use schemas::sweep::SystemSettings;

/// A command that runs a server in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerCommand {
    /// The container, by the name that the user gave it, or else by ours.
    pub container: Container,
    /// The command, which names the container and has it removed at its end.
    pub words: Vec<String>,
    /// The image; `None` if the command has none.
    pub image: Option<String>,
    options: RunOptions,
}

impl ContainerCommand {
    /// Reads a command such as `sudo docker run --gpus all IMAGE …`; `None` if it does not run a
    /// container. `name` is given to a container without one.
    pub fn parse(words: &[String], name: &str) -> Option<Self> {
        // `sudo -n`, `env NAME=value` and the like may come before the runtime.
        let is_wrapper = |word: &String| word == "sudo" || word == "env" || word.starts_with('-') || word.contains('=');
        let at = words.iter().position(|word| !is_wrapper(word)).filter(|at| is_runtime(&words[*at]))?;
        let run = match &words[at + 1..] {
            [first, second, ..] if first == "container" && second == "run" => at + 2,
            [first, ..] if first == "run" => at + 1,
            _ => return None,
        };
        let given = &words[run + 1..];
        let options = RunOptions::parse(given);
        let mut named = words[..=run].to_vec();
        // The container's name is used once, and nothing in it is needed after its end.
        if !options.has("rm") {
            named.push("--rm".into());
        }
        let own_name = options.value("name");
        if own_name.is_none() {
            named.extend(["--name".into(), name.to_owned()]);
        }
        named.extend_from_slice(given);
        let container = Container { runtime: words[..=at].to_vec(), name: own_name.unwrap_or(name).to_owned() };
        let image = options.image.map(|at| given[at].clone());
        Some(Self { container, words: named, image, options })
    }

    /// Why its server could not be watched and reached; `None` if it can.
    pub fn refusal(&self) -> Option<String> {
        let runtime = self.container.runtime.join(" ");
        if self.image.is_none() {
            return Some(format!("system.command has no image after `{runtime} run` and its options"));
        }
        if self.options.has("detach") || self.options.has("d") {
            return Some(
                "system.command leaves its container running in the background: remove --detach (-d), since the server's \
                 log and its end are watched"
                    .into(),
            );
        }
        let network = self.options.value("network").or(self.options.value("net"));
        // The network of the host, or of a container or pod in which spectune may run itself.
        let is_reached = network.is_some_and(|network| {
            network == "host" || network.starts_with("container:") || network.starts_with("ns:")
        }) || self.options.has("pod");
        if is_reached {
            return None;
        }
        let published = ["p", "publish", "P", "publish-all"].iter().any(|option| self.options.has(option));
        let instead = if published { " in place of -p (--publish)" } else { "" };
        Some(format!(
            "system.command runs its container in a separate network{}, where the server cannot be reached: every start gets \
             another free port of 127.0.0.1, so no -p can publish it. Add --network host after `{runtime} run`{instead}",
            network.map_or_else(String::new, |network| format!(" ({network})"))
        ))
    }
}

/// Why a server that these settings start could not be used, as far as its command shows; `None` if
/// nothing is known.
pub fn refusal(settings: &SystemSettings) -> Option<String> {
    ContainerCommand::parse(&settings.command, "name")?.refusal()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ContainerCommand> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        ContainerCommand::parse(&words, "ours")
    }

    #[test]
    fn a_container_gets_a_name_and_is_removed_at_its_end() {
        for (text, words, runtime, name, image) in [
            (
                "docker run -it --gpus all img:1 serve",
                "docker run --rm --name ours -it --gpus all img:1 serve",
                "docker",
                "ours",
                "img:1",
            ),
            (
                "sudo -n docker run --rm --name=x -v /a:/b r/i c",
                "sudo -n docker run --rm --name=x -v /a:/b r/i c",
                "sudo -n docker",
                "x",
                "r/i",
            ),
            (
                "/usr/bin/podman container run --rm -e A=B i",
                "/usr/bin/podman container run --name ours --rm -e A=B i",
                "/usr/bin/podman",
                "ours",
                "i",
            ),
            (
                "docker run --shm-size=32g -p8000:8000 --name y -eA=1 i --name z",
                "docker run --rm --shm-size=32g -p8000:8000 --name y -eA=1 i --name z",
                "docker",
                "y",
                "i",
            ),
        ] {
            let parsed = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(parsed.words.join(" "), words);
            assert_eq!(
                (parsed.container.runtime.join(" "), parsed.container.name.as_str()),
                (runtime.to_owned(), name)
            );
            assert_eq!(parsed.image.as_deref(), Some(image), "{text}");
        }
    }

    #[test]
    fn other_commands_run_no_container() {
        for text in [
            "python3 -m sglang.launch_server",
            "docker compose up",
            "docker exec c serve",
            "docker",
            "",
            "run docker run i",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_container_that_cannot_be_reached_or_watched_is_refused() {
        for text in [
            "docker run --network host i",
            "docker run --net=host --gpus all i",
            "podman run --network container:spectune i",
            "podman run --pod p i",
        ] {
            assert_eq!(parse(text).and_then(|one| one.refusal()), None, "{text}");
        }
        for (text, words) in [
            ("docker run i", "Add --network host after `docker run`"),
            ("sudo podman run -p 8000:8000 i --network host", "`sudo podman run` in place of -p"),
            ("docker run --network mine i", "(mine)"),
            ("docker run --network host -itd i", "remove --detach"),
            ("docker run --network=host --detach i", "remove --detach"),
            ("docker run --network host --gpus all", "no image"),
        ] {
            let reported = parse(text).and_then(|one| one.refusal()).unwrap_or_else(|| panic!("{text}"));
            assert!(reported.contains(words), "{text}: {reported}");
        }
    }
}
