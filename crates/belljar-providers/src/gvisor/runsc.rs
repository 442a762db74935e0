//! The program `runsc`: where it is, how old, and how it is to be called.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use belljar_core::guard::Missing;

use super::GvisorSettings;

/// Releases before this one have no systrap.
const FIRST_SYSTRAP: u32 = 20_230_500;

/// `runsc`, as it is to be used here.
#[derive(Debug)]
pub(super) struct Runsc {
    pub program: PathBuf,
    pub version: String,
    pub platform: String,
    pub rootless: bool,
}

impl Runsc {
    pub(super) fn find(settings: &GvisorSettings) -> Result<Self, Missing> {
        let missing = |why: &str| Missing {
            why: why.to_owned(),
            fix: "install gVisor's runsc (on Debian: apt-get install -t bookworm-backports runsc)".to_owned(),
        };
        let program = settings.program.clone().or_else(|| on_path("runsc"));
        let program = program.ok_or_else(|| missing("runsc is not on the path"))?;
        let asked = Command::new(&program)
            .arg("--version")
            .env_clear()
            .stdin(Stdio::null())
            .output();
        let said = match asked {
            Ok(said) if said.status.success() => String::from_utf8_lossy(&said.stdout).into_owned(),
            Ok(_) => {
                return Err(missing(&format!(
                    "{} does not say its version",
                    program.display()
                )));
            }
            Err(error) => return Err(missing(&format!("{}: {error}", program.display()))),
        };
        let version = said
            .lines()
            .find_map(|line| line.strip_prefix("runsc version "))
            .unwrap_or_default()
            .trim()
            .to_owned();
        let platform = settings.platform.clone().unwrap_or_else(|| platform(&version));
        Ok(Self {
            program,
            version,
            platform,
            rootless: !rustix::process::geteuid().is_root(),
        })
    }

    /// What it is, for people.
    pub(super) fn words(&self) -> String {
        let rootless = if self.rootless { ", rootless" } else { "" };
        format!("runsc {}, {}{rootless}", self.version, self.platform)
    }

    /// The words before a command.
    pub(super) fn options(&self, state: &Path, log: &Path) -> Vec<String> {
        let mut words = vec![
            format!("--root={}", state.display()),
            format!("--log={}", log.display()),
            format!("--platform={}", self.platform),
            // Its control group is ours to make.
            "--ignore-cgroups".to_owned(),
            // The root is read-only, and nothing is to be laid over it.
            "--overlay2=none".to_owned(),
        ];
        if self.rootless {
            words.push("--rootless".to_owned());
        }
        words
    }
}

/// KVM is the better one on a machine of metal alone: within a virtual machine it is slow, or does not start at all.
fn platform(version: &str) -> String {
    let virtual_machine = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| {
        text.lines()
            .any(|line| line.starts_with("flags") && line.contains(" hypervisor"))
    });
    let kvm = rustix::fs::open(
        "/dev/kvm",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    if kvm.is_ok() && !virtual_machine {
        return "kvm".to_owned();
    }
    let old = date(version).is_some_and(|date| date < FIRST_SYSTRAP);
    if old { "ptrace" } else { "systrap" }.to_owned()
}

/// The date in `release-20240729.0`, however it is packed.
fn date(version: &str) -> Option<u32> {
    let numbers = version.split(|c: char| !c.is_ascii_digit());
    numbers
        .filter(|number| number.len() == 8)
        .find_map(|number| number.parse().ok())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/usr/local/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_a_release_is_read_however_it_is_packed() {
        for (version, expected) in [
            ("release-20240729.0", Some(20_240_729)),
            ("0.0~20240729.0", Some(20_240_729)),
            ("0.0~20221219.0", Some(20_221_219)),
            ("VERSION_MISSING", None),
        ] {
            assert_eq!(date(version), expected, "{version}");
        }
    }
}
