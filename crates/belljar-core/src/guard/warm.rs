//! Whether a request may be run by an interpreter that was started before it came.

use std::collections::BTreeMap;

use super::stages::fill_word;
use crate::capabilities::Toolchain;
use crate::environment::Environment;
use crate::limits::Limits;
use crate::plan::{Script, Warm};
use crate::policy::Policy;
use crate::request::Request;

/// How the request may be run warm. `env` is what every guest of the toolchain and the
/// environment has, without the request's own variables.
pub(super) fn warm(
    policy: &Policy,
    request: &Request,
    toolchain: &Toolchain,
    environment: Option<&Environment>,
    env: &BTreeMap<String, String>,
    limits: &Limits,
    script: Option<Script>,
) -> Option<Warm> {
    let recipe = toolchain.recipe;
    // Some variables are read only when an interpreter starts, so one that has started will not do.
    let too_late = |name: &String| {
        recipe
            .start_variables
            .iter()
            .any(|beginning| name.starts_with(beginning))
    };
    if policy.fresh_interpreter || request.fresh_interpreter || request.env.keys().any(too_late) {
        return None;
    }
    let runner = recipe.runner?.iter();
    // It names modules of its own interpreter, which no other would find.
    let own = environment.filter(|environment| request.language() == Some(environment.language));
    Some(Warm {
        runner: runner
            .map(|word| fill_word(word, "", toolchain, limits))
            .collect(),
        forks: recipe.forks,
        env: env.clone(),
        preload: own
            .map(|environment| environment.preload.clone())
            .unwrap_or_default(),
        script,
    })
}
