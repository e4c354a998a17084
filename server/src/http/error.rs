//! Errors in OpenAI's format.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use engine::{EngineError, FinishReason};
use serde_json::{Value, json};

/// Seconds after which a client may try again when the queue is full.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    parameter: Option<String>,
    message: String,
}

impl ApiError {
    /// The request is invalid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid_request_error",
            code: None,
            parameter: None,
            message: message.into(),
        }
    }

    /// A parameter is invalid.
    pub fn parameter(name: &str, message: impl Into<String>) -> Self {
        Self { parameter: Some(name.to_owned()), ..Self::invalid(message) }
    }

    /// The model does not exist.
    pub fn no_model(requested: &str, served: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            code: Some("model_not_found"),
            ..Self::parameter("model", format!("the model '{requested}' does not exist; this server has '{served}'"))
        }
    }

    /// Prompt and output exceed the context. `parameter` contains the prompt; `requested` is the
    /// requested number of output tokens, if given.
    pub fn context_length(parameter: &str, most: usize, prompt: usize, requested: Option<usize>) -> Self {
        // OpenAI's wording, which clients search for.
        let (verb, details) = match requested {
            Some(requested) => (
                format!("you requested {} tokens", prompt.saturating_add(requested)),
                format!(" ({prompt} in the {parameter}, {requested} in the completion)"),
            ),
            None => (format!("your {parameter} resulted in {prompt} tokens"), String::new()),
        };
        let message = format!(
            "This model's maximum context length is {most} tokens. However, {verb}{details}. Please reduce the length \
             of the {parameter}{}.",
            if requested.is_some() { " or completion" } else { "" }
        );
        Self { code: Some("context_length_exceeded"), ..Self::parameter(parameter, message) }
    }

    /// The prompt alone exceeds the context: it has at least this many tokens, and not all were
    /// counted.
    pub fn far_too_long(parameter: &str, most: usize, least: usize) -> Self {
        let message = format!(
            "This model's maximum context length is {most} tokens. However, your {parameter} resulted in at least {least} \
             tokens. Please reduce the length of the {parameter}."
        );
        Self { code: Some("context_length_exceeded"), ..Self::parameter(parameter, message) }
    }

    /// The body is compressed in a way that the server does not read.
    pub fn encoding(given: &str) -> Self {
        let message = format!("the body's Content-Encoding is '{given}', expected gzip or none");
        Self { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, ..Self::invalid(message) }
    }

    /// Whether the prompt and the requested output exceed the context.
    pub fn is_too_long(&self) -> bool {
        self.code == Some("context_length_exceeded")
    }

    /// The path does not exist.
    pub fn no_route(method: &str, path: &str) -> Self {
        Self { status: StatusCode::NOT_FOUND, ..Self::invalid(format!("there is no {method} {path} here")) }
    }

    /// The endpoint does not support this method.
    pub fn wrong_method(method: &str, path: &str) -> Self {
        Self { status: StatusCode::METHOD_NOT_ALLOWED, ..Self::invalid(format!("{path} does not support {method}")) }
    }

    /// The body is too large.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {} MiB", limit >> 20);
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, ..Self::invalid(message) }
    }

    /// The body is not JSON.
    pub fn not_json(found: &str) -> Self {
        let message = format!("the content type is '{found}'; send JSON with 'Content-Type: application/json'");
        Self { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, ..Self::invalid(message) }
    }

    /// The key is missing or wrong.
    pub fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            code: Some("invalid_api_key"),
            ..Self::invalid("give the server's key as 'Authorization: Bearer KEY'")
        }
    }

    /// The body does not arrive.
    pub fn slow_body(seconds: u64) -> Self {
        let message = format!("no data of the request body arrived for {seconds} s");
        Self { status: StatusCode::REQUEST_TIMEOUT, ..Self::invalid(message) }
    }

    /// The body arrives too slowly.
    pub fn slow_upload(seconds: u64) -> Self {
        let message = format!("the request body did not arrive within {seconds} s");
        Self { status: StatusCode::REQUEST_TIMEOUT, ..Self::invalid(message) }
    }

    /// There are too many connections.
    pub fn crowded() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "server_error",
            code: Some("too_many_connections"),
            ..Self::invalid("the server has reached its maximum number of connections; try again later")
        }
    }

    /// Requests have used up the memory limit.
    pub fn no_memory() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "server_error",
            code: Some("memory_full"),
            ..Self::invalid("requests have used up the memory limit (--max-request-memory); try again later")
        }
    }

    /// The queue is full.
    pub fn busy(limit: usize) -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: "rate_limit_error",
            code: Some("queue_full"),
            ..Self::invalid(format!("{limit} requests are running or waiting, which is the limit; try again later"))
        }
    }

    /// The server is shutting down.
    pub fn stopping() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "server_error",
            code: Some("shutting_down"),
            ..Self::invalid("the server is shutting down")
        }
    }

    /// The error for a choice with this finish reason, if any. `stopping` says whether the server
    /// is shutting down: a partial response must not look complete, unless the client requested the
    /// abort.
    pub fn from_end(reason: &FinishReason, stopping: bool) -> Option<Self> {
        match reason {
            FinishReason::Cancelled if stopping => Some(Self::stopping()),
            FinishReason::Cancelled => None,
            FinishReason::NotFinite(position) => Some(EngineError::NotFinite { position: *position }.into()),
            // A client error, since a retry with the same grammar would fail again.
            FinishReason::Grammar(why) => Some(Self::invalid(format!("the output cannot follow its grammar: {why}"))),
            FinishReason::StopToken(_) | FinishReason::StopString(_) | FinishReason::Length => None,
        }
    }

    /// The engine failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "server_error", ..Self::invalid(message) }
    }

    /// The engine ended before a request was finished.
    pub fn cut_off() -> Self {
        Self::failed("the engine stopped before the request was finished")
    }

    /// The engine makes no progress.
    pub fn stuck(seconds: u64) -> Self {
        let message = format!("the engine made no progress for {seconds} s");
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..Self::failed(message) }
    }

    /// A grammar is not compiled in time, perhaps since others are being compiled.
    pub fn stuck_on_grammar(seconds: u64) -> Self {
        let message = format!("the required form of the output was not compiled within {seconds} s; simplify it");
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..Self::failed(message) }
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The JSON body of the response.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message, "type": self.kind, "param": self.parameter, "code": self.code,
        }})
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::InvalidRequest(message) => Self::invalid(message),
            other => Self::failed(other.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER);
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // Otherwise the rest of the body would be parsed as the next request.
            StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
