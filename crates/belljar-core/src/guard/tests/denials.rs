//! One table of everything the guard refuses. Each row spoils a good world, and the advice in the
//! denial is then followed to the letter: the request must pass.

mod arguments;
mod limits;
mod resources;
mod sessions;
mod walls;

use std::collections::BTreeSet;
use std::path::Path;

use super::World;
use crate::denial::DenialCode;
use crate::mount::Mount;
use crate::policy::Policy;

struct Row {
    name: &'static str,
    spoil: fn(&mut World),
    code: DenialCode,
    rule: &'static str,
    value: &'static str,
    fix: &'static str,
    mend: Mend,
}

/// How the advice is followed.
enum Mend {
    /// The `fix` text itself is read and carried out on the policy's TOML, so that a text which
    /// names a wrong field or value fails the test.
    AsWritten,
    /// The advice is not about the policy: a change of the machine or of the request.
    By(fn(&mut World)),
}

#[test]
fn every_denial_explains_itself_and_its_fix_works() {
    assert!(World::good().check().is_ok());
    for row in rows() {
        let mut world = World::good();
        (row.spoil)(&mut world);
        let denial = world.check().expect_err(row.name);
        assert_eq!(
            (
                denial.code,
                denial.rule.as_str(),
                denial.value.as_str(),
                denial.fix.as_str()
            ),
            (row.code, row.rule, row.value, row.fix),
            "{}: {denial}",
            row.name
        );
        assert!(!denial.message.is_empty(), "{}", row.name);
        match row.mend {
            Mend::AsWritten => world.policy = carry_out(&denial.fix, &world.policy),
            Mend::By(mend) => mend(&mut world),
        }
        if let Err(denial) = world.check() {
            panic!("{}: the fix did not help: {denial}", row.name);
        }
    }
}

#[test]
fn every_code_has_a_row() {
    // Codes that the guard cannot produce, with the reason.
    let exceptions: [(DenialCode, &str); 5] = [
        (DenialCode::ImageUnavailable, "an engine says it"),
        (DenialCode::ApprovalDenied, "a person says it"),
        (DenialCode::ApprovalExpired, "nobody says anything"),
        (DenialCode::PolicyNotAllowed, "a service's key says it"),
        (DenialCode::QuotaExceeded, "a service counts"),
    ];
    let covered: BTreeSet<_> = rows()
        .iter()
        .map(|row| row.code)
        .chain(exceptions.map(|(code, _)| code))
        .collect();
    let missing: Vec<_> = DenialCode::ALL
        .iter()
        .filter(|code| !covered.contains(code))
        .collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}

/// Carries out `set K = V [and K = V] in the policy`, `set K = V in the policy's [controls]` and
/// `add "X" to K in the policy` on the TOML form of `policy`.
fn carry_out(fix: &str, policy: &Policy) -> Policy {
    let mut table: toml::Table = toml::from_str(&policy.to_toml()).unwrap();
    if let Some((_, rest)) = fix.split_once("add ") {
        let (value, rest) = rest.split_once(" to ").unwrap();
        let (field, _) = rest.split_once(" in the policy").unwrap();
        let list = table.get_mut(field).unwrap().as_array_mut().unwrap();
        list.push(value.parse().unwrap());
    } else {
        let (_, rest) = fix.split_once("set ").unwrap();
        let (assignments, rest) = rest.split_once(" in the policy").unwrap();
        for assignment in assignments.split(" and ") {
            let line: toml::Table = toml::from_str(assignment).unwrap();
            if rest.starts_with("'s [controls]") {
                table["controls"].as_table_mut().unwrap().extend(line);
            } else {
                table.extend(line);
            }
        }
    }
    Policy::from_toml(&toml::to_string(&table).unwrap(), "fixed.toml").unwrap()
}

fn mount(text: &str) -> Mount {
    text.parse().unwrap()
}

fn rows() -> Vec<Row> {
    [
        walls::wall_rows(),
        walls::source_rows(),
        arguments::argument_rows(),
        limits::limit_rows(),
        resources::environment_rows(),
        resources::network_rows(),
        resources::file_rows(),
        sessions::session_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What a policy forbids is not reached around with `..`: such a mount cannot be built.
#[test]
fn a_mount_cannot_climb_out_of_what_is_allowed() {
    for text in [
        "/data/../etc:/data",
        "/data/..:/data",
        "data/../../etc:/data",
        "/data:/data/../../usr",
    ] {
        assert!(Mount::parse(text, Path::new("/")).is_err(), "{text}");
    }
    let mut world = World::good();
    world.policy.allowed_mounts = vec![mount("/data:/data:ro")];
    for (host, allowed) in [
        ("/data", true),
        ("/data/./x", true),
        ("/data//x/y", true),
        ("/dat", false),
        ("/data2", false),
        ("/", false),
        ("/x/data", false),
    ] {
        world.request.mounts = vec![mount(&format!("{host}:/m"))];
        assert_eq!(world.check().is_ok(), allowed, "{host}");
    }
}
