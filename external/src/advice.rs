//! What to do about a server that does not answer as expected.

use std::env;

use crate::{ServerError, http::AUTHORITIES};

/// Endpoints that generate text.
const GENERATES: [&str; 3] = ["/v1/completions", "/v1/chat/completions", "/generate"];
/// Words of a connection that was closed.
const CLOSED: [&str; 4] = ["reset by peer", "unexpected end of file", "unexpected eof", "peer disconnected"];

/// The error of a failed request to the server at `base`, with what to do about it.
pub fn explained(error: ServerError, base: &str) -> ServerError {
    let ServerError::Request { url, reason } = error else { return error };
    let is_generating = GENERATES.iter().any(|path| url.ends_with(path));
    let advice = match is_generating.then(|| of_generation(&reason)).flatten() {
        Some(advice) => advice.to_owned(),
        None => of_connection(&reason, base),
    };
    ServerError::Request { url, reason: reason + &advice }
}

/// The number of a response's status.
fn status(reason: &str) -> Option<u16> {
    reason.strip_prefix("status ")?.get(..3)?.parse().ok()
}

/// What to do about a server that has described itself before.
fn of_generation(reason: &str) -> Option<&'static str> {
    let lower = reason.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    Some(match status(reason) {
        Some(404) => {
            "; it lists a model that it does not generate with: is there a router in front of it, whose model is not \
             loaded, or a proxy that does not forward this path?"
        }
        Some(413) => "; a proxy limits the size of requests: give the server's own address, or send shorter prompts",
        Some(429 | 503) => {
            "; the server, or a proxy in front of it, turns requests away: send fewer at once (--concurrency), or give the \
             server's own address"
        }
        Some(502 | 504) => {
            "; a proxy gets no answer of the server behind it: see that server's log, or give its own address"
        }
        Some(_) => return None,
        None if has(&["timeout", "timed out"]) => {
            "; no byte came for so long: does the server hang, or does a proxy hold its stream back?"
        }
        None if has(&CLOSED) || has(&["stream ended before"]) => {
            "; the connection was closed before the answer was complete: did the server end, or does a proxy limit how long \
             an answer may take?"
        }
        None => return None,
    })
}

/// What to do about a server that has not answered yet.
fn of_connection(reason: &str, base: &str) -> String {
    let lower = reason.to_lowercase();
    let status = status(reason);
    // Words of the connection, not of a response.
    let has = |words: &[&str]| status.is_none() && words.iter().any(|word| lower.contains(word));
    let (is_tls, is_closed) = (base.starts_with("https://"), has(&CLOSED));
    if has(&["refused"]) {
        format!("; nothing listens there: is the server running, and is the port of {base} right?")
    } else if has(&["certificate"]) {
        of_certificate(reason, env::var(AUTHORITIES).ok().filter(|file| !file.is_empty()))
    } else if is_tls && (is_closed || has(&["invalidcontenttype", "tls", "handshake", "corrupt message"])) {
        format!("; the server does not speak TLS at this port: give http://{}", base.trim_start_matches("https://"))
    } else if has(&["timeout", "timed out", "resolve", "lookup"]) {
        "; are host and port right, and does a firewall allow it?".into()
    } else if !is_tls && (is_closed || has(&["protocol", "http parse"])) {
        format!(
            "; this is not the answer of an HTTP server: if it expects TLS, give https://{}",
            base.trim_start_matches("http://")
        )
    } else if has(&["is not json"]) {
        "; it is neither SGLang nor vLLM nor spectune: are host and port right?".into()
    } else {
        match status {
            Some(404) => {
                "; it is neither SGLang nor vLLM nor spectune, or its API is below another path: give the URL without /v1"
            }
            Some(429) => "; it limits how often it may be asked: wait, or give the server's own address",
            Some(502 | 504) => {
                "; a proxy gets no answer of the server behind it: is it running, and does the proxy know its address?"
            }
            Some(503) => "; the server is not ready yet: wait until it has loaded its model",
            _ => "",
        }
        .into()
    }
}

/// What to do about a certificate that is not accepted; `file` has the authorities that are trusted
/// in place of the public ones.
fn of_certificate(reason: &str, file: Option<String>) -> String {
    let lower = reason.to_lowercase();
    if lower.contains("causedasendentity") {
        format!(
            "; the server's certificate is that of an authority, as `openssl req -x509` makes it, which none may use as its own: \
             make it with -addext basicConstraints=critical,CA:FALSE, and name its PEM file in {AUTHORITIES}"
        )
    } else if lower.contains("not valid for name") {
        "; give a name that the certificate is for in the URL".into()
    } else if lower.contains("expired") || lower.contains("notvalidyet") || lower.contains("not valid yet") {
        "; renew the certificate, or correct this machine's clock".into()
    } else {
        match file {
            Some(file) => {
                format!("; no authority in {file} ({AUTHORITIES}) has signed it: name the file of the one that has")
            }
            None => format!("; if it was signed by a private authority, name its PEM file in {AUTHORITIES}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advised(url: &str, reason: &str) -> String {
        let error = ServerError::Request { url: url.into(), reason: reason.into() };
        explained(error, url.rsplit_once("/v1").map_or(url, |(base, _)| base)).to_string()
    }

    #[test]
    fn advice_about_a_server_under_load_is_not_that_about_one_that_never_answered() {
        for (reason, listing, generating) in [
            ("status 503: busy", "not ready yet", "turns requests away"),
            ("status 429: slow down", "how often it may be asked", "turns requests away"),
            ("status 504: x", "does the proxy know its address", "see that server's log"),
            ("status 404: x", "give the URL without /v1", "does not generate with"),
            ("io: Connection reset by peer", "if it expects TLS", "before the answer was complete"),
            ("Peer disconnected", "if it expects TLS", "before the answer was complete"),
            ("timeout: per read", "does a firewall allow it", "does a proxy hold its stream back"),
        ] {
            let listed = advised("http://h:1/v1/models", reason);
            assert!(listed.contains(listing), "{listed}");
            let generated = advised("http://h:1/v1/completions", reason);
            assert!(generated.contains(generating), "{generated}");
        }
        // Words of a response are not those of a connection.
        assert!(!advised("http://h:1/v1/models", "status 500: connection refused").contains("nothing listens"));
    }

    #[test]
    fn advice_about_a_certificate_fits_what_is_wrong_with_it() {
        for (reason, expected) in [
            ("io: invalid peer certificate: UnknownIssuer", "name its PEM file in SSL_CERT_FILE"),
            ("io: invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "CA:FALSE"),
            ("io: invalid peer certificate: certificate not valid for name \"127.0.0.1\"", "give a name that"),
            ("io: invalid peer certificate: Expired", "renew the certificate"),
        ] {
            let said = of_certificate(reason, None);
            assert!(said.contains(expected), "{said}");
        }
        let said = of_certificate("io: invalid peer certificate: UnknownIssuer", Some("ca.pem".into()));
        assert!(said.contains("no authority in ca.pem (SSL_CERT_FILE) has signed it"), "{said}");
    }
}
