//! What a program or library says that it needs. The file is whatever a package brought, so nothing of it is started.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef, StringTable};

/// Of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// What loads it.
    pub loader: Option<PathBuf>,
    /// Names of libraries.
    pub libraries: Vec<String>,
    /// Where to look for them first.
    pub places: Vec<PathBuf>,
}

/// Reads what `file` needs; nothing for what is no program, or none that can be read.
pub(super) fn needs(path: &Path) -> Needs {
    let Ok(mut file) = File::open(path) else {
        return Needs::default();
    };
    let mut magic = [0u8; 4];
    if file.read_exact(&mut magic).is_err() || magic != *b"\x7fELF" {
        return Needs::default();
    }
    let origin = path.parent().unwrap_or(Path::new("/"));
    read(&ReadCache::new(file), origin).unwrap_or_default()
}

fn read<'data, R: ReadRef<'data>>(data: R, origin: &Path) -> object::Result<Needs> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;
    let mut needs = Needs::default();
    for segment in segments {
        if let Some(loader) = segment.interpreter(endian, data)? {
            needs.loader = Some(PathBuf::from(std::ffi::OsStr::from_bytes(loader)));
        }
        let Some(entries) = segment.dynamic(endian, data)? else {
            continue;
        };
        let value = |tag| {
            let found = entries.iter().find(|entry| entry.d_tag(endian) == tag);
            found.map(|entry| entry.d_val(endian))
        };
        let (Some(table), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
            continue;
        };
        // The address is one in memory; a segment says where that is in the file.
        let start = segments.iter().find_map(|segment| {
            let (offset, length) = segment.file_range(endian);
            let within = table.checked_sub(segment.p_vaddr(endian))?;
            (within < length).then(|| offset.checked_add(within)).flatten()
        });
        let Some(start) = start else { continue };
        let strings = StringTable::new(data, start, start.saturating_add(size));
        for entry in entries {
            let tag = entry.d_tag(endian);
            if ![DT_NEEDED, DT_RPATH, DT_RUNPATH].contains(&tag) {
                continue;
            }
            let Some(text) = u32::try_from(entry.d_val(endian))
                .ok()
                .and_then(|at| strings.get(at).ok())
                .and_then(|text| std::str::from_utf8(text).ok())
            else {
                continue;
            };
            if tag == DT_NEEDED {
                needs.libraries.push(text.to_owned());
            } else {
                let places = text.split(':').map(|place| from_origin(place, origin));
                needs.places.extend(places.filter(|place| place.is_absolute()));
            }
        }
    }
    Ok(needs)
}

/// A place that may be said relative to where the file stands.
fn from_origin(place: &str, origin: &Path) -> PathBuf {
    for word in ["$ORIGIN", "${ORIGIN}"] {
        if let Some(rest) = place.strip_prefix(word) {
            return origin.join(rest.trim_start_matches('/'));
        }
    }
    PathBuf::from(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_its_loader_and_libraries() {
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        let found = needs(&shell);
        assert!(found.loader.as_deref().is_some_and(Path::is_file), "{found:?}");
        assert!(
            found.libraries.iter().any(|name| name.starts_with("libc.")),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_no_program_needs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.so");
        assert_eq!(needs(&path), Needs::default());
        let whole = std::fs::read(std::fs::canonicalize("/bin/sh").unwrap()).unwrap();
        // Every beginning of a program, and one with its numbers broken, is read without harm.
        for length in (0..whole.len().min(8192)).step_by(61) {
            std::fs::write(&path, &whole[..length]).unwrap();
            needs(&path);
        }
        for at in 4..64 {
            let mut broken = whole.clone();
            broken[at] = 0xff;
            std::fs::write(&path, &broken).unwrap();
            needs(&path);
        }
    }

    #[test]
    fn places_may_begin_where_the_file_stands() {
        let origin = Path::new("/a/b");
        assert_eq!(
            from_origin("$ORIGIN/../x.libs", origin),
            Path::new("/a/b/../x.libs")
        );
        assert_eq!(from_origin("${ORIGIN}", origin), Path::new("/a/b"));
        assert_eq!(from_origin("/opt/lib", origin), Path::new("/opt/lib"));
    }
}
