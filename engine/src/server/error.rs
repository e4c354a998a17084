//! Errors as OpenAI writes them.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::EngineError;

/// An answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    parameter: Option<String>,
    message: String,
}

impl ApiError {
    /// Something is wrong with the request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid_request_error",
            code: None,
            parameter: None,
            message: message.into(),
        }
    }

    /// Something is wrong with one parameter.
    pub fn parameter(name: &str, message: impl Into<String>) -> Self {
        Self { parameter: Some(name.to_owned()), ..Self::invalid(message) }
    }

    /// There is no such model.
    pub fn no_model(asked: &str, served: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            code: Some("model_not_found"),
            ..Self::parameter("model", format!("the model '{asked}' does not exist; this server has '{served}'"))
        }
    }

    /// There is no such page.
    pub fn no_route(method: &str, path: &str) -> Self {
        Self { status: StatusCode::NOT_FOUND, ..Self::invalid(format!("there is no {method} {path} here")) }
    }

    /// The page does not take this method.
    pub fn wrong_method(method: &str, path: &str) -> Self {
        Self { status: StatusCode::METHOD_NOT_ALLOWED, ..Self::invalid(format!("{path} does not take {method}")) }
    }

    /// The body is too large.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {} MiB", limit >> 20);
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, ..Self::invalid(message) }
    }

    /// The key is missing or wrong.
    pub fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            code: Some("invalid_api_key"),
            ..Self::invalid("give the server's key as 'Authorization: Bearer KEY'")
        }
    }

    /// The queue is full.
    pub fn busy(limit: usize) -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: "rate_limit_error",
            code: Some("queue_full"),
            ..Self::invalid(format!("{limit} requests are waiting already; try again later"))
        }
    }

    /// The server is about to end.
    pub fn stopping() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "server_error",
            code: Some("shutting_down"),
            ..Self::invalid("the server is shutting down")
        }
    }

    /// The engine failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "server_error", ..Self::invalid(message) }
    }

    /// The object that goes over the wire.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message, "type": self.kind, "param": self.parameter, "code": self.code,
        }})
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::InvalidRequest(message) => {
                let code = message.contains("context length").then_some("context_length_exceeded");
                Self { code, ..Self::invalid(message) }
            }
            other => Self::failed(other.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}
