//! Every error answer: JSON as in RFC 9457, with advice.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// The kinds of problems, each with its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong in itself.
    Invalid,
    /// There is no token, or a wrong one.
    Unauthorized,
    /// A web page of another origin asks.
    Forbidden,
    /// There is no such page.
    UnknownPage,
    /// The page exists and takes another method.
    WrongMethod,
    /// The request has a body that is too large.
    TooLarge,
    /// The request is for another host.
    HostNotAllowed,
    /// The request took too long, or there are too many connections.
    TooMany,
    /// There is nothing to show yet.
    Starting,
}

impl Kind {
    /// The fixed word for it, which is the last part of its `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::Unauthorized => "unauthorized",
            Kind::Forbidden => "forbidden",
            Kind::UnknownPage => "unknown-page",
            Kind::WrongMethod => "wrong-method",
            Kind::TooLarge => "too-large",
            Kind::HostNotAllowed => "host-not-allowed",
            Kind::TooMany => "too-many",
            Kind::Starting => "starting",
        }
    }

    /// Its status.
    pub fn status(self) -> StatusCode {
        match self {
            Kind::Invalid => StatusCode::BAD_REQUEST,
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::UnknownPage => StatusCode::NOT_FOUND,
            Kind::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::HostNotAllowed => StatusCode::MISDIRECTED_REQUEST,
            Kind::TooMany | Kind::Starting => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Kind::Invalid => "correct the request",
            Kind::Unauthorized => "send the header `Authorization: Bearer TOKEN`",
            Kind::Forbidden => "web pages of other origins may not read this",
            Kind::UnknownPage => "ask for one of the pages in docs/monitoring.md",
            Kind::WrongMethod => "use GET",
            Kind::TooLarge => "send no body",
            Kind::HostNotAllowed => {
                "ask for localhost, 127.0.0.1 or [::1]; nothing else is served on loopback"
            }
            Kind::TooMany | Kind::Starting => "try again in a second",
        }
    }

    pub(crate) fn body(self, detail: &str) -> String {
        let json = serde_json::json!({
            "type": format!("/problems/{}", self.as_str()),
            "title": self.as_str().replace('-', " "),
            "status": self.status().as_u16(),
            "detail": detail,
            "advice": self.advice(),
        });
        format!("{json}\n")
    }

    /// The answer.
    pub fn with(self, detail: &str) -> Response {
        let content = (CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let mut response = (self.status(), [content], self.body(detail)).into_response();
        match self {
            Kind::Unauthorized => {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Kind::TooMany | Kind::Starting => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
