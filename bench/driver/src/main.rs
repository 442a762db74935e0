//! Times belljar and its neighbours side by side: `belljar-bench WISHES.json`, results to standard output as JSON.
//!
//! `bench/run` writes the wishes, and judges and shows the results. This program only measures: a figure
//! that cannot be had is null, and anything that does not print what it should ends the whole run.

mod contender;
mod cpu;
mod latency;
mod load;
mod output;
mod session;
mod tree;
mod wishes;

use std::error::Error;
use std::io::Write;

use contender::Contender;
use wishes::Wishes;

/// What measuring gives, or why it could not go on.
type Measured<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Measured<()> {
    let path = std::env::args()
        .nth(1)
        .ok_or("usage: belljar-bench WISHES.json")?;
    let wishes: Wishes = serde_json::from_slice(&std::fs::read(path)?)?;
    let contenders: Vec<Contender> = wishes
        .contenders
        .iter()
        .map(Contender::new)
        .collect::<Measured<_>>()?;
    tell("taking turns")?;
    let latency = latency::measure(&contenders, wishes.rounds, wishes.batch)?;
    let load = load::measure(&contenders, &wishes.load, &wishes.cpu)?;
    // What the rest measures is not theirs.
    drop(contenders);
    tell("sessions")?;
    let sessions = session::measure(&wishes.sessions)?;
    tell("output")?;
    let output = output::measure(wishes.output_gib)?;
    let results = serde_json::json!({
        "latency": latency,
        "load": load,
        "sessions": sessions,
        "output": output,
    });
    writeln!(std::io::stdout(), "{results}")?;
    Ok(())
}

/// Says to whoever waits what is being measured.
fn tell(what: &str) -> Measured<()> {
    Ok(writeln!(std::io::stderr(), "bench: {what}")?)
}
