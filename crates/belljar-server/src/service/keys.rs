//! Giving keys and taking them away; tenants.

use std::collections::BTreeSet;

use belljar_core::check_identifier;

use super::Service;
use super::error::ServiceError;
use super::identity::Identity;
use crate::store::{Key, KeyRow, Role, Tenant};
use crate::wire::{WireError, check_name};

/// The end of the year 9999, in seconds since the epoch.
const LATEST: f64 = 253_402_300_799.0;

/// The longest id of a tenant or a policy.
pub(super) const MAX_ID_LEN: usize = 256;

/// What a key is to be for.
#[derive(Clone, Debug, Default)]
pub struct KeyWish {
    pub name: String,
    /// None: all tenants.
    pub tenant_id: Option<String>,
    pub roles: BTreeSet<Role>,
    /// None: any.
    pub policies: Option<BTreeSet<String>>,
    /// Seconds since the epoch.
    pub expires_at: Option<f64>,
}

impl Service {
    /// Makes a key. Its text is in the answer and nowhere else. A tenant's admin makes keys of that tenant.
    pub async fn add_key(&self, who: &Identity, wish: KeyWish) -> Result<(Key, KeyRow), ServiceError> {
        who.may(Role::Admin)?;
        check_name("name", &wish.name)?;
        if wish.roles.is_empty() {
            return Err(WireError::new("roles", "is empty: the key could do nothing").into());
        }
        if let Some(own) = who.tenant()
            && wish.tenant_id.as_deref().is_some_and(|tenant| tenant != own)
        {
            return Err(ServiceError::Forbidden(
                "this key is for another tenant".to_owned(),
            ));
        }
        let tenant_id = who.tenant().map(str::to_owned).or(wish.tenant_id);
        if let Some(tenant) = &tenant_id
            && !self.has_tenant(tenant).await?
        {
            return Err(ServiceError::not_found("tenant", tenant));
        }
        let now = self.now();
        if wish
            .expires_at
            .is_some_and(|expires| !expires.is_finite() || expires <= now)
        {
            return Err(WireError::new("expires_at", "is not in the future").into());
        }
        if wish.expires_at.is_some_and(|expires| expires > LATEST) {
            return Err(WireError::new("expires_at", "is too far away; leave it out for never").into());
        }
        for policy in wish.policies.iter().flatten() {
            self.policy_of_id(policy).await?;
        }
        let (policies, expires_at) = who.passes_on(wish.policies, wish.expires_at)?;
        let row = KeyRow {
            key_id: String::new(),
            name: wish.name,
            tenant_id,
            roles: wish.roles,
            policies,
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        Ok(self.store.add_key(row, who.label()).await?)
    }

    pub async fn list_keys(&self, who: &Identity) -> Result<Vec<KeyRow>, ServiceError> {
        who.may(Role::Admin)?;
        Ok(self.store.keys(who.tenant()).await?)
    }

    /// From now on the key opens nothing.
    pub async fn revoke_key(&self, who: &Identity, key_id: &str) -> Result<(), ServiceError> {
        who.may(Role::Admin)?;
        let revoked = self
            .store
            .revoke_key(key_id, who.tenant(), who.label(), self.now())
            .await?;
        match revoked {
            true => Ok(()),
            false => Err(ServiceError::not_found("key", key_id)),
        }
    }

    pub async fn add_tenant(
        &self,
        who: &Identity,
        tenant_id: &str,
        name: &str,
    ) -> Result<Tenant, ServiceError> {
        who.may_operate()?;
        check_identifier(tenant_id, MAX_ID_LEN)
            .map_err(|error| WireError::new("tenant_id", error.to_string()))?;
        check_name("name", name)?;
        let tenant = Tenant {
            tenant_id: tenant_id.to_owned(),
            name: name.to_owned(),
            created_at: self.now(),
        };
        match self.store.add_tenant(tenant.clone(), who.label()).await? {
            true => Ok(tenant),
            false => Err(ServiceError::Conflict(format!(
                "there is a tenant `{tenant_id}` already"
            ))),
        }
    }

    /// Whether there is a tenant of that id.
    pub(super) async fn has_tenant(&self, tenant_id: &str) -> Result<bool, ServiceError> {
        let is_id = check_identifier(tenant_id, MAX_ID_LEN).is_ok();
        Ok(is_id && self.store.tenant(tenant_id).await?.is_some())
    }

    pub async fn list_tenants(&self, who: &Identity) -> Result<Vec<Tenant>, ServiceError> {
        who.may_operate()?;
        Ok(self.store.tenants().await?)
    }
}
