//! A sandbox with somebody at its doors.

use std::collections::BTreeMap;

use belljar_core::egress::Log;
use belljar_core::outcome::CollectedFile;
use belljar_core::provider::{BoxFuture, Doors, Interpreting, StageEnd, StageIo};
use belljar_core::request::FileIn;
use belljar_core::{GuestPath, Plan, ProviderError, Receipt, Sandbox, Stage, Weight};

use super::{Secrets, Wall};

/// Any sandbox, and the wall around what it may reach.
#[derive(Debug)]
struct Walled {
    sandbox: Box<dyn Sandbox>,
    wall: Wall,
}

/// Stands at the doors of a sandbox that has some. Within a runtime.
pub(crate) fn stand_at_doors(
    mut sandbox: Box<dyn Sandbox>,
    plan: &Plan,
    secrets: Secrets,
) -> Result<Box<dyn Sandbox>, ProviderError> {
    let (egress, doors) = match (plan.egress(), sandbox.take_doors()) {
        (Some(egress), Some(doors)) => (egress, doors),
        // Nobody would hold this one to anything.
        (Some(_), None) => {
            return Err(ProviderError::Protocol(
                "a sandbox that may reach hosts has no doors".to_owned(),
            ));
        }
        _ => return Ok(sandbox),
    };
    let wall = Wall::raise(egress.clone(), secrets, doors).map_err(|source| ProviderError::Io {
        operation: "stand at",
        object: "the doors of a sandbox".to_owned(),
        source,
    })?;
    Ok(Box::new(Walled { sandbox, wall }))
}

impl Sandbox for Walled {
    fn id(&self) -> &str {
        self.sandbox.id()
    }

    fn put<'a>(
        &'a mut self,
        files: &'a BTreeMap<GuestPath, FileIn>,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.sandbox.put(files)
    }

    fn weigh(&mut self, weight: Weight) {
        self.sandbox.weigh(weight);
    }

    fn run<'a>(
        &'a mut self,
        stage: &'a Stage,
        io: StageIo<'a>,
    ) -> BoxFuture<'a, Result<StageEnd, ProviderError>> {
        self.sandbox.run(stage, io)
    }

    fn interpreting(&mut self) -> Option<&mut dyn Interpreting> {
        self.sandbox.interpreting()
    }

    fn collect<'a>(&'a mut self, paths: &'a [GuestPath], limit: u64) -> BoxFuture<'a, Vec<CollectedFile>> {
        self.sandbox.collect(paths, limit)
    }

    fn take_doors(&mut self) -> Option<Doors> {
        None
    }

    fn met(&mut self, ended: bool) -> BoxFuture<'_, Log> {
        Box::pin(async move {
            if ended {
                self.wall.settle().await;
            }
            self.wall.take_log()
        })
    }

    fn receipt(&self) -> Receipt {
        self.sandbox.receipt()
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        self.sandbox.discard()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        self.sandbox.close()
    }
}
