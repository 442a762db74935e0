//! The network of the next shell.
//!
//! A shell is born into the network that its nursery is in, and the nursery leaves that for a new one before the next
//! shell is made. To make one takes the kernel longer than everything else of a shell, so it is done as soon as there is
//! nothing else to do: at any time there is at most one that nobody has been in.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::Timespec;

use crate::wire::ShellNetwork;
use crate::{doors, sys, weaken};

/// For so long a nursery has nothing to do before it makes a network: the shell that it has just made has yet to be raised.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// The network that the nursery is in.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Whether nobody else has been in it.
    is_new: bool,
    /// Whether another one could not be had. It is tried again when it is needed.
    refused: bool,
}

impl Network {
    /// How long to wait for something else to do.
    pub(super) const fn pause(&self) -> Option<&'static Timespec> {
        if self.is_new || self.refused {
            None
        } else {
            Some(&PAUSE)
        }
    }

    /// There is nothing else to do.
    pub(super) fn make_ahead(&mut self) {
        self.refused = self.make().is_err();
    }

    /// Has it ready for a child that is born now, with what is wanted in it. Returns its doors.
    pub(super) fn hand_over(&mut self, wanted: &ShellNetwork) -> io::Result<Vec<OwnedFd>> {
        self.make()?;
        // Whatever becomes of that child, nobody else gets it.
        self.is_new = false;
        self.refused = false;
        match wanted {
            ShellNetwork::Nothing => Ok(Vec::new()),
            ShellNetwork::Loopback => sys::net::loopback_up().map(|()| Vec::new()),
            ShellNetwork::Doors(ports) => doors::make(ports),
        }
    }

    fn make(&mut self) -> io::Result<()> {
        if !self.is_new && !weaken::is_off("newnetwork") {
            sys::process::enter_new_network()?;
        }
        self.is_new = true;
        Ok(())
    }
}
