//! Which network a request gets, and whom its guest may reach there.

use crate::capabilities::Capabilities;
use crate::denial::{Denial, DenialCode};
use crate::egress::{self, Egress, Rule};
use crate::policy::Policy;
use crate::request::Request;
use crate::status::{IsolationLevel, NetworkPolicy};

pub(super) fn check(
    policy: &Policy,
    capabilities: &Capabilities,
    request: &Request,
) -> Result<NetworkPolicy, Denial> {
    let permitted = policy.permitted_network();
    // Whoever names hosts wants those and no others.
    let names_hosts = request.hosts.as_ref().is_some_and(|hosts| !hosts.is_empty());
    let usual = if names_hosts {
        permitted.min(NetworkPolicy::Restricted)
    } else {
        permitted
    };
    let asked = request.network.unwrap_or(usual);
    if asked > permitted {
        let (rule, fix) = match (policy.network >= asked, policy.allow_network) {
            (true, _) => (
                "allow_network",
                "set allow_network = true in the policy".to_owned(),
            ),
            (false, true) => (
                "network_policy",
                format!("set network_policy = \"{asked}\" in the policy"),
            ),
            (false, false) => (
                "network_policy",
                format!("set network_policy = \"{asked}\" and allow_network = true in the policy"),
            ),
        };
        return Err(Denial::new(
            DenialCode::NetworkNotAllowed,
            rule,
            asked.word(),
            format!(
                "the request asks for network `{asked}`, policy `{}` permits `{permitted}`",
                policy.policy_id
            ),
            fix,
        ));
    }
    if !capabilities.networks.contains(&asked) {
        let known: Vec<_> = capabilities
            .networks
            .iter()
            .filter(|network| **network <= permitted)
            .map(|network| network.word())
            .collect();
        return Err(Denial::new(
            DenialCode::NetworkUnavailable,
            "network_policy",
            asked.word(),
            format!(
                "the {} provider does not have network `{asked}`",
                capabilities.provider
            ),
            if let (true, Some(least)) = (known.is_empty(), capabilities.networks.first()) {
                format!(
                    "pick another provider, or set network_policy = \"{least}\" and allow_network = true in the policy"
                )
            } else if known.is_empty() {
                "pick another provider".to_owned()
            } else {
                format!("ask for network {}", known.join(" or "))
            },
        ));
    }
    Ok(asked)
}

/// Whom the guest may reach.
pub(super) fn check_hosts(
    policy: &Policy,
    capabilities: &Capabilities,
    network: NetworkPolicy,
    request: &Request,
) -> Result<Option<Egress>, Denial> {
    let asked = request.hosts.as_deref();
    if let Some(why) = Egress::too_much(asked.unwrap_or(&policy.allowed_hosts)) {
        return Err(Denial::new(
            DenialCode::HostNotAllowed,
            "allowed_hosts",
            "",
            why,
            "name fewer hosts and ports",
        ));
    }
    for rule in asked.unwrap_or_default() {
        let everyone = (policy.permitted_network() == NetworkPolicy::Full).then(Rule::world);
        let mut allowed = policy.allowed_hosts.iter().chain(&everyone);
        if allowed.any(|allowed| allowed.covers(rule)) {
            continue;
        }
        let known: Vec<_> = policy.allowed_hosts.iter().map(ToString::to_string).collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            format!("only {}", known.join(", "))
        };
        return Err(egress::refusal(
            rule.to_string(),
            format!("policy `{}` does not allow `{rule}`, {known}", policy.policy_id),
            &rule.line(),
        ));
    }
    if let (Some(rule), true) = (asked.and_then(<[_]>::first), network != NetworkPolicy::Restricted) {
        return Err(Denial::new(
            DenialCode::NetworkNotAllowed,
            "network_policy",
            rule.to_string(),
            format!("the request names hosts, and its network is `{network}`"),
            "ask for network restricted",
        ));
    }
    if let (IsolationLevel::None, Some(secret)) = (capabilities.isolation, policy.secrets.first()) {
        return Err(Denial::new(
            DenialCode::SecretUnavailable,
            "secrets",
            &secret.name,
            format!(
                "the secret `{}` cannot be kept where there is no wall",
                secret.name
            ),
            "pick another provider, or take the secrets out of the policy",
        ));
    }
    // Without a wall `full` is the host's own network, and nobody stands between.
    if network < NetworkPolicy::Restricted || capabilities.isolation == IsolationLevel::None {
        return Ok(None);
    }
    let mut rules = asked.unwrap_or(&policy.allowed_hosts).to_vec();
    if network == NetworkPolicy::Full {
        rules.push(Rule::world());
    }
    // Those of hosts that this one cannot reach are not its own.
    let reaches = |secret: &&egress::Secret| rules.iter().any(|rule| rule.host.has_name(&secret.host));
    let secrets = policy.secrets.iter().filter(reaches).cloned().collect();
    Ok(Some(Egress {
        rules,
        secrets,
        limits: policy.egress,
    }))
}
