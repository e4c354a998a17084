//! The hub's client with a local server.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use facts::{Error, Files, Hub, HubCache, ModelPlaces, ModelSource, Sources, gather};
use schemas::model::ModelFacts;

/// Special behaviour of a server.
#[derive(Clone, Default)]
struct Manners {
    /// Sends whole files regardless of the requested range.
    no_ranges: bool,
    /// Answers every request without this token with 401.
    token: Option<&'static str>,
    /// Redirects requests for files to this address.
    elsewhere: Option<String>,
    /// Sends an endless response.
    endless: bool,
}

struct Server {
    address: String,
    /// Request lines and headers, in order of arrival.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Serves files by path until the test ends.
    fn start(files: BTreeMap<String, Vec<u8>>, manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that has read enough hangs up; that is not a failure of the server.
                let _ = serve(stream, &files, &manners, &log);
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic while locked").clone()
    }
}

fn serve(
    mut stream: TcpStream,
    files: &BTreeMap<String, Vec<u8>>,
    manners: &Manners,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut request = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    while reader.read_line(&mut request)? > 2 {}
    log.lock().expect("no panic while locked").push(request.clone());
    let path = request.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let header = |name: &str| {
        request.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    };
    let mut answer = |status: &str, headers: String, body: &[u8]| {
        write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(body)
    };
    if manners.token.is_some_and(|token| header("authorization") != Some(format!("Bearer {token}"))) {
        return answer("401 Unauthorized", String::new(), b"");
    }
    let Some(body) = files.get(&path) else { return answer("404 Not Found", String::new(), b"") };
    if let Some(place) = &manners.elsewhere {
        return answer("302 Found", format!("Location: {place}{path}\r\n"), b"");
    }
    if manners.endless {
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        loop {
            stream.write_all(&[b' '; 4096])?;
        }
    }
    let range = header("range").filter(|_| !manners.no_ranges);
    let Some((from, to)) = range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        return answer("200 OK", String::new(), body);
    };
    let (from, to): (usize, usize) = (from.parse().expect("a number"), to.parse().expect("a number"));
    match body.get(from..(to + 1).min(body.len())).filter(|part| !part.is_empty()) {
        Some(part) => {
            let range = format!("Content-Range: bytes {from}-{}/{}\r\n", from + part.len() - 1, body.len());
            answer("206 Partial Content", range, part)
        }
        None => answer("416 Range Not Satisfiable", format!("Content-Range: bytes */{}\r\n", body.len()), b""),
    }
}

/// The demo head as the hub would serve it under `org/head`, revision main.
fn head() -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/eagle3");
    ["config.json", "model.safetensors"]
        .into_iter()
        .map(|name| (format!("/org/head/resolve/main/{name}"), fs::read(folder.join(name)).expect("a file")))
        .collect()
}

fn read(hub: &Hub) -> Result<facts::GatheredFacts, Error> {
    gather(&hub.model("org/head", "main").expect("an id"), "org/head", ModelPlaces::default())
}

fn names(facts: &ModelFacts) -> Vec<&str> {
    facts.tensor_names().into_iter().flatten().collect()
}

#[test]
fn config_and_headers_come_over_the_network_and_the_weights_do_not() {
    let server = Server::start(head(), Manners::default());
    let gathered = read(&Hub::new(&format!("{}/", server.address), None)).expect("facts");
    assert_eq!(gathered.notes, Vec::<String>::new());
    let facts = gathered.facts;
    assert_eq!(facts.config.draft_vocab_size, Some(1024));
    assert!(names(&facts).contains(&"fc.weight"));
    assert!(facts.origin.starts_with(&server.address));
    let whole =
        server.requests().iter().filter(|request| !request.contains("json") && !request.contains("ange:")).count();
    assert_eq!(whole, 0, "the tensors are read in ranges only");
}

#[test]
fn the_token_goes_to_the_hub_and_to_no_other_host() {
    let storage = Server::start(head(), Manners::default());
    // Another name of this machine counts as another host.
    let elsewhere = Some(storage.address.replace("127.0.0.1", "localhost"));
    let hub = Server::start(head(), Manners { token: Some("secret"), elsewhere, ..Manners::default() });
    read(&Hub::new(&hub.address, Some("secret\n"))).expect("facts");
    assert!(!storage.requests().is_empty());
    assert!(storage.requests().iter().all(|request| !request.contains("secret")));
    let error = read(&Hub::new(&hub.address, None)).expect_err("gated").to_string();
    assert!(error.contains("401") && error.contains("HF_TOKEN"), "{error}");
}

#[test]
fn servers_without_ranges_give_the_beginning_of_a_file() {
    let server = Server::start(head(), Manners { no_ranges: true, ..Manners::default() });
    let gathered = read(&Hub::new(&server.address, None)).expect("facts");
    // The header arrives with the first read, and no further bytes are requested.
    assert!(names(&gathered.facts).contains(&"fc.weight"));
    assert_eq!(gathered.notes, Vec::<String>::new());
}

#[test]
fn answers_without_end_are_cut() {
    let server = Server::start(head(), Manners { endless: true, ..Manners::default() });
    let error = read(&Hub::new(&server.address, None)).expect_err("endless").to_string();
    assert!(error.contains("larger than 16777216 bytes"), "{error}");
}

