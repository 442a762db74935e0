//! What all lines of a batch have in common, and how one of them is answered.

use std::io;
use std::sync::Arc;

use belljar_core::provider::BoxFuture;
use belljar_core::record::code_hash;
use belljar_core::{Policy, Request};
use belljar_engine::{Engine, ExecuteIo};

use super::answer::{Answer, Answered};
use super::answers::Answers;
use super::elsewhere::{self, Elsewhere};
use super::lines::Line;
use super::request::{self, Wish};
use crate::builder::{DEFAULT_TIMEOUT, narrow_commands};
use crate::error::Error;
use crate::native::shared_engine;

/// A batch to be run.
#[derive(Clone, Debug)]
#[must_use = "a batch does nothing until it is run"]
pub struct Batch {
    engine: Option<Engine>,
    policy: Option<Policy>,
    allowed_commands: Vec<String>,
    defaults: Request,
    jobs: usize,
    elsewhere: Option<(Arc<dyn Elsewhere>, String)>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Starts with nothing said: one line at a time, each held against what it asks for itself.
    pub fn new() -> Self {
        Self {
            engine: None,
            policy: None,
            allowed_commands: Vec::new(),
            defaults: Request::command(Vec::new()),
            jobs: 1,
            elsewhere: None,
        }
    }

    /// How many lines may run at once; at least one.
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = jobs.max(1);
        self
    }

    /// The policy to hold every line against. Without one, asking is enough: see [`Policy::for_owner`].
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The only programs that commands may start; an empty list leaves it to the policy.
    pub fn allowed_commands(mut self, programs: Vec<String>) -> Self {
        self.allowed_commands = programs;
        self
    }

    /// What lines have where they do not say: variables, mounts, limits and so on. Its source and its
    /// arguments are not used.
    pub fn defaults(mut self, defaults: Request) -> Self {
        self.defaults = defaults;
        self
    }

    /// Has somebody else run the lines, held against policies of their own; `name` tells them apart in
    /// [`Batch::options_hash`].
    pub fn elsewhere(mut self, by: Arc<dyn Elsewhere>, name: String) -> Self {
        self.elsewhere = Some((by, name));
        self
    }

    /// The engine to use; otherwise the one that all of this process share.
    pub fn engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone());
        self
    }

    /// A short hash of all this but the jobs: with another one, the same lines may end otherwise.
    pub fn options_hash(&self) -> String {
        let defaults = &self.defaults;
        let mounts: Vec<_> = defaults.mounts.iter().map(ToString::to_string).collect();
        let files: Vec<_> = defaults
            .files
            .iter()
            .map(|(path, file)| format!("{path}: {file:?}"))
            .collect();
        let mut all = serde_json::json!([
            self.policy.as_ref().map(Policy::hash),
            self.allowed_commands,
            defaults.env,
            files,
            mounts,
            defaults.network,
            defaults.limits,
            defaults.controls,
            defaults.check_paths,
            defaults.caller,
        ]);
        // Only where it is said, so that what was begun before there was a choice can go on.
        if let (true, Some(list)) = (
            defaults.provider.is_some() || defaults.image.is_some() || defaults.approved,
            all.as_array_mut(),
        ) {
            list.push(serde_json::json!([
                defaults.provider,
                defaults.image,
                defaults.approved
            ]));
        }
        if let (Some((_, name)), Some(list)) = (&self.elsewhere, all.as_array_mut()) {
            list.push(serde_json::Value::from(name.as_str()));
        }
        let mut hash = code_hash(all.to_string().as_bytes());
        hash.truncate(16);
        hash
    }

    /// Whether a line can be understood. Runs nothing and asks no policy.
    pub fn check(&self, line: &Line) -> Result<(), Error> {
        request::read(line, &self.defaults).1.map(drop)
    }

    /// Runs lines, and gives their answers in the lines' order.
    ///
    /// Lines are read on a thread of their own and only as fast as they are answered; see [`Answers`].
    /// It must be called within a tokio runtime.
    pub fn run(
        self,
        lines: impl Iterator<Item = io::Result<Line>> + Send + 'static,
    ) -> Result<Answers, Error> {
        let jobs = self.jobs;
        let batch = Arc::new(self);
        let options_hash = batch.options_hash();
        Answers::start(lines, jobs, move |line, stop| {
            let batch = Arc::clone(&batch);
            let options_hash = options_hash.clone();
            Box::pin(async move { batch.answer(line, options_hash, stop).await })
        })
    }

    async fn answer(&self, line: Line, options_hash: String, stop: BoxFuture<'_, ()>) -> Answer {
        let (id, wish) = request::read(&line, &self.defaults);
        // Everything in it is in the wish by now; one copy is enough while it runs.
        drop(line.text);
        let answered = match wish {
            Ok(wish) => self.perform(wish, stop).await,
            Err(error) => Err(error),
        };
        Answer {
            line: line.number,
            id,
            input_hash: line.hash,
            options_hash,
            end: line.end,
            answered: answered.unwrap_or_else(Answered::Failed),
        }
    }

    async fn perform(&self, wish: Wish, stop: BoxFuture<'_, ()>) -> Result<Answered, Error> {
        if let Some((by, _)) = &self.elsewhere {
            return elsewhere::perform(&**by, wish, stop).await;
        }
        let Wish {
            mut request,
            cases,
            comparison,
        } = wish;
        let mut policy = match &self.policy {
            Some(policy) => policy.clone(),
            None => {
                request.limits.wall_time.get_or_insert(DEFAULT_TIMEOUT);
                Policy::for_owner(&request)?
            }
        };
        narrow_commands(&mut policy, self.allowed_commands.clone())?;
        let engine = self.engine.clone().unwrap_or_else(shared_engine);
        if cases.is_empty() {
            let io = ExecuteIo {
                stop: Some(stop),
                ..ExecuteIo::default()
            };
            let execution = engine.execute(&policy, &request, io).await?;
            return Ok(Answered::Ran(Box::new(execution)));
        }
        let execution = engine
            .execute_cases(&policy, &request, &cases, comparison, Some(stop))
            .await?;
        Ok(Answered::Cases(Box::new(execution)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_core::Bytes;

    #[test]
    fn the_hash_tells_options_apart_and_leaves_the_jobs_out() {
        let plain = Batch::new().options_hash();
        assert_eq!(plain, Batch::new().jobs(7).options_hash());
        assert_eq!(plain.len(), 16);
        let mut memory = Request::command(Vec::new());
        memory.limits.memory = Some(Bytes::from_mib(64));
        let mut env = Request::command(Vec::new());
        env.env.insert("A".to_owned(), "1".to_owned());
        for other in [
            Batch::new().defaults(memory),
            Batch::new().defaults(env),
            Batch::new().policy(Policy::builtin("standard").unwrap()),
            Batch::new().allowed_commands(vec!["ls".to_owned()]),
        ] {
            assert_ne!(other.options_hash(), plain, "{other:?}");
        }
    }
}
