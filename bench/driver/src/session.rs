//! Sessions: memory while idle, one cell, and calls of a host tool.

use std::time::{Duration, Instant};

use belljar::{Engine, Session, native_engine};
use serde::Serialize;

use crate::tree::{self, Charged};
use crate::wishes::Sessions;
use crate::{Measured, tell};

/// How long the pool may take to fill up, and what has ended to go.
const SETTLE: Duration = Duration::from_millis(1500);

#[derive(Debug, Serialize)]
pub(crate) struct Conversed {
    idle: Vec<Idle>,
    /// `1+1`, in microseconds.
    cell_micros: Vec<u64>,
    /// One call of a host tool out of a cell with many, by function and by future, in microseconds.
    tool_micros: Vec<f64>,
    async_tool_micros: Vec<f64>,
}

/// What so many idle sessions need beyond what there was before them, in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Idle {
    sessions: usize,
    /// Of the processes, the engine's own part among them.
    processes: Option<u64>,
    /// Of the kernel, as their groups have it.
    kernel: Option<u64>,
    /// Everything that is charged to their groups.
    charged: Option<u64>,
    open_micros: Vec<u64>,
}

pub(crate) fn measure(wishes: &Sessions) -> Measured<Conversed> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let engine = native_engine();
    runtime.block_on(async {
        let mut idle = Vec::new();
        for &count in &wishes.idle {
            idle.push(be_idle(&engine, count).await?);
        }
        tell("cells and tools")?;
        Ok(Conversed {
            idle,
            cell_micros: cells(&engine, wishes.cells).await?,
            tool_micros: calls(&engine, wishes, "add").await?,
            async_tool_micros: calls(&engine, wishes, "add_async").await?,
        })
    })
}

async fn be_idle(engine: &Engine, count: usize) -> Measured<Idle> {
    // Until the warm interpreter and the pool are there, they would count as the sessions' own.
    for _ in 0..3 {
        Session::builder().engine(engine).build().await?.close().await?;
        tokio::time::sleep(SETTLE).await;
    }
    let (before, held) = (tree::memory(), tree::charged());
    let (mut sessions, mut open_micros) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let started = Instant::now();
        sessions.push(Session::builder().engine(engine).build().await?);
        open_micros.push(started.elapsed().as_micros() as u64);
    }
    tokio::time::sleep(SETTLE).await;
    let (after, holds) = (tree::memory(), tree::charged());
    for session in sessions {
        session.close().await?;
    }
    let grown = |part: fn(&Charged) -> u64| {
        (holds.groups >= held.groups + count as u64).then(|| part(&holds).saturating_sub(part(&held)))
    };
    Ok(Idle {
        sessions: count,
        processes: before
            .zip(after)
            .map(|(before, after)| after.saturating_sub(before)),
        kernel: grown(|charged| charged.kernel),
        charged: grown(|charged| charged.all),
        open_micros,
    })
}

async fn cells(engine: &Engine, count: usize) -> Measured<Vec<u64>> {
    let session = Session::builder().engine(engine).build().await?;
    let mut micros = Vec::new();
    for turn in 0..count + 10 {
        let started = Instant::now();
        let run = session.execute("1+1").await?;
        let took = started.elapsed();
        if run.outcome.value != Some(2.into()) {
            return Err(format!("a cell gave {:?}", run.outcome.value).into());
        }
        if turn >= 10 {
            micros.push(took.as_micros() as u64);
        }
    }
    session.close().await?;
    Ok(micros)
}

async fn calls(engine: &Engine, wishes: &Sessions, tool: &str) -> Measured<Vec<f64>> {
    let session = Session::builder()
        .engine(engine)
        .tool("add", |a: i64, b: i64| a + b)
        .async_tool("add_async", async |a: i64, b: i64| a + b)
        .max_tool_calls(wishes.calls)
        .build()
        .await?;
    let calls = wishes.calls;
    let code = format!("n = 0\nfor _ in range({calls}):\n    n = {tool}(n, 1)\nn");
    let mut micros = Vec::new();
    for turn in 0..=wishes.call_cells {
        let started = Instant::now();
        let run = session.execute(code.as_str()).await?;
        let took = started.elapsed();
        if run.outcome.value != Some(i64::from(calls).into()) {
            return Err(format!("tools gave {:?} {:?}", run.outcome.value, run.outcome.exception).into());
        }
        if turn > 0 {
            micros.push(took.as_secs_f64() * 1e6 / f64::from(calls));
        }
    }
    session.close().await?;
    Ok(micros)
}
