//! The parts of a build that run in a sandbox: one of our scripts, the tree where it will stand.

use std::collections::BTreeMap;
use std::path::Path;

use belljar_core::limits::{LimitNumbers, Limits};
use belljar_core::outcome::{CollectedFile, FileState};
use belljar_core::request::FileIn;
use belljar_core::{
    Access, Environment, EnvironmentName, GuestPath, Language, Mount, Outcome, Policy, Request,
};

use super::error::EnvironmentError;
use super::manifest::Interpreter;
use super::progress::{Cancel, Lines, Progress, reason};
use crate::execute::{Engine, EngineError, ExecuteIo};

/// What a build may use. Packages are large and slow to compile; it is the clock that ends a hostile one.
const LIMITS: LimitNumbers = LimitNumbers {
    max_memory_mb: 4096,
    max_cpu_seconds: 3600.0,
    max_wall_time_seconds: 1800.0,
    max_processes: 64,
    max_open_files: 1024,
    max_file_size_mb: 8192,
    max_disk_mb: 1024,
    max_output_mb: 64,
    max_cpu_percent: None,
};

/// One script to run.
pub(super) struct Job<'a> {
    /// The step, as an error names it.
    pub(super) step: &'static str,
    pub(super) script: &'a str,
    pub(super) args: Vec<String>,
    /// What it reads as `job.json`.
    pub(super) input: serde_json::Value,
    /// The interpreter to run it with.
    pub(super) program: &'a Path,
    pub(super) variables: BTreeMap<String, String>,
    /// Further files for its work directory.
    pub(super) files: Vec<(&'a str, String)>,
    pub(super) mounts: Vec<Mount>,
    pub(super) outputs: &'a [&'a str],
}

/// Runs builds' scripts.
pub(super) struct Sandboxed<'a> {
    pub(super) engine: &'a Engine,
    pub(super) interpreter: &'a Interpreter,
    pub(super) name: &'a EnvironmentName,
    pub(super) cancel: &'a Cancel,
}

impl Sandboxed<'_> {
    /// Runs a job to its end and gives the files that it was to leave.
    pub(super) async fn run(
        &self,
        job: Job<'_>,
        progress: &mut dyn Progress,
    ) -> Result<Vec<CollectedFile>, EnvironmentError> {
        let step = job.step;
        let (policy, request, environment) = self.prepare(job)?;
        let mut lines = Lines::new(progress);
        let io = ExecuteIo {
            sink: Some(&mut lines),
            stdin: None,
            stop: Some(self.cancel.wait()),
        };
        let result = self
            .engine
            .execute_in(&policy, &request, Some(environment), io)
            .await;
        let output = lines.finish();
        if self.cancel.is_cancelled() {
            return Err(EnvironmentError::Cancelled);
        }
        let outcome = result.map_err(engine_error)?.outcome;
        if outcome.success() {
            return Ok(outcome.files);
        }
        Err(EnvironmentError::Build {
            step,
            why: why(&outcome, &output),
            output,
        })
    }

    fn prepare(&self, job: Job<'_>) -> Result<(Policy, Request, Environment), EnvironmentError> {
        let limits = Limits::new(&LIMITS).map_err(|error| build_error(job.step, &error))?;
        let mut policy = Policy::named("environment", "Building an environment", limits);
        policy.allow_file_write = true;
        policy.allowed_mounts.clone_from(&job.mounts);
        let mut request = Request::code(Language::Python, job.script.as_bytes());
        request.args = job.args;
        request.env = job.variables;
        request.mounts = job.mounts;
        request.environment = Some(self.name.clone());
        // What is being built is not yet what an interpreter should have started in.
        request.fresh_interpreter = true;
        let input = guest_path(job.step, "job.json")?;
        request
            .files
            .insert(input, FileIn::inline(job.input.to_string().into_bytes()));
        for (name, text) in job.files {
            let path = guest_path(job.step, name)?;
            request.files.insert(path, FileIn::inline(text.into_bytes()));
        }
        for output in job.outputs {
            request.outputs.push(guest_path(job.step, output)?);
        }
        let environment = Environment {
            name: self.name.clone(),
            digest: "unfinished".to_owned(),
            language: Language::Python,
            program: job.program.to_owned(),
            shows: self.interpreter.shows.clone(),
            variables: BTreeMap::new(),
            preload: Vec::new(),
            root: None,
        };
        Ok((policy, request, environment))
    }
}

/// A mount, or why there can be none: a store below `/usr` cannot be shown where it stands.
pub(super) fn mount(
    step: &'static str,
    host: &Path,
    guest: &Path,
    access: Access,
) -> Result<Mount, EnvironmentError> {
    Mount::new(host, guest, access).map_err(|error| build_error(step, &error))
}

/// The bytes of a collected file.
pub(super) fn bytes_of<'a>(files: &'a [CollectedFile], path: &str) -> Option<&'a [u8]> {
    files.iter().find_map(|file| match &file.state {
        FileState::Collected { bytes, .. } if file.path == path => Some(bytes.as_slice()),
        _ => None,
    })
}

pub(super) fn build_error(step: &'static str, error: &dyn std::error::Error) -> EnvironmentError {
    EnvironmentError::Build {
        step,
        why: error.to_string(),
        output: Vec::new(),
    }
}

fn engine_error(error: EngineError) -> EnvironmentError {
    match error {
        EngineError::Environment(error) => *error,
        error => EnvironmentError::Engine(Box::new(error)),
    }
}

fn guest_path(step: &'static str, path: &str) -> Result<GuestPath, EnvironmentError> {
    GuestPath::new(path).map_err(|error| build_error(step, &error))
}

/// Why a script failed: its limit, its signal, or what it printed last.
fn why(outcome: &Outcome, output: &[String]) -> String {
    use belljar_core::FailureKind::ExitCode;
    match &outcome.error {
        Some(failure) if failure.kind != ExitCode => format!("it {}", failure.message),
        _ => reason(output),
    }
}
