//! Languages as data: one table says how each is named, compiled and run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::StageFloor;
use crate::status::words;
use crate::units::{Bytes, Seconds};

words! {
    /// A language that code may be written in.
    Language {
        Python = "python",
        Javascript = "javascript",
        Typescript = "typescript",
        Bash = "bash",
        Shell = "shell",
        C = "c",
        Cpp = "cpp",
        Rust = "rust",
        Go = "go",
        Java = "java",
        Ruby = "ruby",
        Php = "php",
        Perl = "perl",
        Lua = "lua",
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct LanguageSpec {
    pub language: Language,
    /// Other names people use for it.
    pub aliases: &'static [&'static str],
    /// File name endings that mean this language.
    pub extensions: &'static [&'static str],
    /// What the code is saved as in the work directory.
    pub file: &'static str,
    /// Ways to run it, best first; the first whose programs the machine has is used.
    pub recipes: &'static [Recipe],
    /// What to install where no recipe fits.
    pub install: &'static str,
}

/// One way to run a language.
///
/// In the steps, `{0}`, `{1}` … stand for the programs found, `{file}` for the code's file and
/// `{memory_mb}` for the memory limit; arguments of the caller follow the run step.
#[derive(Debug)]
pub struct Recipe {
    /// Each entry lists the names under which one needed program may be found.
    pub programs: &'static [&'static [&'static str]],
    /// Arguments that make the first program print its version.
    pub version: &'static [&'static str],
    /// The least version of the first program, where it matters.
    pub least_version: Option<(u32, u32)>,
    pub compile: Option<CompileStep>,
    pub run: &'static [&'static str],
    pub env: &'static [(&'static str, &'static str)],
    /// What the run step needs whatever the policy gives.
    pub data_limit: bool,
    /// How an interpreter that stays is started, where the language has a runner.
    pub runner: Option<&'static [&'static str]>,
    /// What is said to an interpreter that starts among the guest's files, so that none of these runs before it is asked
    /// to: the work directory is its home.
    pub runner_options: &'static [&'static str],
    /// Whether its runner can fork others that are as warm.
    pub forks: bool,
    /// Beginnings of variables that an interpreter reads only when it starts.
    pub start_variables: &'static [&'static str],
    /// Beginnings of variables that can name code, which then runs before anything that the interpreter is asked to.
    pub code_variables: &'static [&'static str],
}

/// Where runners stand inside a sandbox.
pub const RUNNER_DIR: &str = "/.belljar";

/// How code becomes a program, and what the compiler needs for it.
#[derive(Debug)]
pub struct CompileStep {
    pub argv: &'static [&'static str],
    pub floor: StageFloor,
    pub wall_time: Seconds,
}

const fn floor(memory_mb: u64, processes: u32) -> StageFloor {
    StageFloor {
        memory: Bytes::from_mib(memory_mb),
        processes,
        file_size: Bytes::from_mib(64),
        open_files: 256,
        disk: Bytes::from_mib(256),
    }
}

const COMPILE_TIME: Seconds = Seconds::whole(30);

const fn interpreted(
    programs: &'static [&'static [&'static str]],
    version: &'static [&'static str],
    run: &'static [&'static str],
) -> Recipe {
    Recipe {
        programs,
        version,
        least_version: None,
        compile: None,
        run,
        env: &[],
        data_limit: false,
        runner: None,
        runner_options: &[],
        forks: false,
        start_variables: &[],
        code_variables: &[],
    }
}

const fn compiled(
    programs: &'static [&'static [&'static str]],
    version: &'static [&'static str],
    compile: CompileStep,
    run: &'static [&'static str],
) -> Recipe {
    Recipe {
        programs,
        version,
        least_version: None,
        compile: Some(compile),
        run,
        env: &[],
        data_limit: false,
        runner: None,
        runner_options: &[],
        forks: false,
        start_variables: &[],
        code_variables: &[],
    }
}

/// What a compile step leaves in the work directory for the run step: a program, or a directory.
pub const BUILT: &str = ".build";

