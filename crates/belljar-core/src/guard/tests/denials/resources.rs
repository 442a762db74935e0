//! Environments, network, mounts and files.

use super::super::{World, environment};
use super::{Mend, Row, carry_out, mount};
use crate::denial::DenialCode;
use crate::path::GuestPath;
use crate::request::FileIn;
use crate::status::NetworkPolicy;
use crate::units::Bytes;

pub(super) fn environment_rows() -> Vec<Row> {
    vec![
        Row {
            name: "an environment that the policy lacks",
            spoil: |world| {
                add_environment(world, "data");
                world.policy.allowed_environments = ["other".parse().unwrap()].into();
            },
            code: DenialCode::EnvironmentNotAllowed,
            rule: "allowed_environments",
            value: "data",
            fix: "add \"data\" to allowed_environments in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "an environment that nobody looked up",
            spoil: |world| world.request.environment = Some("data".parse().unwrap()),
            code: DenialCode::EnvironmentUnavailable,
            rule: "environment",
            value: "data",
            fix: "make it with `belljar env create data`; `belljar env list` shows what is there",
            mend: Mend::By(|world| add_environment(world, "data")),
        },
    ]
}

fn add_environment(world: &mut World, name: &str) {
    let made = environment(name);
    world.request.environment = Some(made.name.clone());
    world.capabilities.environments.insert(made.name.clone(), made);
}

/// A world whose policy lets hosts be reached.
fn restrict(world: &mut World, asked: &[&str]) {
    world.policy.network = NetworkPolicy::Restricted;
    world.policy.allow_network = true;
    world.policy.allowed_hosts = vec!["*.example.com:443".parse().unwrap()];
    world.capabilities.networks.insert(NetworkPolicy::Restricted);
    world.request.hosts = Some(
        asked
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect(),
    );
}

pub(super) fn network_rows() -> Vec<Row> {
    vec![
        Row {
            name: "a host that the policy does not name",
            spoil: |world| restrict(world, &["\"a.example.com:443\"", "\"example.org:443\""]),
            code: DenialCode::HostNotAllowed,
            rule: "allowed_hosts",
            value: "example.org:443",
            fix: "add \"example.org:443\" to allowed_hosts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "a host on a port that the policy does not name",
            spoil: |world| restrict(world, &["\"a.example.com:8443\""]),
            code: DenialCode::HostNotAllowed,
            rule: "allowed_hosts",
            value: "a.example.com:8443",
            fix: "add \"a.example.com:8443\" to allowed_hosts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "a host with private addresses that the policy does not name",
            spoil: |world| {
                restrict(
                    world,
                    &[
                        r#"{"host": "a.example.com", "ports": [443], "addresses": ["10.0.0.0/8"], "protocol": "tcp"}"#,
                    ],
                );
            },
            code: DenialCode::HostNotAllowed,
            rule: "allowed_hosts",
            value: "a.example.com:443",
            fix: "add { host = \"a.example.com\", ports = [443], protocol = \"tcp\", addresses = [\"10.0.0.0/8\"] } to allowed_hosts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "hosts without a network",
            spoil: |world| {
                restrict(world, &["\"a.example.com:443\""]);
                world.request.network = Some(NetworkPolicy::None);
            },
            code: DenialCode::NetworkNotAllowed,
            rule: "network_policy",
            value: "a.example.com:443",
            fix: "ask for network restricted",
            mend: Mend::By(|world| world.request.network = Some(NetworkPolicy::Restricted)),
        },
        Row {
            name: "a private address where all the world may be reached",
            spoil: |world| {
                restrict(world, &["\"10.1.2.3:443\""]);
                world.policy.network = NetworkPolicy::Full;
                world.policy.allowed_hosts.clear();
            },
            code: DenialCode::HostNotAllowed,
            rule: "allowed_hosts",
            value: "10.1.2.3:443",
            fix: "add \"10.1.2.3:443\" to allowed_hosts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "hosts by name and all the world at once",
            spoil: |world| {
                restrict(world, &["\"a.example.com:443\""]);
                world.policy.network = NetworkPolicy::Full;
                world.capabilities.networks.insert(NetworkPolicy::Full);
                world.request.network = Some(NetworkPolicy::Full);
            },
            code: DenialCode::NetworkNotAllowed,
            rule: "network_policy",
            value: "a.example.com:443",
            fix: "ask for network restricted",
            mend: Mend::By(|world| world.request.network = Some(NetworkPolicy::Restricted)),
        },
        Row {
            name: "a secret where nothing keeps it",
            spoil: |world| {
                let secret = crate::egress::SecretFields {
                    name: "TOKEN".to_owned(),
                    host: "a.example.com".to_owned(),
                    header: "X-Key".to_owned(),
                    format: None,
                    from_env: Some("TOKEN".to_owned()),
                    from_file: None,
                    terminate_tls: false,
                    in_the_clear: false,
                };
                world.policy.secrets = vec![secret.try_into().unwrap()];
                world.policy.isolation_level = crate::IsolationLevel::None;
                world.capabilities.isolation = crate::IsolationLevel::None;
            },
            code: DenialCode::SecretUnavailable,
            rule: "secrets",
            value: "TOKEN",
            fix: "pick another provider, or take the secrets out of the policy",
            mend: Mend::By(|world| world.policy.secrets.clear()),
        },
        Row {
            name: "neither network field permits it",
            spoil: |world| world.request.network = Some(NetworkPolicy::Local),
            code: DenialCode::NetworkNotAllowed,
            rule: "network_policy",
            value: "local",
            fix: "set network_policy = \"local\" and allow_network = true in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "only allow_network is missing",
            spoil: |world| {
                world.policy.network = NetworkPolicy::Restricted;
                world.request.network = Some(NetworkPolicy::Local);
            },
            code: DenialCode::NetworkNotAllowed,
            rule: "allow_network",
            value: "local",
            fix: "set allow_network = true in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "only the network policy is too narrow",
            spoil: |world| {
                world.policy.allow_network = true;
                world.request.network = Some(NetworkPolicy::Local);
            },
            code: DenialCode::NetworkNotAllowed,
            rule: "network_policy",
            value: "local",
            fix: "set network_policy = \"local\" in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "a network that the provider lacks; one that the policy forbids is no advice",
            spoil: |world| {
                world.policy.network = NetworkPolicy::Restricted;
                world.policy.allow_network = true;
                world.capabilities.networks.insert(NetworkPolicy::Full);
            },
            code: DenialCode::NetworkUnavailable,
            rule: "network_policy",
            value: "restricted",
            fix: "ask for network none or local",
            mend: Mend::By(|world| world.request.network = Some(NetworkPolicy::Local)),
        },
        Row {
            name: "no network at all is not what every provider has",
            spoil: |world| world.capabilities.networks = [NetworkPolicy::Full].into(),
            code: DenialCode::NetworkUnavailable,
            rule: "network_policy",
            value: "none",
            fix: "pick another provider, or set network_policy = \"full\" and allow_network = true in the policy",
            mend: Mend::AsWritten,
        },
    ]
}

