//! Cases against a provider that remembers what it was asked to do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use belljar_core::capabilities::Capabilities;
use belljar_core::outcome::{CollectedFile, FileState};
use belljar_core::provider::{
    BoxFuture, Ended, Provider, ProviderError, Sandbox, StageEnd, StageIo, StageStdin,
};
use belljar_core::request::FileIn;
use belljar_core::{
    Captured, Comparison, GuestPath, IsolationLevel, Language, NetworkPolicy, Plan, Policy, ProviderName,
    Receipt, Request, SandboxStatus, Stage, StageKind, Usage, Verdict,
};

use super::{Case, CasesExecution};
use crate::{Engine, EngineError};

/// Its programs are their standard input: `print TEXT`, `exit CODE`, `memory`, `hang`, `flood`.
#[derive(Debug, Default)]
struct Remembers {
    events: Arc<Mutex<Vec<String>>>,
    count: AtomicUsize,
    compiler_fails: bool,
}

#[derive(Debug)]
struct Place {
    id: String,
    number: usize,
    plan: Arc<Plan>,
    events: Arc<Mutex<Vec<String>>>,
    compiler_fails: bool,
}

impl Provider for Remembers {
    fn name(&self) -> ProviderName {
        ProviderName::Native
    }

    fn capabilities(&self, languages: &[Language]) -> Capabilities {
        crate::fake::capabilities(languages)
    }

    fn open(&self, id: String, plan: Arc<Plan>) -> BoxFuture<'_, Result<Box<dyn Sandbox>, ProviderError>> {
        let place = Place {
            id,
            number: self.count.fetch_add(1, Ordering::Relaxed) + 1,
            plan,
            events: Arc::clone(&self.events),
            compiler_fails: self.compiler_fails,
        };
        Box::pin(async move { Ok(Box::new(place) as Box<dyn Sandbox>) })
    }
}

impl Place {
    fn note(&self, what: &str) {
        self.events
            .lock()
            .unwrap()
            .push(format!("{} {what}", self.number));
    }
}

impl Sandbox for Place {
    fn id(&self) -> &str {
        &self.id
    }

    fn put<'a>(
        &'a mut self,
        files: &'a BTreeMap<GuestPath, FileIn>,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        for (path, file) in files {
            self.note(&format!("put {path} {}", file.executable));
        }
        Box::pin(async { Ok(()) })
    }

    fn run<'a>(
        &'a mut self,
        stage: &'a Stage,
        io: StageIo<'a>,
    ) -> BoxFuture<'a, Result<StageEnd, ProviderError>> {
        Box::pin(async move {
            let (mut stdout, mut dropped) = (Vec::new(), 0);
            let ended = if stage.kind() == StageKind::Compile {
                self.note("compile");
                Ended::Exited(i32::from(self.compiler_fails))
            } else {
                let input = match io.stdin {
                    StageStdin::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                    _ => String::new(),
                };
                let last = stage.argv().last().unwrap();
                self.note(&format!("run {input} | {last}"));
                match input.split_once(' ').unwrap_or((&input, "")) {
                    ("print", text) => {
                        stdout = text.as_bytes().to_vec();
                        Ended::Exited(0)
                    }
                    ("exit", code) => Ended::Exited(code.parse().unwrap()),
                    ("memory", _) => Ended::OutOfMemory,
                    ("flood", size) => {
                        stdout = vec![b'x'; size.parse().unwrap()];
                        dropped = 1;
                        Ended::Exited(0)
                    }
                    ("hang", _) => match io.stop {
                        Some(stop) => {
                            stop.await;
                            Ended::Stopped
                        }
                        None => Ended::WallTime,
                    },
                    (word, _) => panic!("{word}"),
                }
            };
            Ok(StageEnd {
                ended,
                stdout: Captured::new(stdout, dropped),
                stderr: Captured::default(),
                usage: Usage {
                    wall_seconds: 1.0,
                    ..Usage::default()
                },
            })
        })
    }

    fn collect<'a>(&'a mut self, paths: &'a [GuestPath], _: u64) -> BoxFuture<'a, Vec<CollectedFile>> {
        self.note("collect");
        let files = paths
            .iter()
            .map(|path| CollectedFile {
                path: path.as_str().to_owned(),
                state: FileState::Collected {
                    size: 4,
                    executable: true,
                    bytes: b"\x7fELF".to_vec(),
                },
            })
            .collect();
        Box::pin(async { files })
    }

    fn receipt(&self) -> Receipt {
        Receipt {
            provider: "fake".to_owned(),
            isolation: IsolationLevel::Process,
            policy_id: self.plan.policy_id().to_owned(),
            policy_hash: self.plan.policy_hash().to_owned(),
            environment: self.plan.environment().cloned(),
            controls: BTreeMap::new(),
            network: NetworkPolicy::None,
            limits: self.plan.limits().clone(),
            shown: Vec::new(),
            origin: String::new(),
        }
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        self.note("close");
        Box::pin(async { Ok(()) })
    }
}

fn case(stdin: &str, expected: Option<&str>) -> Case {
    Case {
        stdin: Some(stdin.as_bytes().into()),
        expected_stdout: expected.map(|text| text.as_bytes().into()),
        args: None,
    }
}

type Ran = (Result<CasesExecution, EngineError>, Vec<String>);

async fn go(provider: Remembers, request: Request, cases: &[Case], stop: Option<BoxFuture<'_, ()>>) -> Ran {
    let events = Arc::clone(&provider.events);
    let policy = Policy::for_owner(&request).unwrap();
    let engine = Engine::new(Arc::new(provider));
    let done = engine
        .execute_cases(&policy, &request, cases, Comparison::Trimmed, stop)
        .await;
    let events = events.lock().unwrap().clone();
    (done, events)
}

