//! Where a store is.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use sqlx::{AnyConnection, Connection};

use super::error::{During, StoreError};

/// How long a database may take to answer to a new connection.
const CONNECTING: Duration = Duration::from_secs(10);

/// A file of SQLite, a database of PostgreSQL by its URL, or memory.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    Sqlite(PathBuf),
    Postgres(String),
    /// The memory of this process, by a name within it: gone with the process.
    Memory(String),
}

/// Every connection: what is committed is on the disk, and whoever finds the file busy waits.
const SQLITE: [&str; 3] = [
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA busy_timeout = 10000",
];

/// Connections to memory share it, so that whoever reads would wait for whoever writes; one writer writes whole batches.
const IN_MEMORY: [&str; 1] = ["PRAGMA busy_timeout = 10000"];

impl Place {
    /// A place of its own in the memory of this process.
    pub fn memory() -> Self {
        Self::Memory(belljar_engine::fresh_id("mem"))
    }

    pub const fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite://{}?mode=rwc", escaped(path)),
            Self::Postgres(url) => url.clone(),
            Self::Memory(name) => format!("sqlite:file:{name}?mode=memory&cache=shared"),
        }
    }

    pub(super) const fn pragmas(&self) -> &'static [&'static str] {
        match self {
            Self::Sqlite(_) => &SQLITE,
            Self::Postgres(_) => &[],
            Self::Memory(_) => &IN_MEMORY,
        }
    }

    /// Makes the file, readable by its owner alone: SQLite would ask the umask.
    pub(super) fn make_ready(&self) -> Result<(), StoreError> {
        let Self::Sqlite(path) = self else {
            return Ok(());
        };
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(|error| file_error("make", directory, error))?;
        }
        private(path)
            .map(drop)
            .map_err(|error| file_error("open", path, error))
    }

    pub(super) async fn connect(&self) -> Result<AnyConnection, StoreError> {
        let connecting = tokio::time::timeout(CONNECTING, AnyConnection::connect(&self.url())).await;
        let connected = connecting.unwrap_or_else(|_| {
            let late = std::io::Error::new(std::io::ErrorKind::TimedOut, "it did not answer");
            Err(sqlx::Error::Io(late))
        });
        let mut connection = connected.map_err(|error| match error {
            // Whatever keeps PostgreSQL from letting us in may pass, and none of it is ours to mend.
            error @ sqlx::Error::Database(_) if self.is_postgres() => {
                StoreError::Unreachable(Arc::new(error))
            }
            error => StoreError::of("open the store", error),
        })?;
        for pragma in self.pragmas() {
            sqlx::query(pragma)
                .execute(&mut connection)
                .await
                .during("set the store up")?;
        }
        Ok(connection)
    }

    /// Holds the place for one server, for as long as the handle is there. PostgreSQL can be shared.
    pub fn hold(&self) -> Result<Option<File>, StoreError> {
        let Self::Sqlite(path) = self else {
            return Ok(None);
        };
        self.make_ready()?;
        let mut name = path.clone().into_os_string();
        name.push(".lock");
        let lock = PathBuf::from(name);
        let file = private(&lock).map_err(|error| file_error("open", &lock, error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Held(path.display().to_string())),
            Err(error) => Err(file_error("lock", &lock, error.into())),
        }
    }
}

fn private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600);
    options.open(path)
}

fn file_error(operation: &'static str, path: &Path, error: std::io::Error) -> StoreError {
    if error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error()) {
        return StoreError::Full;
    }
    StoreError::File {
        operation,
        object: path.display().to_string(),
        source: Arc::new(error),
    }
}

/// A path within a URL.
fn escaped(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    path.as_os_str()
        .as_bytes()
        .iter()
        .map(|byte| match plain(*byte) {
            true => char::from(*byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

impl FromStr for Place {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let bad = || StoreError::BadPlace(Self::Postgres(text.to_owned()).to_string());
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        let path = text.strip_prefix("sqlite:").unwrap_or(text);
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains("://") || path.contains('\0') {
            return Err(bad());
        }
        Ok(Self::Sqlite(path.into()))
    }
}

impl fmt::Display for Place {
    /// Without the password that a URL may hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Memory(_) => f.write_str("memory"),
            Self::Postgres(url) => match url
                .split_once("://")
                .map(|(scheme, rest)| (scheme, rest.rsplit_once('@')))
            {
                Some((scheme, Some((_, host)))) => write!(f, "{scheme}://…@{}", before_query(host)),
                _ => f.write_str(before_query(url)),
            },
        }
    }
}

/// A query may hold a password too.
fn before_query(url: &str) -> &str {
    url.split_once('?').map_or(url, |(before, _)| before)
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_without_its_password() {
        let place: Place = "postgres://me:s3cret@db:5432/jar?password=s3cret"
            .parse()
            .unwrap();
        assert_eq!(place.to_string(), "postgres://…@db:5432/jar");
        assert!(!format!("{place:?}").contains("s3cret"));
        let bad = "mysql://me:s3cret@db/x".parse::<Place>().unwrap_err();
        assert_eq!(bad.to_string(), "`mysql://…@db/x` is no place for a store");
    }

    #[test]
    fn a_path_of_any_name_becomes_a_url() {
        let place: Place = "/tmp/a b?c%/x.db".parse().unwrap();
        assert_eq!(place.url(), "sqlite:///tmp/a%20b%3Fc%25/x.db?mode=rwc");
        assert_eq!(
            "sqlite:///a.db".parse::<Place>().unwrap(),
            Place::Sqlite("/a.db".into())
        );
    }
}
