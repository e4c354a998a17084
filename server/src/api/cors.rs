//! Decides which web pages may use the server from a browser (CORS).
//!
//! A page of any site can be open in a browser on this machine. Without a key it could use a server
//! that is only reachable from this machine. So by default a server without a key allows only pages
//! from this machine.

use std::sync::Arc;

use axum::{
    extract::{Request, State as Shared},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{ServeOptions, state::State};

/// Answers preflight requests, and sets the headers that name the origins allowed to read a
/// response.
pub async fn tell(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else { return next.run(request).await };
    let asks =
        request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let wanted = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = if asks { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    // Also if the origin is refused, so that a cache does not serve this answer to another one.
    headers.append(header::VARY, HeaderValue::from_name(header::ORIGIN));
    if may(&state.options, origin.to_str().unwrap_or_default()) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if asks {
            permit(headers, wanted);
        }
    }
    response
}

fn permit(headers: &mut HeaderMap, wanted: Option<HeaderValue>) {
    let mut set = |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    set(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS");
    set(header::ACCESS_CONTROL_MAX_AGE, "600");
    let any = HeaderValue::from_static("authorization, content-type");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or(any));
}

/// Whether pages of an origin may use the server.
fn may(options: &ServeOptions, origin: &str) -> bool {
    let allowed = &options.allowed_origins;
    if allowed.is_empty() {
        // Without a key any page that a user of this machine opens could otherwise use the server.
        return options.api_key.is_some() || is_of_this_machine(origin);
    }
    allowed.iter().any(|one| one == "*" || one.eq_ignore_ascii_case(origin))
}

fn is_of_this_machine(origin: &str) -> bool {
    let Some((_, host)) = origin.split_once("://") else { return false };
    let host = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let host = host.map_or_else(|| origin.split_once("://").map_or("", |(_, host)| host), |(host, _)| host);
    ["localhost", "127.0.0.1", "[::1]"].contains(&host) || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_machine_may_and_others_where_that_is_safe_or_requested() {
        let check = |allowed: &[&str], key: Option<&str>, origin: &str, expected: bool| {
            let options = ServeOptions {
                api_key: key.map(ToOwned::to_owned),
                allowed_origins: allowed.iter().map(ToString::to_string).collect(),
                ..ServeOptions::default()
            };
            assert_eq!(may(&options, origin), expected, "{allowed:?} {key:?} {origin}");
        };
        for origin in ["http://localhost", "http://localhost:5173", "https://127.0.0.1:1", "http://[::1]:80"] {
            check(&[], None, origin, true);
        }
        for origin in ["http://example.com", "http://localhost.example.com", "null", "", "http://example.com:localhost"]
        {
            check(&[], None, origin, false);
            check(&[], Some("key"), origin, true);
            check(&["*"], None, origin, true);
            check(&["https://a.example"], Some("key"), origin, false);
        }
        check(&["https://a.example"], None, "https://A.example", true);
    }
}
