//! Whether a request may be run by an interpreter that was started before it came.

use std::collections::BTreeMap;

use super::stages::fill_word;
use crate::capabilities::Toolchain;
use crate::limits::Limits;
use crate::plan::{Script, Warm};
use crate::policy::Policy;
use crate::request::Request;

/// How the request may be run warm. `env` is what every guest of the toolchain has, without the
/// request's own variables.
pub(super) fn warm(
    policy: &Policy,
    request: &Request,
    toolchain: &Toolchain,
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
    Some(Warm {
        runner: runner
            .map(|word| fill_word(word, "", toolchain, limits))
            .collect(),
        forks: recipe.forks,
        env: env.clone(),
        preload: Vec::new(),
        script,
    })
}
