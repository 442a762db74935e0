//! From a checked request to the programs that will run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::warm::warm;
use crate::capabilities::{Capabilities, Toolchain};
use crate::denial::{Denial, DenialCode};
use crate::egress::Secret;
use crate::environment::{Environment, Root};
use crate::language::Language;
use crate::limits::{LimitOverrides, Limits};
use crate::path::GuestPath;
use crate::plan::{Script, Stage, StageKind, WORK_DIR};
use crate::policy::Policy;
use crate::request::{FileIn, Request, Source};

/// The variables of every guest, before the language's and the caller's own.
const BASE_ENV: [(&str, &str); 6] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("HOME", WORK_DIR),
    ("TMPDIR", "/tmp"),
    ("LANG", "C.UTF-8"),
    ("USER", "guest"),
    ("LOGNAME", "guest"),
];

/// The toolchain for `language`: the environment's own interpreter, else what the machine has.
pub(super) fn toolchain<'a>(
    capabilities: &'a Capabilities,
    environment: Option<&Environment>,
    image: Option<&str>,
    language: Language,
) -> Result<Cow<'a, Toolchain>, Denial> {
    if let Some((environment, root)) = environment.and_then(|found| Some((found, found.root.as_ref()?))) {
        return of_root(environment, root, language).map(Cow::Owned);
    }
    let own = environment.filter(|environment| environment.language == language);
    if let (Some(environment), Some(recipe)) = (own, language.spec().recipes.first()) {
        return Ok(Cow::Owned(Toolchain {
            recipe,
            programs: vec![environment.program.clone()],
            version: String::new(),
            shows: environment.shows.clone(),
            env: BTreeMap::new(),
        }));
    }
    capabilities
        .languages
        .get(&language)
        .map(Cow::Borrowed)
        .ok_or_else(|| {
            let install = language.spec().install;
            if let Some(image) = image {
                return Denial::new(
                    DenialCode::LanguageUnavailable,
                    "image",
                    language.word(),
                    format!("the image `{image}` has nothing that runs {language}"),
                    format!("name an image with {install}"),
                );
            }
            if let Some(environment) = environment {
                return not_in_environment(environment, language);
            }
            Denial::new(
                DenialCode::LanguageUnavailable,
                "toolchain",
                language.word(),
                format!("this machine has nothing that runs {language}"),
                format!("install {install}; `belljar languages` lists what is there"),
            )
        })
}

fn not_in_environment(environment: &Environment, language: Language) -> Denial {
    let install = language.spec().install;
    Denial::new(
        DenialCode::LanguageUnavailable,
        "environment",
        language.word(),
        format!(
            "the environment `{}` has nothing that runs {language}",
            environment.name
        ),
        format!("import a root file system with {install}"),
    )
}

/// What runs `language` in a root of its own. What the host has is not to be seen there.
fn of_root(environment: &Environment, root: &Root, language: Language) -> Result<Toolchain, Denial> {
    let found = root.programs.get(&language);
    let found = found.and_then(|(recipe, programs)| Some((language.spec().recipes.get(*recipe)?, programs)));
    let (recipe, programs) = found.ok_or_else(|| not_in_environment(environment, language))?;
    Ok(Toolchain {
        recipe,
        programs: programs.clone(),
        version: String::new(),
        shows: Vec::new(),
        env: BTreeMap::new(),
    })
}

/// Sessions need a runner, which not every language has.
pub(super) fn check_runner(language: Language, toolchain: &Toolchain) -> Result<(), Denial> {
    if toolchain.recipe.runner.is_some() {
        return Ok(());
    }
    let known: Vec<_> = Language::ALL
        .iter()
        .filter(|language| language.has_sessions())
        .map(|language| language.word())
        .collect();
    Err(Denial::new(
        DenialCode::LanguageHasNoSessions,
        "runner",
        language.word(),
        format!("{language} has no interpreter that stays between executions"),
        format!("open a session in {}, or run the code once", known.join(" or ")),
    ))
}

