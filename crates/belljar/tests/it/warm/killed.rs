//! The processes behind warm sandboxes are killed: whoever is affected is told why, the others go on, and
//! the next request is served.

use std::time::{Duration, Instant};

use belljar::{Engine, Execution, FailureKind, Language, Request, SandboxStatus};
use belljar_linux::PoolSettings;
use tokio::task::JoinHandle;

use super::{
    FORKED_AHEAD, below, code_in, cold, engine, go, go_with, origin, prepare, printed, python, runtime,
};
use crate::again::{alone, test_name};

/// A run that has begun: it says so, then waits.
struct Begun {
    run: JoinHandle<Execution>,
}

impl Begun {
    async fn new(engine: &Engine, request: &Request) -> Self {
        let (engine, request) = (engine.clone(), request.clone());
        let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let run = tokio::spawn(async move {
            let mut sink = move |_, _: &[u8]| {
                let _ = sender.send(());
            };
            let io = belljar::ExecuteIo {
                sink: Some(&mut sink),
                ..Default::default()
            };
            go_with(&engine, &request, io).await
        });
        let begun = tokio::time::timeout(Duration::from_secs(20), heard.recv()).await;
        assert_eq!(begun, Ok(Some(())), "it did not begin");
        Self { run }
    }

    async fn end(self) -> Execution {
        let ended = tokio::time::timeout(Duration::from_secs(20), self.run).await;
        ended.expect("it hangs").expect("a run")
    }
}

fn waiting() -> Request {
    python("import time; print('up', flush=True); time.sleep(600)")
}

#[track_caller]
fn expect_killed(run: &Execution, why: &str) {
    let error = run.outcome.error.as_ref();
    assert_eq!(run.outcome.status, SandboxStatus::Killed, "{:#?}", run.outcome);
    let error = error.unwrap_or_else(|| panic!("no reason: {:#?}", run.outcome));
    assert_eq!(error.kind, FailureKind::EngineLost, "{error:?}");
    assert!(error.message.contains(why), "{error:?}");
    assert_eq!(run.record.status, SandboxStatus::Killed);
    let told = run.record.error_message.as_deref().unwrap_or_default();
    assert!(told.contains(why), "the record says `{told}`");
}