pub(super) fn file_rows() -> Vec<Row> {
    vec![
        Row {
            name: "R28: a mount that the policy lacks",
            spoil: |world| world.request.mounts = vec![mount("/data:/data")],
            code: DenialCode::MountNotAllowed,
            rule: "allowed_mounts",
            value: "/data:/data:ro",
            fix: "add \"/data:/data:ro\" to allowed_mounts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R28: `/data-2` is not below `/data`",
            spoil: |world| {
                world.policy.allowed_mounts = vec![mount("/data:/data:rw")];
                world.request.mounts = vec![mount("/data-2/x:/data")];
            },
            code: DenialCode::MountNotAllowed,
            rule: "allowed_mounts",
            value: "/data-2/x:/data:ro",
            fix: "add \"/data-2/x:/data:ro\" to allowed_mounts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R28: read-only does not permit read-write",
            spoil: |world| {
                world.policy.allowed_mounts = vec![mount("/data:/data:ro")];
                world.request.mounts = vec![mount("/data/x:/data:ro"), mount("/data:/data:rw")];
            },
            code: DenialCode::MountNotAllowed,
            rule: "allowed_mounts",
            value: "/data:/data:rw",
            fix: "add \"/data:/data:rw\" to allowed_mounts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R13: a writable mount where nothing may be written",
            spoil: |world| {
                world.policy.allow_file_write = false;
                world.policy.allowed_mounts = vec![mount("/data:/data:rw")];
                world.request.mounts = vec![mount("/data:/data:rw")];
            },
            code: DenialCode::FileWriteNotAllowed,
            rule: "allow_file_write",
            value: "/data:/data:rw",
            fix: "mount it :ro, or set allow_file_write = true in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "files larger than the policy's disk",
            spoil: |world| {
                world.policy = carry_out("set max_disk_mb = 1 in the policy", &world.policy);
                file(world, "a", 1 << 20);
            },
            code: DenialCode::FilesTooLarge,
            rule: "max_disk_mb",
            value: "1048584",
            fix: "set max_disk_mb = 2 in the policy, or mount the files",
            mend: Mend::AsWritten,
        },
        Row {
            name: "files larger than the disk that the request itself asks for",
            spoil: |world| {
                world.request.limits.disk = Some(Bytes::from_mib(1));
                file(world, "a", 1 << 20);
            },
            code: DenialCode::FilesTooLarge,
            rule: "disk",
            value: "1048584",
            fix: "ask for a disk of 2 MiB, or mount the files",
            mend: Mend::By(|world| world.request.limits.disk = Some(Bytes::from_mib(2))),
        },
        Row {
            name: "a file where a directory is needed",
            spoil: |world| {
                file(world, "a", 1);
                file(world, "a-b", 1);
                file(world, "a/b", 1);
            },
            code: DenialCode::ArgumentInvalid,
            rule: "files",
            value: "a/b",
            fix: "give the file another name",
            mend: Mend::By(|world| {
                world.request.files.remove(&GuestPath::new("a/b").unwrap());
            }),
        },
        Row {
            name: "a file below the code's own",
            spoil: |world| file(world, "main.py/x", 1),
            code: DenialCode::ArgumentInvalid,
            rule: "files",
            value: "main.py/x",
            fix: "give the file another name",
            mend: Mend::By(|world| world.request.files.clear()),
        },
    ]
}

fn file(world: &mut World, name: &str, size: usize) {
    world
        .request
        .files
        .insert(GuestPath::new(name).unwrap(), FileIn::inline(vec![0; size]));
}