/// The table, in the order people are shown it.
pub const TABLE: &[LanguageSpec] = &[
    LanguageSpec {
        language: Language::Python,
        aliases: &["py", "python3"],
        extensions: &["py"],
        file: "main.py",
        recipes: &[Recipe {
            env: &[("PYTHONDONTWRITEBYTECODE", "1"), ("PYTHONUNBUFFERED", "1")],
            // A limit on data gives Python the chance to raise MemoryError before the kernel kills it.
            data_limit: true,
            runner: Some(&["{0}", "/.belljar/python/__main__.py"]),
            runner_options: &["-s"],
            forks: true,
            start_variables: &[
                "PYTHON",
                "LD_",
                "LC_",
                "LANG",
                "MALLOC_",
                "OMP_",
                "OPENBLAS_",
                "MKL_",
                "MPL",
                "GLIBC_TUNABLES",
                "OPENSSL_",
            ],
            code_variables: &[
                "PYTHON",
                "COVERAGE_PROCESS_START",
                "LD_",
                "GLIBC_TUNABLES",
                "GCONV_PATH",
                "LOCPATH",
                "NLSPATH",
                "OPENSSL_",
            ],
            ..interpreted(&[&["python3", "python"]], &["--version"], &["{0}", "{file}"])
        }],
        install: "python3",
    },
    LanguageSpec {
        language: Language::Javascript,
        aliases: &["js", "node", "nodejs"],
        extensions: &["js", "mjs", "cjs"],
        file: "main.js",
        recipes: &[Recipe {
            runner: Some(&["{0}", "/.belljar/node/main.js"]),
            start_variables: &[
                "NODE_",
                "LD_",
                "LC_",
                "LANG",
                "UV_",
                "NO_COLOR",
                "FORCE_COLOR",
                "GLIBC_TUNABLES",
                "OPENSSL_",
            ],
            code_variables: &[
                "NODE_",
                "LD_",
                "GLIBC_TUNABLES",
                "GCONV_PATH",
                "LOCPATH",
                "NLSPATH",
                "OPENSSL_",
            ],
            ..interpreted(&[&["node", "nodejs"]], &["--version"], &["{0}", "{file}"])
        }],
        install: "nodejs",
    },
    LanguageSpec {
        language: Language::Typescript,
        aliases: &["ts"],
        extensions: &["ts", "mts"],
        file: "main.ts",
        recipes: &[
            // From 22.18 on node strips types by itself.
            Recipe {
                least_version: Some((22, 18)),
                ..interpreted(
                    &[&["node", "nodejs"]],
                    &["--version"],
                    &["{0}", "--disable-warning=ExperimentalWarning", "{file}"],
                )
            },
            Recipe {
                least_version: Some((22, 6)),
                ..interpreted(
                    &[&["node", "nodejs"]],
                    &["--version"],
                    &["{0}", "--experimental-strip-types", "--no-warnings", "{file}"],
                )
            },
            compiled(
                &[&["tsc"], &["node", "nodejs"]],
                &["--version"],
                CompileStep {
                    argv: &[
                        "{1}",
                        "{0}",
                        "--target",
                        "es2022",
                        "--module",
                        "nodenext",
                        "--skipLibCheck",
                        "--noCheck",
                        "--outDir",
                        "/workspace/.build",
                        "{file}",
                    ],
                    floor: floor(768, 10),
                    wall_time: COMPILE_TIME,
                },
                &["{1}", "/workspace/.build/main.js"],
            ),
        ],
        install: "node 22.6 or later, or the npm package typescript (`npm install -g typescript`)",
    },
    LanguageSpec {
        language: Language::Bash,
        aliases: &[],
        extensions: &["bash"],
        file: "main.bash",
        recipes: &[interpreted(&[&["bash"]], &["--version"], &["{0}", "{file}"])],
        install: "bash",
    },
    LanguageSpec {
        language: Language::Shell,
        aliases: &["sh"],
        extensions: &["sh"],
        file: "main.sh",
        recipes: &[interpreted(&[&["sh"]], &[], &["{0}", "{file}"])],
        install: "dash",
    },
    LanguageSpec {
        language: Language::C,
        aliases: &[],
        extensions: &["c"],
        file: "main.c",
        recipes: &[compiled(
            &[&["gcc", "cc", "clang"]],
            &["--version"],
            CompileStep {
                argv: &[
                    "{0}",
                    "-O2",
                    "-o",
                    "/workspace/.build",
                    "{file}",
                    "-lm",
                    "-pthread",
                ],
                floor: floor(256, 10),
                wall_time: COMPILE_TIME,
            },
            &["/workspace/.build"],
        )],
        install: "gcc and libc6-dev",
    },
    LanguageSpec {
        language: Language::Cpp,
        aliases: &["c++", "cxx"],
        extensions: &["cpp", "cc", "cxx"],
        file: "main.cpp",
        recipes: &[compiled(
            &[&["g++", "c++", "clang++"]],
            &["--version"],
            CompileStep {
                argv: &["{0}", "-O2", "-o", "/workspace/.build", "{file}", "-pthread"],
                floor: floor(512, 10),
                wall_time: COMPILE_TIME,
            },
            &["/workspace/.build"],
        )],
        install: "g++",
    },
    LanguageSpec {
        language: Language::Rust,
        aliases: &["rs"],
        extensions: &["rs"],
        file: "main.rs",
        recipes: &[compiled(
            &[&["rustc"], &["cc", "gcc", "clang"]],
            &["--version"],
            CompileStep {
                argv: &[
                    "{0}",
                    "--edition",
                    "2021",
                    "-O",
                    "-o",
                    "/workspace/.build",
                    "{file}",
                ],
                floor: floor(768, 16),
                wall_time: COMPILE_TIME,
            },
            &["/workspace/.build"],
        )],
        install: "rustc and gcc",
    },
    LanguageSpec {
        language: Language::Go,
        aliases: &["golang"],
        extensions: &["go"],
        file: "main.go",
        recipes: &[Recipe {
            env: &[
                ("GOCACHE", "/workspace/.cache/go-build"),
                ("GOPATH", "/workspace/.cache/go"),
                ("GOTELEMETRY", "off"),
                ("GOTOOLCHAIN", "local"),
                ("GOFLAGS", "-mod=mod"),
                ("GO111MODULE", "off"),
                ("CGO_ENABLED", "0"),
            ],
            ..compiled(
                &[&["go"]],
                &["version"],
                CompileStep {
                    argv: &["{0}", "build", "-o", "/workspace/.build", "{file}"],
                    floor: floor(1024, 32),
                    wall_time: Seconds::whole(60),
                },
                &["/workspace/.build"],
            )
        }],
        install: "golang-go",
    },
    LanguageSpec {
        language: Language::Java,
        aliases: &[],
        extensions: &["java"],
        file: "Main.java",
        recipes: &[compiled(
            &[&["java"], &["javac"]],
            &["-version"],
            CompileStep {
                argv: &[
                    "{1}",
                    "-J-Xmx256m",
                    "-J-XX:+UseSerialGC",
                    "-d",
                    "/workspace/.build",
                    "{file}",
                ],
                floor: floor(512, 10),
                wall_time: COMPILE_TIME,
            },
            // The JVM sizes itself by the machine unless it is told what the sandbox has.
            &[
                "{0}",
                "-XX:MaxRAM={memory_mb}m",
                "-XX:+UseSerialGC",
                "-Xshare:auto",
                "-cp",
                "/workspace/.build",
                "Main",
            ],
        )],
        install: "default-jdk-headless",
    },
    LanguageSpec {
        language: Language::Ruby,
        aliases: &["rb"],
        extensions: &["rb"],
        file: "main.rb",
        recipes: &[interpreted(&[&["ruby"]], &["--version"], &["{0}", "{file}"])],
        install: "ruby",
    },
    LanguageSpec {
        language: Language::Php,
        aliases: &[],
        extensions: &["php"],
        file: "main.php",
        recipes: &[interpreted(&[&["php"]], &["--version"], &["{0}", "{file}"])],
        install: "php-cli",
    },
    LanguageSpec {
        language: Language::Perl,
        aliases: &["pl"],
        extensions: &["pl"],
        file: "main.pl",
        recipes: &[interpreted(
            &[&["perl"]],
            &["-e", "print $^V"],
            &["{0}", "{file}"],
        )],
        install: "perl",
    },
    LanguageSpec {
        language: Language::Lua,
        aliases: &[],
        extensions: &["lua"],
        file: "main.lua",
        recipes: &[interpreted(
            &[&["lua", "lua5.4", "lua5.3", "luajit"]],
            &["-v"],
            &["{0}", "{file}"],
        )],
        install: "lua5.4",
    },
];

