//! The Hugging Face hub, or a mirror with the same API.

use std::{ffi::OsString, ops::Range, path::PathBuf, time::Duration};

use serde::Deserialize;
use ureq::{Agent, Body, http::Response};

use crate::{
    Error, FilePart, Files, ModelSource,
    cache::{home, short_text, variable},
    names::{is_id, is_revision},
};

/// The hub's address, unless `HF_ENDPOINT` is set.
const ENDPOINT: &str = "https://huggingface.co";

/// Maximum time for one request, including its response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Connection timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of files of a model whose headers are fetched.
const MOST_HEADERS: usize = 8;

/// Maximum size of the list of a model's files, in bytes.
const LONGEST_LISTING: u64 = 8 << 20;

/// A client of the hub. It sends no request until a file is read.
#[derive(Clone, Debug)]
pub struct Hub {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

impl Hub {
    /// The hub of the environment: `HF_ENDPOINT`, and the token in `HF_TOKEN`, or else in the file
    /// that `huggingface-cli login` writes (`HF_TOKEN_PATH`, or else `token` in the folder that
    /// also contains the cache).
    pub fn from_environment() -> Self {
        let text = |name: &str| variable(name)?.into_string().ok().filter(|value| !value.trim().is_empty());
        let file = || short_text(&token_file(variable)?);
        let token = text("HF_TOKEN").or_else(|| text("HUGGING_FACE_HUB_TOKEN")).or_else(file);
        Self::new(text("HF_ENDPOINT").as_deref().unwrap_or(ENDPOINT), token.as_deref())
    }

    /// Whether it has a token, which gated models need.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The hub at an address, with a token for gated models.
    pub fn new(endpoint: &str, token: Option<&str>) -> Self {
        // The token is only for the hub: redirects to other hosts are sent without it, which is
        // this client's default.
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(5)
            .user_agent(concat!("spectune/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .build();
        let token =
            token.map(str::trim).filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
        Self {
            agent: config.into(),
            endpoint: endpoint.trim().trim_end_matches('/').to_owned(),
            token: token.map(str::to_owned),
        }
    }

    /// The files of a model at a revision (a branch, a tag or a commit); `None` if the id or the
    /// revision is invalid.
    pub fn model(&self, id: &str, revision: &str) -> Option<Remote> {
        // In a URL a revision is one path segment, so slashes in it are encoded.
        let revision = is_revision(revision).then(|| revision.replace('/', "%2F"))?;
        is_id(id).then(|| Remote { hub: self.clone(), id: id.to_owned(), revision })
    }

    /// Requests the bytes of a URL; `None` if it does not exist.
    fn get(&self, url: &str, range: Option<Range<u64>>) -> Result<Option<Response<Body>>, Error> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if let Some(range) = range {
            request = request.header("Range", format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
        }
        let response = request.call().map_err(|error| unreachable(url, &error))?;
        let refused = |status, hint| Error::Refused { url: url.to_owned(), status, hint };
        match response.status().as_u16() {
            200 | 206 => Ok(Some(response)),
            // 416: the file is shorter than the start of the range.
            404 | 416 => Ok(None),
            // Without a token, the hub gives the same response for a missing model as for a private
            // one.
            status @ (401 | 403) => {
                Err(refused(status, ": no such model, or it is gated; set HF_TOKEN to a token that may read it"))
            }
            status @ 429 => Err(refused(status, ": too many requests; try again later, or set HF_TOKEN")),
            status => Err(refused(status, "")),
        }
    }
}

/// The file in which `huggingface-cli login` stores its token.
fn token_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = variable("HF_TOKEN_PATH").map(PathBuf::from);
    named.or_else(|| Some(home(variable)?.join("token")))
}

impl ModelSource for Hub {
    fn files(&self, id: &str, revision: &str) -> Option<Box<dyn Files>> {
        Some(Box::new(self.model(id, revision)?))
    }
}

fn unreachable(url: &str, error: &ureq::Error) -> Error {
    Error::Unreachable { url: url.to_owned(), reason: error.to_string() }
}

/// A model on the hub.
#[derive(Clone, Debug)]
pub struct Remote {
    hub: Hub,
    id: String,
    /// Percent-encoded for a URL.
    revision: String,
}

impl Remote {
    fn read(&self, url: &str, response: Response<Body>, limit: u64) -> Result<Vec<u8>, Error> {
        // One extra byte: the client reports its limit as exceeded if a body has exactly this
        // length and its end arrives later.
        match response.into_body().into_with_config().limit(limit.saturating_add(1)).read_to_vec() {
            Ok(bytes) if bytes.len() as u64 > limit => Err(Error::TooLarge { place: url.to_owned(), limit }),
            Ok(bytes) => Ok(bytes),
            Err(ureq::Error::BodyExceedsLimit(_)) => Err(Error::TooLarge { place: url.to_owned(), limit }),
            Err(error) => Err(unreachable(url, &error)),
        }
    }
}

impl Files for Remote {
    fn place(&self, name: &str) -> String {
        format!("{}/{}/resolve/{}/{name}", self.hub.endpoint, self.id, self.revision)
    }

