//! `belljar providers`: every wall, whether it is here, how long a start takes, what it holds and what it does not.

use std::time::Instant;

use belljar::{
    Control, Engine, Error, ExecuteIo, IsolationLevel, Language, Policy, ProviderName, Request, Support,
};
use serde::Serialize;

use super::super::args::ProvidersArgs;
use super::super::messages::visible;
use super::super::problem::Problem;
use super::super::table::Table;
use super::super::{settings, stdout};

pub(crate) fn providers(args: &ProvidersArgs) -> Result<u8, Problem> {
    let image = args.image.as_deref().map(settings::image).transpose()?;
    let engine = belljar::native_engine();
    let mut walls: Vec<_> = ProviderName::ALL
        .iter()
        .map(|name| Wall::find(&engine, *name))
        .collect();
    if !args.no_measure {
        for wall in &mut walls {
            wall.measure(&engine, image.as_deref())?;
        }
    }
    if args.json {
        stdout::json(&walls)?;
    } else {
        stdout::print(&render(&walls))?;
    }
    Ok(0)
}

/// Whether a wall is there.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(super) enum State {
    /// In this version, where it has one.
    Present {
        version: String,
    },
    Absent {
        why: String,
        fix: String,
    },
}

pub(super) fn state_of(engine: &Engine, name: ProviderName) -> State {
    let Some(provider) = engine.provider(name) else {
        return State::Absent {
            why: "this belljar was built without it".to_owned(),
            fix: String::new(),
        };
    };
    match provider.presence() {
        Ok(version) => State::Present { version },
        Err(missing) => State::Absent {
            why: missing.why,
            fix: missing.fix,
        },
    }
}

#[derive(Debug, Serialize)]
struct Wall {
    provider: ProviderName,
    isolation: IsolationLevel,
    #[serde(flatten)]
    state: State,
    /// How long the second run of `print(1)` took, from asking to its result.
    start_ms: Option<f64>,
    /// Why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_measured: Option<String>,
    holds: Vec<Control>,
    does_not_hold: Vec<Lack>,
}

#[derive(Debug, Serialize)]
struct Lack {
    control: Control,
    effect: &'static str,
    why: String,
    fix: String,
}

impl Wall {
    fn find(engine: &Engine, name: ProviderName) -> Self {
        let state = state_of(engine, name);
        let mut wall = Self {
            provider: name,
            isolation: name.isolation(),
            state,
            start_ms: None,
            not_measured: None,
            holds: Vec::new(),
            does_not_hold: Vec::new(),
        };
        if let (State::Present { .. }, Some(provider)) = (&wall.state, engine.provider(name)) {
            // To find languages in an image it would have to be fetched.
            let found = match name.has_images() {
                true => provider.capabilities(&[]),
                false => provider.examine(),
            };
            for (control, support) in found.controls {
                match support {
                    Support::Present { .. } => wall.holds.push(control),
                    Support::Absent { why, fix } => wall.does_not_hold.push(Lack {
                        control,
                        effect: effect(name, control),
                        why,
                        fix,
                    }),
                }
            }
        }
        wall
    }

    fn measure(&mut self, engine: &Engine, image: Option<&str>) -> Result<(), Problem> {
        if !matches!(self.state, State::Present { .. }) {
            return Ok(());
        }
        let image = image.filter(|_| self.provider.has_images());
        if self.provider.has_images() && image.is_none() {
            self.not_measured = Some("give --image to measure it".to_owned());
            return Ok(());
        }
        match start(engine, self.provider, image) {
            Ok(milliseconds) => self.start_ms = Some(milliseconds),
            Err(Error::Runtime(error)) => return Err(Error::Runtime(error).into()),
            Err(error) => self.not_measured = Some(error.to_string()),
        }
        Ok(())
    }
}