fn verdicts(done: &CasesExecution) -> Vec<Option<Verdict>> {
    done.cases.iter().map(|case| case.verdict).collect()
}

#[tokio::test]
async fn it_is_compiled_once_and_every_case_has_a_sandbox_of_its_own() {
    let request = Request::code(Language::C, *b"int main;");
    let cases = [case("print 1", Some("1\n")), case("print 2", None)];
    let (done, events) = go(Remembers::default(), request, &cases, None).await;
    let done = done.unwrap();
    assert_eq!(verdicts(&done), [Some(Verdict::Accepted), None]);
    assert!(done.success());
    assert_eq!(done.outcome.usage.wall_seconds, 3.0);
    assert!(done.outcome.compile.is_some());
    assert_eq!(
        events,
        [
            "1 compile",
            "1 collect",
            "1 close",
            "2 put .build true",
            "2 run print 1 | /workspace/.build",
            "2 close",
            "3 put .build true",
            "3 run print 2 | /workspace/.build",
            "3 close",
        ]
    );
}

#[tokio::test]
async fn a_case_that_is_ended_takes_no_other_with_it() {
    let request = Request::code(Language::Python, *b"1");
    let cases = [
        case("memory", Some("")),
        case("hang", Some("")),
        case("exit 3", Some("")),
        case("flood 3", Some("xxx")),
        case("print b", Some("a")),
        case("print a", Some("a")),
    ];
    let (done, events) = go(Remembers::default(), request, &cases, None).await;
    let done = done.unwrap();
    let expected = [
        Verdict::Memory,
        Verdict::Timeout,
        Verdict::RuntimeError,
        Verdict::OutputLimit,
        Verdict::WrongOutput,
        Verdict::Accepted,
    ];
    assert_eq!(verdicts(&done), expected.map(Some));
    assert!(!done.success());
    assert_eq!(
        done.outcome.status,
        SandboxStatus::Failed,
        "the first that did not end well"
    );
    assert_eq!(events.iter().filter(|event| event.ends_with("close")).count(), 6);
}

#[tokio::test]
async fn what_does_not_compile_runs_no_case() {
    let provider = Remembers {
        compiler_fails: true,
        ..Remembers::default()
    };
    let request = Request::code(Language::C, *b"int main;");
    let cases = [case("print 1", Some("1")), case("print 2", None)];
    let (done, events) = go(provider, request, &cases, None).await;
    let done = done.unwrap();
    assert_eq!(verdicts(&done), [Some(Verdict::CompileError); 2]);
    assert_eq!(done.outcome.compile.unwrap().exit_code, Some(1));
    assert_eq!(events, ["1 compile", "1 close"]);
}

#[tokio::test]
async fn a_stop_ends_the_case_and_those_that_wait() {
    let request = Request::code(Language::Python, *b"1");
    let cases = [
        case("exit 1", None),
        case("print 1", None),
        case("hang", None),
        case("print 2", None),
    ];
    let stop = Box::pin(std::future::ready(()));
    let (done, events) = go(Remembers::default(), request, &cases, Some(stop)).await;
    let done = done.unwrap();
    assert!(done.cancelled(), "although an earlier case had failed");
    assert_eq!(
        verdicts(&done)[1..],
        [None, Some(Verdict::Lost), Some(Verdict::Lost)]
    );
    assert_eq!(events.len(), 6);
}

#[tokio::test]
async fn a_case_has_what_it_does_not_say_from_the_request() {
    let mut request = Request::code(Language::Python, *b"1");
    request.stdin = belljar_core::request::Stdin::Bytes((*b"print own").into());
    request.args = vec!["own".to_owned()];
    let cases = [
        Case::default(),
        Case {
            args: Some(vec!["other".to_owned()]),
            ..case("print x", None)
        },
    ];
    let (_, events) = go(Remembers::default(), request, &cases, None).await;
    assert_eq!(events[0], "1 run print own | own");
    assert_eq!(events[2], "2 run print x | other");
}

#[tokio::test]
async fn a_case_that_is_not_allowed_is_denied_alone() {
    let request = Request::code(Language::Python, *b"1");
    let nul = Case {
        args: Some(vec!["\0".to_owned()]),
        ..Case::default()
    };
    let cases = [nul.clone(), case("print 1", Some("1"))];
    let (done, _) = go(Remembers::default(), request.clone(), &cases, None).await;
    let done = done.unwrap();
    assert_eq!(verdicts(&done), [Some(Verdict::Denied), Some(Verdict::Accepted)]);
    assert!(done.cases[0].denial.is_some());
    assert!(!done.success());
    let (done, events) = go(Remembers::default(), request, &[nul], None).await;
    assert!(matches!(done, Err(EngineError::Denied { .. })), "nothing ran");
    assert!(events.is_empty());
}

#[tokio::test]
async fn all_cases_together_keep_no_more_than_the_output_limit() {
    let mut request = Request::code(Language::Python, *b"1");
    request.limits.output = Some(belljar_core::Bytes::new(10));
    let cases = [
        case("print 12345678", Some("12345678")),
        case("print 12345678", Some("12345678")),
        case("print 1", Some("1")),
    ];
    let (done, _) = go(Remembers::default(), request, &cases, None).await;
    let done = done.unwrap();
    assert!(done.success(), "what is cut later is still judged whole");
    let kept: Vec<_> = done
        .cases
        .iter()
        .map(|case| (case.stdout.bytes().len(), case.stdout.dropped()))
        .collect();
    assert_eq!(kept, [(8, 0), (2, 6), (0, 1)]);
}
