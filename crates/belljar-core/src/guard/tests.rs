//! The guard, held to its word: what it refuses, what it says, and that its advice works.

mod denials;
mod plans;

use std::collections::BTreeMap;

use crate::capabilities::{Capabilities, Support, Toolchain};
use crate::control::Control;
use crate::denial::Denial;
use crate::environment::Environment;
use crate::guard::check;
use crate::language::Language;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::request::Request;
use crate::status::{IsolationLevel, NetworkPolicy};

/// The three things the guard looks at. Starts good; a test spoils one of them.
struct World {
    policy: Policy,
    capabilities: Capabilities,
    request: Request,
}

impl World {
    fn good() -> Self {
        Self {
            policy: Policy::builtin("standard").unwrap(),
            capabilities: Capabilities {
                provider: "native",
                isolation: IsolationLevel::Process,
                controls: Control::ALL.iter().map(|control| (*control, present())).collect(),
                networks: [NetworkPolicy::None, NetworkPolicy::Local].into(),
                languages: [Language::Python, Language::C, Language::Bash]
                    .map(|language| (language, toolchain(language)))
                    .into(),
                environments: BTreeMap::new(),
            },
            request: Request::code(Language::Python, *b"print(1)"),
        }
    }

    fn check(&self) -> Result<Plan, Denial> {
        check(&self.policy, &self.capabilities, &self.request)
    }
}

fn present() -> Support {
    Support::Present {
        detail: String::new(),
    }
}

/// The first recipe of a language, its programs in `/usr/bin`.
fn toolchain(language: Language) -> Toolchain {
    let recipe = &language.spec().recipes[0];
    Toolchain {
        recipe,
        programs: recipe
            .programs
            .iter()
            .map(|names| format!("/usr/bin/{}", names[0]).into())
            .collect(),
        version: "1.0".to_owned(),
        shows: Vec::new(),
        env: [("FROM_TOOLCHAIN".to_owned(), "1".to_owned())].into(),
    }
}

fn environment(name: &str) -> Environment {
    Environment {
        name: name.parse().unwrap(),
        digest: "d1".to_owned(),
        language: Language::Python,
        program: "/env/bin/python".into(),
        shows: vec!["/env".into(), "/opt/python".into()],
        variables: [("PATH".to_owned(), "/env/bin:/bin".to_owned())].into(),
        preload: Vec::new(),
    }
}

fn strings<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}
