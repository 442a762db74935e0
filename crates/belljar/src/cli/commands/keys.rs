//! `belljar keys` and `belljar tenants`.

use axum::http::Method;
use serde_json::{Value, json};

use super::super::args::{KeysArgs, KeysCommand, TenantsArgs, TenantsCommand};
use super::super::ask::{duration, escaped, now, shown_time, with_service};
use super::super::messages;
use super::super::problem::Problem;
use super::super::stdout;
use super::super::table::Table;

const NOTHING: Option<&Value> = None;

pub(crate) fn keys(args: KeysArgs) -> Result<u8, Problem> {
    let json = args.service.json;
    match args.command {
        KeysCommand::Create {
            roles,
            tenant,
            policies,
            expires,
            name,
        } => {
            let expires = expires.map(|text| duration("--expires", &text)).transpose()?;
            let wish = json!({
                "name": name, "tenant_id": tenant, "roles": roles,
                "policies": (!policies.is_empty()).then_some(policies),
                "expires_at": expires.map(|time| now() + time.get()),
            });
            let made: Value = with_service(&args.service, async |client| {
                Ok(client.call(Method::POST, "/v1/keys", Some(&wish)).await?)
            })?;
            if json {
                stdout::json(&made)?;
            } else {
                messages::tell("this is the key; it is shown this once:");
                stdout::print(&format!("{}\n", made["key"].as_str().unwrap_or_default()))?;
            }
        }
        KeysCommand::List => {
            let list: Value = with_service(&args.service, async |client| {
                Ok(client.call(Method::GET, "/v1/keys", NOTHING).await?)
            })?;
            if json {
                stdout::json(&list["keys"])?;
                return Ok(0);
            }
            let mut table = Table::default();
            table.row(["ID", "NAME", "TENANT", "ROLES", "POLICIES", "CREATED", "STATE"]);
            for key in list["keys"].as_array().into_iter().flatten() {
                table.row(key_cells(key));
            }
            stdout::print(&table.render())?;
        }
        KeysCommand::Revoke { id } => {
            let path = format!("/v1/keys/{}", escaped(&id));
            let _: Value = with_service(&args.service, async |client| {
                Ok(client.call(Method::DELETE, &path, NOTHING).await?)
            })?;
            match json {
                true => stdout::json(&json!({ "revoked": id }))?,
                false => messages::tell(&format!("key {id} opens nothing any more")),
            }
        }
    }
    Ok(0)
}

fn key_cells(key: &Value) -> [String; 7] {
    let text = |name: &str| key[name].as_str().unwrap_or("-").to_owned();
    let list = |name: &str| match key[name].as_array() {
        Some(items) => items
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(","),
        None => "any".to_owned(),
    };
    let state = match (key["revoked_at"].as_f64(), key["expires_at"].as_f64()) {
        (Some(_), _) => "revoked".to_owned(),
        (None, Some(expires)) if expires <= now() => "expired".to_owned(),
        (None, Some(expires)) => format!("until {}", shown_time(expires)),
        (None, None) => "valid".to_owned(),
    };
    [
        text("key_id"),
        text("name"),
        key["tenant_id"].as_str().unwrap_or("all").to_owned(),
        list("roles"),
        list("policies"),
        shown_time(key["created_at"].as_f64().unwrap_or_default()),
        state,
    ]
}

pub(crate) fn tenants(args: TenantsArgs) -> Result<u8, Problem> {
    let json = args.service.json;
    match args.command {
        TenantsCommand::Create { id, name } => {
            let wish = json!({ "tenant_id": id, "name": name });
            let made: Value = with_service(&args.service, async |client| {
                Ok(client.call(Method::POST, "/v1/tenants", Some(&wish)).await?)
            })?;
            match json {
                true => stdout::json(&made)?,
                false => messages::tell(&format!("there is a tenant {id} now")),
            }
        }
        TenantsCommand::List => {
            let list: Value = with_service(&args.service, async |client| {
                Ok(client.call(Method::GET, "/v1/tenants", NOTHING).await?)
            })?;
            if json {
                stdout::json(&list["tenants"])?;
                return Ok(0);
            }
            let mut table = Table::default();
            table.row(["ID", "NAME", "CREATED"]);
            for tenant in list["tenants"].as_array().into_iter().flatten() {
                let text = |name: &str| tenant[name].as_str().unwrap_or_default().to_owned();
                let created = shown_time(tenant["created_at"].as_f64().unwrap_or_default());
                table.row([text("tenant_id"), text("name"), created]);
            }
            stdout::print(&table.render())?;
        }
    }
    Ok(0)
}
