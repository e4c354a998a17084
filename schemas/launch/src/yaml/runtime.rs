//! What a container of a text gets from its runtime, as the options of `docker run`.

use schemas::text::{Source, Span};

use super::{
    align::Scalar,
    node::{Id, Map, Tree, YamlNode},
};
use crate::{
    Launch, Value, Variables, quoting, script,
    unit::{self, UnitContainer},
};

/// Keys of compose whose value is an option's value as it stands: key, option.
const VALUES: [(&str, &str); 9] = [
    ("ipc", "--ipc"),
    ("shm_size", "--shm-size"),
    ("runtime", "--runtime"),
    ("user", "--user"),
    ("working_dir", "--workdir"),
    ("workingDir", "--workdir"),
    ("pid", "--pid"),
    ("mem_limit", "--memory"),
    ("platform", "--platform"),
];
/// Keys of compose whose items are values of an option: key, option.
const LISTS: [(&str, &str); 7] = [
    ("volumes", "--volume"),
    ("devices", "--device"),
    ("cap_add", "--cap-add"),
    ("security_opt", "--security-opt"),
    ("group_add", "--group-add"),
    ("env_file", "--env-file"),
    ("extra_hosts", "--add-host"),
];

/// How a container that starts an engine is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRun {
    /// The program that runs it: docker or podman.
    pub runtime: &'static str,
    /// Options of `docker run`, without name, network and environment.
    pub options: Vec<Value>,
    /// The image.
    pub image: Option<Value>,
    /// Whether the image's own entry point starts the engine.
    pub by_entry_point: bool,
    /// What has no counterpart, as it is named in the text.
    pub left_out: Vec<String>,
}

/// The container in which a launch of a compose file, a manifest or a unit of podman runs; `None`
/// if the text has none for it. `variables` are those that compose fills in. A manifest may be a
/// here-document of a script.
pub fn container_of(source: &Source, launch: &Launch, variables: Option<&Variables>) -> Option<ContainerRun> {
    if let Some(UnitContainer { image, options, left_out }) = unit::container(source, variables) {
        let by_entry_point = launch.program.is_empty();
        return Some(ContainerRun { runtime: "podman", options, image: Some(image), by_entry_point, left_out });
    }
    from_yaml(source.text(), 0, launch, variables).or_else(|| {
        let body = document_around(source.text(), launch.anchor.start)?;
        from_yaml(source.slice(body), body.start, launch, variables)
    })
}

/// The here-document that contains an offset.
fn document_around(text: &str, offset: usize) -> Option<Span> {
    let (mut at, mut open): (usize, Option<(&str, usize)>) = (0, None);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        match open {
            Some((end, from)) if line.trim() == end => {
                if from <= offset && offset < start {
                    return Some(Span::new(from, start));
                }
                open = None;
            }
            Some(_) => {}
            None => {
                let after =
                    line.split_once("<<").map(|(_, after)| after.trim_start_matches(['-', ' ', '"', '\'', '\\']));
                let name = |after: &'_ str| after.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
                let word = after.map(|after| after.get(..name(after).unwrap_or(after.len())).unwrap_or_default());
                open = word.filter(|word| !word.is_empty()).map(|word| (word, at));
            }
        }
    }
    None
}

/// The container of a launch in YAML that begins at an offset of the launch's source.
fn from_yaml(text: &str, offset: usize, launch: &Launch, variables: Option<&Variables>) -> Option<ContainerRun> {
    let tree = Tree::read(text).ok()?;
    let maps = tree.nodes.iter().enumerate();
    let (id, map) = maps
        .filter_map(|(id, node)| match node {
            YamlNode::Map(map) => Some((id, map)),
            YamlNode::Scalar(_) | YamlNode::List(_) => None,
        })
        .find(|(_, map)| runs(&tree, map, launch.anchor.start.checked_sub(offset)))?;
    let image = tree.scalar(tree.get(map, "image")?)?;
    let first = launch.program.first()?.span;
    let first = Span::new(first.start.checked_sub(offset)?, first.end.checked_sub(offset)?);
    let mut found = RuntimeContainers { tree: &tree, words: Vec::new(), left_out: Vec::new() };
    found.read_compose(map);
    found.read_kubernetes(map, pod_of(&tree, id));
    let RuntimeContainers { mut words, left_out, .. } = found;
    words.push(image.text.clone());
    let mut options = expanded(&words, variables);
    Some(ContainerRun {
        runtime: "docker",
        image: options.pop(),
        options,
        by_entry_point: image.span.start <= first.start && first.end <= image.span.end,
        left_out,
    })
}

