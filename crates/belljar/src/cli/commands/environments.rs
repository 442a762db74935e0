//! `belljar env`: environments made, listed, shown and removed.

use std::io::{Read, Write};
use std::sync::Arc;

use belljar::environment::{Cancel, Created, Described, EnvironmentError, create, import};
use belljar::{Bytes, EnvironmentName, Error, ErrorKind, Language};
use belljar_providers::{DockerProvider, DockerSettings};
use serde::Serialize;

use super::super::args::{CreateArgs, EnvArgs, EnvCommand, ImportArgs};
use super::super::interrupts::Interrupts;
use super::super::messages::{self, visible};
use super::super::problem::Problem;
use super::super::progress::Shown;
use super::super::settings::Here;
use super::super::settings::environments::{import_limits, specification};
use super::super::stdout;
use super::super::table::Table;

pub(crate) fn environments(args: EnvArgs, here: &Here) -> Result<u8, Problem> {
    let store = || belljar::native_engine().environments();
    match args.command {
        EnvCommand::Create(args) => make(&args, here)?,
        EnvCommand::Import(args) => bring(&args, here)?,
        EnvCommand::List { json } => list(store().and_then(|store| store.list()).map_err(told)?, json)?,
        EnvCommand::Show { name, verify, json } => {
            let name = EnvironmentName::new(&name).map_err(|error| told(error.into()))?;
            let store = store().map_err(told)?;
            let found = if verify {
                store.verify(&name)
            } else {
                store.describe(&name)
            };
            show(&found.map_err(told)?, verify, json)?;
        }
        EnvCommand::Remove { names, json } => {
            let store = store().map_err(told)?;
            let names: Vec<EnvironmentName> = names
                .iter()
                .map(|name| EnvironmentName::new(name).map_err(|error| told(error.into())))
                .collect::<Result<_, _>>()?;
            for name in &names {
                store.remove(name).map_err(told)?;
            }
            if json {
                #[derive(Serialize)]
                struct Removed {
                    removed: Vec<EnvironmentName>,
                }
                stdout::json(&Removed { removed: names })?;
            }
        }
    }
    Ok(0)
}

fn told(error: EnvironmentError) -> Problem {
    Problem::from(Error::from(error))
}

fn make(args: &CreateArgs, here: &Here) -> Result<(), Problem> {
    let wanted = specification(args, &here.directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::from(Error::Runtime(error)))?;
    let mut shown = Shown::new(args.verbose, args.json);
    let result = runtime.block_on(async {
        let mut interrupts = Interrupts::listen()?;
        let engine = belljar::native_engine();
        let cancel = Cancel::default();
        let build = create(&engine, &wanted, &mut shown, &cancel);
        let listen = async {
            interrupts.next().await;
            cancel.cancel();
            // A second time nobody waits for a clean end; the next command sweeps.
            interrupts.next().await;
        };
        tokio::select! {
            result = build => Ok(result),
            () = listen => Err(Problem::new(ErrorKind::Killed, "interrupted twice, so it was not ended cleanly")),
        }
    });
    shown.finish(matches!(result, Ok(Ok(_))));
    runtime.shutdown_background();
    match result? {
        Ok(created) => present(&created, args.json),
        Err(EnvironmentError::Cancelled) => {
            let stopped = EnvironmentError::Cancelled;
            Err(Problem::new(ErrorKind::Killed, stopped.to_string()).hint(stopped.hint()))
        }
        Err(error) => {
            if let EnvironmentError::Build { output, .. } = &error
                && !args.json
                && !args.verbose
            {
                quote(output);
            }
            Err(told(error))
        }
    }
}

fn languages(found: impl Iterator<Item = Language>) -> String {
    let words: Vec<_> = found.map(Language::word).collect();
    if words.is_empty() {
        "no language".to_owned()
    } else {
        words.join(", ")
    }
}

/// `belljar env import`.
fn bring(args: &ImportArgs, here: &Here) -> Result<(), Problem> {
    let name = EnvironmentName::new(&args.name).map_err(|error| told(error.into()))?;
    let store = belljar::native_engine().environments().map_err(told)?;
    let mut shown = Shown::new(false, args.json);
    let (store, cancel) = (&store, Cancel::default());
    let limits = import_limits(args)?;
    let mut imported =
        |archive: &mut dyn Read| import(store, &name, args.replace, archive, limits, &mut shown, &cancel);
    let path = here.directory.join(&args.source);
    let result = if args.source == "-" {
        imported(&mut std::io::stdin().lock())
    } else if path.exists() {
        let file = std::fs::File::open(&path);
        let mut file = file.map_err(|source| {
            let object = path.clone();
            told(EnvironmentError::Io {
                operation: "open",
                object,
                source,
            })
        })?;
        imported(&mut file)
    } else {
        let docker = DockerProvider::new(DockerSettings {
            progress: Some(Arc::new(|text: &str| messages::tell(text))),
            ..DockerSettings::default()
        });
        let exported = docker.export(&args.source).map_err(|error| {
            let why = format!(
                "`{}` is neither a file nor an image that can be had: {error}",
                args.source
            );
            Problem::new(ErrorKind::Usage, why)
                .hint("name a tar file, or an image that `docker images` or `podman images` shows")
        });
        imported(&mut exported?)
    };
    shown.finish(result.is_ok());
    present(&result.map_err(told)?, args.json)
}

