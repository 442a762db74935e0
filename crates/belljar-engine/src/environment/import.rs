//! Making an environment of a root file system that somebody else made.
//!
//! Its archive is as hostile as any: every name is resolved within the new tree, links in it lead nowhere else, and nothing but
//! directories, links and files that everyone may read comes out of it. Nothing in it is run here.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use belljar_core::language::TABLE;
use belljar_core::{EnvironmentName, Language};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use sha2::{Digest, Sha256};

use super::build::Created;
use super::error::EnvironmentError;
use super::manifest::{FORMAT, Interpreter, Manifest, hex};
use super::progress::{Cancel, Progress};
use super::store::Environments;
use super::tree;
use super::unpack::{ImportLimits, exceeded, unpack};

/// Where programs are looked for.
const PATH: [&str; 6] = [
    "usr/local/sbin",
    "usr/local/bin",
    "usr/sbin",
    "usr/bin",
    "sbin",
    "bin",
];

/// Makes the environment `name` of the root file system in `archive`, a tar that may be compressed with gzip.
pub fn import(
    store: &Environments,
    name: &EnvironmentName,
    replace: bool,
    archive: impl Read,
    limits: ImportLimits,
    progress: &mut dyn Progress,
    cancel: &Cancel,
) -> Result<Created, EnvironmentError> {
    let store = store.prepare()?;
    if store.has(name) && !replace {
        return Err(EnvironmentError::Exists { name: name.clone() });
    }
    store.sweep()?;
    let building = store.begin()?;
    let content = building.dir.join("content");
    let place = content.join("tree");
    let failed = |error| EnvironmentError::io("unpack", &place, error);
    std::fs::create_dir_all(&place).map_err(failed)?;
    progress.step("Unpacking");
    unpack(archive, &place, limits, cancel)?;
    let root = open_root(&place).map_err(|error| EnvironmentError::io("open", &place, error))?;
    check(root.as_fd())?;
    let programs = programs(root.as_fd());
    progress.step("Sealing");
    tree::seal(&place).map_err(|error| EnvironmentError::io("seal", &place, error))?;
    let sum = tree::sum(&place).map_err(|error| EnvironmentError::io("read", &place, error))?;
    let key = hex(&Sha256::digest(format!(
        "root file system {FORMAT} {}",
        sum.sha256
    )));
    let existing = store.existing(&key);
    if existing.is_none() {
        let mut manifest = Manifest {
            format: FORMAT,
            digest: String::new(),
            place: store.tree_of(&key),
            created_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            interpreter: Interpreter {
                version: String::new(),
                program: PathBuf::new(),
                shows: Vec::new(),
            },
            packages: Vec::new(),
            preload: Vec::new(),
            variables: BTreeMap::new(),
            installer: "import".to_owned(),
            tree: sum,
            root: Some(programs),
        };
        manifest.digest = manifest.computed_digest();
        let path = content.join("manifest.json");
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| EnvironmentError::io("write", &path, io::Error::from(error)))?;
        std::fs::write(&path, text).map_err(|error| EnvironmentError::io("write", &path, error))?;
    }
    if cancel.is_cancelled() {
        return Err(EnvironmentError::Cancelled);
    }
    let built = existing.is_none().then_some(&building);
    store.publish(name, &key, built, replace)?;
    Ok(Created {
        environment: store.describe(name)?,
        reused: existing.is_some(),
    })
}

pub(super) fn not_a_root(why: impl Into<String>) -> EnvironmentError {
    EnvironmentError::Build {
        step: "import it",
        why: why.into(),
        output: Vec::new(),
    }
}

/// What reading says may quote the archive itself.
pub(super) fn unreadable(error: io::Error) -> EnvironmentError {
    if let Some(error) = exceeded(&error) {
        return error;
    }
    let said: String = error.to_string().chars().take(80).collect();
    not_a_root(format!(
        "the archive cannot be read, it is damaged or no tar: {}",
        said.escape_default()
    ))
}

pub(super) fn open_root(place: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(place, flags, Mode::empty())
}

/// What stands at `path` within the root, whose links are its own.
pub(super) fn within(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { b".".as_slice() } else { path };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Whether it is a root file system at all.
fn check(root: BorrowedFd<'_>) -> Result<(), EnvironmentError> {
    let has = |path: &str| within(root, path.as_bytes(), OFlags::PATH).is_ok();
    if has("usr/bin") || has("bin") {
        return Ok(());
    }
    if has("manifest.json") && (has("blobs") || has("repositories") || has("index.json")) {
        return Err(not_a_root(
            "the archive is a saved image, not a root file system; load it (docker load) and import it by its name, \
             or write one with docker export",
        ));
    }
    Err(not_a_root(
        "the archive is no root file system: it has neither /usr/bin nor /bin",
    ))
}

/// What runs each language in there.
fn programs(root: BorrowedFd<'_>) -> BTreeMap<Language, (usize, Vec<PathBuf>)> {
    let is_program = |path: &str| {
        within(root, path.as_bytes(), OFlags::PATH)
            .and_then(|file| rustix::fs::fstat(&file))
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_mode & 0o111 != 0)
    };
    let locate = |names: &&[&str]| {
        let candidates = names
            .iter()
            .flat_map(|name| PATH.map(|dir| format!("{dir}/{name}")));
        let mut found = candidates.filter(|candidate| is_program(candidate));
        found.next().map(|path| PathBuf::from(format!("/{path}")))
    };
    let mut all = BTreeMap::new();
    for spec in TABLE {
        let found = spec.recipes.iter().enumerate().find_map(|(at, recipe)| {
            // Nothing in there is run, so nobody can be asked for a version.
            let programs: Option<Vec<PathBuf>> = recipe.programs.iter().map(locate).collect();
            programs
                .filter(|_| recipe.least_version.is_none())
                .map(|programs| (at, programs))
        });
        all.extend(found.map(|found| (spec.language, found)));
    }
    all
}