/// Whether a mapping is the container of a launch: the launch's words, which begin at an offset,
/// are in its image or its command.
fn runs(tree: &Tree, map: &Map, anchor: Option<usize>) -> bool {
    let contains = |scalar: &Scalar| anchor.is_some_and(|at| scalar.span.start <= at && at < scalar.span.end);
    let value = |key: &str| tree.get(map, key);
    let holds = |id: Id| {
        tree.scalar(id).is_some_and(contains) || tree.items(id).iter().filter_map(|id| tree.scalar(*id)).any(contains)
    };
    value("image").is_some() && ["image", "entrypoint", "command", "args"].into_iter().filter_map(value).any(holds)
}

/// The specification of the pod that has a container.
fn pod_of(tree: &Tree, container: Id) -> Option<&Map> {
    let has = |map: &&Map| {
        let lists = ["containers", "initContainers"].into_iter().filter_map(|key| tree.get(map, key));
        lists.into_iter().any(|list| tree.items(list).contains(&container))
    };
    let maps = tree.nodes.iter().filter_map(|node| match node {
        YamlNode::Map(map) => Some(map),
        YamlNode::Scalar(_) | YamlNode::List(_) => None,
    });
    maps.into_iter().find(has)
}

struct RuntimeContainers<'a> {
    tree: &'a Tree,
    words: Vec<String>,
    left_out: Vec<String>,
}

