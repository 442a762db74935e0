//! `belljar doctor`: which controls this machine has, what is missing, what that means, and how to get it.

use std::io::IsTerminal;

use belljar::{
    Capabilities, Control, Engine, IsolationLevel, Language, NetworkPolicy, ProviderName, Support,
};
use serde::Serialize;

use super::super::args::DoctorArgs;
use super::super::messages::visible;
use super::super::problem::Problem;
use super::super::stdout;
use super::providers::{State, state_of};

/// No sandbox can be made here.
const NOT_READY: u8 = 1;

pub(crate) fn doctor(args: &DoctorArgs) -> Result<u8, Problem> {
    let engine = belljar::native_engine();
    let Some(provider) = engine.usual_provider() else {
        return Ok(NOT_READY);
    };
    let capabilities = provider.examine();
    let mut diagnosis = Diagnosis::of(&capabilities, walls(&engine));
    diagnosis.shared_limits = shared_limits();
    if args.json {
        stdout::json(&diagnosis)?;
    } else {
        stdout::print(&diagnosis.render(&Marks::for_stdout()))?;
    }
    Ok(if diagnosis.ready { 0 } else { NOT_READY })
}

/// Every wall and whether it is there. Only the usual one is needed.
fn walls(engine: &Engine) -> Vec<Wall> {
    let wall = |name: &ProviderName| Wall {
        provider: *name,
        isolation: name.isolation(),
        state: state_of(engine, *name),
    };
    ProviderName::ALL.iter().map(wall).collect()
}

/// The limits that sandboxes share, for sandboxes with default limits.
fn shared_limits() -> Vec<SharedLimit> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let limits = belljar_core::Limits::new(&belljar_core::limits::LimitNumbers::default());
    limits
        .map_or_else(|_| Vec::new(), |limits| belljar_linux::machine_limits(&limits))
        .into_iter()
        .map(|limit| SharedLimit {
            name: limit.name,
            available: limit.available,
            per_sandbox: limit.per_sandbox,
            sandboxes: limit.sandboxes(),
            // As many as a service runs at once by default.
            enough: limit
                .sandboxes()
                .is_none_or(|sandboxes| sandboxes >= PLACES_PER_PROCESSOR * processors),
            fix: limit.fix,
        })
        .collect()
}

/// How many executions a service runs at once for each processor, by default.
const PLACES_PER_PROCESSOR: u64 = 8;

/// A limit of the user or of the machine that all sandboxes share.
#[derive(Serialize)]
struct SharedLimit {
    name: &'static str,
    /// `null` where there is none.
    available: Option<u64>,
    per_sandbox: u64,
    /// How many sandboxes can use their limits to the full; `null` where nothing bounds it.
    sandboxes: Option<u64>,
    enough: bool,
    fix: &'static str,
}

#[derive(Serialize)]
struct Diagnosis<'a> {
    /// Whether sandboxes can be made at all.
    ready: bool,
    provider: &'a str,
    isolation: IsolationLevel,
    networks: Vec<NetworkPolicy>,
    languages: Vec<Language>,
    controls: Vec<Finding<'a>>,
    providers: Vec<Wall>,
    shared_limits: Vec<SharedLimit>,
}

#[derive(Serialize)]
struct Wall {
    provider: ProviderName,
    isolation: IsolationLevel,
    #[serde(flatten)]
    state: State,
}

#[derive(Serialize)]
struct Finding<'a> {
    control: Control,
    essential: bool,
    effect_of_absence: &'static str,
    #[serde(flatten)]
    support: &'a Support,
}

impl<'a> Diagnosis<'a> {
    fn of(capabilities: &'a Capabilities, providers: Vec<Wall>) -> Self {
        let controls: Vec<_> = capabilities
            .controls
            .iter()
            .map(|(control, support)| Finding {
                control: *control,
                essential: capabilities.essential.contains(control),
                effect_of_absence: control.effect_of_absence(),
                support,
            })
            .collect();
        Self {
            ready: controls
                .iter()
                .all(|finding| finding.support.is_present() || !finding.essential),
            provider: capabilities.provider.word(),
            isolation: capabilities.isolation,
            networks: capabilities.networks.iter().copied().collect(),
            languages: capabilities.languages.keys().copied().collect(),
            controls,
            providers,
            shared_limits: Vec::new(),
        }
    }

