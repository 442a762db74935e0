//! Where environments stand, and who may change that.
//!
//! Names and contents change only under the store's lock. A sandbox holds a shared lock on its
//! environment's manifest for as long as it lives; removing takes that lock for itself or not at all.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use belljar_core::{Environment, EnvironmentName, Language, Root};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use super::error::EnvironmentError;
use super::manifest::Manifest;
use super::tree;
use crate::ident::fresh_id;

/// The largest manifest that is read.
const LARGEST_MANIFEST: u64 = 16 << 20;

/// A store of environments. Cheap: nothing is looked at before it is needed.
#[derive(Clone, Debug)]
pub struct Environments {
    /// The `environments` directory.
    root: PathBuf,
}

/// Keeps an environment from being removed while something runs in it.
#[derive(Debug)]
pub struct Lease {
    _manifest: File,
}

/// An environment with its name.
#[derive(Clone, Debug, Serialize)]
pub struct Described {
    pub name: EnvironmentName,
    #[serde(flatten)]
    pub manifest: Manifest,
}

impl Environments {
    /// The store below `base`.
    pub fn below(base: &Path) -> Self {
        Self {
            root: base.join("environments"),
        }
    }

    /// The caller's own: below `BELLJAR_HOME`, else `XDG_DATA_HOME/belljar`, else
    /// `~/.local/share/belljar`; for root without a home, `/var/lib/belljar`.
    pub fn of_caller() -> Result<Self, EnvironmentError> {
        Ok(Self::below(&crate::home().ok_or(EnvironmentError::NoPlace)?))
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Every environment, by name. One whose content is damaged is an error of its own.
    pub fn list(&self) -> Result<Vec<Result<Described, EnvironmentError>>, EnvironmentError> {
        self.sweep()?;
        Ok(self.names()?.iter().map(|name| self.describe(name)).collect())
    }

    /// The names that there are.
    pub fn names(&self) -> Result<Vec<EnvironmentName>, EnvironmentError> {
        let dir = self.root.join("names");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(EnvironmentError::io("list", &dir, error)),
        };
        let mut names: Vec<EnvironmentName> = entries
            .flatten()
            .filter_map(|entry| EnvironmentName::new(entry.file_name().to_str()?).ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// What is known of one.
    pub fn describe(&self, name: &EnvironmentName) -> Result<Described, EnvironmentError> {
        let (manifest, _) = self.open(name)?;
        Ok(Described {
            name: name.clone(),
            manifest,
        })
    }

    /// Reads an environment's whole tree and holds it against its manifest.
    pub fn verify(&self, name: &EnvironmentName) -> Result<Described, EnvironmentError> {
        let (manifest, _lease) = self.open(name)?;
        let found = tree::sum(&manifest.place)
            .map_err(|error| EnvironmentError::io("read", &manifest.place, error))?;
        if found != manifest.tree {
            return Err(damaged(name, "its files are not the ones that were built"));
        }
        Ok(Described {
            name: name.clone(),
            manifest,
        })
    }

    /// Looks a name up for a run, and keeps what it means from being removed.
    pub fn resolve(&self, name: &EnvironmentName) -> Result<(Environment, Lease), EnvironmentError> {
        let (manifest, lease) = self.open(name)?;
        if let Some(programs) = manifest.root {
            let environment = Environment {
                name: name.clone(),
                digest: manifest.digest,
                language: Language::Python,
                program: PathBuf::new(),
                shows: Vec::new(),
                variables: manifest.variables,
                preload: Vec::new(),
                root: Some(Root {
                    path: manifest.place,
                    programs,
                }),
            };
            return Ok((environment, lease));
        }
        if !manifest.interpreter.program.is_file() {
            let why = format!("its Python, {}, is gone", manifest.interpreter.program.display());
            return Err(damaged(name, &why));
        }
        let mut shows = vec![manifest.place.clone()];
        shows.extend(manifest.interpreter.shows);
        let environment = Environment {
            name: name.clone(),
            digest: manifest.digest,
            language: Language::Python,
            program: manifest.place.join("bin/python"),
            shows,
            variables: manifest.variables,
            preload: manifest.preload,
            root: None,
        };
        Ok((environment, lease))
    }

    /// Removes a name, and what it means unless another name means it too. One that is in use stays.
    pub fn remove(&self, name: &EnvironmentName) -> Result<(), EnvironmentError> {
        self.sweep()?;
        self.key_of(name)?;
        let _lock = self.lock()?;
        let key = self.key_of(name)?;
        let is_last = !self.other_names_of(&key, name)?;
        if is_last && !self.is_free(&key) {
            return Err(EnvironmentError::InUse { name: name.clone() });
        }
        let path = self.name_path(name);
        fs::remove_file(&path).map_err(|error| EnvironmentError::io("remove", &path, error))?;
        if is_last {
            self.discard(&key)?;
        }
        Ok(())
    }

    /// Removes what builds left that were killed, and what no name means any more and nobody uses.
    pub fn sweep(&self) -> Result<(), EnvironmentError> {
        let (leftovers, unnamed) = (self.names_in("building"), self.unnamed()?);
        if leftovers.is_empty() && unnamed.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let building = self.root.join("building");
        for name in &leftovers {
            let id = name.strip_suffix(".lock").unwrap_or(name);
            let lock = building.join(format!("{id}.lock"));
            let alive = File::open(&lock)
                .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
            if !alive {
                let dir = building.join(id);
                tree::remove(&dir).map_err(|error| EnvironmentError::io("remove", &dir, error))?;
                let _ = fs::remove_file(&lock);
            }
        }
        // Looked at again: before the lock, a build may have been between its two steps.
        for key in self.unnamed()? {
            self.discard(&key)?;
        }
        Ok(())
    }

    /// The keys of contents that no name means.
    fn unnamed(&self) -> Result<Vec<String>, EnvironmentError> {
        let mut keys = self.names_in("content");
        if !keys.is_empty() {
            let named: Vec<String> = self
                .names()?
                .iter()
                .filter_map(|name| self.key_of(name).ok())
                .collect();
            keys.retain(|key| !named.contains(key));
        }
        Ok(keys)
    }

    /// What lies in one of the store's directories.
    fn names_in(&self, dir: &str) -> Vec<String> {
        fs::read_dir(self.root.join(dir))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// Makes the store where it is missing, and says whether it may be used.
    pub(super) fn prepare(&self) -> Result<Self, EnvironmentError> {
        for dir in ["names", "content", "building"] {
            let dir = self.root.join(dir);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .map_err(|error| EnvironmentError::io("create", &dir, error))?;
        }
        // Walls follow no link, so the way there must have none.
        let root =
            fs::canonicalize(&self.root).map_err(|error| EnvironmentError::io("open", &self.root, error))?;
        check_ours(&root)?;
        Ok(Self { root })
    }

    pub(super) fn has(&self, name: &EnvironmentName) -> bool {
        self.name_path(name).exists()
    }

    /// Where the tree of `key` stands, or will.
    pub(super) fn tree_of(&self, key: &str) -> PathBuf {
        self.content_of(key).join("tree")
    }

    fn content_of(&self, key: &str) -> PathBuf {
        self.root.join("content").join(key)
    }

    fn name_path(&self, name: &EnvironmentName) -> PathBuf {
        self.root.join("names").join(name.as_str())
    }

    /// Begins a build: a directory that goes away with the value.
    pub(super) fn begin(&self) -> Result<Building, EnvironmentError> {
        let _lock = self.lock()?;
        let dir = self.root.join("building").join(fresh_id("build"));
        let lock = dir.with_extension("lock");
        let file = File::create(&lock).map_err(|error| EnvironmentError::io("create", &lock, error))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| EnvironmentError::io("lock", &lock, error))?;
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|error| EnvironmentError::io("create", &dir, error))?;
        Ok(Building {
            dir,
            lock,
            _file: file,
        })
    }

    /// Keeps content that is there already, until it has its name.
    pub(super) fn existing(&self, key: &str) -> Option<Lease> {
        let (manifest, file) = read_manifest(&self.content_of(key)).ok()?;
        (manifest.place == self.tree_of(key)).then_some(Lease { _manifest: file })
    }

    /// Puts a finished build in its place and lets `name` mean it.
    pub(super) fn publish(
        &self,
        name: &EnvironmentName,
        key: &str,
        built: Option<&Building>,
        replace: bool,
    ) -> Result<(), EnvironmentError> {
        let _lock = self.lock()?;
        let before = match self.key_of(name) {
            Ok(_) if !replace => return Err(EnvironmentError::Exists { name: name.clone() }),
            Ok(before) => Some(before),
            Err(EnvironmentError::Unknown { .. }) => None,
            // What is replaced may well be damaged.
            Err(_) if replace => None,
            Err(error) => return Err(error),
        };
        let place = self.content_of(key);
        if let Some(building) = built
            && read_manifest(&place).is_err()
        {
            // What is there without a manifest that can be read is of no use to anybody.
            tree::remove(&place).map_err(|error| EnvironmentError::io("remove", &place, error))?;
            let made = building.dir.join("content");
            fs::rename(&made, &place).map_err(|error| EnvironmentError::io("rename", &made, error))?;
        }
        let path = self.name_path(name);
        write_whole(&path, format!("{key}\n").as_bytes())?;
        if let Some(before) = before.filter(|before| before != key)
            && !self.other_names_of(&before, name)?
        {
            // One that is still in use is left for a later sweep.
            self.discard(&before)?;
        }
        Ok(())
    }

    fn open(&self, name: &EnvironmentName) -> Result<(Manifest, Lease), EnvironmentError> {
        let key = self.key_of(name)?;
        check_ours(&self.root)?;
        let dir = self.content_of(&key);
        let (manifest, file) = read_manifest(&dir).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => self.unknown(name),
            _ => damaged(name, &format!("its manifest: {error}")),
        })?;
        let here = fs::canonicalize(&dir).unwrap_or(dir).join("tree");
        if manifest.place != here {
            let why = format!("it was built to stand at {}", manifest.place.display());
            return Err(damaged(name, &why));
        }
        if manifest.computed_digest() != manifest.digest {
            return Err(damaged(name, "its manifest was changed"));
        }
        Ok((manifest, Lease { _manifest: file }))
    }

    fn key_of(&self, name: &EnvironmentName) -> Result<String, EnvironmentError> {
        let path = self.name_path(name);
        let key = match read_bounded(&path, 256) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.unknown(name)),
            Err(error) => return Err(EnvironmentError::io("read", &path, error)),
        };
        if key.len() != 64 || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(damaged(name, "its name leads nowhere"));
        }
        Ok(key)
    }

    fn unknown(&self, name: &EnvironmentName) -> EnvironmentError {
        EnvironmentError::Unknown {
            name: name.clone(),
            known: self.names().unwrap_or_default(),
        }
    }

    fn other_names_of(&self, key: &str, except: &EnvironmentName) -> Result<bool, EnvironmentError> {
        let names = self.names()?;
        Ok(names
            .iter()
            .filter(|name| *name != except)
            .any(|name| self.key_of(name).is_ok_and(|other| other == key)))
    }

    /// Removes content that nobody uses: first out of its place, then file by file.
    fn discard(&self, key: &str) -> Result<(), EnvironmentError> {
        let place = self.content_of(key);
        let manifest = File::open(place.join("manifest.json")).ok();
        let is_free = manifest
            .as_ref()
            .is_none_or(|file| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok());
        if !is_free || !place.exists() {
            return Ok(());
        }
        // A name of a build without a lock: if we die now, the next command removes it.
        let aside = self.root.join("building").join(fresh_id("removed"));
        fs::rename(&place, &aside).map_err(|error| EnvironmentError::io("rename", &place, error))?;
        tree::remove(&aside).map_err(|error| EnvironmentError::io("remove", &aside, error))
    }

    /// Whether nobody holds a lease on content.
    fn is_free(&self, key: &str) -> bool {
        match File::open(self.content_of(key).join("manifest.json")) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(_) => true,
        }
    }

    /// Held while names or contents change.
    fn lock(&self) -> Result<File, EnvironmentError> {
        check_ours(&self.root)?;
        let path = self.root.join("lock");
        let file = File::create(&path).map_err(|error| EnvironmentError::io("create", &path, error))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| EnvironmentError::io("lock", &path, error))?;
        Ok(file)
    }
}

