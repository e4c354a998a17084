//! The address of a server, as people and clients of the OpenAI API write it.

/// The address of a server without the path of an API, which those clients include.
///
/// # Errors
/// When it is not the address of a server: what is wrong with it, and what to write.
pub fn server_address(url: &str) -> Result<String, String> {
    let wrong = |reason: &str| Err(format!("{reason}, such as http://127.0.0.1:30000"));
    let Some((scheme, rest)) = url.split_once("://") else {
        return wrong(&format!("{url} is not a URL: give scheme, host and port"));
    };
    if !matches!(scheme, "http" | "https") {
        return wrong(&format!("{scheme} is not supported: give an http or https URL"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return wrong(
            "the URL contains a user name or a password: give the key by --api-key-env NAME, and a plain URL",
        );
    }
    if authority.is_empty() || rest.contains(['?', '#', ' ']) {
        return wrong(&format!(
            "{scheme}://{authority} with a query or without a host is not the address of a server: give scheme, host and port"
        ));
    }
    let (_, port) = split(authority);
    let is_port =
        |port: &str| port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    if let Some(port) = port.filter(|port| !is_port(port)) {
        return wrong(&format!("'{port}' of {url} is not a port: give one from 1 to 65535"));
    }
    let plain = url.trim_end_matches('/');
    Ok(plain.strip_suffix("/v1").unwrap_or(plain).trim_end_matches('/').to_owned())
}

/// Host and port of a server's address. The host is in lower case and without a dot at its end; the
/// port is that of the scheme if none is written.
pub fn host_and_port(url: &str) -> (String, u16) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (host, port) = split(rest.split(['/', '?', '#']).next().unwrap_or_default());
    let own = if scheme == "https" { 443 } else { 80 };
    (host.to_lowercase().trim_end_matches('.').to_owned(), port.and_then(|port| port.parse().ok()).unwrap_or(own))
}

/// Whether a host, as [`host_and_port`] gives it, is always the machine that asks.
pub fn is_this_host(host: &str) -> bool {
    host.starts_with("127.") || ["localhost", "[::1]", "0.0.0.0", "[::]"].contains(&host)
}

/// The host of an address, and its port as it is written.
fn split(authority: &str) -> (&str, Option<&str>) {
    // An address of IPv6 has colons in its brackets.
    match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_as_clients_write_them_and_keys_are_not() {
        for (url, expected) in [
            ("http://127.0.0.1:30000", "http://127.0.0.1:30000"),
            ("http://127.0.0.1:30000/v1/", "http://127.0.0.1:30000"),
            ("https://host/engine/v1", "https://host/engine"),
        ] {
            assert_eq!(server_address(url).expect("a URL"), expected);
        }
        for (url, words) in [
            ("127.0.0.1:30000", "is not a URL"),
            ("ftp://host", "ftp is not supported"),
            ("http://me:sk-secret@host", "--api-key-env"),
            ("http://", "without a host"),
        ] {
            let reported = server_address(url).expect_err(url);
            assert!(reported.contains(words) && !reported.contains("sk-secret"), "{reported}");
        }
    }

    #[test]
    fn hosts_have_one_spelling_and_ports_a_default() {
        for (url, host, port, is_here) in [
            ("http://LocalHost:30000/engine", "localhost", 30_000, true),
            ("http://127.0.0.1/v1", "127.0.0.1", 80, true),
            ("https://[::1]", "[::1]", 443, true),
            ("http://[::]:8000", "[::]", 8_000, true),
            ("https://llm.example.org.:8443", "llm.example.org", 8_443, false),
        ] {
            assert_eq!(host_and_port(url), (host.to_owned(), port));
            assert_eq!(is_this_host(host), is_here, "{host}");
        }
    }

    #[test]
    fn a_port_that_is_none_is_refused_before_anything_is_sent() {
        for port in ["99999", "abc", "-5", "", "+80", "0"] {
            let reason = server_address(&format!("http://127.0.0.1:{port}")).expect_err(port);
            assert!(reason.starts_with(&format!("'{port}' of ")), "{reason}");
        }
        for (url, expected) in [
            ("http://[::1]:30000/v1/", "http://[::1]:30000"),
            ("https://models.example", "https://models.example"),
            ("http://[::1]", "http://[::1]"),
        ] {
            assert_eq!(server_address(url).as_deref(), Ok(expected));
        }
    }
}