impl Language {
    pub fn spec(self) -> &'static LanguageSpec {
        // `TABLE` has one row for each variant; the tests hold that.
        TABLE
            .iter()
            .find(|spec| spec.language == self)
            .unwrap_or(&TABLE[0])
    }

    /// Whether it has an interpreter that stays between executions.
    pub fn has_sessions(self) -> bool {
        self.spec().recipes.iter().any(|recipe| recipe.runner.is_some())
    }

    /// The language of a name or one of its aliases, whatever the case.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        TABLE
            .iter()
            .find(|spec| spec.language.word() == name || spec.aliases.contains(&name.as_str()))
            .map(|spec| spec.language)
    }

    /// The language that a file's ending means.
    pub fn from_file_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        let extension = extension.to_ascii_lowercase();
        TABLE
            .iter()
            .find(|spec| spec.extensions.contains(&extension.as_str()))
            .map(|spec| spec.language)
    }

    /// The language that a `#!` line means.
    pub fn from_shebang(code: &[u8]) -> Option<Self> {
        let line = code.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split_whitespace();
        let program = words.next()?;
        let name = match program.rsplit('/').next()? {
            "env" => words.find(|word| !word.starts_with('-'))?,
            name => name,
        };
        Self::from_name(name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_language_once() {
        let rows: Vec<_> = TABLE.iter().map(|spec| spec.language).collect();
        assert_eq!(rows, Language::ALL);
    }

    #[test]
    fn names_aliases_and_endings_are_unambiguous() {
        for pick in [
            |s: &LanguageSpec| s.aliases.to_vec(),
            |s: &LanguageSpec| s.extensions.to_vec(),
        ] {
            let mut all: Vec<_> = TABLE.iter().flat_map(pick).collect();
            let before = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), before);
        }
    }

    #[test]
    fn a_language_is_known_by_name_ending_or_first_line() {
        assert_eq!(Language::from_name("PY"), Some(Language::Python));
        assert_eq!(Language::from_name("c++"), Some(Language::Cpp));
        assert_eq!(Language::from_name("cobol"), None);
        assert_eq!(Language::from_file_name("a.tar.rs"), Some(Language::Rust));
        assert_eq!(Language::from_file_name("README"), None);
        assert_eq!(
            Language::from_shebang(b"#!/usr/bin/env -S python3.11 -u\n"),
            Some(Language::Python)
        );
        assert_eq!(Language::from_shebang(b"#!/bin/sh\necho"), Some(Language::Shell));
        assert_eq!(Language::from_shebang(b"print(1)"), None);
    }

    /// Whoever compiles once and runs elsewhere takes this along, and nothing else.
    #[test]
    fn a_compiled_program_needs_only_what_was_built() {
        let built = format!("{}/{BUILT}", crate::plan::WORK_DIR);
        for recipe in TABLE.iter().flat_map(|spec| spec.recipes) {
            if let Some(step) = &recipe.compile {
                assert!(step.argv.contains(&built.as_str()), "{:?}", step.argv);
                assert!(
                    recipe.run.iter().any(|word| word.starts_with(&built)),
                    "{:?}",
                    recipe.run
                );
                assert!(!recipe.run.contains(&"{file}"), "{:?}", recipe.run);
            }
        }
    }

    #[test]
    fn steps_name_only_programs_that_their_recipe_has() {
        for recipe in TABLE.iter().flat_map(|spec| spec.recipes) {
            let compile = recipe.compile.as_ref().map_or(&[][..], |step| step.argv);
            for word in compile.iter().chain(recipe.run) {
                if let Some(index) = word.strip_prefix('{').and_then(|w| w.strip_suffix('}'))
                    && let Ok(index) = index.parse::<usize>()
                {
                    assert!(index < recipe.programs.len(), "{word}");
                }
            }
        }
    }
}
