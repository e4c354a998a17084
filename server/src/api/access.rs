//! Checks before a request reaches a handler: the key, the type and size of the body, and that the
//! server is not shutting down.

use std::{
    io::Read,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::BodyDataStream,
    extract::{FromRequest, MatchedPath, Request, State as Shared},
    http::{HeaderMap, HeaderName, HeaderValue, Version, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use flate2::read::MultiGzDecoder;
use futures::StreamExt;

use crate::{
    http::{
        connections::Crowded,
        error::ApiError,
        fields::Fields,
        lanes::{Cancellation, SPOT},
        memory::{Permit, RequestMemory},
    },
    state::State,
};

/// Largest body in bytes.
pub const LARGEST_BODY: usize = 8 << 20;

/// Bodies up to this size are read and discarded before the client receives the error that they are
/// too large: most clients read no response before they have sent everything.
const LARGEST_THROWN_AWAY: usize = 64 << 20;
/// Maximum time to wait for the next bytes of a body.
const BODY_PATIENCE: Duration = Duration::from_secs(20);
/// Maximum time for a whole body.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(120);
/// Maximum time to discard a body.
const THROW_AWAY_PATIENCE: Duration = Duration::from_secs(10);

/// The fields of a JSON body, and the memory accounted for them.
pub struct JsonBody(pub Fields, pub Permit);

impl FromRequest<Arc<State>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, ApiError> {
        let arrived = Instant::now();
        if state.is_stopping() {
            return Err(refuse(request, ApiError::stopping()).await);
        }
        if let Err(error) = check_content_type(request.headers()) {
            return Err(refuse(request, error).await);
        }
        let is_compressed = match compression(request.headers()) {
            Ok(is_compressed) => is_compressed,
            Err(error) => return Err(refuse(request, error).await),
        };
        let (mut body, mut held) = read_body(request, state).await?;
        if body.len() <= SPOT && !is_compressed {
            return Fields::parse(&body).map(|fields| Self(fields.that_arrived(arrived), held));
        }
        let (memory, length) = (state.memory.clone(), body.len());
        let parse = move |_: &Cancellation| {
            if is_compressed {
                body = decompressed(&body, &mut held, &memory)?;
            }
            let fields = Fields::parse(&body)?.that_arrived(arrived);
            drop((body, held));
            // Values in memory are larger than their text, so they are counted again.
            let held = memory.hold(fields.footprint())?;
            Ok(Self(fields, held))
        };
        state.lanes.run(length, parse).await
    }
}

/// The size of a body, if announced by Content-Length.
fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether a body is compressed by gzip.
///
/// # Errors
/// When it is compressed in another way.
fn compression(headers: &HeaderMap) -> Result<bool, ApiError> {
    let Some(given) = headers.get(header::CONTENT_ENCODING) else { return Ok(false) };
    match String::from_utf8_lossy(given.as_bytes()).trim().to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(false),
        "gzip" | "x-gzip" => Ok(true),
        other => Err(ApiError::encoding(other)),
    }
}

/// Decompresses a body within the limits of size and memory.
fn decompressed(body: &[u8], held: &mut Permit, memory: &RequestMemory) -> Result<Vec<u8>, ApiError> {
    const PIECE: usize = 64 << 10;
    let mut decoder = MultiGzDecoder::new(body);
    let mut bytes = Vec::new();
    loop {
        // Piece by piece, since a small body can be decompressed to gigabytes.
        held.join(memory.hold(PIECE)?);
        let begin = bytes.len();
        let piece = decoder.by_ref().take(PIECE as u64).read_to_end(&mut bytes);
        piece.map_err(|error| ApiError::invalid(format!("the body cannot be decompressed: {error}")))?;
        if bytes.len() > LARGEST_BODY {
            return Err(ApiError::too_large(LARGEST_BODY));
        }
        if bytes.len() == begin {
            return Ok(bytes);
        }
    }
}

/// Reads a body within the limits of size, memory and time.
async fn read_body(request: Request, state: &State) -> Result<(Vec<u8>, Permit), ApiError> {
    let announced = announced(request.headers()).unwrap_or_default();
    let too_large = || ApiError::too_large(LARGEST_BODY);
    if announced > LARGEST_BODY {
        return Err(refuse(request, too_large()).await);
    }
    // What a header merely announces is not reserved: the client may never send it.
    if announced > state.memory.free() {
        return Err(refuse(request, ApiError::no_memory()).await);
    }
    let (mut accounted, mut held) = (0, state.memory.hold(0)?);
    let began = Instant::now();
    let mut body = request.into_body().into_data_stream();
    let mut bytes = Vec::new();
    loop {
        let left = patience(began.elapsed())?;
        let next = tokio::time::timeout(left, body.next()).await;
        let piece = match next.map_err(|_| ApiError::slow_body(left.as_secs()))? {
            None => return Ok((bytes, held)),
            Some(Ok(piece)) => piece,
            Some(Err(error)) => return Err(ApiError::invalid(format!("the body cannot be read: {error}"))),
        };
        let length = bytes.len() + piece.len();
        if length > LARGEST_BODY {
            drop((bytes, held));
            throw_away(body).await;
            return Err(too_large());
        }
        if length > accounted {
            // A vector doubles its capacity.
            let further = length.max(2 * accounted).min(LARGEST_BODY) - accounted;
            match state.memory.hold(further) {
                Ok(further) => held.join(further),
                Err(error) => {
                    drop((bytes, held));
                    throw_away(body).await;
                    return Err(error);
                }
            }
            accounted += further;
        }
        bytes.extend_from_slice(&piece);
    }
}

