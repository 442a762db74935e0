//! Wheels made by hand: a zip with a module and the four files that say what it is.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A pure-Python wheel.
pub(super) struct Wheel {
    name: String,
    version: String,
    needs: Vec<String>,
    files: Vec<(String, String)>,
}

impl Wheel {
    pub(super) fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            needs: Vec::new(),
            files: Vec::new(),
        }
    }

    /// A module with its source.
    pub(super) fn module(self, name: &str, source: &str) -> Self {
        self.file(&format!("{name}.py"), source)
    }

    /// Any entry, under any name.
    pub(super) fn file(mut self, path: &str, content: &str) -> Self {
        self.files.push((path.to_owned(), content.to_owned()));
        self
    }

    /// A package that it depends on.
    pub(super) fn needs(mut self, requirement: &str) -> Self {
        self.needs.push(requirement.to_owned());
        self
    }

    pub(super) fn write(&self, dir: &Path) -> PathBuf {
        let stem = format!("{}-{}", self.name.replace('-', "_"), self.version);
        let info = format!("{stem}.dist-info");
        let needs: String = self
            .needs
            .iter()
            .map(|need| format!("Requires-Dist: {need}\n"))
            .collect();
        let mut files = self.files.clone();
        let script = format!("{stem}.data/scripts/{}-script", self.name);
        files.push((script, "#!python\nprint('from the script')\n".to_owned()));
        files.push((
            format!("{info}/METADATA"),
            format!(
                "Metadata-Version: 2.1\nName: {}\nVersion: {}\n{needs}\n",
                self.name, self.version
            ),
        ));
        files.push((
            format!("{info}/WHEEL"),
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n".to_owned(),
        ));
        let record: String = files.iter().map(|(path, _)| format!("{path},,\n")).collect();
        files.push((format!("{info}/RECORD"), format!("{record}{info}/RECORD,,\n")));
        let path = dir.join(format!("{stem}-py3-none-any.whl"));
        let mut zip = ZipWriter::new(File::create(&path).expect("a wheel"));
        for (name, content) in files {
            let mode = if name.contains("/scripts/") { 0o755 } else { 0o644 };
            zip.start_file(name, SimpleFileOptions::default().unix_permissions(mode))
                .expect("an entry");
            zip.write_all(content.as_bytes()).expect("content");
        }
        zip.finish().expect("a whole wheel");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("readable");
        path
    }
}
