//! Tenants and their keys. A key's secret is shown once; the store knows its hash alone.

use std::collections::BTreeSet;
use std::fmt;

use belljar_core::record::code_hash;
use belljar_engine::fresh_id;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::Row;
use sqlx::any::AnyRow;
use subtle::ConstantTimeEq;

use super::Store;
use super::chain::{EntryKind, NO_TIME};
use super::error::{During, StoreError};
use super::executions::text;
use super::writer::{Tx, Write};

/// What the bearer of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Run code and have sessions.
    Run,
    /// See records, figures and policies.
    Read,
    /// Decide about what waits for approval.
    Approve,
    /// All of that, and keys, tenants and policies.
    Admin,
}

/// Who shares the service with others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    pub tenant_id: String,
    pub name: String,
    pub created_at: f64,
}

/// A key as the store knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyRow {
    pub key_id: String,
    pub name: String,
    /// Whose key it is; none: the operator's, for all tenants.
    pub tenant_id: Option<String>,
    pub roles: BTreeSet<Role>,
    /// The only policies it may name; none: any.
    pub policies: Option<BTreeSet<String>>,
    pub created_at: f64,
    pub expires_at: Option<f64>,
    pub revoked_at: Option<f64>,
}

impl KeyRow {
    /// Whether it opens anything at that time.
    pub fn is_valid(&self, now: f64) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires| now < expires)
    }

    pub fn may(&self, role: Role) -> bool {
        self.roles.contains(&role) || self.roles.contains(&Role::Admin)
    }
}

/// A key to give away: `bj_`, its id, `_`, its secret. It is never printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    key_id: String,
    secret: String,
}

impl Key {
    fn fresh() -> Self {
        let digits = || fresh_id("").split_off(1);
        Self {
            key_id: digits(),
            // 256 bits: nobody guesses it, so a fast hash of it is as good as a slow one.
            secret: (0..4).map(|_| digits()).collect(),
        }
    }

    pub fn id(&self) -> &str {
        &self.key_id
    }

    /// The text that opens: show it to its owner, and to nobody else.
    pub fn reveal(&self) -> String {
        format!("bj_{}_{}", self.key_id, self.secret)
    }

    /// Reads a key that somebody brought.
    pub fn parse(text: &str) -> Option<Self> {
        let (key_id, secret) = text.strip_prefix("bj_")?.split_once('_')?;
        let is_hex =
            |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_hex(key_id, 16) && is_hex(secret, 64)).then(|| Self {
            key_id: key_id.to_owned(),
            secret: secret.to_owned(),
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bj_{}_…", self.key_id)
    }
}

struct AddKey {
    row: KeyRow,
    secret_hash: String,
    by: String,
}

impl Write for AddKey {
    type Output = ();

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let row = &self.row;
        let policies = row.policies.as_ref().map(text).transpose()?;
        sqlx::query(
            "INSERT INTO keys (key_id, secret_hash, name, tenant_id, roles, policies, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, NULLIF($8, -1.0))",
        )
        .bind(row.key_id.clone())
        .bind(self.secret_hash.clone())
        .bind(row.name.clone())
        .bind(row.tenant_id.clone())
        .bind(text(&row.roles)?)
        .bind(policies)
        .bind(row.created_at)
        .bind(row.expires_at.unwrap_or(NO_TIME))
        .execute(&mut *tx.connection)
        .await
        .during("add a key")?;
        let body = json!({
            "record_id": fresh_id("aud"), "created_at": row.created_at, "action": "created", "by": self.by,
            "key_id": row.key_id, "tenant_id": row.tenant_id, "roles": row.roles, "policies": row.policies,
            "expires_at": row.expires_at,
        });
        tx.append(EntryKind::Key, &body).await.map(drop)
    }
}

struct RevokeKey {
    key_id: String,
    tenant_id: Option<String>,
    by: String,
    now: f64,
}

impl Write for RevokeKey {
    type Output = bool;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE keys SET revoked_at = $1 WHERE key_id = $2 AND revoked_at IS NULL
             AND ($3 = 1 OR tenant_id = $4)",
        )
        .bind(self.now)
        .bind(self.key_id.clone())
        .bind(i64::from(self.tenant_id.is_none()))
        .bind(self.tenant_id.clone())
        .execute(&mut *tx.connection)
        .await
        .during("revoke a key")?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        let body = json!({
            "record_id": fresh_id("aud"), "created_at": self.now, "action": "revoked", "by": self.by,
            "key_id": self.key_id,
        });
        tx.append(EntryKind::Key, &body).await?;
        Ok(true)
    }
}

struct AddTenant {
    tenant: Tenant,
    by: String,
}

impl Write for AddTenant {
    type Output = bool;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let tenant = &self.tenant;
        let done = sqlx::query(
            "INSERT INTO tenants (tenant_id, name, created_at) VALUES ($1, $2, $3)
             ON CONFLICT (tenant_id) DO NOTHING",
        )
        .bind(tenant.tenant_id.clone())
        .bind(tenant.name.clone())
        .bind(tenant.created_at)
        .execute(&mut *tx.connection)
        .await
        .during("add a tenant")?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        let body = json!({
            "record_id": fresh_id("aud"), "created_at": tenant.created_at, "action": "created", "by": self.by,
            "tenant_id": tenant.tenant_id, "name": tenant.name,
        });
        tx.append(EntryKind::Tenant, &body).await?;
        Ok(true)
    }
}

