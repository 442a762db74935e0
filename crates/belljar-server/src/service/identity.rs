//! Who is asking.

use std::collections::BTreeSet;

use super::error::ServiceError;
use super::{DEFAULT_TENANT, Service};
use crate::store::{Key, KeyRow, Role};

/// The id of those who need no key.
const DEV: &str = "dev";

/// Somebody whose key was found good.
#[derive(Clone, Debug)]
pub struct Identity {
    key: KeyRow,
}

impl Identity {
    /// Whoever comes without a key, where that is allowed.
    fn anyone(now: f64) -> Self {
        Self {
            key: KeyRow {
                key_id: DEV.to_owned(),
                ..super::first_key(now)
            },
        }
    }

    /// How it stands in records.
    pub fn label(&self) -> &str {
        &self.key.key_id
    }

    /// The one tenant that the key is for; none: all.
    pub fn tenant(&self) -> Option<&str> {
        self.key.tenant_id.as_deref()
    }

    pub fn may(&self, role: Role) -> Result<(), ServiceError> {
        if self.key.may(role) {
            return Ok(());
        }
        let word = serde_json::to_value(role).unwrap_or_default();
        let word = word.as_str().unwrap_or_default();
        Err(ServiceError::Forbidden(format!(
            "this key does not have the role `{word}`"
        )))
    }

    /// An admin of all tenants.
    pub fn may_operate(&self) -> Result<(), ServiceError> {
        self.may(Role::Admin)?;
        match self.tenant() {
            None => Ok(()),
            Some(_) => Err(ServiceError::Forbidden(
                "this key is for one tenant alone".to_owned(),
            )),
        }
    }

    /// The tenant that a request is for: the key's own, or the one that it names.
    pub fn tenant_for(&self, named: Option<&str>) -> Result<String, ServiceError> {
        match (self.tenant(), named) {
            (Some(own), Some(named)) if own != named => Err(ServiceError::Forbidden(
                "this key is for another tenant".to_owned(),
            )),
            (Some(own), _) => Ok(own.to_owned()),
            (None, named) => Ok(named.unwrap_or(DEFAULT_TENANT).to_owned()),
        }
    }

    /// The tenant whose things may be seen: the key's own whatever is named, or the one that is, or all.
    pub fn tenant_seen(&self, named: Option<&str>) -> Result<Option<String>, ServiceError> {
        match (self.tenant(), named) {
            (None, named) => Ok(named.map(str::to_owned)),
            (Some(_), named) => self.tenant_for(named).map(Some),
        }
    }

    /// Whether something of that tenant may be seen.
    pub fn sees(&self, tenant: Option<&str>) -> bool {
        self.tenant().is_none_or(|own| Some(own) == tenant)
    }

    /// What a key that this one makes is for: no policy that this one is not for, and no time after its own.
    pub fn passes_on(
        &self,
        policies: Option<BTreeSet<String>>,
        expires_at: Option<f64>,
    ) -> Result<(Option<BTreeSet<String>>, Option<f64>), ServiceError> {
        let beyond =
            |what: &str| ServiceError::Forbidden(format!("this key {what}, and makes none that may do more"));
        let policies = match (&self.key.policies, policies) {
            (Some(own), Some(wanted)) if !wanted.is_subset(own) => {
                return Err(beyond("is for some policies alone"));
            }
            (Some(own), None) => Some(own.clone()),
            (_, wanted) => wanted,
        };
        let expires_at = match (self.key.expires_at, expires_at) {
            (Some(own), Some(wanted)) if wanted > own => return Err(beyond("expires before that")),
            (Some(own), None) => Some(own),
            (_, wanted) => wanted,
        };
        Ok((policies, expires_at))
    }

    pub fn may_use(&self, policy_id: &str) -> bool {
        self.key
            .policies
            .as_ref()
            .is_none_or(|policies| policies.contains(policy_id))
    }
}

impl Service {
    /// Whether somebody's key is still good.
    pub async fn still_is(&self, who: &Identity) -> Result<(), ServiceError> {
        if self.needs_no_key() && who.label() == DEV {
            return Ok(());
        }
        let row = self.store.key_of_id(who.label()).await?;
        match row.is_some_and(|row| row.is_valid(self.now())) {
            true => Ok(()),
            false => Err(ServiceError::Unauthorized),
        }
    }

    /// Who brings this `Authorization` header, or none.
    pub async fn identify(&self, authorization: Option<&str>) -> Result<Identity, ServiceError> {
        let Some(authorization) = authorization else {
            return match self.needs_no_key() {
                true => Ok(Identity::anyone(self.now())),
                false => Err(ServiceError::Unauthorized),
            };
        };
        let brought = authorization
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let key = brought
            .and_then(|(_, key)| Key::parse(key.trim()))
            .ok_or(ServiceError::Unauthorized)?;
        let row = self.store.key(&key).await?.ok_or(ServiceError::Unauthorized)?;
        match row.is_valid(self.now()) {
            true => Ok(Identity { key: row }),
            false => Err(ServiceError::Unauthorized),
        }
    }
}
