//! One execution in a session without an interpreter: a program of its own, among the files of those before it.

use std::pin::pin;

use belljar_core::provider::Stream;
use belljar_core::record::code_hash;
use belljar_core::request::Stdin;
use belljar_core::{LimitOverrides, Record, Request, Source, StateLost};
use tokio::sync::mpsc::UnboundedSender;

use super::error::SessionError;
use super::event::Event;
use super::keeper::{Answer, Keeper};
use super::{Cell, Work};
use crate::execute::{EngineError, ExecuteIo, Execution};
use crate::ident::fresh_id;
use crate::live::{missing, outlives, run_stages};

impl Keeper {
    pub(super) async fn run_program(
        &mut self,
        cell: Cell,
        events: UnboundedSender<Event>,
        answer: &mut Answer<Execution>,
    ) -> Result<Execution, SessionError> {
        if !cell.globals.is_empty() || !cell.tools.is_empty() {
            return Err(SessionError::NoInterpreter);
        }
        self.check_limits(&cell)?;
        let plan = self.engine.plan(&self.policy, &self.wish(&cell)?)?;
        if let Some(what) = missing(&self.plan, &plan, false) {
            return Err(EngineError::MadeWithout { what }.into());
        }
        self.prepare().await?;
        let too_old = self.too_old();
        let shared = &self.shared;
        let Some(sandbox) = self.sandbox.as_mut() else {
            return Err(SessionError::Closed);
        };
        sandbox.weigh(cell.weight);
        // The code itself is among them.
        sandbox.put(plan.files()).await?;
        let mut sink = |stream: Stream, bytes: &[u8]| {
            shared.log().push(stream, bytes);
            let _ = events.send(Event::Output(stream, bytes.to_vec()));
        };
        let stop = async {
            let (interrupted, given_up) = (pin!(shared.interrupted()), pin!(answer.closed()));
            tokio::select! {
                () = interrupted => {}
                () = given_up => {}
                () = tokio::time::sleep_until(too_old) => {}
            }
        };
        let io = ExecuteIo {
            sink: Some(&mut sink),
            stdin: None,
            stop: Some(Box::pin(stop)),
        };
        let ran = run_stages(&mut **sandbox, &plan, io).await;
        let is_lost = ran.as_ref().map_or(true, |outcome| !outlives(outcome));
        if is_lost {
            // Whatever ended it from outside took the sandbox with it. The next execution gets another one.
            self.shared.set_files(None);
            if let Some(sandbox) = self.sandbox.take() {
                let _ = sandbox.close().await;
            }
            self.lost = Some(StateLost::VariablesAndFiles);
        }
        let mut outcome = ran?;
        outcome.state_lost = self.lost;
        let record = Record {
            code_hash: code_hash(&cell.work.bytes()),
            ..Record::of_outcome(fresh_id("rec"), &plan, &outcome)
        };
        Ok(Execution { outcome, record })
    }

    /// What the execution asks for: what the session was made with, and this to run.
    fn wish(&self, cell: &Cell) -> Result<Request, SessionError> {
        let source = match &cell.work {
            Work::Command(argv) => Source::Command { argv: argv.clone() },
            Work::Code(code) => Source::Code {
                language: self.request.language().ok_or(SessionError::NoInterpreter)?,
                code: code.as_bytes().into(),
            },
        };
        Ok(Request {
            source,
            stdin: match &cell.stdin {
                Some(text) => Stdin::Bytes(text.as_bytes().into()),
                None => Stdin::Empty,
            },
            // They are in already; bringing them again would undo what was made of them.
            files: std::collections::BTreeMap::new(),
            outputs: cell.outputs.clone(),
            limits: tighter(&self.request.limits, &cell.limits),
            ..self.request.clone()
        })
    }
}

/// What an execution asks for where it asks, else what its session does.
fn tighter(session: &LimitOverrides, cell: &LimitOverrides) -> LimitOverrides {
    LimitOverrides {
        memory: cell.memory.or(session.memory),
        cpu_time: cell.cpu_time.or(session.cpu_time),
        wall_time: cell.wall_time.or(session.wall_time),
        processes: cell.processes.or(session.processes),
        open_files: cell.open_files.or(session.open_files),
        file_size: cell.file_size.or(session.file_size),
        disk: cell.disk.or(session.disk),
        output: cell.output.or(session.output),
        cpu_percent: cell.cpu_percent.or(session.cpu_percent),
    }
}
