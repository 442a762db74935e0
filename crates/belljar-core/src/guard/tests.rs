//! The guard, held to its word: what it refuses, what it says, and that its advice works.

mod denials;
mod plans;

use std::collections::BTreeMap;

use crate::capabilities::{Capabilities, Support, Toolchain};
use crate::control::Control;
use crate::denial::Denial;
use crate::environment::Environment;
use crate::guard::{Missing, candidates, check, none_present};
use crate::language::Language;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::request::Request;
use crate::status::{IsolationLevel, NetworkPolicy, ProviderName};

/// Those of the native wall.
const ESSENTIAL: [Control; 11] = [
    Control::UserNamespace,
    Control::MountNamespace,
    Control::PidNamespace,
    Control::NetworkNamespace,
    Control::IpcNamespace,
    Control::UtsNamespace,
    Control::PrivateRoot,
    Control::NoCapabilities,
    Control::NoNewPrivileges,
    Control::Seccomp,
    Control::Rlimits,
];

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
                provider: ProviderName::Native,
                isolation: IsolationLevel::Process,
                controls: Control::ALL.iter().map(|control| (*control, present())).collect(),
                essential: ESSENTIAL.into(),
                networks: [NetworkPolicy::None, NetworkPolicy::Local].into(),
                languages: [Language::Python, Language::C, Language::Bash]
                    .map(|language| (language, toolchain(language)))
                    .into(),
                environments: BTreeMap::new(),
            },
            request: Request::code(Language::Python, *b"print(1)"),
        }
    }

    /// As the engine does it: the first of the candidates is there.
    fn check(&self) -> Result<Plan, Denial> {
        let candidates = candidates(&self.policy, &self.request)?;
        if !candidates.contains(&self.capabilities.provider) {
            let missing = Missing {
                why: "no engine answers".to_owned(),
                fix: "install one".to_owned(),
            };
            let missing: Vec<_> = candidates
                .into_iter()
                .map(|name| (name, missing.clone()))
                .collect();
            return Err(none_present(&self.policy, &missing));
        }
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
        root: None,
    }
}

fn strings<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}
