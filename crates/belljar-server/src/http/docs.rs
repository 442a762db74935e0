//! The description for people: one page, made of the same document, that loads nothing from anywhere.

use std::sync::LazyLock;

use axum::Router;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use serde_json::Value;

use super::{Shared, openapi};

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h2 { margin-top: 3rem; border-bottom: 1px solid #ccc } h3 { margin: 2rem 0 .3rem; font-size: 1rem }
code, pre { font: 14px/1.4 ui-monospace, monospace } pre { background: #f4f4f4; padding: .8rem; overflow: auto }
.m { display: inline-block; min-width: 4.5rem; font-weight: bold; color: #06c }
table { border-collapse: collapse; margin: .5rem 0 } td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } pre { background: #222 } .m { color: #6af } h2 { border-color: #444 } }
";

pub(super) fn routes() -> Router<Shared> {
    static JSON: LazyLock<String> =
        LazyLock::new(|| openapi::document().to_pretty_json().unwrap_or_default());
    static PAGE: LazyLock<String> = LazyLock::new(|| page(&serde_json::from_str(&JSON).unwrap_or_default()));
    let policy = (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'",
    );
    Router::new()
        .route(
            "/openapi.json",
            get(|| async { ([(header::CONTENT_TYPE, "application/json")], JSON.as_str()) }),
        )
        .route(
            "/docs",
            get(move || async move { ([policy], Html(PAGE.as_str())).into_response() }),
        )
}

fn page(api: &Value) -> String {
    let mut text = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>belljar: HTTP API</title><style>{STYLE}</style><h1>belljar</h1><p>{}</p>\
         <p>The same for programs: <a href=/openapi.json>openapi.json</a>. Every request has \
         <code>Authorization: Bearer bj_…</code>.</p>",
        shown(&api["info"]["description"])
    );
    for tag in api["tags"].as_array().into_iter().flatten() {
        text += &format!(
            "<h2>{}</h2><p>{}</p>",
            shown(&tag["name"]),
            shown(&tag["description"])
        );
        for (path, item) in api["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                if operation["tags"][0] == tag["name"] {
                    text += &operation_text(path, method, operation);
                }
            }
        }
    }
    text += "<h2>Forms</h2>";
    for (name, schema) in api["components"]["schemas"].as_object().into_iter().flatten() {
        text += &format!("<h3 id={0}>{0}</h3>{1}", escape(name), schema_text(schema));
    }
    text + "</html>"
}

fn operation_text(path: &str, method: &str, operation: &Value) -> String {
    let mut text = format!(
        "<h3><span class=m>{}</span> <code>{}</code></h3><p>{} {}</p>",
        escape(&method.to_uppercase()),
        escape(path),
        shown(&operation["summary"]),
        shown(&operation["description"])
    );
    let parameters = operation["parameters"].as_array().filter(|list| !list.is_empty());
    if let Some(parameters) = parameters {
        text += "<table>";
        for parameter in parameters {
            text += &format!(
                "<tr><td><code>{}</code><td>{}<td>{}",
                shown(&parameter["name"]),
                shown(&parameter["in"]),
                shown(&parameter["description"])
            );
        }
        text += "</table>";
    }
    if let Some(form) = form_of(&operation["requestBody"]["content"]) {
        text += &format!("<p>Takes {form}.</p>");
    }
    text += "<table>";
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let form = form_of(&response["content"]).unwrap_or_default();
        text += &format!(
            "<tr><td>{}<td>{}<td>{form}",
            escape(status),
            shown(&response["description"])
        );
    }
    text + "</table>"
}

fn form_of(content: &Value) -> Option<String> {
    let forms: Vec<_> = content
        .as_object()?
        .iter()
        .map(|(kind, content)| {
            match content["schema"]["$ref"]
                .as_str()
                .and_then(|name| name.rsplit('/').next())
            {
                Some(name) => format!("<a href=#{0}>{0}</a>", escape(name)),
                None => escape(kind),
            }
        })
        .collect();
    Some(forms.join(" or "))
}

fn schema_text(schema: &Value) -> String {
    let mut text = format!("<p>{}</p>", shown(&schema["description"]));
    match schema["properties"].as_object() {
        None => text += &format!("<pre>{}</pre>", escape(&format!("{schema:#}"))),
        Some(properties) => {
            text += "<table>";
            for (name, property) in properties {
                let kind = match (&property["type"], &property["$ref"]) {
                    (Value::String(kind), _) => escape(kind),
                    (Value::Array(kinds), _) => {
                        let kinds: Vec<_> = kinds.iter().filter_map(Value::as_str).map(escape).collect();
                        kinds.join(" or ")
                    }
                    (_, Value::String(name)) => {
                        let name = escape(name.rsplit('/').next().unwrap_or_default());
                        format!("<a href=#{name}>{name}</a>")
                    }
                    _ => String::new(),
                };
                text += &format!(
                    "<tr><td><code>{}</code><td>{kind}<td>{}",
                    escape(name),
                    shown(&property["description"])
                );
            }
            text += "</table>";
        }
    }
    text
}

fn shown(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
