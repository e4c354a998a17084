//! Requests to a server, with limits on the size of responses.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use ureq::{
    Agent,
    tls::{PemItem, RootCerts, TlsConfig, parse_pem},
};

use crate::ServerError;

/// Maximum size of a whole response, in bytes.
const LONGEST_ANSWER: u64 = 16 << 20;
/// Variable that names a PEM file of certificate authorities to trust instead of the public ones,
/// as for OpenSSL.
pub const AUTHORITIES: &str = "SSL_CERT_FILE";
/// Largest such file, in bytes.
const LARGEST_AUTHORITIES: u64 = 16 << 20;
/// Maximum length of a line in a stream, in bytes.
const LONGEST_LINE: u64 = 4 << 20;

/// A server's address. Cheap to clone; every request opens its own connection.
#[derive(Clone, Debug)]
pub struct Address {
    agent: Agent,
    /// Such as `http://127.0.0.1:30000`, without a trailing slash.
    base: String,
    /// Sent as `Authorization: Bearer`.
    key: Option<ApiKey>,
}

/// An API key.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key as it is sent.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }
}

impl std::fmt::Debug for ApiKey {
    /// Keys are not printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
    /// Where a redirect leads; redirects are not followed, since a key would go along.
    pub location: Option<String>,
}

impl Address {
    /// A server at a URL; requests wait at most `timeout` for the next bytes of a response.
    pub fn new(base: &str, timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .timeout_connect(Some(Duration::from_secs(5)))
            .timeout_recv_response(Some(timeout))
            .timeout_per_read(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            // A kept-alive connection may be closed by the server just when it is reused.
            .max_idle_connections(0)
            .max_idle_connections_per_host(0)
            .user_agent(concat!("spectune/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity");
        let authorities = if base.starts_with("https:") { authorities() } else { None };
        let config = match authorities {
            Some(authorities) => config.tls_config(TlsConfig::builder().root_certs(authorities).build()),
            None => config,
        };
        let config = config.build();
        Self { agent: config.into(), base: base.trim_end_matches('/').to_owned(), key: None }
    }

    /// The same, with an API key in every request.
    pub fn with_key(self, key: Option<ApiKey>) -> Self {
        Self { key, ..self }
    }

    /// The same server, waiting for at most this time for the next bytes.
    pub fn waiting(&self, timeout: Duration) -> Self {
        Self::new(&self.base, timeout).with_key(self.key.clone())
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// When there is no response in time, or it is too large.
    pub fn get(&self, path: &str) -> Result<HttpAnswer, ServerError> {
        self.whole(path, self.keyed(self.agent.get(self.url(path))).call())
    }

    /// Posts JSON.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn post(&self, path: &str, body: &Value) -> Result<HttpAnswer, ServerError> {
        let request = self.keyed(self.agent.post(self.url(path)).header("Content-Type", "application/json"));
        self.whole(path, request.send(body.to_string()))
    }

    /// Posts JSON to a path whose response is a stream of server-sent events; `each` receives the
    /// JSON of every event and returns whether to continue.
    ///
    /// # Errors
    /// When there is no response in time, the status is not 200, an event is not JSON, or the
    /// stream ends before `[DONE]` while `each` wants to continue.
    pub fn stream(
        &self,
        path: &str,
        body: &Value,
        mut each: impl FnMut(Value) -> Result<bool, String>,
    ) -> Result<(), ServerError> {
        let request = self.keyed(self.agent.post(self.url(path)).header("Content-Type", "application/json"));
        let response = request.send(body.to_string()).map_err(|error| self.failed(path, error.to_string()))?;
        if response.status().as_u16() != 200 {
            let answer = self.whole(path, Ok(response))?;
            return Err(self.refused(path, &answer));
        }
        let mut lines = BufReader::new(response.into_body().into_reader());
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line);
            if read.map_err(|error| self.failed(path, error.to_string()))? == 0 {
                return Err(self.failed(path, "the stream ended before its last event".into()));
            }
            let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { continue };
            if data == b"[DONE]" {
                return Ok(());
            }
            let event =
                serde_json::from_slice(data).map_err(|error| self.failed(path, format!("an event: {error}")))?;
            if !each(event).map_err(|reason| self.failed(path, reason))? {
                return Ok(());
            }
        }
    }