    fn render(&self, marks: &Marks) -> String {
        let mut text = String::new();
        let width = self
            .controls
            .iter()
            .map(|finding| finding.control.word().len())
            .max()
            .unwrap_or(0);
        for finding in &self.controls {
            let name = finding.control;
            match finding.support {
                Support::Present { detail } => {
                    text += &format!("{} {name:<width$}  {}\n", marks.present, visible(detail));
                }
                Support::Absent { why, fix } => {
                    let mark = if finding.essential {
                        marks.essential
                    } else {
                        marks.absent
                    };
                    text += &format!("{mark} {name:<width$}  {}\n", visible(why));
                    // Under the text of the line above, whatever the mark's colour adds in bytes.
                    let indent = " ".repeat(marks.width + 1 + width + 2);
                    text += &format!("{indent}effect: {}\n", finding.effect_of_absence);
                    text += &format!("{indent}fix:    {}\n", visible(fix));
                }
            }
        }
        text + "\n" + &self.render_walls(marks) + "\n" + &self.render_shared_limits(marks) + &self.summary()
    }

    /// Limits that are too small for as many sandboxes as a service runs at once. The others are in the JSON form.
    fn render_shared_limits(&self, marks: &Marks) -> String {
        let mut text = String::new();
        for limit in self.shared_limits.iter().filter(|limit| !limit.enough) {
            let (available, sandboxes) = (limit.available.unwrap_or(0), limit.sandboxes.unwrap_or(0));
            text += &format!(
                "{} {}: {available}, enough for {sandboxes} sandboxes that use their limits to the full ({} each)\n",
                marks.absent, limit.name, limit.per_sandbox
            );
            text += &format!("{}fix: {}\n", " ".repeat(marks.width + 1), limit.fix);
        }
        if !text.is_empty() {
            text = format!("Limits that all sandboxes of this machine share:\n{text}\n");
        }
        text
    }

    fn render_walls(&self, marks: &Marks) -> String {
        let mut text =
            "Walls that a policy or --provider can name; `belljar providers` tells more:\n".to_owned();
        for Wall {
            provider,
            isolation,
            state,
        } in &self.providers
        {
            match state {
                State::Present { version } => {
                    let line = format!(
                        "{} {provider:<7} {isolation:<10} {}",
                        marks.present,
                        visible(version)
                    );
                    text += line.trim_end();
                    text.push('\n');
                }
                State::Absent { why, fix } => {
                    let mark = marks.absent;
                    text += &format!("{mark} {provider:<7} {isolation:<10} {}\n", visible(why));
                    if !fix.is_empty() {
                        let indent = " ".repeat(marks.width + 1 + 7 + 1 + 10 + 1);
                        text += &format!("{indent}fix: {}\n", visible(fix));
                    }
                }
            }
        }
        text
    }

    fn summary(&self) -> String {
        let absent = |essential: bool| -> Vec<&str> {
            self.controls
                .iter()
                .filter(|finding| finding.essential == essential && !finding.support.is_present())
                .map(|finding| finding.control.word())
                .collect()
        };
        let (essential, others) = (absent(true), absent(false));
        let networks: Vec<_> = self.networks.iter().map(|network| network.word()).collect();
        if !essential.is_empty() {
            return format!(
                "No sandbox can be made here: {} essential and missing.\n",
                is_or_are(&essential)
            );
        }
        let weaker = if others.is_empty() {
            "every control is in force".to_owned()
        } else {
            format!(
                "{} missing, and policies that require what is missing will be denied",
                is_or_are(&others)
            )
        };
        format!(
            "Sandboxes can be made here: {} isolation by the {} provider, network {}; {weaker}.\n\
             {} of {} languages are here; `belljar languages` lists them.\n",
            self.isolation,
            self.provider,
            networks.join(" or "),
            self.languages.len(),
            Language::ALL.len()
        )
    }
}

