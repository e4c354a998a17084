//! What a request must bring before a page sees it: the key, a JSON body of a sensible size, a server that goes on.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{FromRequest, MatchedPath, Request, State as Shared},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{error::ApiError, fields::Fields, state::State};

/// Largest body in bytes.
pub const LARGEST_BODY: usize = 8 << 20;

/// The fields of a JSON body.
pub struct JsonBody(pub Fields);

impl FromRequest<Arc<State>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, ApiError> {
        if state.is_stopping() {
            return Err(ApiError::stopping());
        }
        check_content_type(request.headers())?;
        match Bytes::from_request(request, state).await {
            Ok(bytes) => Fields::parse(&bytes).map(Self),
            Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(ApiError::too_large(LARGEST_BODY))
            }
            Err(rejection) => Err(ApiError::invalid(format!("the body cannot be read: {rejection}"))),
        }
    }
}

/// Another type than JSON is refused, which also keeps pages of other sites, read in a browser on this machine, from
/// sending requests here. No type at all is taken for JSON.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let given = String::from_utf8_lossy(given.as_bytes());
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    if is_json { Ok(()) } else { Err(ApiError::not_json(&given)) }
}

/// Asks for the key, where the server has one.
pub async fn check_key(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    let Some(key) = &state.options.api_key else { return next.run(request).await };
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.split_once(' '));
    let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, given)| given.trim());
    // Hashes are compared, so that the time says nothing of how much of the key was right.
    let matches = given.is_some_and(|given| blake3::hash(given.as_bytes()) == blake3::hash(key.as_bytes()));
    if matches { next.run(request).await } else { ApiError::unauthorized().into_response() }
}

/// Counts answers by page and status.
pub async fn count(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    let page = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    tracing::debug!(page, status = response.status().as_u16(), "answered");
    state.metrics.answered(page, response.status().as_u16());
    response
}
