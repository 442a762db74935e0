//! What held, as init, the guest's fork and the kernel reported it.

use std::collections::BTreeMap;

use belljar_core::receipt::Observed;
use belljar_core::{Control, Plan, Receipt, Support};

use super::shared::Shared;
use super::spec;
use crate::wire::Note;

/// How a sandbox came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// All of it made when it was asked for.
    Made,
    /// An empty shell that was there.
    Pooled,
    /// Shell made and guest forked from a warm interpreter when it was asked for.
    Forked,
    /// A guest forked from a warm interpreter that was there.
    ForkedAhead,
    /// An interpreter that was there.
    StartedAhead,
}

impl Origin {
    const fn words(self) -> &'static str {
        match self {
            Self::Made => "made on demand",
            Self::Pooled => "shell made ahead",
            Self::Forked => "forked on demand from a warm interpreter",
            Self::ForkedAhead => "forked ahead from a warm interpreter",
            Self::StartedAhead => "interpreter started ahead",
        }
    }
}

pub(crate) fn build(
    plan: &Plan,
    shared: &Shared,
    notes: &[Note],
    group: Option<&'static str>,
    origin: Origin,
) -> Receipt {
    let controls = Control::ALL
        .iter()
        .map(|control| (*control, observe(*control, shared, notes, group)));
    Receipt {
        provider: "native".to_owned(),
        isolation: plan.isolation(),
        policy_id: plan.policy_id().to_owned(),
        policy_hash: plan.policy_hash().to_owned(),
        environment: plan.environment().cloned(),
        controls: controls.collect::<BTreeMap<_, _>>(),
        network: plan.network(),
        limits: plan.limits().clone(),
        shown: spec::shown(plan, &shared.root_of(plan.root()))
            .into_iter()
            .map(|path| with_owner(path, notes))
            .collect(),
        origin: origin.words().to_owned(),
    }
}

fn observe(control: Control, shared: &Shared, notes: &[Note], group: Option<&'static str>) -> Observed {
    let noted = |note: &Note| notes.contains(note);
    let by_note = |note: &Note, detail: &str| {
        if noted(note) {
            Observed::enforced(detail)
        } else {
            Observed::absent("not reported by the sandbox")
        }
    };
    if let Some(Note::Weakened(name)) = notes
        .iter()
        .find(|note| matches!(note, Note::Weakened(name) if same_name(name, control)))
    {
        return Observed::absent(format!("{name} was switched off for a test"));
    }
    match control {
        // Init came to life inside of them: without any one of these the clone fails.
        Control::UserNamespace
        | Control::MountNamespace
        | Control::PidNamespace
        | Control::NetworkNamespace
        | Control::IpcNamespace
        | Control::UtsNamespace
        | Control::CgroupNamespace => Observed::enforced("new"),
        // Init checked where it stands before it said that it was ready.
        Control::PrivateRoot => Observed::enforced("tmpfs, read-only, host detached"),
        Control::PrivateProc => match notes.iter().find(|note| matches!(note, Note::ProcAbsent(_))) {
            Some(Note::ProcAbsent(errno)) => {
                Observed::absent(std::io::Error::from_raw_os_error(*errno).to_string())
            }
            _ => by_note(&Note::ProcMounted, "own processes only"),
        },
        Control::FreshUid => match shared.controls().get(&control) {
            Some(Support::Present { .. }) => Observed::enforced("uid of its own"),
            _ => Observed::absent("runs under the caller's uid"),
        },
        Control::NoCapabilities => by_note(&Note::NoCapabilities, "none left"),
        Control::NoNewPrivileges => by_note(&Note::NoNewPrivileges, "set"),
        Control::Seccomp => by_note(&Note::Seccomp, "allowlist"),
        Control::Rlimits => Observed::enforced("set before the start"),
        Control::Landlock => notes
            .iter()
            .find_map(|note| match note {
                Note::Landlock(abi) => Some(Observed::enforced(format!("ABI {abi}"))),
                Note::LandlockAbsent => Some(Observed::absent("the kernel enforces none")),
                _ => None,
            })
            .unwrap_or_else(|| Observed::absent("not reported by the sandbox")),
        Control::OwnKernel => Observed::absent("the machine's own kernel serves it"),
        Control::ProcessCount => by_note(&Note::ProcessesCounted, "threads aside; surplus is ended"),
        Control::MemoryCgroup | Control::PidsCgroup | Control::CpuCgroup => {
            match (group, shared.controls().get(&control)) {
                (Some(version), Some(Support::Present { .. })) => {
                    Observed::enforced(format!("cgroup {version}"))
                }
                (_, Some(Support::Absent { why, .. })) => Observed::absent(why.clone()),
                _ => Observed::absent("no control group"),
            }
        }
    }
}

/// A mount whose owner could not be mapped is readable only as far as it is open to everyone.
fn with_owner(path: String, notes: &[Note]) -> String {
    if notes.contains(&Note::MountNotMapped(path.clone())) {
        format!("{path} (owner not mapped)")
    } else {
        path
    }
}

fn same_name(step: &str, control: Control) -> bool {
    control.word().replace('-', "") == step || (step == "countprocesses" && control == Control::ProcessCount)
}
