//! Looking at what runs and what ran.

use belljar_core::SandboxStatus;
use serde_json::{Value, json};

use super::Service;
use super::error::ServiceError;
use super::identity::Identity;
use crate::store::{RecordFilter, RecordPage, Role, Stats, StatsFilter};
use crate::wire;

impl Service {
    /// An execution, whatever its state, with its result where that is kept.
    pub async fn get_execution(
        &self,
        who: &Identity,
        execution_id: &str,
    ) -> Result<wire::Execution, ServiceError> {
        who.may(Role::Run).or_else(|_| who.may(Role::Read))?;
        let not_found = || ServiceError::not_found("execution", execution_id);
        if let Some(under_way) = self.store.unfinished_one(execution_id).await? {
            if !who.sees(under_way.record.tenant_id.as_deref()) {
                return Err(not_found());
            }
            return Ok(wire::Execution {
                execution_id: execution_id.to_owned(),
                status: under_way.record.status.word().to_owned(),
                approval_id: None,
                success: None,
                outcome: None,
                record: json!(under_way.record),
            });
        }
        let record = self.store.record(execution_id).await?.ok_or_else(not_found)?;
        if !who.sees(record["tenant_id"].as_str()) {
            return Err(not_found());
        }
        if let Some(body) = self.store.result(execution_id, self.now()).await?
            && let Ok(found) = serde_json::from_str(&body)
        {
            return Ok(found);
        }
        let status = record["status"].as_str().unwrap_or_default().to_owned();
        let success = status == SandboxStatus::Completed.word() && record["exit_code"] == 0;
        Ok(wire::Execution {
            execution_id: execution_id.to_owned(),
            status,
            approval_id: record["approval_id"].as_str().map(str::to_owned),
            success: Some(success),
            outcome: None,
            record,
        })
    }

    /// What is under way, the oldest first.
    pub async fn list_executions(
        &self,
        who: &Identity,
        tenant: Option<&str>,
    ) -> Result<Vec<wire::Execution>, ServiceError> {
        who.may(Role::Read)?;
        let tenant = who.tenant_seen(tenant)?;
        let under_way = self.store.unfinished(tenant.as_deref()).await?;
        Ok(under_way
            .into_iter()
            .map(|one| wire::Execution {
                execution_id: one.record.record_id.clone(),
                status: one.record.status.word().to_owned(),
                approval_id: None,
                success: None,
                outcome: None,
                record: json!(one.record),
            })
            .collect())
    }

    /// Ends an execution that runs in this process. It is told that; its record comes when it has ended.
    pub async fn cancel_execution(&self, who: &Identity, execution_id: &str) -> Result<(), ServiceError> {
        who.may(Role::Run)?;
        let found = self.get_execution(who, execution_id).await?;
        if found.success.is_some() {
            return Err(ServiceError::Conflict(format!(
                "execution {execution_id} is over"
            )));
        }
        match self.running.cancel(execution_id) {
            true => Ok(()),
            false => Err(ServiceError::Conflict(format!(
                "execution {execution_id} is run by another server; ask that one"
            ))),
        }
    }

    /// Records, the newest first (R15).
    pub async fn records(
        &self,
        who: &Identity,
        mut filter: RecordFilter,
        most: usize,
    ) -> Result<RecordPage, ServiceError> {
        who.may(Role::Read)?;
        filter.tenant_id = who.tenant_seen(filter.tenant_id.as_deref())?;
        Ok(self.store.records(&filter, most).await?)
    }

    /// One record.
    pub async fn get_record(&self, who: &Identity, record_id: &str) -> Result<Value, ServiceError> {
        who.may(Role::Read)?;
        let found = self.store.record(record_id).await?;
        found
            .filter(|record| who.sees(record["tenant_id"].as_str()))
            .ok_or_else(|| ServiceError::not_found("record", record_id))
    }

    /// Figures (R16).
    pub async fn stats(&self, who: &Identity, mut filter: StatsFilter) -> Result<Stats, ServiceError> {
        who.may(Role::Read)?;
        filter.records.tenant_id = who.tenant_seen(filter.records.tenant_id.as_deref())?;
        Ok(self.store.stats(&filter).await?)
    }
}