/// The end of what a failed step printed.
fn quote(lines: &[String]) {
    messages::start_line();
    let mut stderr = std::io::stderr().lock();
    for line in lines {
        // A closed standard error leaves nobody to show it to.
        let _ = writeln!(stderr, "  {}", visible(line));
    }
}

fn present(created: &Created, json: bool) -> Result<(), Problem> {
    if json {
        #[derive(Serialize)]
        struct Wire<'a> {
            reused: bool,
            environment: &'a Described,
        }
        return stdout::json(&Wire {
            reused: created.reused,
            environment: &created.environment,
        });
    }
    let Described { name, manifest } = &created.environment;
    if let Some(programs) = &manifest.root {
        return stdout::print(&format!(
            "{name}: a root file system with {}, {} (sha256 {})\n",
            languages(programs.keys().copied()),
            Bytes::new(manifest.tree.bytes),
            manifest.digest
        ));
    }
    let count = match manifest.packages.len() {
        1 => "1 package".to_owned(),
        count => format!("{count} packages"),
    };
    stdout::print(&format!(
        "{name}: Python {}, {count}, {} (sha256 {})\n",
        manifest.interpreter.version,
        Bytes::new(manifest.tree.bytes),
        manifest.digest
    ))
}

#[derive(Serialize)]
#[serde(untagged)]
enum Row {
    Usable(Box<Described>),
    Damaged { name: EnvironmentName, error: String },
}

fn list(found: Vec<Result<Described, EnvironmentError>>, json: bool) -> Result<(), Problem> {
    let rows = found
        .into_iter()
        .map(|found| match found {
            Ok(found) => Ok(Row::Usable(Box::new(found))),
            Err(EnvironmentError::Damaged { name, why }) => Ok(Row::Damaged { name, error: why }),
            Err(error) => Err(told(error)),
        })
        .collect::<Result<Vec<Row>, Problem>>()?;
    if json {
        return stdout::json(&rows);
    }
    stdout::print(&table(&rows))
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::default();
    table.row(["NAME", "PYTHON", "PACKAGES", "SIZE", "PRELOAD", "DIGEST"]);
    table.row(["host", "-", "-", "-", "-", "what this machine has"]);
    for row in rows {
        match row {
            Row::Usable(found) => {
                let manifest = &found.manifest;
                let preload = if manifest.preload.is_empty() {
                    "-".to_owned()
                } else {
                    manifest.preload.join(", ")
                };
                table.row([
                    found.name.to_string(),
                    if manifest.root.is_some() {
                        "(own root)".to_owned()
                    } else {
                        manifest.interpreter.version.clone()
                    },
                    manifest.packages.len().to_string(),
                    Bytes::new(manifest.tree.bytes).to_string(),
                    preload,
                    manifest.digest.chars().take(12).collect(),
                ]);
            }
            Row::Damaged { name, error } => {
                let cells = [
                    name.as_str(),
                    "-",
                    "-",
                    "-",
                    "-",
                    &format!("cannot be used: {error}"),
                ];
                table.row(cells);
            }
        }
    }
    table.render()
}

fn show(found: &Described, verified: bool, json: bool) -> Result<(), Problem> {
    if json {
        #[derive(Serialize)]
        struct Wire<'a> {
            verified: bool,
            #[serde(flatten)]
            environment: &'a Described,
        }
        return stdout::json(&Wire {
            verified,
            environment: found,
        });
    }
    let manifest = &found.manifest;
    let mut table = Table::default();
    table.row(["name", found.name.as_str()]);
    table.row(["digest", &format!("sha256 {}", manifest.digest)]);
    if verified {
        table.row(["verified", "every file is the one that was built"]);
    }
    let interpreter = &manifest.interpreter;
    match &manifest.root {
        Some(programs) => table.row(["runs".to_owned(), languages(programs.keys().copied())]),
        None => table.row([
            "python".to_owned(),
            format!("{} ({})", interpreter.version, interpreter.program.display()),
        ]),
    };
    table.row(["place", &manifest.place.display().to_string()]);
    let size = Bytes::new(manifest.tree.bytes);
    table.row(["size", &format!("{size} in {} files", manifest.tree.files)]);
    if !manifest.preload.is_empty() {
        table.row(["preload", &manifest.preload.join(", ")]);
    }
    let mut text = table.render();
    if !manifest.packages.is_empty() {
        let mut packages = Table::default();
        packages.row(["PACKAGE", "VERSION", "WHEEL"]);
        for package in &manifest.packages {
            packages.row([&package.name, &package.version, &package.wheel]);
        }
        text = format!("{text}\n{}", packages.render());
    }
    stdout::print(&text)
}
