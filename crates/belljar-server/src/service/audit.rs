//! The audit, for those who operate the service, and its figures.

use super::Service;
use super::error::ServiceError;
use super::identity::Identity;
use crate::store::{Broken, Head, Role, Store, Verified};
use crate::wire::WireError;

impl Service {
    /// The store, for one who may read all of the chain.
    pub fn chain(&self, who: &Identity) -> Result<&Store, ServiceError> {
        who.may_operate()?;
        Ok(&self.store)
    }

    /// Whether the chain is whole, and holds the head that was kept elsewhere.
    pub async fn verify(
        &self,
        who: &Identity,
        expected: Option<&Head>,
    ) -> Result<Result<Verified, Broken>, ServiceError> {
        Ok(self.chain(who)?.verify(expected).await?)
    }

    /// Removes the entries that are older than `before`; how many.
    pub async fn forget(&self, who: &Identity, before: f64) -> Result<u64, ServiceError> {
        let now = self.now();
        // Not a number is no time either.
        if before > now || !before.is_finite() {
            return Err(WireError::new("before", "is in the future").into());
        }
        Ok(self.chain(who)?.forget(before, who.label(), now).await?)
    }

    /// Figures for Prometheus.
    pub fn figures(&self, who: &Identity) -> Result<String, ServiceError> {
        who.may(Role::Read)?;
        if who.tenant().is_some() {
            let message = "these are the figures of all tenants, and this key is for one alone";
            return Err(ServiceError::Forbidden(message.to_owned()));
        }
        let (running, waiting) = self.gate.load();
        Ok(self.metrics.text(running, waiting))
    }
}