pub(super) fn build(
    policy: &Policy,
    request: &Request,
    toolchain: Option<&Toolchain>,
    environment: Option<&Environment>,
    secrets: &[Secret],
    limits: &Limits,
) -> (Vec<Stage>, BTreeMap<GuestPath, FileIn>) {
    let mut files = request.files.clone();
    let mut env: BTreeMap<String, String> = BASE_ENV.map(|(name, value)| (name.into(), value.into())).into();
    let mut stages = Vec::new();
    let of_environment = || {
        environment
            .iter()
            .flat_map(|environment| environment.variables.clone())
    };
    match (&request.source, toolchain) {
        (Source::Command { argv }, _) => {
            env.extend(of_environment());
            env.extend(Secret::trust_variables(secrets));
            env.extend(request.env.clone());
            env.extend(Secret::placeholders(secrets));
            let argv = argv.iter().chain(&request.args).cloned().collect();
            stages.push(run_stage(policy, argv, env, limits, false));
        }
        // The guard finds a toolchain before it builds anything out of code.
        (Source::Code { .. } | Source::Interpreter { .. }, None) => {}
        (Source::Interpreter { .. }, Some(toolchain)) => {
            env.extend(toolchain_env(toolchain));
            env.extend(of_environment());
            let warm = warm(policy, request, toolchain, environment, &env, limits, None);
            env.extend(Secret::trust_variables(secrets));
            let start_env = env.clone();
            env.extend(request.env.clone());
            env.extend(Secret::placeholders(secrets));
            let (env, session_env) = if policy.needs_approval() {
                (start_env, Some(env))
            } else {
                (env, None)
            };
            let (program, script) = toolchain.recipe.runner.unwrap_or(&[""]).split_at(1);
            let words = [program, toolchain.recipe.runner_options, script].concat();
            let argv = words.iter().map(|word| fill_word(word, "", toolchain, limits));
            stages.push(Stage {
                kind: StageKind::Interpreter,
                warm,
                session_env,
                ..run_stage(policy, argv.collect(), env, limits, toolchain.recipe.data_limit)
            });
        }
        (Source::Code { language, code }, Some(toolchain)) => {
            let spec = language.spec();
            let recipe = toolchain.recipe;
            // The table's own file names are plain; the tests build every one of them.
            if let Ok(path) = GuestPath::new(spec.file) {
                files.insert(path, FileIn::inline(code.clone()));
            }
            env.extend(toolchain_env(toolchain));
            env.extend(of_environment());
            let script = Script {
                // As the command line would name it: programs look at their own name.
                path: spec.file.to_owned(),
                args: request.args.clone(),
            };
            let warm = warm(
                policy,
                request,
                toolchain,
                environment,
                &env,
                limits,
                Some(script),
            );
            env.extend(Secret::trust_variables(secrets));
            env.extend(request.env.clone());
            env.extend(Secret::placeholders(secrets));
            let fill = |words: &[&str], limits: &Limits| -> Vec<String> {
                words
                    .iter()
                    .map(|word| fill_word(word, spec.file, toolchain, limits))
                    .collect()
            };
            if let Some(step) = &recipe.compile {
                // A compiler gets what it needs, and a clock of its own.
                let own_clock = LimitOverrides {
                    wall_time: Some(step.wall_time),
                    cpu_time: Some(step.wall_time),
                    ..LimitOverrides::default()
                };
                let limits = limits.raised_to(&step.floor).lowered(&own_clock);
                stages.push(Stage {
                    kind: StageKind::Compile,
                    argv: fill(step.argv, &limits),
                    env: env.clone(),
                    limits,
                    file_write: true,
                    data_limit: false,
                    warm: None,
                    session_env: None,
                });
            }
            let mut argv = fill(recipe.run, limits);
            argv.extend(request.args.iter().cloned());
            stages.push(Stage {
                warm,
                ..run_stage(policy, argv, env, limits, recipe.data_limit)
            });
        }
    }
    (stages, files)
}

fn toolchain_env(toolchain: &Toolchain) -> impl Iterator<Item = (String, String)> {
    let recipe = toolchain.recipe.env.iter();
    recipe
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .chain(toolchain.env.clone())
}

/// What must be visible for both.
pub(super) fn shows(toolchain: Option<&Toolchain>, environment: Option<&Environment>) -> Vec<PathBuf> {
    let mut shows: Vec<PathBuf> = toolchain.iter().flat_map(|found| found.shows.clone()).collect();
    for path in environment.iter().flat_map(|found| &found.shows) {
        if !shows.contains(path) {
            shows.push(path.clone());
        }
    }
    shows
}

fn run_stage(
    policy: &Policy,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    limits: &Limits,
    data_limit: bool,
) -> Stage {
    Stage {
        kind: StageKind::Run,
        argv,
        env,
        limits: limits.clone(),
        file_write: policy.allow_file_write,
        data_limit,
        warm: None,
        session_env: None,
    }
}

/// The limits of the sandbox itself: what its largest stage needs.
pub(super) fn widest(limits: &Limits, stages: &[Stage]) -> Limits {
    stages
        .iter()
        .fold(limits.clone(), |widest, stage| widest.widened_to(stage.limits()))
}

pub(super) fn fill_word(word: &str, file: &str, toolchain: &Toolchain, limits: &Limits) -> String {
    let mut filled = word
        .replace("{file}", file)
        .replace("{memory_mb}", &limits.memory().mib_ceil().to_string());
    for (index, program) in toolchain.programs.iter().enumerate() {
        filled = filled.replace(&format!("{{{index}}}"), &program.to_string_lossy());
    }
    filled
}
