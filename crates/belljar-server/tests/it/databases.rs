//! Databases of the tests' own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use belljar_engine::fresh_id;
use belljar_server::store::{Place, Store};
use sqlx::{AnyConnection, Connection};

#[path = "../../../../tests/postgres.rs"]
mod postgres;

/// A directory that is removed afterwards.
#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(fresh_id("belljar-it"));
        std::fs::create_dir(&path).expect("a temporary directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A place with nothing in it yet.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) place: Place,
    _directory: Option<TempDir>,
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let directory = TempDir::new();
        Self {
            place: Place::Sqlite(directory.path().join("data").join("belljar.db")),
            _directory: Some(directory),
        }
    }

    async fn postgres() -> Option<Self> {
        let base = (*POSTGRES).as_deref()?;
        let name = fresh_id("t").replace('-', "_");
        execute(
            &Place::Postgres(postgres::url(base, "belljar")),
            &format!("CREATE DATABASE {name}"),
        )
        .await;
        Some(Self {
            place: Place::Postgres(postgres::url(base, &name)),
            _directory: None,
        })
    }

    pub(crate) async fn open(&self) -> Store {
        Store::open(self.place.clone()).await.expect("a store")
    }

    /// Does to the tables what only an intruder would.
    pub(crate) async fn tamper(&self, statement: &str) {
        execute(&self.place, statement).await;
    }
}

async fn execute(place: &Place, statement: &str) {
    sqlx::any::install_default_drivers();
    let url = match place {
        Place::Sqlite(path) => format!("sqlite://{}", path.display()),
        Place::Postgres(url) => url.clone(),
        Place::Memory(name) => panic!("nobody else can open {name}"),
    };
    let mut connection = AnyConnection::connect(&url).await.expect("a connection");
    sqlx::raw_sql(statement)
        .execute(&mut connection)
        .await
        .expect(statement);
    connection.close().await.expect("an end");
}

/// Where the tests' own PostgreSQL listens.
static POSTGRES: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let started = postgres::start(|command| command.spawn().expect("tests/postgres"));
    started
        .inspect_err(|why| {
            // The macros would be captured with the rest of a passing test's output.
            let _ = writeln!(std::io::stderr(), "not tested here: PostgreSQL: {why}");
        })
        .ok()
});

/// Runs a test on each database that this machine has.
pub(crate) fn on_each<F: Future<Output = ()>>(test: impl Fn(Database) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        test(Database::sqlite()).await;
        if let Some(database) = Database::postgres().await {
            test(database).await;
        }
    });
}