    /// Parses the JSON of a response.
    ///
    /// # Errors
    /// When the status is not 200, or the body is not JSON.
    pub fn json(&self, path: &str, answer: &HttpAnswer) -> Result<Value, ServerError> {
        match answer.status {
            200 => serde_json::from_str(&answer.body).map_err(|error| {
                let words = format!("the response is not JSON ({error}): {}", shortened(&answer.body));
                self.failed(path, words)
            }),
            _ => Err(self.refused(path, answer)),
        }
    }

    /// The error of a response whose status is not 200.
    pub fn refused(&self, path: &str, answer: &HttpAnswer) -> ServerError {
        let help = match (answer.status, &self.key) {
            (401 | 403, None) => {
                "; the server asks for an API key: name the environment variable that holds it with --api-key-env NAME"
            }
            (401 | 403, Some(_)) => "; the server does not accept the API key that was sent",
            _ => "",
        };
        let help = match &answer.location {
            Some(location) if (300..400).contains(&answer.status) => {
                // What was requested is not a part of a server's address.
                let base = location.strip_suffix(path).unwrap_or(location);
                format!("; it redirects to {}: give that address, if it is trusted", shortened(base))
            }
            _ => help.to_owned(),
        };
        let text = match &self.key {
            Some(ApiKey(key)) if !key.is_empty() => answer.body.replace(key.as_str(), "***"),
            _ => answer.body.clone(),
        };
        let body = if text.trim().is_empty() { String::new() } else { format!(": {}", shortened(&text)) };
        self.failed(path, format!("status {}{body}{help}", answer.status))
    }

    fn keyed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.key {
            Some(ApiKey(key)) => request.header("Authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    /// The error of a failed request.
    pub fn failed(&self, path: &str, reason: String) -> ServerError {
        ServerError::Request { url: self.url(path), reason }
    }

    fn whole(
        &self,
        path: &str,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<HttpAnswer, ServerError> {
        let mut response = response.map_err(|error| self.failed(path, error.to_string()))?;
        let status = response.status().as_u16();
        let location = response.headers().get("location").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = response.body_mut().with_config().limit(LONGEST_ANSWER).lossy_utf8(true).read_to_string();
        Ok(HttpAnswer { status, body: body.map_err(|error| self.failed(path, error.to_string()))?, location })
    }
}

/// Checks the file of certificate authorities that the environment names, if the server at `base`
/// needs it: without it the public ones would be trusted instead.
///
/// # Errors
/// When the file cannot be read, or has no certificate.
pub fn check_authorities(base: &str) -> Result<(), ServerError> {
    match authorities_file().filter(|_| base.starts_with("https:")) {
        Some(path) => certificates(&path).map(|_| ()).map_err(|error| {
            let text = format!("{error}; {AUTHORITIES} names it as the file of the certificate authorities to trust");
            ServerError::File { path, source: io::Error::new(error.kind(), text) }
        }),
        None => Ok(()),
    }
}

/// The certificate authorities that the environment names; `None` for the public ones.
fn authorities() -> Option<RootCerts> {
    certificates(&authorities_file()?).ok().map(RootCerts::from)
}

fn authorities_file() -> Option<PathBuf> {
    env::var_os(AUTHORITIES).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The certificates in a PEM file, at least one; what is no certificate is skipped.
fn certificates(path: &Path) -> io::Result<Vec<ureq::tls::Certificate<'static>>> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(LARGEST_AUTHORITIES).read_to_end(&mut text)?;
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    let found: Vec<_> = parse_pem(&text).filter_map(certificate).collect();
    match found.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "it has no certificate in PEM form")),
        false => Ok(found),
    }
}

/// The start of a text, for a message.
fn shortened(text: &str) -> String {
    let short: String = text.trim().chars().take(300).collect();
    if short.len() < text.trim().len() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_names_the_address_of_the_server() {
        let address = Address::new("http://h:1", Duration::from_secs(1));
        for (location, body, expected) in [
            ("https://other/v1/models", "", "http://h:1/v1/models: status 308; it redirects to https://other: give"),
            ("https://other/login", " moved\n", "status 308: moved; it redirects to https://other/login: give"),
        ] {
            let answer = HttpAnswer { status: 308, body: body.into(), location: Some(location.into()) };
            let said = address.refused("/v1/models", &answer).to_string();
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn a_file_without_certificates_does_not_stand_for_the_public_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ca.pem");
        assert_eq!(certificates(&path).expect_err("missing").kind(), io::ErrorKind::NotFound);
        fs::write(&path, "no certificate").expect("a file");
        assert_eq!(certificates(&path).expect_err("empty").kind(), io::ErrorKind::InvalidData);
    }
}
