//! Which policy an id stands for: a built-in one, one from a file, or one that somebody defined.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::{Policy, Request, check_identifier};
use serde_json::Value;

use super::Service;
use super::error::ServiceError;
use super::identity::Identity;
use super::keys::MAX_ID_LEN;
use crate::store::Role;
use crate::wire::WireError;

/// The policy of those who name none (R8).
const DEFAULT: &str = "standard";
/// How many policies are remembered by their hash.
const REMEMBERED: usize = 256;

/// A policy, and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyFound {
    pub policy: Arc<Policy>,
    pub hash: String,
    /// `built-in`, `file` or `defined`.
    pub origin: &'static str,
    /// Of one that was defined.
    pub version: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Policies {
    fixed: BTreeMap<String, PolicyFound>,
    /// Those of the store, so that they are not read anew for every execution.
    by_hash: Mutex<HashMap<String, Arc<Policy>>>,
}

impl Policies {
    pub(super) fn new(files: Vec<Policy>) -> Self {
        let builtin = Policy::BUILTIN.iter().filter_map(|name| Policy::builtin(name));
        let all = builtin
            .map(|policy| (policy, "built-in"))
            .chain(files.into_iter().map(|policy| (policy, "file")));
        let fixed = all
            .map(|(policy, origin)| {
                let found = PolicyFound {
                    hash: policy.hash(),
                    policy: Arc::new(policy),
                    origin,
                    version: None,
                };
                (found.policy.policy_id.clone(), found)
            })
            .collect();
        Self {
            fixed,
            by_hash: Mutex::default(),
        }
    }

    fn remembered(&self, hash: &str) -> Option<Arc<Policy>> {
        self.by_hash
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(hash)
            .cloned()
    }

    fn remember(&self, hash: &str, policy: &Arc<Policy>) {
        let mut by_hash = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        if by_hash.len() >= REMEMBERED {
            by_hash.clear();
        }
        by_hash.insert(hash.to_owned(), Arc::clone(policy));
    }
}

impl Service {
    /// The policy that a request is held against (R8).
    pub(super) async fn policy_for(
        &self,
        policy_id: Option<&str>,
        request: &Request,
    ) -> Result<Arc<Policy>, ServiceError> {
        match policy_id {
            Some(policy_id) => self.policy_of_id(policy_id).await,
            None if self.is_owned() => {
                let mut policy = Policy::for_owner(request)
                    .map_err(|error| WireError::new("limits", error.to_string()))?;
                // Nobody else is there to share with.
                (policy.quotas.per_minute, policy.quotas.per_hour) = (u32::MAX, u32::MAX);
                Ok(Arc::new(policy))
            }
            None => self.policy_of_id(DEFAULT).await,
        }
    }

    /// The policy of that id as it is now.
    pub(super) async fn policy_of_id(&self, policy_id: &str) -> Result<Arc<Policy>, ServiceError> {
        if let Some(found) = self.policies.fixed.get(policy_id) {
            return Ok(Arc::clone(&found.policy));
        }
        let unknown = || not_found(policy_id);
        // PostgreSQL fails for a text with a NUL; nothing that is no id is looked up.
        check_identifier(policy_id, MAX_ID_LEN).map_err(|_| unknown())?;
        let hash = self.store.policy_hash(policy_id).await?.ok_or_else(unknown)?;
        if let Some(policy) = self.policies.remembered(&hash) {
            return Ok(policy);
        }
        let stored = self.store.policy(policy_id).await?.ok_or_else(unknown)?;
        self.policies.remember(&stored.hash, &stored.policy);
        Ok(stored.policy)
    }

    /// Every policy as it is now.
    pub async fn list_policies(&self, who: &Identity) -> Result<Vec<PolicyFound>, ServiceError> {
        who.may(Role::Read)?;
        let mut all: Vec<_> = self.policies.fixed.values().cloned().collect();
        all.extend(
            self.store
                .policies()
                .await?
                .into_iter()
                .map(|stored| PolicyFound {
                    policy: stored.policy,
                    hash: stored.hash,
                    origin: "defined",
                    version: Some(stored.version),
                }),
        );
        Ok(all)
    }

    /// The policy of that id, or of that hash, whatever became of it since.
    pub async fn get_policy(&self, who: &Identity, id_or_hash: &str) -> Result<PolicyFound, ServiceError> {
        who.may(Role::Read)?;
        let mut fixed = self.policies.fixed.values();
        if let Some(found) =
            fixed.find(|found| found.policy.policy_id == id_or_hash || found.hash == id_or_hash)
        {
            return Ok(found.clone());
        }
        let stored = match self.store.policy(id_or_hash).await? {
            Some(stored) => Some(stored),
            None => self.store.policy_of_hash(id_or_hash).await?,
        };
        let stored = stored.ok_or_else(|| not_found(id_or_hash))?;
        Ok(PolicyFound {
            policy: stored.policy,
            hash: stored.hash,
            origin: "defined",
            version: Some(stored.version),
        })
    }

    /// Makes a policy of an object with a policy file's fields (R17).
    pub async fn define_policy(
        &self,
        who: &Identity,
        id: Option<&str>,
        fields: Value,
    ) -> Result<PolicyFound, ServiceError> {
        who.may_operate()?;
        let policy = read(id, fields)?;
        self.check_free(&policy.policy_id)?;
        let stored = self.store.define_policy(policy, who.label(), self.now()).await?;
        Ok(PolicyFound {
            policy: stored.policy,
            hash: stored.hash,
            origin: "defined",
            version: Some(stored.version),
        })
    }

    pub async fn delete_policy(&self, who: &Identity, policy_id: &str) -> Result<(), ServiceError> {
        who.may_operate()?;
        self.check_free(policy_id)?;
        match self
            .store
            .delete_policy(policy_id, who.label(), self.now())
            .await?
        {
            true => Ok(()),
            false => Err(not_found(policy_id)),
        }
    }

    fn check_free(&self, policy_id: &str) -> Result<(), ServiceError> {
        match self.policies.fixed.get(policy_id) {
            Some(found) => Err(ServiceError::Conflict(format!(
                "policy `{policy_id}` is {} and cannot be changed here",
                match found.origin {
                    "file" => "from a file",
                    origin => origin,
                }
            ))),
            None => Ok(()),
        }
    }
}

fn not_found(policy_id: &str) -> ServiceError {
    ServiceError::not_found("policy", policy_id)
}

/// A policy from JSON. It is read as a file is, so that it means the same and has the same errors.
fn read(id: Option<&str>, mut fields: Value) -> Result<Policy, ServiceError> {
    let Some(map) = fields.as_object_mut() else {
        return Err(WireError::new("policy", "must be an object").into());
    };
    map.retain(|_, value| !value.is_null());
    if let Some(id) = id {
        let said = map.insert("policy_id".to_owned(), Value::from(id));
        if said.is_some_and(|said| said != id) {
            return Err(WireError::new("policy_id", "is not the one of the address").into());
        }
    } else if !map.contains_key("policy_id") {
        return Err(WireError::new("policy_id", "is missing").into());
    }
    let text = toml::to_string(&fields).map_err(|error| WireError::new("policy", error.to_string()))?;
    Ok(Policy::from_toml(&text, "policy")?)
}
