//! The second layer over files: Landlock, with every right that the running kernel knows.

use std::io;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};

use crate::sys;
use crate::wire::{GuestSpec, Note};

/// Devices that programs write to as a matter of course.
pub(crate) const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// The rules for the guest of `spec`: reading and executing is fine wherever the mounts reach, writing
/// only where the spec says. `None` where the kernel has no Landlock.
pub(super) fn ruleset(spec: &GuestSpec) -> io::Result<(Option<OwnedFd>, Note)> {
    // The newest this crate knows; on an older kernel it uses what is there.
    let abi = ABI::V9;
    let failed = |error: landlock::RulesetError| io::Error::other(error.to_string());
    let read = AccessFs::from_read(abi);
    let all = AccessFs::from_all(abi);

    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(failed)?
        .scope(Scope::from_all(abi))
        .map_err(failed)?;
    if spec.no_network {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi)).map_err(failed)?;
    }
    let mut ruleset = ruleset.create().map_err(failed)?;
    ruleset = ruleset
        .add_rule(PathBeneath::new(open("/")?, read))
        .map_err(failed)?;
    // A machine may lack one of them; then there is nothing to allow.
    for device in DEVICES.into_iter().filter_map(|device| open(device).ok()) {
        let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        ruleset = ruleset
            .add_rule(PathBeneath::new(device, access))
            .map_err(failed)?;
    }
    if spec.file_write {
        for place in &spec.writable {
            let place = open(place)?;
            let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode).is_dir();
            let access = if is_dir { all } else { AccessFs::from_file(abi) };
            ruleset = ruleset
                .add_rule(PathBeneath::new(place, access))
                .map_err(failed)?;
        }
    }
    let ruleset: Option<OwnedFd> = ruleset.into();
    let version = sys::filter::landlock_version().unwrap_or(0);
    Ok(match ruleset {
        Some(ruleset) if version > 0 => (Some(ruleset), Note::Landlock((version as u32).min(abi as u32))),
        _ => (None, Note::LandlockAbsent),
    })
}

fn open(path: &str) -> io::Result<PathFd> {
    PathFd::new(path).map_err(|error| io::Error::other(error.to_string()))
}
