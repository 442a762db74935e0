//! A caller of the service: over the network, or within the process that has its store.

mod error;
mod events;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt;

pub use error::ClientError;
pub use events::{Event, Events};

use crate::http::{self, Hosts, RouterOptions};
use crate::service::Service;
use crate::wire::Problem;

/// The most of an answer that is read.
const LARGEST_ANSWER: usize = 256 << 20;
/// How long a connection is silent before it is asked whether it is still one.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(10);

/// A caller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    way: Way,
    key: Option<HeaderValue>,
}

/// Connections by HTTP, with TLS or without.
pub(crate) type Http<B> = HttpClient<HttpsConnector<HttpConnector>, B>;

/// Connections that are made in time and kept for the next request.
pub(crate) fn http_client<B>() -> std::io::Result<Http<B>>
where
    B: hyper::body::Body + Send,
    B::Data: Send,
{
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECTING));
    connector.set_keepalive(Some(KEEPALIVE));
    let secure = HttpsConnectorBuilder::new()
        .with_native_roots()?
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    let client = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .build(secure);
    Ok(client)
}

#[derive(Clone, Debug)]
enum Way {
    Remote {
        http: Http<Body>,
        /// Without a slash at its end.
        base: String,
    },
    Local(Router),
}

impl Client {
    /// A caller of the service at that address.
    pub fn remote(url: &str, key: Option<&str>) -> Result<Self, ClientError> {
        let bad = |why: &str| ClientError::BadUrl {
            url: url.to_owned(),
            why: why.to_owned(),
        };
        let uri: Uri = url.parse().map_err(|_| bad("it is not a URL"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.authority().is_none() {
            return Err(bad("it does not begin with http:// or https:// and a host"));
        }
        if uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
            || uri.query().is_some()
        {
            return Err(bad("it holds more than a host and a path"));
        }
        let http =
            http_client().map_err(|error| bad(&format!("there are no certificates to trust: {error}")))?;
        Ok(Self {
            way: Way::Remote {
                http,
                base: url.trim_end_matches('/').to_owned(),
            },
            key: key.map(header_of).transpose()?,
        })
    }

    /// A caller of a service in this process.
    pub fn local(service: Arc<Service>) -> Self {
        Self {
            way: Way::Local(http::router(
                service,
                RouterOptions::new(LARGEST_ANSWER, Hosts::any()),
            )),
            key: None,
        }
    }

    /// The address of the service; empty within its own process.
    pub fn base(&self) -> &str {
        match &self.way {
            Way::Remote { base, .. } => base,
            Way::Local(_) => "",
        }
    }

    /// Asks, and reads the answer.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let bytes = self.bytes(method, path, body).await?;
        // What has no body is as good as null.
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(bytes).map_err(|error| ClientError::Answer(error.to_string()))
    }

    /// Asks, and gives the answer as it is.
    pub async fn bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Vec<u8>, ClientError> {
        read_all(self.send(method, path, body, &[]).await?).await
    }

    /// Asks, and hands the answer on line by line, however long it is.
    pub async fn lines<E: From<ClientError>>(
        &self,
        path: &str,
        mut take: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut body = self.send(Method::GET, path, None::<&()>, &[]).await?.into_body();
        let mut rest = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ClientError::Broken(error.to_string()))?;
            rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            let Some(whole) = rest.iter().rposition(|byte| *byte == b'\n') else {
                continue;
            };
            let lines: Vec<u8> = rest.drain(..=whole).collect();
            for line in String::from_utf8_lossy(&lines).lines() {
                take(line)?;
            }
        }
        Ok(())
    }

    /// Asks for something that is told as it happens.
    pub async fn events(&self, path: &str, body: &impl Serialize) -> Result<Events, ClientError> {
        let response = self.send(Method::POST, path, Some(body), &[]).await?;
        Ok(Events::new(response.into_body()))
    }

    /// Puts bytes as they are.
    pub async fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), ClientError> {
        let request = self
            .request(Method::PUT, path)
            .header(header::CONTENT_TYPE, "application/octet-stream");
        self.answer(request, Body::from(bytes)).await.map(drop)
    }

    /// Asks; a problem is an error.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        headers: &[(&'static str, &str)],
    ) -> Result<Response<Body>, ClientError> {
        let mut request = self.request(method, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            None => Body::empty(),
            Some(value) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                let text =
                    serde_json::to_vec(value).map_err(|error| ClientError::Answer(error.to_string()))?;
                Body::from(text)
            }
        };
        self.answer(request, body).await
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base()));
        match &self.key {
            Some(key) => request.header(header::AUTHORIZATION, key),
            None => request,
        }
    }

    async fn answer(&self, request: Builder, body: Body) -> Result<Response<Body>, ClientError> {
        let request = request
            .body(body)
            .map_err(|error| ClientError::Answer(error.to_string()))?;
        let response = match &self.way {
            Way::Local(router) => match router.clone().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Way::Remote { http, base } => http
                .request(request)
                .await
                .map_err(|error| ClientError::unreachable(base, &error))?
                .map(Body::new),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let bytes = read_all(response).await?;
        Err(match serde_json::from_slice::<Problem>(&bytes) {
            Ok(problem) => ClientError::Problem(Box::new(problem)),
            Err(_) => ClientError::Answer(format!(
                "status {status}, and no problem document; is it a belljar service?"
            )),
        })
    }
}

fn header_of(key: &str) -> Result<HeaderValue, ClientError> {
    let mut value =
        HeaderValue::from_str(&format!("Bearer {}", key.trim())).map_err(|_| ClientError::BadKey)?;
    // So that no log shows it.
    value.set_sensitive(true);
    Ok(value)
}

async fn read_all(response: Response<Body>) -> Result<Vec<u8>, ClientError> {
    let collected = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
    let body = collected.map_err(|error| ClientError::Broken(error.to_string()))?;
    Ok(body.to_bytes().into())
}
