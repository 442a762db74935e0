//! Doors in a network that somebody else made: of a container, of a kernel of its own.
//!
//! A network is entered by a process that does nothing else: this executable, started again under another name. Where the
//! network belongs to a user namespace, that is entered first, which a process with threads cannot.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use belljar_core::egress::Ports;
use belljar_core::provider::Doors;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{make, sort};
use crate::{sys, weaken, wire};

/// The name (`argv[0]`) that makes an executable one that opens doors.
pub(crate) const DOORS_NAME: &str = "belljar: doors";

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens doors in the network of a process, which must have no other way out. `inode` is what its guests call their network,
/// where that is known: another process may have that number by now. Waits; for a thread that may.
pub fn open_in(pid: i32, inode: Option<u64>, ports: &Ports) -> io::Result<Doors> {
    let network = namespace(&format!("/proc/{pid}/ns/net"))?;
    let found = fstat(&network)?;
    if inode.is_some_and(|inode| inode != found.st_ino) {
        return Err(io::Error::other("its network is not the one that was looked for"));
    }
    let own = fstat(&namespace("/proc/self/ns/net")?)?;
    if (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino) {
        return Err(io::Error::other("its network is this machine's"));
    }
    let users = sys::process::owner_of(&network)?;
    let (owner, own) = (fstat(&users)?, fstat(&namespace("/proc/self/ns/user")?)?);
    let foreign = (owner.st_dev, owner.st_ino) != (own.st_dev, own.st_ino);

    let (ours, theirs) = wire::pair()?;
    let mut child = Command::new("/proc/self/exe")
        .arg0(DOORS_NAME)
        .env_clear()
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()?;
    let mut fds = vec![network.as_fd()];
    fds.extend(foreign.then(|| users.as_fd()));
    let answer = wire::send(&ours, ports, &fds)
        .and_then(|()| wire::receive_within::<Result<(), (String, i32)>>(&ours, PATIENCE));
    if answer.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    match answer? {
        (Ok(()), doors) => Ok(sort(doors, ports)),
        (Err((why, 0)), _) => Err(io::Error::other(why)),
        (Err((_, errno)), _) => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn namespace(path: &str) -> io::Result<OwnedFd> {
    Ok(open(
        Path::new(path),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Some engines take the sixth version of addresses from networks that they make. Here it leads nowhere else either, and programs
/// prefer it.
fn allow_six() {
    for interface in ["all", "lo"] {
        let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        if fs::read(&path).is_ok_and(|text| text.starts_with(b"1")) {
            let _ = fs::write(&path, b"0");
        }
    }
}

/// What the executable is under that name. Never returns.
pub(crate) fn main() -> ! {
    let code = match serve() {
        Ok(()) => 0,
        Err(_) => 1,
    };
    sys::process::exit_now(code)
}

fn serve() -> io::Result<()> {
    let socket = rustix::stdio::stdin();
    let (ports, fds) = wire::receive::<Ports>(socket)?;
    let (answer, doors) = match enter(&fds).and_then(|()| make(&ports)) {
        Ok(doors) => (Ok(()), doors),
        Err(error) => (
            Err((error.to_string(), error.raw_os_error().unwrap_or(0))),
            Vec::new(),
        ),
    };
    let doors: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
    wire::send(socket, &answer, &doors)
}

/// Enters a network, and the user namespace that it belongs to where that is another one.
fn enter(fds: &[OwnedFd]) -> io::Result<()> {
    let mut fds = fds.iter();
    let network = fds.next().ok_or(io::ErrorKind::InvalidData)?;
    if let Some(users) = fds.next() {
        move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    let others = sys::net::others_that_are_up()?;
    if others.is_empty() || weaken::is_off("onlyway") {
        allow_six();
        Ok(())
    } else {
        // A guest could choose one of them and be out.
        Err(io::Error::other(format!(
            "its network has another way out: {}",
            others.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Child;

    use super::*;

    /// A process in a network of its own, in which that was done.
    fn network(work: &str) -> (Child, i32) {
        let mut child = Command::new("unshare")
            .args(["-Urn", "sh", "-c", &format!("{work}; echo ready; read end")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let said = child.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{work}");
        let pid = child.id().cast_signed();
        (child, pid)
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        let _ = child.wait();
    }

    #[test]
    fn doors_are_opened_where_nothing_else_leads_out() {
        let ports = Ports::These([80, 443].into());
        let refused = |pid, inode| open_in(pid, inode, &ports).unwrap_err().to_string();
        let own = std::process::id().cast_signed();
        assert!(refused(own, None).contains("this machine's"));

        let (child, pid) = network("true");
        assert!(refused(pid, Some(1)).contains("not the one"));
        let inode = fstat(namespace(&format!("/proc/{pid}/ns/net")).unwrap())
            .unwrap()
            .st_ino;
        let doors = open_in(pid, Some(inode), &ports).unwrap();
        assert_eq!(
            (doors.resolver_datagrams.len(), doors.resolver_streams.len()),
            (1, 1)
        );
        let at: Vec<_> = doors
            .listeners
            .iter()
            .map(|door| door.local_addr().unwrap().port())
            .collect();
        assert_eq!(at, [80, 443]);
        end(child);

        let (child, pid) = network("true");
        let doors = open_in(pid, None, &Ports::All).unwrap();
        assert_eq!((doors.listeners.len(), doors.redirected.len()), (0, 1));
        end(child);

        // A way that is there and closed leads nowhere; one that is open does.
        let (child, pid) = network("ip link add out type veth peer name world");
        assert!(open_in(pid, None, &ports).is_ok());
        end(child);
        let (child, pid) = network("ip link add out type veth peer name world && ip link set out up");
        assert!(refused(pid, None).contains("another way out: out"));
        end(child);
    }
}
