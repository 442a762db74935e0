//! The programs that execute code inside a sandbox on the engine's behalf. Each stands read-only in
//! every sandbox; none of them is a wall.

use belljar_core::language::RUNNER_DIR;

use crate::weaken;

/// Each file: its place below the runners' directory, and its text.
macro_rules! embed {
    ($($dir:literal: $($name:literal),+;)+) => {
        &[$($((
            concat!($dir, "/", $name),
            include_str!(concat!("../../../../guest/", $dir, "/", $name)),
        ),)+)+]
    };
}

/// What of Python's zygote is no Python, and its place.
const NATIVE: (&str, &[u8]) = (
    "native/zygote.so",
    include_bytes!(concat!(env!("OUT_DIR"), "/zygote.so")),
);

const FILES: &[(&str, &str)] = embed! {
    "python": "__main__.py", "cells.py", "channel.py", "check.py", "commands.py", "decode.py", "displays.py", "encode.py", "ending.py", "environment.py", "imports.py", "interrupts.py", "loop.py", "program.py", "reseed.py", "runner.py", "session.py", "sources.py", "streams.py", "tables.py", "tools.py", "tracebacks.py", "watch.py", "zygote.py";
    "node": "channel.js", "checks.js", "commands.js", "display.js", "errors.js", "guarded.js", "local.js", "main.js", "modules.js", "program.js", "realm.js", "session.js", "source.js", "stdio.js", "values.js";
};

/// Where each file stands, and what is in it.
pub(crate) fn files() -> impl Iterator<Item = (String, Vec<u8>)> {
    let texts = FILES.iter().map(|(name, text)| {
        let text = if weaken::is_off("reseed") && *name == "python/reseed.py" {
            "def prepare():\n    pass\n\n\ndef reseed():\n    pass\n"
        } else {
            text
        };
        (*name, text.as_bytes())
    });
    texts
        .chain([NATIVE])
        .map(|(name, content)| (format!("{RUNNER_DIR}/{name}"), content.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A module that was added to a runner and not here would be missed only when it is needed.
    #[test]
    fn every_file_of_a_runner_is_embedded() {
        let guest = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest");
        let mut there = BTreeSet::new();
        for dir in ["python", "node"] {
            for entry in std::fs::read_dir(guest.join(dir)).unwrap() {
                let path = entry.unwrap().path();
                if path
                    .extension()
                    .is_some_and(|ending| ending == "py" || ending == "js")
                {
                    there.insert(format!("{dir}/{}", path.file_name().unwrap().to_str().unwrap()));
                }
            }
        }
        let embedded: BTreeSet<_> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(embedded, there);
    }
}
