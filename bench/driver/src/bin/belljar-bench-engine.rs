//! Runs `print(1 + 1)` by the engine's own API when it is told to, for bench/python.
//!
//! Each line of standard input is `program` or `cell` and a number of runs; it is answered by a line of JSON: the
//! microseconds that each run took, and how its sandbox came to be.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use belljar::{Engine, ExecuteIo, Execution, Language, Outcome, Policy, Request, native_engine};
use belljar_engine::Session;
use belljar_engine::session::Surroundings;
use serde_json::json;

type Measured<T> = Result<T, Box<dyn std::error::Error>>;

const CODE: &str = "print(1 + 1)";
/// Lets the pool fill up again.
const PAUSE: Duration = Duration::from_millis(5);

fn main() -> Measured<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let engine = native_engine();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (kind, count) = line.split_once(' ').ok_or("a kind and a number")?;
        let mut micros = Vec::new();
        let mut origins = Vec::new();
        for _ in 0..count.trim().parse()? {
            let began = Instant::now();
            let outcome = runtime.block_on(async {
                match kind {
                    "program" => program(&engine).await,
                    _ => cell(&engine).await,
                }
            })?;
            micros.push(began.elapsed().as_micros() as u64);
            if outcome.stdout.text() != "2\n" {
                return Err(format!("a run failed: {outcome:?}").into());
            }
            origins.push(outcome.receipt.origin);
            std::thread::sleep(PAUSE);
        }
        writeln!(
            std::io::stdout(),
            "{}",
            json!({ "micros": micros, "origins": origins })
        )?;
    }
    Ok(())
}

async fn program(engine: &Engine) -> Measured<Outcome> {
    let mut request = Request::code(Language::Python, CODE.as_bytes());
    request.args = vec!["x".to_owned()];
    let policy = Policy::for_owner(&request)?;
    let Execution { outcome, .. } = engine.execute(&policy, &request, ExecuteIo::default()).await?;
    Ok(outcome)
}

async fn cell(engine: &Engine) -> Measured<Outcome> {
    let request = Request::interpreter(Language::Python);
    let policy = Policy::for_owner(&request)?;
    let planned = engine.plan_run(&policy, &request)?;
    let (around, stop) = (Surroundings::default(), std::future::pending());
    let mut sink = |_| {};
    let evaluating = Session::evaluate_planned(engine, planned, around, CODE.into(), &mut sink, stop);
    let Execution { outcome, .. } = evaluating.await?;
    Ok(outcome)
}