impl<'a> RuntimeContainers<'a> {
    fn text(&self, map: &Map, key: &str) -> Option<&'a str> {
        Some(self.tree.scalar(self.tree.get(map, key)?)?.text.as_str())
    }

    fn maps(&self, map: &Map, key: &str) -> impl Iterator<Item = &'a Map> + use<'a> {
        let tree = self.tree;
        let items = tree.get(map, key).map(|list| tree.items(list)).unwrap_or_default();
        items.iter().filter_map(move |item| tree.map(*item))
    }

    fn add(&mut self, option: &str, value: &str) {
        self.words.extend([option.to_owned(), value.to_owned()]);
    }

    fn read_compose(&mut self, map: &Map) {
        for (key, option) in VALUES {
            if let Some(value) = self.text(map, key) {
                self.add(option, value);
            }
        }
        if self.text(map, "privileged") == Some("true") {
            self.words.push("--privileged".into());
        }
        for (key, option) in LISTS {
            let Some(list) = self.tree.get(map, key) else { continue };
            let texts = self.tree.items(list).iter().chain(self.tree.scalar(list).map(|_| &list));
            let texts: Vec<&str> = texts.filter_map(|id| Some(self.tree.scalar(*id)?.text.as_str())).collect();
            texts.into_iter().for_each(|text| self.add(option, text));
        }
        for volume in self.maps(map, "volumes") {
            self.long_volume(volume);
        }
        if let Some(limits) = self.tree.get(map, "ulimits").and_then(|limits| self.tree.map(limits)) {
            for (name, limit) in &limits.entries {
                let hard = self.tree.map(*limit).and_then(|limit| self.text(limit, "hard"));
                let limit = self.tree.scalar(*limit).map(|limit| limit.text.as_str()).or(hard);
                if let (Some(name), Some(limit)) = (self.tree.scalar(*name), limit) {
                    self.add("--ulimit", &format!("{}={limit}", name.text));
                }
            }
        }
        self.gpus_of_compose(map);
    }

    /// `{type: bind, source: …, target: …}`.
    fn long_volume(&mut self, volume: &Map) {
        let (source, target) = (self.text(volume, "source"), self.text(volume, "target"));
        match (self.text(volume, "type"), source, target) {
            (Some("bind" | "volume") | None, Some(source), Some(target)) => {
                let end = if self.text(volume, "read_only") == Some("true") { ":ro" } else { "" };
                self.add("--volume", &format!("{source}:{target}{end}"));
            }
            (Some("tmpfs"), _, Some(target)) => self.add("--tmpfs", target),
            (_, _, target) => self.left_out.push(format!("volume {}", target.unwrap_or("without a target"))),
        }
    }

    /// `gpus: all`, or the devices that `deploy` reserves.
    fn gpus_of_compose(&mut self, map: &Map) {
        if let Some(gpus) = self.text(map, "gpus") {
            return self.add("--gpus", gpus);
        }
        let path = ["deploy", "resources", "reservations"];
        let inner = path.iter().try_fold(map, |map, key| self.tree.map(self.tree.get(map, key)?));
        let devices: Vec<&Map> = inner.map(|inner| self.maps(inner, "devices").collect()).unwrap_or_default();
        for device in devices {
            let ids = self.tree.get(device, "device_ids").map(|ids| self.tree.items(ids)).unwrap_or_default();
            let ids: Vec<&str> = ids.iter().filter_map(|id| Some(self.tree.scalar(*id)?.text.as_str())).collect();
            match (ids.is_empty(), self.text(device, "count")) {
                (false, _) => self.add("--gpus", &format!("\"device={}\"", ids.join(","))),
                (true, count) => self.add("--gpus", count.unwrap_or("all")),
            }
        }
    }

    /// The devices, mounts and working directory of a container of a pod.
    fn read_kubernetes(&mut self, map: &Map, pod: Option<&Map>) {
        let limits = ["resources", "limits"].iter().try_fold(map, |map, key| self.tree.map(self.tree.get(map, key)?));
        if let Some(gpus) = limits.and_then(|limits| self.text(limits, "nvidia.com/gpu")) {
            self.add("--gpus", gpus);
        }
        if pod.is_some_and(|pod| self.text(pod, "hostIPC") == Some("true")) {
            self.add("--ipc", "host");
        }
        let mounts: Vec<&Map> = self.maps(map, "volumeMounts").collect();
        for mount in mounts {
            let (Some(name), Some(path)) = (self.text(mount, "name"), self.text(mount, "mountPath")) else { continue };
            let volumes = pod.map(|pod| self.maps(pod, "volumes").collect::<Vec<_>>()).unwrap_or_default();
            let volume = volumes.into_iter().find(|volume| self.text(volume, "name") == Some(name));
            let inner = |key: &str| self.tree.map(self.tree.get(volume?, key)?);
            match (inner("hostPath").and_then(|host| self.text(host, "path")), inner("emptyDir")) {
                (Some(host), _) => {
                    let end = if self.text(mount, "readOnly") == Some("true") { ":ro" } else { "" };
                    self.add("--volume", &format!("{host}:{path}{end}"));
                }
                (None, Some(directory)) if path == "/dev/shm" => {
                    let size = self.text(directory, "sizeLimit").map(docker_size);
                    self.add("--shm-size", size.as_deref().unwrap_or("8g"));
                }
                (None, Some(_)) => self.add("--tmpfs", path),
                (None, None) => self.left_out.push(format!("volume {name} at {path}")),
            }
        }
    }
}

/// A quantity of Kubernetes as Docker writes it: `16Gi`, `500Mi`.
fn docker_size(quantity: &str) -> String {
    quantity.trim_end_matches('i').to_ascii_lowercase()
}

