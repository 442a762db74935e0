//! What every place with a kernel of its own has in common, whoever runs that kernel.
//!
//! There the agent is root, in a kernel that is no more than a program of the host's: pid 1 has no other protection from its own kind
//! there, and there is no Landlock.

use belljar_linux::agent::Users;

/// Whom guests become.
pub(crate) const USERS: Users = Users {
    writer: 1000,
    reader: 1001,
};

/// What such a kernel takes beside the guest.
pub(crate) const MEMORY: u64 = 64 << 20;
