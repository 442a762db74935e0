//! Receipts that say what was.

use belljar::{Control, Demand, DenialCode, ExecuteIo, Policy};
use belljar_engine::EngineError;

use super::{Outcome, Subject, ensure, python, run};

pub(super) async fn names(subject: &Subject) -> Outcome {
    let run = run(subject, python("print(1)")).await?;
    let receipt = &run.outcome.receipt;
    ensure!(
        receipt.provider == subject.provider.word(),
        "{}",
        receipt.provider
    );
    ensure!(
        receipt.isolation == subject.provider.isolation(),
        "{:?}",
        receipt.isolation
    );
    for control in Control::ALL {
        ensure!(
            receipt.controls.contains_key(control),
            "nothing is said of {control}"
        );
    }
    ensure!(
        !receipt.origin.is_empty() && !receipt.policy_hash.is_empty(),
        "{receipt:?}"
    );
    Ok(())
}

/// Each control that the receipt says is absent is refused where it is required, and each that it says is enforced is not.
pub(super) async fn required(subject: &Subject) -> Outcome {
    let ran = run(subject, python("print(1)")).await?;
    for (control, observed) in &ran.outcome.receipt.controls {
        let mut request = subject.asked(python("print(1)"));
        request.controls.insert(*control, Demand::Require);
        let policy = Policy::for_owner(&request).map_err(|error| error.to_string())?;
        let run = subject
            .engine
            .execute(&policy, &request, ExecuteIo::default())
            .await;
        match run {
            Ok(_) => ensure!(observed.is_enforced(), "{control} is absent, and it ran"),
            Err(EngineError::Denied { denial, .. }) => ensure!(
                !observed.is_enforced() && denial.code == DenialCode::ControlUnavailable,
                "{control} is {observed:?}: {denial:?}"
            ),
            Err(error) => return Err(format!("{control}: {error}")),
        }
    }
    Ok(())
}