/// A build that goes on. Dropping it removes all that it made.
#[derive(Debug)]
pub(super) struct Building {
    pub(super) dir: PathBuf,
    lock: PathBuf,
    _file: File,
}

impl Drop for Building {
    fn drop(&mut self) {
        // There is nobody to tell; what stays is swept by the next command.
        if tree::remove(&self.dir).is_ok() {
            let _ = fs::remove_file(&self.lock);
        }
    }
}

/// What a manifest says is shown to guests, so nobody else may be able to write one.
fn check_ours(root: &Path) -> Result<(), EnvironmentError> {
    let found = fs::metadata(root).map_err(|error| EnvironmentError::io("open", root, error))?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        let source = io::Error::new(
            io::ErrorKind::PermissionDenied,
            "somebody else can change what is in it",
        );
        return Err(EnvironmentError::io("use", root, source));
    }
    Ok(())
}

/// Reads the manifest in `dir` under a shared lock.
fn read_manifest(dir: &Path) -> io::Result<(Manifest, File)> {
    let path = dir.join("manifest.json");
    let mut file = File::open(&path)?;
    flock(&file, FlockOperation::NonBlockingLockShared)?;
    let mut text = Vec::new();
    (&mut file).take(LARGEST_MANIFEST).read_to_end(&mut text)?;
    // Between opening and locking it may have been removed.
    let (ours, there) = (file.metadata()?, fs::metadata(&path)?);
    if (ours.dev(), ours.ino()) != (there.dev(), there.ino()) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let manifest = serde_json::from_slice(&text).map_err(io::Error::other)?;
    Ok((manifest, file))
}

fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file that appears whole or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), EnvironmentError> {
    // No environment can have a name that starts with a dot.
    let temporary = path.with_file_name(format!(".{}", fresh_id("tmp")));
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        EnvironmentError::io("write", path, error)
    })
}

fn damaged(name: &EnvironmentName, why: &str) -> EnvironmentError {
    EnvironmentError::Damaged {
        name: name.clone(),
        why: why.to_owned(),
    }
}
