//! The API's own description, out of the code that answers.

use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::Tag;
use utoipa::openapi::{Components, InfoBuilder, OpenApi};

use super::described;

/// The description, OpenAPI 3.1.
pub fn document() -> OpenApi {
    let (_, mut api) = described().split_for_parts();
    api.info = InfoBuilder::new()
        .title("belljar")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Run code that nobody has read yet, under glass."))
        .build();
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    api.components
        .get_or_insert_with(Components::default)
        .add_security_scheme("key", scheme);
    api.security = Some(vec![SecurityRequirement::new("key", [""; 0])]);
    let tags = [
        ("executions", "Running code and commands"),
        ("sessions", "Interpreters that stay"),
        ("approvals", "What waits for somebody's word"),
        ("policies", "What is permitted"),
        ("records", "What ran, and what was refused"),
        ("audit", "The chain that shows whether a record was changed"),
        ("keys", "Who may do what"),
        ("system", "How the service itself is"),
    ];
    let tag = |(name, about): (&str, &str)| {
        let mut tag = Tag::new(name);
        tag.description = Some(about.to_owned());
        tag
    };
    api.tags = Some(tags.into_iter().map(tag).collect());
    api
}
