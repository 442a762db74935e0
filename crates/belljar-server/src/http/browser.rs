//! Rejects what a web page of another origin can send: a layer in front of every route.
//!
//! A browser lets any page send "simple" requests (RFC 6454 and the Fetch standard) and open WebSockets to any address, also
//! to loopback, with whatever the page likes in them. It says truthfully where they come from: in `Host`, `Origin` and
//! `Sec-Fetch-Site`, which no page can change. The layer never answers with CORS headers, so a request that is not simple
//! does not get past the browser's preflight.
//!
//! Programs send neither `Origin` nor `Sec-Fetch-Site` and are not concerned.

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use belljar_core::ErrorKind;

use super::Shared;
use super::answer::Failed;
use super::hosts::Hosts;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// How much of a header is repeated in a message.
const MAX_QUOTED: usize = 100;

/// Passes a request on that no page of another origin can have sent.
pub(super) async fn check(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Result<Response, Failed> {
    let host = check_host(&shared.hosts, &request)?;
    check_origin(&shared.hosts, request.headers(), host.as_ref())?;
    check_body(&request)?;
    Ok(next.run(request).await)
}

/// Compares `Host` with the service's names.
fn check_host(hosts: &Hosts, request: &Request) -> Result<Option<Authority>, Failed> {
    let invalid = |detail: &str| {
        let hint = "send one Host header with the name and the port of the service";
        Failed::new(ErrorKind::Usage, detail).hint(hint)
    };
    let Some(value) = only(request.headers(), &HOST).map_err(|()| invalid("there is more than one Host"))?
    else {
        return match hosts.may_be_missing() {
            true => Ok(None),
            false => Err(invalid("there is no Host")),
        };
    };
    let host = value.to_str().ok().and_then(|text| text.parse().ok());
    let host: Authority = host.ok_or_else(|| invalid(&format!("Host `{}` is not one", quoted(value))))?;
    // A target that is a whole URL has a host of its own, and proxies disagree about which one counts.
    if request.uri().authority().is_some_and(|target| *target != host) {
        return Err(invalid("the request's target has another host than Host"));
    }
    match hosts.accepts(&host) {
        true => Ok(Some(host)),
        false => {
            let detail = format!("Host `{}` is not a name of this service", quoted(value));
            Err(Failed::new(ErrorKind::Forbidden, detail).hint(
                "address the service as localhost or by its IP address, or start it with --allowed-host NAME",
            ))
        }
    }
}

/// Rejects requests that a browser sends for a page of another origin.
fn check_origin(hosts: &Hosts, headers: &HeaderMap, host: Option<&Authority>) -> Result<(), Failed> {
    let foreign = |detail: String| {
        Failed::new(ErrorKind::Forbidden, detail).hint(
            "send it from a program, or from a page of the service's own origin; where a proxy changes Host, start the \
             service with --allowed-host NAME",
        )
    };
    for origin in headers.get_all(ORIGIN) {
        let is_own = origin
            .to_str()
            .is_ok_and(|origin| hosts.owns_origin(origin, host));
        if !is_own {
            let detail = format!("Origin `{}` is not the origin of this service", quoted(origin));
            return Err(foreign(detail));
        }
    }
    // A GET without CORS has no Origin; current browsers send this one with it, to loopback and over TLS.
    for site in headers.get_all(SEC_FETCH_SITE) {
        if !matches!(site.as_bytes(), b"same-origin" | b"none") {
            let detail = format!(
                "Sec-Fetch-Site `{}`: a page of another origin sent this",
                quoted(site)
            );
            return Err(foreign(detail));
        }
    }
    Ok(())
}

/// The media types that a page can send without asking first, in a preflight.
const SIMPLE: [&str; 3] = [
    "text/plain",
    "multipart/form-data",
    "application/x-www-form-urlencoded",
];

/// What a route accepts as a body. Nothing of it is simple.
#[derive(Clone, Copy, Debug)]
enum Accepted {
    /// These; the first one is the one to recommend.
    Types(&'static [&'static str]),
    /// A file of any other type, or of none: a PUT is never simple, and `curl --upload-file` tells no type.
    File,
}

impl Accepted {
    fn by_route(route: &str) -> Self {
        match route {
            "/v1/batches" => {
                Self::Types(&["application/x-ndjson", "application/ndjson", "application/jsonl"])
            }
            "/v1/sessions/{id}/file" => Self::File,
            _ => Self::Types(&["application/json"]),
        }
    }

    fn accepts(self, sent: Option<&HeaderValue>) -> bool {
        let Some(sent) = sent else {
            return matches!(self, Self::File);
        };
        let essence = sent.to_str().unwrap_or_default().split(';').next();
        let essence = essence.unwrap_or_default().trim();
        let is = |known: &&str| known.eq_ignore_ascii_case(essence);
        match self {
            Self::Types(types) => types.iter().any(is),
            Self::File => essence.contains('/') && !SIMPLE.iter().any(is),
        }
    }

    fn recommended(self) -> &'static str {
        match self {
            Self::Types(types) => types.first().unwrap_or(&"application/json"),
            Self::File => "application/octet-stream",
        }
    }
}

/// Requires the media type of the route for a body, and that it is not compressed.
fn check_body(request: &Request) -> Result<(), Failed> {
    // What leads nowhere is told by whoever looks for the route.
    let Some(route) = request.extensions().get::<MatchedPath>() else {
        return Ok(());
    };
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads || request.body().is_end_stream() {
        return Ok(());
    }
    let headers = request.headers();
    let unsupported =
        |detail: String| Failed::new(ErrorKind::Usage, detail).status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for encoding in headers.get_all(CONTENT_ENCODING) {
        if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") {
            let detail = format!("Content-Encoding `{}` is not supported", quoted(encoding));
            return Err(unsupported(detail).hint("send the body uncompressed"));
        }
    }
    let accepted = Accepted::by_route(route.as_str());
    let sent = only(headers, &CONTENT_TYPE);
    if sent.is_ok_and(|sent| accepted.accepts(sent)) {
        return Ok(());
    }
    let detail = match sent {
        Ok(Some(value)) => format!("Content-Type `{}` is not accepted here", quoted(value)),
        Ok(None) => "Content-Type is missing".to_owned(),
        Err(()) => "there is more than one Content-Type".to_owned(),
    };
    let hint = format!("send `Content-Type: {}`", accepted.recommended());
    Err(unsupported(detail).hint(&hint))
}

/// The value of a header that may be there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        _ => Err(()),
    }
}

/// A caller's header as it can stand in a message.
fn quoted(value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes());
    text.chars()
        .take(MAX_QUOTED)
        .flat_map(char::escape_debug)
        .collect()
}
