//! Which walls may serve a request, and in which order they are tried (R35, R36).

use crate::denial::{Denial, DenialCode};
use crate::policy::Policy;
use crate::provider::{AGENT_IMAGE, ENVIRONMENT_IMAGE};
use crate::request::Request;
use crate::status::ProviderName;

/// The providers in the order in which they are tried where neither policy nor request names one: the weakest that is strong enough,
/// since every step up costs time, and of one level the strongest. What has no wall is never among them.
const USUAL: [ProviderName; 3] = [ProviderName::Native, ProviderName::Gvisor, ProviderName::Docker];

/// Why a provider is not there, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub why: String,
    pub fix: String,
}

/// The providers that may serve `request`, best first. Never one below the policy's level, and never none.
pub fn candidates(policy: &Policy, request: &Request) -> Result<Vec<ProviderName>, Denial> {
    check_image(policy, request)?;
    let listed: &[ProviderName] = if policy.providers.is_empty() {
        &USUAL
    } else {
        &policy.providers
    };
    let mut allowed: Vec<ProviderName> = Vec::new();
    for provider in listed {
        let strong_enough = provider.isolation() >= policy.isolation_level;
        if strong_enough && !allowed.contains(provider) {
            allowed.push(*provider);
        }
    }
    if let Some(asked) = request.provider {
        if !allowed.contains(&asked) {
            return Err(not_allowed(policy, asked));
        }
        allowed = vec![asked];
    }
    if let Some(image) = &request.image {
        allowed.retain(|provider| provider.has_images());
        if allowed.is_empty() {
            return Err(Denial::new(
                DenialCode::ProviderNotAllowed,
                "image",
                image,
                "the request names an image, and no provider that it may have is made of images",
                "leave the image out, or ask for provider docker",
            ));
        }
    }
    if allowed.is_empty() {
        // A policy out of a file cannot be like this; one that a program made can.
        return Err(Denial::new(
            DenialCode::IsolationUnavailable,
            "isolation_level",
            policy.isolation_level.word(),
            format!(
                "no provider gives the {} isolation that policy `{}` requires",
                policy.isolation_level, policy.policy_id
            ),
            "set isolation_level = \"container\" in the policy",
        ));
    }
    Ok(allowed)
}

fn not_allowed(policy: &Policy, asked: ProviderName) -> Denial {
    let level = policy.isolation_level;
    let (rule, message, fix) = if asked.isolation() < level {
        (
            "isolation_level",
            format!(
                "policy `{}` requires {level} isolation; {asked} gives {}",
                policy.policy_id,
                asked.isolation()
            ),
            if asked == ProviderName::Venv {
                "set isolation_level = \"none\" and providers = [\"venv\"] in the policy".to_owned()
            } else {
                format!("set isolation_level = \"{}\" in the policy", asked.isolation())
            },
        )
    } else if policy.providers.is_empty() {
        (
            "providers",
            format!(
                "policy `{}` names no providers, and {asked} has to be named",
                policy.policy_id
            ),
            format!("set providers = [\"{asked}\"] in the policy"),
        )
    } else {
        let named: Vec<_> = policy.providers.iter().map(|provider| provider.word()).collect();
        (
            "providers",
            format!(
                "policy `{}` does not allow provider {asked}, only {}",
                policy.policy_id,
                named.join(", ")
            ),
            format!("add \"{asked}\" to providers in the policy"),
        )
    };
    Denial::new(DenialCode::ProviderNotAllowed, rule, asked.word(), message, fix)
}

/// Whether the image of a request may be fetched where it is not there: only if the policy lists it, since that makes the engine
/// speak to whoever the name says.
pub fn may_fetch(policy: &Policy, request: &Request) -> bool {
    request
        .image
        .as_deref()
        .is_none_or(|image| is_listed(policy, image))
}

fn is_listed(policy: &Policy, image: &str) -> bool {
    let permits = |allowed: &String| match allowed.strip_suffix('*') {
        Some(beginning) => image.starts_with(beginning),
        None => image == allowed,
    };
    policy.allowed_images.iter().any(permits)
}

/// Whether it may be one of those that are made of environments and of other images: by its name, or by a number that could be
/// any image's.
fn is_made_here(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    let name = last.split([':', '@']).next().unwrap_or(last);
    let is_number = name.len() >= 12 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    [ENVIRONMENT_IMAGE, AGENT_IMAGE, "sha256"].contains(&name) || is_number
}

fn check_image(policy: &Policy, request: &Request) -> Result<(), Denial> {
    let Some(image) = &request.image else {
        return Ok(());
    };
    if image.is_empty() || image.len() > 512 || !image.chars().all(|c| c.is_ascii_graphic()) {
        return Err(Denial::new(
            DenialCode::ImageNotAllowed,
            "image",
            image,
            "that is no image's name",
            "write NAME, NAME:TAG or NAME@DIGEST",
        ));
    }
    if is_made_here(image) && !policy.allowed_images.contains(image) {
        return Err(Denial::new(
            DenialCode::ImageNotAllowed,
            "image",
            image,
            format!("`{image}` is an image that belljar makes for itself"),
            format!(
                "name the image or the environment that it was made of; or add \"{image}\" to allowed_images in the policy"
            ),
        ));
    }
    if let Some(environment) = &request.environment {
        return Err(Denial::new(
            DenialCode::ImageNotAllowed,
            "image",
            image,
            format!("a sandbox has one root, and `{environment}` is one as well"),
            "leave out the image or the environment",
        ));
    }
    if policy.allowed_images.is_empty() || is_listed(policy, image) {
        return Ok(());
    }
    Err(Denial::new(
        DenialCode::ImageNotAllowed,
        "allowed_images",
        image,
        format!(
            "policy `{}` does not allow the image `{image}`, only {}",
            policy.policy_id,
            policy.allowed_images.join(", ")
        ),
        format!("add \"{image}\" to allowed_images in the policy"),
    ))
}

/// What is said where none of the candidates is there.
pub fn none_present(policy: &Policy, missing: &[(ProviderName, Missing)]) -> Denial {
    let whys: Vec<_> = missing
        .iter()
        .map(|(provider, missing)| format!("{provider}: {}", missing.why))
        .collect();
    let fixes: Vec<_> = missing
        .iter()
        .filter(|(_, missing)| !missing.fix.is_empty())
        .map(|(_, missing)| missing.fix.as_str())
        .collect();
    let weakest = missing.iter().map(|(provider, _)| provider.isolation()).min();
    let lower = weakest
        .filter(|level| *level > crate::IsolationLevel::Process && policy.providers.is_empty())
        .map(|_| "set isolation_level = \"process\" in the policy");
    let fix = fixes.into_iter().chain(lower).collect::<Vec<_>>().join("; or ");
    Denial::new(
        DenialCode::IsolationUnavailable,
        if policy.providers.is_empty() {
            "isolation_level"
        } else {
            "providers"
        },
        if policy.providers.is_empty() {
            policy.isolation_level.word().to_owned()
        } else {
            let named: Vec<_> = missing.iter().map(|(provider, _)| provider.word()).collect();
            named.join(", ")
        },
        format!(
            "policy `{}` requires {} isolation{}, and nothing that gives it is here: {}",
            policy.policy_id,
            policy.isolation_level,
            if policy.providers.is_empty() {
                String::new()
            } else {
                format!(
                    " by {}",
                    policy
                        .providers
                        .iter()
                        .map(|provider| provider.word())
                        .collect::<Vec<_>>()
                        .join(" or ")
                )
            },
            whys.join("; ")
        ),
        fix,
    )
}
