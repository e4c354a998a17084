//! Where a running server runs: its host, and the processor or GPUs, if the server tells them or
//! runs on this host.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
};

use external::{
    address::{host_and_port, is_this_host},
    process_table::{all, with_descendants},
};
use serde_json::Value;

use crate::{
    host::{machine, nvidia_smi},
    system::server::Host,
};

/// Host and device of a server at a URL.
pub fn host_and_device(url: &str, answer: Option<&Value>) -> (String, Option<String>) {
    let (name, port) = host_and_port(url);
    let here = machine::host();
    let is_here = is_this_host(&name) || name == here;
    let reported = answer.and_then(|answer| answer["device"]["name"].as_str().map(str::to_owned));
    let device = reported.or_else(|| if is_here { on_this_host(port) } else { None });
    (if is_here && !here.is_empty() { here } else { name }, device)
}

/// The GPUs of the process that listens on a port of this host; its processor if it has no GPU.
/// `None` if that is unknown, as for a server of another user or in a container.
fn on_this_host(port: u16) -> Option<String> {
    let host = Host::this();
    if host.gpus.is_empty() {
        return (!host.processor.is_empty()).then_some(host.processor);
    }
    // Engines use GPUs in processes of their own.
    let processes = with_descendants(HashSet::from([listener(port)?]), &all());
    let used = used_gpus(&nvidia_smi::query("--query-compute-apps=pid,gpu_uuid")?, &processes);
    let names: Vec<String> = host
        .gpus
        .iter()
        .filter(|gpu| used.contains(&gpu.uuid))
        .map(|gpu| format!("{} (GPU {})", gpu.name, gpu.number))
        .collect();
    (!names.is_empty()).then(|| names.join(" + "))
}

/// The GPUs that processes use, from lines of the form `pid, uuid`.
fn used_gpus(lines: &str, processes: &[u32]) -> BTreeSet<String> {
    let pairs = lines.lines().filter_map(|line| line.split_once(','));
    let ours = pairs.filter(|(pid, _)| pid.trim().parse().is_ok_and(|pid: u32| processes.contains(&pid)));
    ours.map(|(_, uuid)| uuid.trim().to_owned()).collect()
}

/// The process that listens on a port of this host.
fn listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inodes: BTreeSet<String> = tables.iter().flat_map(|table| listening(table, port)).collect();
    let holds = |pid: &u32| {
        let sockets = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        sockets.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|link| {
            let name = link.display().to_string();
            name.strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'))
                .is_some_and(|one| inodes.contains(one))
        })
    };
    all().into_iter().filter(|_| !inodes.is_empty()).find(holds)
}

/// The inodes of the sockets that listen on a port, from a table of the operating system.
fn listening(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let ends = format!(":{port:04X}");
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&ends) && *fields.get(3)? == LISTEN;
        is_it.then(|| fields.get(9).map(ToString::to_string)).flatten()
    };
    table.lines().skip(1).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gpus_of_a_process_are_found_by_its_number() {
        let lines = "100, GPU-a\n200, GPU-b\n 300, GPU-a\nnot a line\n";
        assert_eq!(used_gpus(lines, &[100, 300]), BTreeSet::from(["GPU-a".to_owned()]));
        assert!(used_gpus(lines, &[]).is_empty());
    }

    #[test]
    fn the_listener_of_a_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        assert_eq!(super::listener(port), Some(std::process::id()));
        assert!(with_descendants(HashSet::from([std::process::id()]), &all()).contains(&std::process::id()));
    }
}