/// How long a run takes once there was one before, in milliseconds.
fn start(engine: &Engine, provider: ProviderName, image: Option<&str>) -> Result<f64, Error> {
    let mut request = Request::code(Language::Python, *b"print(1)");
    request.provider = Some(provider);
    request.image = image.map(str::to_owned);
    // It is ours.
    request.approved = true;
    let policy = Policy::for_owner(&request)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    runtime.block_on(async {
        let mut took = 0.0;
        for _ in 0..2 {
            let began = Instant::now();
            let io = ExecuteIo::default();
            engine.execute(&policy, &request, io).await.map_err(Error::from)?;
            took = began.elapsed().as_secs_f64() * 1000.0;
        }
        Ok(took)
    })
}

/// What it means that a wall lacks a control, where that is not what it would mean natively.
const fn effect(provider: ProviderName, control: Control) -> &'static str {
    match (provider, control) {
        (ProviderName::Native, _) => control.effect_of_absence(),
        (ProviderName::Venv, Control::OwnKernel) => "the guest speaks to the machine's own kernel",
        (ProviderName::Venv, Control::PrivateProc) => "the guest would see the host's processes",
        (ProviderName::Venv, Control::Landlock) => "the guest can read and write what the caller can",
        (_, Control::UserNamespace) => "the guest's ids are ids of the machine",
        _ => control.effect_of_absence(),
    }
}

fn render(walls: &[Wall]) -> String {
    let mut table = Table::default();
    table.row(["PROVIDER", "ISOLATION", "START", "VERSION", "STATE"]);
    for wall in walls {
        let (version, state) = match &wall.state {
            State::Present { version } => (version.as_str(), "present".to_owned()),
            State::Absent { why, .. } => ("", format!("absent: {why}")),
        };
        let start = wall.start_ms.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
        let version = if version.is_empty() { "-" } else { version };
        table.row([
            wall.provider.word(),
            wall.isolation.word(),
            &start,
            version,
            &state,
        ]);
    }
    walls
        .iter()
        .fold(table.render(), |text, wall| text + "\n" + &details(wall))
}

fn details(wall: &Wall) -> String {
    let mut text = format!("{}, {} isolation\n", wall.provider, wall.isolation);
    let mut line = |what: &str, told: &str| text += &format!("  {what:<9} {}\n", visible(told));
    if let State::Absent { why, fix } = &wall.state {
        line("absent:", why);
        if !fix.is_empty() {
            line("fix:", fix);
        }
        return text;
    }
    if let Some(why) = &wall.not_measured {
        line("start:", &format!("not measured: {why}"));
    }
    let holds: Vec<_> = wall.holds.iter().map(|control| control.word()).collect();
    line("holds:", &holds.join(", "));
    let mut what = "does not:";
    for lack in &wall.does_not_hold {
        line(what, &format!("{}: {}", lack.control, lack.effect));
        what = "";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(provider: ProviderName, state: State) -> Wall {
        Wall {
            provider,
            isolation: provider.isolation(),
            state,
            start_ms: None,
            not_measured: None,
            holds: Vec::new(),
            does_not_hold: Vec::new(),
        }
    }

    #[test]
    fn what_is_there_shows_what_it_holds_and_what_is_not_shows_the_fix() {
        let version = "1.2".to_owned();
        let mut native = wall(ProviderName::Native, State::Present { version });
        native.start_ms = Some(3.07);
        native.holds = vec![Control::Seccomp, Control::Rlimits];
        native.does_not_hold.push(Lack {
            control: Control::OwnKernel,
            effect: effect(ProviderName::Native, Control::OwnKernel),
            why: String::new(),
            fix: String::new(),
        });
        let (why, fix) = ("no socket".to_owned(), "start it".to_owned());
        let docker = wall(ProviderName::Docker, State::Absent { why, fix });
        assert_eq!(
            render(&[native, docker]),
            "PROVIDER  ISOLATION  START   VERSION  STATE\n\
             native    process    3.1 ms  1.2      present\n\
             docker    container  -       -        absent: no socket\n\
             \n\
             native, process isolation\n  \
               holds:    seccomp, rlimits\n  \
               does not: own-kernel: the guest speaks to the machine's own kernel, through the filter\n\
             \n\
             docker, container isolation\n  \
               absent:   no socket\n  \
               fix:      start it\n"
        );
    }
}