/// Words with the variables that compose fills in.
fn expanded(words: &[String], variables: Option<&Variables>) -> Vec<Value> {
    let word = |word: &String| match word.contains('$') {
        true => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"").replace('`', "\\`")),
        false => quoting::quoted(word),
    };
    let text = format!("docker run --rm {}", words.iter().map(word).collect::<Vec<_>>().join(" "));
    let source = Source::new("words.sh", text);
    let script = script::read(&source, variables);
    let read = script.commands.first().map(|command| command.words.get(3..).unwrap_or_default()).unwrap_or_default();
    read.iter().map(|word| word.value.to_value()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, parse};

    fn check(text: &str, options: &str, image: &str, by_entry_point: bool, left_out: &[&str]) {
        let source = Source::new("deploy.yaml", text);
        let parsed = parse(&source, &Options::default());
        let given =
            Variables { environment: [("CACHE".to_owned(), "/big cache".to_owned())].into(), ..Variables::default() };
        let run = container_of(&source, &parsed.launches[0], Some(&given)).expect(text);
        let words: Vec<&str> = run.options.iter().map(Value::written).collect();
        assert_eq!(words.join(" "), options, "{text}");
        assert_eq!(run.image.as_ref().and_then(Value::known), Some(image));
        assert_eq!(
            (run.by_entry_point, run.left_out),
            (by_entry_point, left_out.iter().map(ToString::to_string).collect())
        );
    }

    #[test]
    fn a_service_of_compose_is_run_with_its_options() {
        let text = "services:\n  db:\n    image: postgres\n  llm:\n    image: vllm/vllm-openai:v0.26.0\n    ipc: host\n    \
                    shm_size: 16gb\n    volumes:\n      - ${CACHE:-~/.cache}:/root/.cache\n      - type: bind\n        \
                    source: ./models\n        target: /models\n        read_only: true\n    ulimits:\n      memlock: -1\n    \
                    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              \
                    device_ids: ['0', '3']\n              capabilities: [gpu]\n    command: --model org/m --max-num-seqs 8\n";
        let options = "--ipc host --shm-size 16gb --volume /big cache:/root/.cache --volume ./models:/models:ro \
                       --ulimit memlock=-1 --gpus \"device=0,3\"";
        check(text, options, "vllm/vllm-openai:v0.26.0", true, &[]);
    }

    #[test]
    fn a_manifest_in_a_here_document_is_run_too() {
        let text = "echo <<A\nx\nA\nkubectl apply -f - <<'EOF'\nkind: Pod\nspec:\n  containers:\n  \
                    - image: lmsysorg/sglang:v0.5.16\n    command: [python3, -m, sglang.launch_server]\n    \
                    args: [--model-path, /models/m]\n    resources: {limits: {nvidia.com/gpu: 2}}\nEOF\n";
        let source = Source::new("deploy.sh", text);
        let parsed = parse(&source, &Options::default());
        let run = container_of(&source, &parsed.launches[0], None).expect("a container");
        assert_eq!(run.options.iter().map(Value::written).collect::<Vec<_>>(), ["--gpus", "2"]);
        assert!(!run.by_entry_point && run.image.as_ref().and_then(Value::known) == Some("lmsysorg/sglang:v0.5.16"));
    }

    #[test]
    fn a_container_of_a_pod_is_run_with_its_mounts() {
        let text = "kind: Pod\nspec:\n  hostIPC: true\n  volumes:\n  - name: models\n    hostPath: {path: /data/models}\n  \
                    - name: shm\n    emptyDir: {medium: Memory, sizeLimit: 16Gi}\n  - name: claim\n    \
                    persistentVolumeClaim: {claimName: x}\n  containers:\n  - image: lmsysorg/sglang:v0.5.16\n    \
                    command: [python3, -m, sglang.launch_server]\n    args: [--model-path, /models/m]\n    \
                    resources: {limits: {nvidia.com/gpu: 2}}\n    volumeMounts:\n    - {name: models, mountPath: /models}\n    \
                    - {name: shm, mountPath: /dev/shm}\n    - {name: claim, mountPath: /c}\n";
        let options = "--gpus 2 --ipc host --volume /data/models:/models --shm-size 16g";
        check(text, options, "lmsysorg/sglang:v0.5.16", false, &["volume claim at /c"]);
    }
}