/// The next request is served at once, and soon a warm interpreter serves again.
async fn expect_recovery(engine: &Engine) {
    let request = python("print('next')");
    assert_eq!(printed(&go(engine, &request).await), "next\n");
    let started = Instant::now();
    loop {
        let run = go(engine, &request).await;
        assert_eq!(printed(&run), "next\n");
        if origin(&run) == FORKED_AHEAD {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "never warm again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_killed_zygote_ends_its_forks_alone() {
    alone(test_name!(), || {
        let engine = engine(PoolSettings::default());
        let (request, mut fresh) = (
            waiting(),
            python("import time; print('up', flush=True); time.sleep(2)"),
        );
        fresh.fresh_interpreter = true;
        let shell = code_in(Language::Bash, "echo up; sleep 2");
        prepare(&engine, &request);
        runtime().block_on(async {
            let mut forked = Vec::new();
            for _ in 0..3 {
                forked.push(Begun::new(&engine, &request).await);
            }
            let others = [
                Begun::new(&engine, &fresh).await,
                Begun::new(&engine, &shell).await,
            ];
            let zygotes = below::zygotes();
            assert_eq!(zygotes.len(), 1, "{:?}", below::all());
            zygotes[0].kill();
            for run in forked {
                expect_killed(&run.end().await, "warm interpreter");
            }
            for run in others {
                assert_eq!(printed(&run.end().await), "up\n");
            }
            expect_recovery(&engine).await;
            let now = below::zygotes();
            assert!(now.len() == 1 && now != zygotes, "{now:?}");
        });
        drop(engine);
        below::expect_nothing();
    });
}

/// What was forked ahead goes with its zygote: no request may get one of those.
#[test]
fn what_waits_is_not_handed_out_once_its_processes_are_gone() {
    alone(test_name!(), || {
        let engine = engine(PoolSettings::default());
        let request = python("print('fine')");
        let kinds: [fn() -> Vec<below::Process>; 5] = [
            below::zygotes,
            below::inits,
            below::forks,
            below::nurseries,
            below::launchers,
        ];
        runtime().block_on(async {
            for (round, victims) in kinds.into_iter().enumerate() {
                tokio::task::block_in_place(|| prepare(&engine, &request));
                let found = victims();
                assert!(!found.is_empty(), "round {round}: {:?}", below::all());
                found.iter().for_each(below::Process::kill);
                below::wait_until("they are gone", || found.iter().all(below::Process::is_over));
                // The engine hears of it by a message.
                tokio::time::sleep(Duration::from_millis(200)).await;
                for _ in 0..6 {
                    assert_eq!(printed(&go(&engine, &request).await), "fine\n", "round {round}");
                }
                expect_recovery(&engine).await;
            }
        });
        drop(engine);
        below::expect_nothing();
    });
}

#[test]
fn a_killed_nursery_or_launcher_ends_every_run_with_a_reason() {
    alone(test_name!(), || {
        for victims in [below::nurseries, below::launchers] {
            for engine in [cold(), engine(PoolSettings::default())] {
                runtime().block_on(async {
                    let mut runs = Vec::new();
                    for _ in 0..3 {
                        runs.push(Begun::new(&engine, &waiting()).await);
                    }
                    runs.push(Begun::new(&engine, &code_in(Language::Bash, "echo up; sleep 600")).await);
                    let found = victims();
                    assert!(!found.is_empty(), "{:?}", below::all());
                    found.iter().for_each(below::Process::kill);
                    for run in runs {
                        expect_killed(&run.end().await, "killed");
                    }
                    let request = python("print('next')");
                    assert_eq!(printed(&go(&engine, &request).await), "next\n");
                });
                drop(engine);
                below::expect_nothing();
            }
        }
    });
}

#[test]
fn a_killed_init_ends_its_own_run_alone() {
    alone(test_name!(), || {
        let engine = cold();
        runtime().block_on(async {
            let victim = Begun::new(&engine, &waiting()).await;
            let init = below::inits();
            assert_eq!(init.len(), 1);
            let other = Begun::new(
                &engine,
                &python("import time; print('up', flush=True); time.sleep(1)"),
            )
            .await;
            init[0].kill();
            expect_killed(&victim.end().await, "init was killed");
            assert_eq!(printed(&other.end().await), "up\n");
        });
        drop(engine);
        below::expect_nothing();
    });
}

/// The same at any moment, under load: every request has an answer, and nothing is left.
#[test]
fn kills_at_random_moments_under_load_lose_nobody() {
    alone(test_name!(), || {
        let mounts = below::mounts();
        let engine = engine(PoolSettings::default());
        let until = Instant::now() + Duration::from_secs(6);
        let (mut fine, mut killed, mut refused) = (0, 0, Vec::new());
        runtime().block_on(async {
            let workers: Vec<_> = (0..16)
                .map(|number| load(engine.clone(), number, until))
                .collect();
            let workers: Vec<_> = workers.into_iter().map(tokio::spawn).collect();
            while Instant::now() < until - Duration::from_millis(500) {
                tokio::time::sleep(Duration::from_millis(random(120))).await;
                let victims = match random(10) {
                    0 => below::launchers(),
                    1 | 2 => below::nurseries(),
                    3..6 => below::zygotes(),
                    6 | 7 => below::forks(),
                    _ => below::inits(),
                };
                if !victims.is_empty() {
                    victims[random(victims.len() as u64) as usize].kill();
                }
            }
            for worker in workers {
                let ended = tokio::time::timeout(Duration::from_secs(30), worker).await;
                for answer in ended.expect("a request hangs").expect("a worker") {
                    match answer {
                        Answer::Fine => fine += 1,
                        Answer::Killed => killed += 1,
                        Answer::Refused(why) => refused.push(why),
                    }
                }
            }
            expect_recovery(&engine).await;
        });
        refused.sort();
        println!("{fine} fine, {killed} killed, {} not begun", refused.len());
        refused.dedup();
        println!("{refused:#?}");
        assert!(
            fine > 50 && killed > 5,
            "{fine} fine, {killed} killed, {refused:?}"
        );
        drop(engine);
        below::expect_nothing();
        assert_eq!(below::mounts(), mounts);
    });
}

enum Answer {
    Fine,
    /// Its processes were.
    Killed,
    /// It never began; why.
    Refused(String),
}

async fn load(engine: Engine, number: usize, until: Instant) -> Vec<Answer> {
    let mut answers = Vec::new();
    while Instant::now() < until {
        let request = match number % 4 {
            0 => code_in(Language::Bash, "echo fine; sleep 0.02"),
            1 => python("import time; print('fine', flush=True); time.sleep(0.05)"),
            _ => python("print('fine')"),
        };
        let policy = super::owner(&request);
        let run = engine
            .execute(&policy, &request, belljar::ExecuteIo::default())
            .await;
        answers.push(match run {
            Ok(run) if run.outcome.success() => {
                assert_eq!(run.outcome.stdout.text(), "fine\n");
                Answer::Fine
            }
            Ok(run) => {
                assert_eq!(run.outcome.status, SandboxStatus::Killed, "{:#?}", run.outcome);
                assert!(run.outcome.error.is_some() && run.record.error_message.is_some());
                Answer::Killed
            }
            Err(error) => Answer::Refused(error.to_string()),
        });
    }
    answers
}

fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random bytes");
    u64::from_ne_bytes(bytes) % below
}
