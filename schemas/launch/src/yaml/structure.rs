//! What a YAML text describes as a whole, by its structure.

use super::node::{Id, Tree};
use crate::{context::TextForm, entry_point::Runner, kind::base_of};

/// What a YAML text describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Structure {
    Compose,
    /// Objects of Kubernetes itself, whose containers are run as they are.
    Workload,
    /// Other objects of Kubernetes.
    Object,
    HelmValues,
    Ansible,
    Other,
}

/// Kinds of Kubernetes that have containers.
const WORKLOADS: [&str; 7] = ["CronJob", "DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet"];

/// Modules of Ansible that run a command or write a file.
const MODULES: [&str; 6] = ["argv", "cmd", "command", "content", "raw", "shell"];

impl Structure {
    pub fn detect(name: &str, tree: &Tree) -> Self {
        let has = |root: &Id, key: &str| tree.map(*root).is_some_and(|map| tree.get(map, key).is_some());
        let any = |is: &dyn Fn(&Id) -> bool| tree.roots.iter().any(is);
        let is_workload = |root: &Id| {
            let kind = tree.map(*root).and_then(|map| tree.scalar(tree.get(map, "kind")?));
            kind.is_some_and(|kind| WORKLOADS.contains(&kind.text.as_str()))
        };
        // Akash's manifests have services too, whose `command` replaces the entry point.
        let is_compose = |root: &Id| has(root, "services") && !has(root, "deployment");
        // A playbook is a list of plays, and a task list one of tasks with a module each.
        let is_ansible = |root: &Id| {
            let is_one = |item: &Id| {
                let is_task = tree.map(*item).is_some_and(|map| {
                    map.entries.iter().any(|(key, _)| tree.scalar(*key).is_some_and(|key| is_module(&key.text)))
                });
                (has(item, "hosts") && (has(item, "tasks") || has(item, "roles"))) || (has(item, "name") && is_task)
            };
            tree.items(*root).first().is_some_and(is_one)
        };
        let base = base_of(name).to_ascii_lowercase();
        match () {
            () if any(&is_compose) => Self::Compose,
            () if any(&is_workload) => Self::Workload,
            () if any(&|root| has(root, "apiVersion") && has(root, "kind")) => Self::Object,
            () if any(&is_ansible) => Self::Ansible,
            () if base.starts_with("values") || base.ends_with("values.yaml") => Self::HelmValues,
            () => Self::Other,
        }
    }

    /// The form of the text; `None` if it is any other YAML.
    pub fn form(self) -> Option<TextForm> {
        match self {
            Self::Compose => Some(TextForm::Compose),
            Self::Workload | Self::Object => Some(TextForm::Kubernetes),
            Self::HelmValues => Some(TextForm::HelmValues),
            Self::Ansible => Some(TextForm::Ansible),
            Self::Other => None,
        }
    }

    /// What runs the containers of the text.
    pub fn runner(self) -> Runner {
        match self {
            Self::Compose => Runner::Compose,
            Self::Workload => Runner::Kubernetes,
            Self::Object | Self::HelmValues | Self::Ansible | Self::Other => Runner::Other,
        }
    }

    /// Whether a text under this key, outside a container, is run: a script in a ConfigMap, a
    /// command of a task.
    pub fn runs(self, key: &str) -> bool {
        match self {
            Self::Workload | Self::Object => key.contains('.') || key.ends_with("sh"),
            Self::Ansible => is_module(key),
            Self::Compose | Self::HelmValues | Self::Other => false,
        }
    }
}

/// Whether a key is a module of Ansible that runs its value, with or without the name of its
/// collection.
fn is_module(key: &str) -> bool {
    MODULES.contains(&key.rsplit('.').next().unwrap_or_default())
}