#[cfg(test)]
mod tests {
    use tar::EntryType;

    use super::super::progress::Quiet;
    use super::*;

    fn tar_of(entries: &[(&str, EntryType, &str, u32)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, content, mode) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(*mode);
            // Written as it is: the crate itself would refuse some of these.
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
            if is_link {
                header.as_gnu_mut().unwrap().linkname[..content.len()].copy_from_slice(content.as_bytes());
            }
            let body = if is_link { "" } else { content };
            header.set_size(body.len() as u64);
            header.set_cksum();
            builder.append(&header, body.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    /// An archive that says this about its only entry.
    fn extended(kind: u8, text: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::new(kind));
        header.set_size(text.len() as u64);
        header.set_cksum();
        builder.append(&header, text).unwrap();
        let mut bytes = builder.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes.extend(tar_of(&[("usr/bin/sh", EntryType::Regular, "x", 0o755)]));
        bytes
    }

    /// Each link leads to the end of the way before it. There are few of them on any way: the kernel may count each twice, and says
    /// something else once there are many.
    fn deeper_and_deeper() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let header = |kind| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o755);
            header.set_size(0);
            header
        };
        let deep = "d/".repeat(400);
        for step in 0..8 {
            let end = format!("l{step}/{deep}");
            let nothing = std::io::empty();
            builder
                .append_data(&mut header(EntryType::Directory), &end, nothing)
                .unwrap();
            let link = format!("l{}", step + 1);
            builder
                .append_link(&mut header(EntryType::Symlink), link, format!("/{end}"))
                .unwrap();
        }
        builder.into_inner().unwrap()
    }

    struct Store {
        base: PathBuf,
        store: Environments,
    }

    impl Drop for Store {
        fn drop(&mut self) {
            let _ = tree::remove(&self.base);
        }
    }

    fn store(name: &str) -> Store {
        let base = std::env::temp_dir().join(format!("belljar-import-{}-{name}", std::process::id()));
        let _ = tree::remove(&base);
        std::fs::create_dir_all(&base).unwrap();
        Store {
            store: Environments::below(&base),
            base,
        }
    }

    fn imported(store: &Environments, bytes: &[u8]) -> Result<Created, EnvironmentError> {
        import_within(store, bytes, ImportLimits::default())
    }

    fn import_within(
        store: &Environments,
        bytes: &[u8],
        limits: ImportLimits,
    ) -> Result<Created, EnvironmentError> {
        let name = EnvironmentName::new("it").unwrap();
        import(store, &name, true, bytes, limits, &mut Quiet, &Cancel::default())
    }

    /// What an archive comes to is bounded as it is unpacked, however little it takes itself, and nothing is left of one that is too
    /// large. Seen failing without the counting.
    #[test]
    fn an_archive_that_is_too_large_is_refused_and_leaves_nothing() {
        use std::io::Write;
        let own = store("large");
        let limits = ImportLimits {
            bytes: 3 << 20,
            entries: 100,
        };
        let shell = ("usr/bin/sh", EntryType::Regular, "x", 0o755);
        let zeros = "0".repeat(4 << 20);
        let bomb = tar_of(&[shell, ("zeros", EntryType::Regular, &zeros, 0o644)]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&bomb).unwrap();
        let packed = packed.finish().unwrap();
        assert!(packed.len() < 64 << 10);
        let secret = tar_of(&[shell, ("secret", EntryType::Regular, &zeros, 0o600)]);
        let links: Vec<String> = (0..100).map(|at| format!("l{at}")).collect();
        let links: Vec<_> = std::iter::once(shell)
            .chain(
                links
                    .iter()
                    .map(|name| (name.as_str(), EntryType::Link, "usr/bin/sh", 0o755)),
            )
            .collect();
        let deep = "d/".repeat(49);
        let deep = [
            shell,
            (&*deep, EntryType::Directory, "", 0o755),
            ("e/e/e", EntryType::Directory, "", 0o755),
        ];
        let few = ImportLimits {
            entries: 50,
            ..limits
        };
        for (what, bytes, limits, why) in [
            ("plain", bomb, limits, "3 MiB"),
            ("packed", packed, limits, "3 MiB"),
            (
                "left out",
                secret,
                ImportLimits {
                    entries: 10,
                    ..limits
                },
                "3 MiB",
            ),
            ("hard links", tar_of(&links), limits, "100 entries"),
            ("directories on the way", tar_of(&deep), few, "50 entries"),
        ] {
            let error = import_within(&own.store, &bytes, limits).unwrap_err();
            assert!(
                matches!(error, EnvironmentError::TooLarge { .. }),
                "{what}: {error}"
            );
            assert!(error.to_string().contains(why), "{what}: {error}");
            assert!(error.hint().contains("--max-size"), "{what}");
            let building = own.base.join("environments/building");
            assert_eq!(std::fs::read_dir(building).unwrap().count(), 0, "{what}");
        }
        let enough = tar_of(&[shell, ("zeros", EntryType::Regular, &zeros[..1 << 20], 0o644)]);
        import_within(&own.store, &enough, limits).unwrap();
    }

    #[test]
    fn a_root_file_system_becomes_an_environment_with_its_programs() {
        let own = store("good");
        let bytes = tar_of(&[
            ("./usr/bin/", EntryType::Directory, "", 0o755),
            ("./usr/bin/python3.11", EntryType::Regular, "ELF", 0o4755),
            ("./usr/bin/python3", EntryType::Symlink, "python3.11", 0o777),
            ("./bin", EntryType::Symlink, "/usr/bin", 0o777),
            ("./bin/bash", EntryType::Regular, "ELF", 0o755),
            ("./usr/bin/hard", EntryType::Link, "usr/bin/bash", 0o755),
            ("./dev/null", EntryType::Char, "", 0o666),
            ("./etc/shadow", EntryType::Regular, "secret", 0o640),
        ]);
        let made = imported(&own.store, &bytes).unwrap();
        let place = made.environment.manifest.place.clone();
        assert!(place.join("usr/bin/bash").is_file() && place.join("usr/bin/hard").is_file());
        assert!(!place.join("dev/null").exists() && !place.join("etc/shadow").exists());
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(place.join("usr/bin/python3.11"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o555);
        let name = EnvironmentName::new("it").unwrap();
        let (found, _lease) = own.store.resolve(&name).unwrap();
        let root = found.root.unwrap();
        assert_eq!(
            root.programs[&Language::Python].1,
            [PathBuf::from("/usr/bin/python3")]
        );
        assert!(root.programs.contains_key(&Language::Bash));
        assert!(imported(&own.store, &bytes).unwrap().reused);
        own.store.verify(&name).unwrap();
    }

    #[test]
    fn nothing_gets_out_of_the_tree_and_what_is_no_root_is_named() {
        let own = store("bad");
        let outside = own.base.join("outside");
        std::fs::create_dir(&outside).unwrap();
        let outside_text = outside.to_str().unwrap();
        // A link that leads out leads to a place of the same name within.
        let climbing = tar_of(&[
            ("usr/bin/sh", EntryType::Regular, "x", 0o755),
            ("out", EntryType::Symlink, outside_text, 0o777),
            ("out/planted", EntryType::Regular, "evil", 0o644),
        ]);
        let _ = imported(&own.store, &climbing);
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        let rows: [(&str, Vec<u8>, &str); 14] = [
            ("empty", Vec::new(), "empty"),
            ("no tar", b"PK\x03\x04 and more".repeat(100), "cannot be read"),
            (
                "climbs",
                tar_of(&[("../up", EntryType::Regular, "x", 0o644)]),
                "..",
            ),
            (
                "no root",
                tar_of(&[("readme", EntryType::Regular, "x", 0o644)]),
                "neither /usr/bin nor /bin",
            ),
            (
                "image",
                tar_of(&[
                    ("manifest.json", EntryType::Regular, "[]", 0o644),
                    ("blobs/sha256/00", EntryType::Regular, "x", 0o644),
                ]),
                "saved image",
            ),
            ("cut", climbing[..700].to_vec(), "cannot be read"),
            (
                "a long name",
                extended(b'L', &[b'n'; 70 << 10]),
                "more about an entry",
            ),
            (
                "a long link",
                extended(b'K', &[b'n'; 70 << 10]),
                "more about an entry",
            ),
            (
                "much said",
                extended(b'x', &[b'n'; 70 << 10]),
                "more about an entry",
            ),
            ("a size of its own", extended(b'x', b"14 size=90000\n"), "8 GiB"),
            ("holes", extended(b'x', b"22 GNU.sparse.major=1\n"), "holes"),
            (
                "a name for all",
                extended(b'g', b"10 path=x\n"),
                "renames every entry",
            ),
            (
                "a name beyond all names",
                extended(b'L', &b"d/".repeat(2000)),
                "too long",
            ),
            ("deeper than its names", deeper_and_deeper(), "too long"),
        ];
        for (what, bytes, why) in rows {
            let error = imported(&own.store, &bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{what}: {error}");
        }
        assert_eq!(
            std::fs::read_dir(own.base.join("environments/building"))
                .unwrap()
                .count(),
            0
        );
    }
}