/// Maximum time to wait for the next bytes of a body that has been arriving for this time.
///
/// # Errors
/// When the body takes too long.
fn patience(so_far: Duration) -> Result<Duration, ApiError> {
    let left = UPLOAD_PATIENCE.saturating_sub(so_far).min(BODY_PATIENCE);
    if left.is_zero() { Err(ApiError::slow_upload(UPLOAD_PATIENCE.as_secs())) } else { Ok(left) }
}

/// Refuses a request whose body has not been read. A client that is still sending would otherwise
/// not see the reason, unless it waits for `100 Continue`.
async fn refuse(request: Request, error: ApiError) -> ApiError {
    // Such a client sends its body only after a go-ahead, so there is nothing to read.
    let waits_for_leave = request.headers().contains_key(header::EXPECT);
    // A client that is still sending may not read the answer: the rest is read, within limits.
    if !waits_for_leave && announced(request.headers()).is_none_or(|announced| announced <= LARGEST_THROWN_AWAY) {
        throw_away(request.into_body().into_data_stream()).await;
    }
    error
}

async fn throw_away(mut body: BodyDataStream) {
    let all = async {
        let mut left = LARGEST_THROWN_AWAY;
        while let Some(Ok(piece)) = body.next().await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                break;
            }
        }
    };
    // A client that sends too much too slowly does not see the reason.
    let _ = tokio::time::timeout(THROW_AWAY_PATIENCE, all).await;
}

/// HTTP/1.1 requires a Host header.
pub async fn check_host(request: Request, next: Next) -> Response {
    let missing = request.version() == Version::HTTP_11 && !request.headers().contains_key(header::HOST);
    if missing { ApiError::invalid("the request has no Host header").into_response() } else { next.run(request).await }
}

/// Refuses requests on connections beyond the limit, except for health and metrics.
pub async fn check_crowd(request: Request, next: Next) -> Response {
    // A full server is alive: its monitoring must not restart it.
    let watched = ["/health", "/ready", "/metrics"].contains(&request.uri().path());
    let refused = request.extensions().get::<Crowded>().is_some() && !watched;
    if refused { refuse(request, ApiError::crowded()).await.into_response() } else { next.run(request).await }
}

/// Refuses types other than JSON, which also keeps pages of other sites, opened in a browser on
/// this machine, from sending requests. A missing type counts as JSON.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let given = String::from_utf8_lossy(given.as_bytes());
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    if is_json { Ok(()) } else { Err(ApiError::not_json(&given)) }
}

/// Requires the key, if the server has one.
pub async fn check_key(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    let Some(key) = &state.options.api_key else { return next.run(request).await };
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.split_once(' '));
    let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, given)| given.trim());
    // Hashes are compared, so that the time does not reveal how much of the key was right.
    let matches = given.is_some_and(|given| blake3::hash(given.as_bytes()) == blake3::hash(key.as_bytes()));
    if matches { next.run(request).await } else { refuse(request, ApiError::unauthorized()).await.into_response() }
}

/// Names a request: by the client's `x-request-id`, or by a new id. The response repeats it.
pub async fn name(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    const NAME: HeaderName = HeaderName::from_static("x-request-id");
    /// Longest name that is repeated, in bytes.
    const LONGEST: usize = 256;
    let given = request.headers().get(&NAME).filter(|given| !given.is_empty() && given.len() <= LONGEST).cloned();
    let mut response = next.run(request).await;
    let id = given.map_or_else(|| HeaderValue::try_from(state.new_id("req_")), Ok);
    if let Ok(id) = id {
        response.headers_mut().insert(NAME, id);
    }
    response
}

/// Counts responses by endpoint and status.
pub async fn count(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    // The pattern, not the path: clients could otherwise create any number of metrics.
    let page = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    tracing::debug!(page, status = response.status().as_u16(), "answered");
    state.metrics.answered(page, response.status().as_u16());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_may_neither_stall_nor_take_forever() {
        let seconds = |so_far: u64| patience(Duration::from_secs(so_far)).ok().map(|left| left.as_secs());
        assert_eq!([0, 90, 110, 120, 500].map(seconds), [Some(20), Some(20), Some(10), None, None]);
    }
}