fn is_or_are(names: &[&str]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

/// How the states are drawn.
struct Marks {
    present: &'static str,
    absent: &'static str,
    essential: &'static str,
    /// Columns that each takes.
    width: usize,
}

impl Marks {
    const COLOURED: Self = Self {
        present: "\x1b[32m✓\x1b[0m",
        absent: "\x1b[33m✗\x1b[0m",
        essential: "\x1b[31m✗\x1b[0m",
        width: 1,
    };
    const PLAIN: Self = Self {
        present: "yes",
        absent: "no ",
        essential: "NO ",
        width: 3,
    };

    fn for_stdout() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb")
            || !std::io::stdout().is_terminal();
        if plain { Self::PLAIN } else { Self::COLOURED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn capabilities(absent: &[Control]) -> Capabilities {
        let support = |control: &Control| {
            if absent.contains(control) {
                Support::Absent {
                    why: "it was not found".to_owned(),
                    fix: "enable it".to_owned(),
                }
            } else {
                Support::Present {
                    detail: "version 1".to_owned(),
                }
            }
        };
        Capabilities {
            provider: ProviderName::Native,
            isolation: IsolationLevel::Process,
            controls: Control::ALL
                .iter()
                .map(|control| (*control, support(control)))
                .collect(),
            essential: [Control::UserNamespace, Control::Seccomp].into(),
            networks: [NetworkPolicy::None, NetworkPolicy::Local].into(),
            languages: BTreeMap::new(),
            environments: BTreeMap::new(),
        }
    }

    #[test]
    fn a_missing_control_shows_its_effect_and_fix() {
        let capabilities = capabilities(&[Control::Landlock]);
        let diagnosis = Diagnosis::of(&capabilities, Vec::new());
        assert!(diagnosis.ready);
        let text = diagnosis.render(&Marks::PLAIN);
        assert!(
            text.contains("no  landlock           it was not found\n"),
            "{text}"
        );
        assert!(
            text.contains("effect: file access is held by mounts alone"),
            "{text}"
        );
        assert!(text.contains("fix:    enable it"), "{text}");
        assert!(text.contains("landlock is missing"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn without_an_essential_control_nothing_can_be_made() {
        let capabilities = capabilities(&[Control::UserNamespace, Control::Seccomp]);
        let diagnosis = Diagnosis::of(&capabilities, Vec::new());
        assert!(!diagnosis.ready);
        assert!(
            diagnosis
                .summary()
                .contains("user-namespace, seccomp are essential and missing"),
            "{}",
            diagnosis.summary()
        );
    }

    #[test]
    fn p60_a_shared_limit_that_is_too_small_is_shown_with_its_fix() {
        let capabilities = capabilities(&[]);
        let mut diagnosis = Diagnosis::of(&capabilities, Vec::new());
        let limit = |name, enough| SharedLimit {
            name,
            available: Some(4096),
            per_sandbox: 1024,
            sandboxes: Some(4),
            enough,
            fix: "raise it",
        };
        diagnosis.shared_limits = vec![limit("signals", false), limit("tasks", true)];
        let text = diagnosis.render(&Marks::PLAIN);
        assert!(
            text.contains("no  signals: 4096, enough for 4 sandboxes") && text.contains("fix: raise it"),
            "{text}"
        );
        assert!(!text.contains("tasks:"), "{text}");
        assert!(!shared_limits().is_empty());
    }

    #[test]
    fn the_json_form_is_flat() {
        let capabilities = capabilities(&[Control::Landlock]);
        let value = serde_json::to_value(Diagnosis::of(&capabilities, Vec::new())).unwrap();
        let landlock = value["controls"]
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["control"] == "landlock")
            .unwrap();
        assert_eq!(landlock["state"], "absent");
        assert_eq!(landlock["fix"], "enable it");
        assert_eq!(landlock["essential"], false);
    }

    #[test]
    fn a_wall_that_is_not_here_is_shown_with_its_fix_and_spoils_nothing() {
        let capabilities = capabilities(&[]);
        let wall = |provider: ProviderName, state| Wall {
            provider,
            isolation: provider.isolation(),
            state,
        };
        let version = String::new();
        let (why, fix) = ("no socket".to_owned(), "start it".to_owned());
        let walls = vec![
            wall(ProviderName::Native, State::Present { version }),
            wall(ProviderName::Docker, State::Absent { why, fix }),
        ];
        let diagnosis = Diagnosis::of(&capabilities, walls);
        assert!(diagnosis.ready);
        let text = diagnosis.render(&Marks::PLAIN);
        assert!(text.contains("yes native  process\n"), "{text}");
        let docker = "no  docker  container  no socket\n                       fix: start it\n";
        assert!(text.contains(docker), "{text}");
        let value = serde_json::to_value(&diagnosis).unwrap();
        assert_eq!(value["providers"][1]["state"], "absent");
        assert_eq!(value["providers"][1]["fix"], "start it");
    }
}