    fn whole(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let url = self.place(name);
        let Some(response) = self.hub.get(&url, None)? else { return Ok(None) };
        self.read(&url, response, limit).map(Some)
    }

    fn part(&self, name: &str, range: Range<u64>) -> Result<Option<FilePart>, Error> {
        let url = self.place(name);
        let length = range.end.saturating_sub(range.start);
        let Some(response) = self.hub.get(&url, Some(range.clone()))? else { return Ok(None) };
        let partial = response.status().as_u16() == 206;
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let size = if partial {
            header("content-range").and_then(|range| range.rsplit('/').next()?.parse().ok())
        } else {
            header("content-length").and_then(|length| length.parse().ok())
        };
        let malformed = |reason: &str| Error::Malformed { place: url.clone(), reason: reason.to_owned() };
        let size = size.ok_or_else(|| malformed("the response does not give the file's length"))?;
        if partial {
            let bytes = self.read(&url, response, length)?;
            return Ok(Some(FilePart { bytes, size }));
        }
        // A server without range requests sends the whole file, of which only the start is cheap to
        // read.
        if range.start > 0 {
            return Err(malformed("the server does not support range requests"));
        }
        use std::io::Read;
        let mut bytes = Vec::new();
        let body = response.into_body().into_reader();
        body.take(length)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::Unreachable { url, reason: error.to_string() })?;
        Ok(Some(FilePart { bytes, size }))
    }

    fn safetensors(&self) -> Result<Vec<String>, Error> {
        #[derive(Deserialize)]
        struct Listing {
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        let url = format!("{}/api/models/{}/revision/{}", self.hub.endpoint, self.id, self.revision);
        let Some(response) = self.hub.get(&url, None)? else { return Ok(Vec::new()) };
        let bytes = self.read(&url, response, LONGEST_LISTING)?;
        let listing: Listing = serde_json::from_slice(&bytes)
            .map_err(|error| Error::Malformed { place: url, reason: format!("not a list of files: {error}") })?;
        let names = listing.siblings.into_iter().map(|sibling| sibling.rfilename);
        Ok(names.filter(|name| name.ends_with(".safetensors")).collect())
    }

    fn most_headers(&self) -> usize {
        MOST_HEADERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_where_huggingface_hub_leaves_it() {
        let everything = [("HF_TOKEN_PATH", "/a"), ("HF_HOME", "/b"), ("XDG_CACHE_HOME", "/c"), ("HOME", "/d")];
        let file = |variables: &[(&str, &str)]| {
            token_file(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        for (variables, expected) in
            [(&everything[..], "/a"), (&everything[1..], "/b/token"), (&everything[2..], "/c/huggingface/token")]
        {
            assert_eq!(file(variables), Some(expected.into()));
        }
        assert_eq!(file(&everything[3..]), Some("/d/.cache/huggingface/token".into()));
        assert_eq!(file(&[]), None);
    }

    #[test]
    fn ids_are_distinguished_from_paths() {
        for (text, expected) in [
            ("org/name-1.5_x", true),
            ("gpt2", true),
            ("/root/name", false),
            ("./name", false),
            ("../name", false),
            ("a/b/c", false),
            ("a/..", false),
            ("", false),
            ("a/", false),
            ("a b/c", false),
            ("a/b?x=1", false),
        ] {
            assert_eq!(is_id(text), expected, "{text}");
        }
    }
}
