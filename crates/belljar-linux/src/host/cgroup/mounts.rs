//! Where control groups are mounted, and where in them this process is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CgroupMount {
    pub version: u8,
    /// Controllers of a v1 hierarchy.
    pub controllers: Vec<String>,
    pub point: PathBuf,
    /// The directory of the group that this process is in.
    pub own: PathBuf,
}

pub(super) fn read() -> io::Result<Vec<CgroupMount>> {
    Ok(parse(
        &fs::read_to_string("/proc/self/mountinfo")?,
        &fs::read_to_string("/proc/self/cgroup")?,
    ))
}

fn parse(mountinfo: &str, membership: &str) -> Vec<CgroupMount> {
    mountinfo
        .lines()
        .filter_map(|line| parse_line(line, membership))
        .collect()
}

fn parse_line(line: &str, membership: &str) -> Option<CgroupMount> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, PathBuf::from(mount.next()?));
    let mut system = system.split(' ');
    let kind = system.next()?;
    let (version, controllers) = match kind {
        "cgroup2" => (2, Vec::new()),
        "cgroup" => {
            let options = system.nth(1)?;
            (
                1,
                options
                    .split(',')
                    .filter(|option| *option != "rw" && *option != "ro")
                    .map(str::to_owned)
                    .collect(),
            )
        }
        _ => return None,
    };
    let path = own_path(membership, version, &controllers)?;
    // In a container the mount may show only a part of the tree, named by its root.
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    let own = point.join(below.strip_prefix("/").unwrap_or(below));
    Some(CgroupMount {
        version,
        controllers,
        point,
        own,
    })
}

fn own_path<'a>(membership: &'a str, version: u8, controllers: &[String]) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, list, path) = (parts.next()?, parts.next()?, parts.next()?);
        let matches = match version {
            2 => number == "0" && list.is_empty(),
            _ => list
                .split(',')
                .any(|name| controllers.iter().any(|controller| controller == name)),
        };
        matches.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_machines_and_containers_are_understood() {
        let mountinfo = "\
30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 25 0:27 /docker/abc /sys/fs/cgroup/pids rw,relatime shared:5 - cgroup cgroup rw,pids
32 25 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
33 25 0:29 / /proc rw - proc proc rw";
        let membership = "5:pids:/docker/abc/x\n4:memory:/a/b\n0::/user.slice";
        let found = parse(mountinfo, membership);
        let own: Vec<_> = found
            .iter()
            .map(|mount| (mount.version, mount.own.to_str().unwrap()))
            .collect();
        assert_eq!(
            own,
            [
                (1, "/sys/fs/cgroup/memory/a/b"),
                (1, "/sys/fs/cgroup/pids/x"),
                (2, "/sys/fs/cgroup/unified/user.slice")
            ]
        );
    }

    #[test]
    fn broken_lines_are_passed_over() {
        assert_eq!(parse("garbage\n1 2 3 - cgroup2\n", ""), []);
    }
}
