//! Compiling once, and taking what the compiler made out of its sandbox.
//!
//! A compiler is a guest: what it leaves is collected as any file of a guest is, regular files only,
//! and goes nowhere but into other sandboxes of the same request.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_core::language::BUILT;
use belljar_core::outcome::{CollectedFile, CompileOutput, FileState};
use belljar_core::provider::{BoxFuture, Ended, Sandbox, StageStdin};
use belljar_core::request::FileIn;
use belljar_core::{
    Failure, FailureKind, GuestPath, Plan, Policy, Receipt, Request, SandboxStatus, Stage, StageKind, Usage,
};

use super::run_stage;
use crate::execute::{Engine, EngineError};
use crate::judge::{Judgement, judge};
use crate::live::compile_output;

/// A compilation that is over.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) sandbox_id: String,
    pub(super) receipt: Receipt,
    pub(super) usage: Usage,
    pub(super) output: CompileOutput,
    /// How it ended, where that was not well.
    pub(super) bad: Option<Judgement>,
    /// What to put into every sandbox that runs it.
    pub(super) files: BTreeMap<GuestPath, FileIn>,
}

/// Compiles in a sandbox of its own; `None` where there is nothing to compile.
pub(super) async fn build(
    engine: &Engine,
    policy: &Policy,
    request: &Request,
    plan: &Arc<Plan>,
    stop: &mut Option<BoxFuture<'_, ()>>,
) -> Result<Option<Built>, EngineError> {
    let compile = plan
        .stages()
        .iter()
        .find(|stage| stage.kind() == StageKind::Compile);
    let Some(stage) = compile else {
        return Ok(None);
    };
    let mut sandbox = engine.raise(policy, request, Arc::clone(plan)).await?;
    let built = build_in(&mut *sandbox, stage, stop).await;
    let closed = sandbox.close().await;
    let built = built?;
    closed?;
    Ok(Some(built))
}

async fn build_in(
    sandbox: &mut dyn Sandbox,
    stage: &Stage,
    stop: &mut Option<BoxFuture<'_, ()>>,
) -> Result<Built, EngineError> {
    // Compilers read nothing.
    let end = run_stage(sandbox, stage, StageStdin::Empty, stop).await?;
    let mut bad = None;
    let mut files = BTreeMap::new();
    if end.ended == Ended::Exited(0) {
        let paths: Vec<_> = GuestPath::new(BUILT).into_iter().collect();
        // It lay on the sandbox's disk, so it fits on another of the same size.
        let collected = sandbox.collect(&paths, stage.limits().disk().get()).await;
        match take(collected) {
            Ok(taken) => files = taken,
            Err(why) => bad = Some(nothing_to_run(stage, &why)),
        }
    } else {
        bad = Some(judge(stage.kind(), stage.limits(), &end.ended));
    }
    Ok(Built {
        sandbox_id: sandbox.id().to_owned(),
        receipt: sandbox.receipt(),
        usage: end.usage,
        output: compile_output(end),
        bad,
        files,
    })
}

fn take(collected: Vec<CollectedFile>) -> Result<BTreeMap<GuestPath, FileIn>, String> {
    if collected.is_empty() {
        return Err("nothing is there".to_owned());
    }
    let mut files = BTreeMap::new();
    for file in collected {
        let FileState::Collected {
            bytes, executable, ..
        } = file.state
        else {
            let FileState::Refused { reason } = file.state else {
                continue;
            };
            return Err(format!("`{}`: {reason}", file.path));
        };
        let path = unescape(&file.path).and_then(|path| GuestPath::new(&path).ok());
        let Some(path) = path else {
            return Err(format!("`{}` is not a name in plain text", file.path));
        };
        let file = FileIn {
            executable,
            ..FileIn::inline(bytes)
        };
        files.insert(path, file);
    }
    Ok(files)
}

/// The name that an escaped one stands for, as [`CollectedFile::path`] says.
fn unescape(shown: &str) -> Option<String> {
    let mut name = Vec::with_capacity(shown.len());
    let mut bytes = shown.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            name.push(byte);
            continue;
        }
        match bytes.next()? {
            b'\\' => name.push(b'\\'),
            b'x' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                name.push(u8::try_from(high * 16 + low).ok()?);
            }
            _ => return None,
        }
    }
    String::from_utf8(name).ok()
}

fn nothing_to_run(stage: &Stage, why: &str) -> Judgement {
    let failure = Failure {
        kind: FailureKind::CompileFailed,
        stage: stage.kind(),
        message: format!("the compiler left nothing that can be run: {why}"),
    };
    (SandboxStatus::Failed, None, None, Some(failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(path: &str) -> CollectedFile {
        CollectedFile {
            path: path.to_owned(),
            state: FileState::Collected {
                size: 1,
                executable: true,
                bytes: b"x".to_vec(),
            },
        }
    }

    #[test]
    fn names_come_back_as_they_were() {
        assert_eq!(unescape("a/b$1.class").as_deref(), Some("a/b$1.class"));
        assert_eq!(unescape("a\\\\b\\x0a\\xc3\\xa9").as_deref(), Some("a\\b\né"));
        for bad in ["\\", "\\x", "\\x0", "\\xzz", "\\n", "\\xff"] {
            assert_eq!(unescape(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_taken_whole_is_not_taken() {
        let taken = take(vec![collected(".build/A.class"), collected(".build/B.class")]).unwrap();
        assert_eq!(taken.len(), 2);
        assert!(taken.values().all(|file| file.executable));
        assert!(take(Vec::new()).is_err());
        assert!(take(vec![collected(".build/\\xff")]).is_err());
        let link = CollectedFile {
            path: ".build".to_owned(),
            state: FileState::Refused {
                reason: "it is a symbolic link".to_owned(),
            },
        };
        assert_eq!(take(vec![link]).unwrap_err(), "`.build`: it is a symbolic link");
    }
}