impl Store {
    /// Makes a key with those rights. Its id and secret are new; the row's own id does not matter.
    pub async fn add_key(&self, mut row: KeyRow, by: &str) -> Result<(Key, KeyRow), StoreError> {
        let key = Key::fresh();
        row.key_id = key.key_id.clone();
        row.revoked_at = None;
        self.write(AddKey {
            row: row.clone(),
            secret_hash: code_hash(key.secret.as_bytes()),
            by: by.to_owned(),
        })
        .await?;
        Ok((key, row))
    }

    /// The rights of the key, if it is one of ours and its secret is right. Whether it is valid at the moment is
    /// the row's to say.
    pub async fn key(&self, key: &Key) -> Result<Option<KeyRow>, StoreError> {
        let Some(row) = self.row_of_key(&key.key_id).await? else {
            return Ok(None);
        };
        let known: String = row.try_get("secret_hash").during("look a key up")?;
        let brought = code_hash(key.secret.as_bytes());
        let same: bool = known.as_bytes().ct_eq(brought.as_bytes()).into();
        same.then(|| key_row(&row)).transpose()
    }

    /// A key by its id alone, for one who has shown it before.
    pub async fn key_of_id(&self, key_id: &str) -> Result<Option<KeyRow>, StoreError> {
        let row = self.row_of_key(key_id).await?;
        row.map(|row| key_row(&row)).transpose()
    }

    async fn row_of_key(&self, key_id: &str) -> Result<Option<AnyRow>, StoreError> {
        sqlx::query("SELECT * FROM keys WHERE key_id = $1")
            .bind(key_id.to_owned())
            .fetch_optional(&self.readers)
            .await
            .during("look a key up")
    }

    /// Whether there is anybody who may do everything.
    pub async fn has_admin(&self) -> Result<bool, StoreError> {
        let keys = self.keys(None).await?;
        Ok(keys
            .iter()
            .any(|key| key.tenant_id.is_none() && key.may(Role::Admin) && key.revoked_at.is_none()))
    }

    /// Every key, of one tenant or of all, the newest first.
    pub async fn keys(&self, tenant: Option<&str>) -> Result<Vec<KeyRow>, StoreError> {
        let query = match tenant {
            Some(tenant) => {
                sqlx::query("SELECT * FROM keys WHERE tenant_id = $1 ORDER BY created_at DESC, key_id")
                    .bind(tenant.to_owned())
            }
            None => sqlx::query("SELECT * FROM keys ORDER BY created_at DESC, key_id"),
        };
        let rows = query.fetch_all(&self.readers).await.during("list keys")?;
        rows.iter().map(key_row).collect()
    }

    /// From now on the key opens nothing. With a tenant, only one of that tenant. False if there is no such key,
    /// or it is revoked already.
    pub async fn revoke_key(
        &self,
        key_id: &str,
        tenant: Option<&str>,
        by: &str,
        now: f64,
    ) -> Result<bool, StoreError> {
        self.write(RevokeKey {
            key_id: key_id.to_owned(),
            tenant_id: tenant.map(str::to_owned),
            by: by.to_owned(),
            now,
        })
        .await
    }

    /// False if there is one of that id already.
    pub async fn add_tenant(&self, tenant: Tenant, by: &str) -> Result<bool, StoreError> {
        let by = by.to_owned();
        self.write(AddTenant { tenant, by }).await
    }

    pub async fn tenant(&self, tenant_id: &str) -> Result<Option<Tenant>, StoreError> {
        let row = sqlx::query("SELECT * FROM tenants WHERE tenant_id = $1")
            .bind(tenant_id.to_owned())
            .fetch_optional(&self.readers)
            .await
            .during("look a tenant up")?;
        row.as_ref()
            .map(tenant_row)
            .transpose()
            .during("look a tenant up")
    }

    pub async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        let rows = sqlx::query("SELECT * FROM tenants ORDER BY tenant_id")
            .fetch_all(&self.readers)
            .await
            .during("list tenants")?;
        rows.iter()
            .map(tenant_row)
            .collect::<Result<_, _>>()
            .during("list tenants")
    }
}

fn tenant_row(row: &AnyRow) -> Result<Tenant, sqlx::Error> {
    Ok(Tenant {
        tenant_id: row.try_get("tenant_id")?,
        name: row.try_get("name")?,
        created_at: row.try_get("created_at")?,
    })
}

fn key_row(row: &AnyRow) -> Result<KeyRow, StoreError> {
    let read = || -> Result<(KeyRow, String, Option<String>), sqlx::Error> {
        let key = KeyRow {
            key_id: row.try_get("key_id")?,
            name: row.try_get("name")?,
            tenant_id: row.try_get("tenant_id")?,
            roles: BTreeSet::new(),
            policies: None,
            created_at: row.try_get("created_at")?,
            expires_at: row.try_get("expires_at")?,
            revoked_at: row.try_get("revoked_at")?,
        };
        Ok((key, row.try_get("roles")?, row.try_get("policies")?))
    };
    let (key, roles, policies) = read().during("read a key")?;
    let unreadable = |error: serde_json::Error| StoreError::Unreadable(error.to_string());
    Ok(KeyRow {
        roles: serde_json::from_str(&roles).map_err(unreadable)?,
        policies: policies
            .map(|policies| serde_json::from_str(&policies))
            .transpose()
            .map_err(unreadable)?,
        ..key
    })
}