#[test]
fn shards_are_files_of_the_model_and_few() {
    let index = |names: &[String]| {
        let map: BTreeMap<String, &String> =
            names.iter().enumerate().map(|(at, name)| (format!("t{at}"), name)).collect();
        serde_json::json!({ "metadata": { "total_size": 7 }, "weight_map": map }).to_string().into_bytes()
    };
    let check = |names: &[String], expected: &str| {
        let mut files = head();
        files.remove("/org/head/resolve/main/model.safetensors");
        files.insert("/org/head/resolve/main/model.safetensors.index.json".into(), index(names));
        let server = Server::start(files, Manners::default());
        let gathered = read(&Hub::new(&server.address, None)).expect("facts");
        assert!(gathered.facts.tensors.is_none());
        assert!(gathered.notes.iter().any(|note| note.contains(expected)), "{:?}", gathered.notes);
        gathered.facts
    };
    check(&["../../other/model.safetensors".into()], "not a file of this checkpoint");
    check(&["https:model.safetensors".into()], "not a file of this checkpoint");
    check(&["gone.safetensors".into()], "does not exist");
    let many: Vec<String> = (0..20).map(|at| format!("model-{at}.safetensors")).collect();
    let facts = check(&many, "only their index");
    assert_eq!((names(&facts).len(), facts.loaded_bytes("bfloat16")), (20, Some(7)));
}

#[test]
fn heads_with_files_of_other_names_are_listed() {
    let mut files = head();
    let tensors = files.remove("/org/head/resolve/main/model.safetensors").expect("tensors");
    files.insert("/org/head/resolve/main/eagle.safetensors".into(), tensors);
    let listing = r#"{"siblings": [{"rfilename": "config.json"}, {"rfilename": "eagle.safetensors"}]}"#;
    files.insert("/api/models/org/head/revision/main".into(), listing.into());
    let server = Server::start(files, Manners::default());
    let gathered = read(&Hub::new(&server.address, None)).expect("facts");
    assert!(names(&gathered.facts).contains(&"fc.weight"), "{:?}", gathered.notes);
}

#[test]
fn a_hub_that_is_not_there_is_reported() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let error = read(&Hub::new(&format!("http://{port}"), None)).expect_err("no one listens").to_string();
    assert!(error.contains("cannot fetch"), "{error}");
}

#[test]
fn the_cache_comes_before_the_hub_and_without_a_hub_nothing_is_requested() {
    let server = Server::start(head(), Manners::default());
    let root = tempfile::tempdir().expect("a folder");
    let mut offline = Sources::new(Some(HubCache::at(root.path())), None);
    assert!(offline.find("org/head", "main", ModelPlaces::default()).is_none());
    let hub = || Some(Box::new(Hub::new(&server.address, None)) as Box<dyn ModelSource>);
    let mut online = Sources::new(Some(HubCache::at(root.path())), hub());
    let name = |sources: &mut Sources| {
        let found = sources.find("org/head", "main", ModelPlaces::default()).and_then(|found| found.facts.clone());
        found.expect("facts").origin
    };
    assert!(name(&mut online).starts_with(&server.address));
    let requested = server.requests().len();
    name(&mut online);
    assert_eq!(server.requests().len(), requested, "what was found is kept");

    let snapshot = root.path().join("models--org--head/snapshots/abc");
    fs::create_dir_all(&snapshot).expect("a folder");
    fs::create_dir_all(root.path().join("models--org--head/refs")).expect("a folder");
    fs::write(root.path().join("models--org--head/refs/main"), "abc").expect("a file");
    fs::write(snapshot.join("config.json"), r#"{"architectures": ["A"]}"#).expect("a file");
    assert!(name(&mut Sources::new(Some(HubCache::at(root.path())), hub())).contains("snapshots"));
    assert_eq!(server.requests().len(), requested);
}

#[test]
fn a_branch_with_slashes_is_one_part_of_the_address() {
    let files = head().into_iter().map(|(path, bytes)| (path.replace("main", "refs%2Fpr%2F1"), bytes)).collect();
    let server = Server::start(files, Manners::default());
    let model = Hub::new(&server.address, None).model("org/head", "refs/pr/1").expect("an id");
    let gathered = gather(&model, "org/head", ModelPlaces::default()).expect("facts");
    assert_eq!(gathered.facts.config.draft_vocab_size, Some(1024));
}

#[test]
fn a_remote_file_knows_its_address() {
    let model = Hub::new("http://mirror/", None).model("org/head", "v1").expect("an id");
    assert_eq!(model.place("config.json"), "http://mirror/org/head/resolve/v1/config.json");
    let branch = Hub::new("http://mirror", None).model("org/head", "refs/pr/1").expect("a branch");
    assert_eq!(branch.place("config.json"), "http://mirror/org/head/resolve/refs%2Fpr%2F1/config.json");
    assert!(Hub::new("http://mirror", None).model("../x", "main").is_none());
    assert!(Hub::new("http://mirror", None).model("org/head", "a/../b").is_none());
}
