//! For the tests of this crate: a machine that has everything.

use belljar_core::{
    Capabilities, Control, IsolationLevel, Language, NetworkPolicy, ProviderName, Support, Toolchain,
};

pub(crate) fn capabilities(languages: &[Language]) -> Capabilities {
    let present = Support::Present {
        detail: String::new(),
    };
    Capabilities {
        provider: ProviderName::Native,
        isolation: IsolationLevel::Process,
        controls: Control::ALL
            .iter()
            .map(|control| (*control, present.clone()))
            .collect(),
        essential: Default::default(),
        networks: [NetworkPolicy::None].into(),
        languages: languages
            .iter()
            .map(|language| (*language, toolchain(*language)))
            .collect(),
        environments: Default::default(),
    }
}

fn toolchain(language: Language) -> Toolchain {
    let recipe = &language.spec().recipes[0];
    Toolchain {
        recipe,
        programs: vec!["/bin/true".into(); recipe.programs.len()],
        version: String::new(),
        shows: Vec::new(),
        env: Default::default(),
    }
}
