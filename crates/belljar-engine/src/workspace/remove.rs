//! Removing a tree that a guest made.
//!
//! The guest chose every name, depth, mode and link in it. So: no path is ever resolved, only one
//! name at a time below a handle; no link is followed and no mount entered; depth costs neither
//! stack nor descriptors; and modes that shut us out are changed first.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, chmod, fchmod, fstat, openat2, unlinkat};
use rustix::io::Errno;

use super::directory::is_dots;

/// How many directories are open at once; those further up are opened again on the way back.
const MOST_OPEN: usize = 32;
/// How often a directory is gone through when it is not empty at the end: a process that is just
/// dying may still have written into it, and some file systems skip entries while others go.
const MOST_PASSES: usize = 8;

/// What could not be done, and to what.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) operation: &'static str,
    /// Relative to the place where removing began; escaped.
    pub(crate) object: String,
    pub(crate) source: io::Error,
}

/// Removes `name` below `parent` with everything in it. One that is not there is no failure.
///
/// What cannot be removed stays, with the directories above it; most of the rest goes nevertheless,
/// and the first failure is told.
pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Failure> {
    let mut walk = Walk {
        parent,
        levels: Vec::new(),
        failure: None,
    };
    walk.settle(name, remove_or_enter(parent, name));
    while let Some(level) = walk.levels.last_mut() {
        match level.next_name() {
            Ok(Some(name)) => {
                let entered = level.handle().and_then(|handle| remove_or_enter(handle, &name));
                walk.settle(&name, entered);
            }
            Ok(None) => walk.ascend(),
            Err(errno) => {
                walk.note(c".", errno);
                walk.ascend();
            }
        }
    }
    walk.failure.map_or(Ok(()), Err)
}

/// Opens the directory `name` of `parent`: no link, no other mount. One that shuts us out by its
/// mode is given another.
pub(crate) fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let open = |flags| {
        openat2(
            parent,
            name,
            flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV,
        )
    };
    match open(OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            // `fchmod` takes no handle of this kind, but the name that /proc gives to it leads to
            // this very directory and nowhere else.
            let handle = open(OFlags::PATH)?;
            chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::RWXU)?;
            open(OFlags::RDONLY)
        }
        opened => opened,
    }
}

/// Where removing has got to.
struct Walk<'a> {
    parent: BorrowedFd<'a>,
    /// From the top down; the last is the one being emptied.
    levels: Vec<Level>,
    failure: Option<Failure>,
}

impl Walk<'_> {
    /// Goes on after an entry: down into it if that was a directory with something in it.
    fn settle(&mut self, name: &CStr, entered: Result<Option<Level>, Errno>) {
        match entered {
            Ok(level) => self.levels.extend(level),
            Err(errno) => self.note(name, errno),
        }
        // Depth must not cost descriptors: close the one that was left furthest behind.
        if let Some(behind) = self.levels.len().checked_sub(MOST_OPEN + 1) {
            self.levels[behind].dir = None;
        }
    }

    /// Leaves the lowest directory and removes it.
    fn ascend(&mut self) {
        let Some(mut done) = self.levels.pop() else { return };
        let removed = match self.levels.last_mut() {
            None => unlinkat(self.parent, &done.name, AtFlags::REMOVEDIR),
            Some(above) => {
                if above.dir.is_none() {
                    // It is gone through from its start. With something in it that cannot be removed
                    // that would never end, so then what is left in it stays.
                    above.over = self.failure.is_some();
                }
                above
                    .reopen_from(&done)
                    .and_then(|()| unlinkat(above.handle()?, &done.name, AtFlags::REMOVEDIR))
            }
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.failure.is_none() && done.passes < MOST_PASSES => {
                done.passes += 1;
                done.rewind();
                self.levels.push(done);
            }
            Err(errno) => self.note(&done.name, errno),
        }
    }

    /// Keeps the first failure.
    fn note(&mut self, name: &CStr, errno: Errno) {
        const SHOWN: usize = 4;
        if self.failure.is_some() {
            return;
        }
        let show = |name: &CStr| name.to_string_lossy().escape_debug().to_string();
        let hidden = self.levels.len().saturating_sub(SHOWN);
        let mut object = if hidden > 0 { "…/" } else { "" }.to_owned();
        for level in &self.levels[hidden..] {
            object.push_str(&show(&level.name));
            object.push('/');
        }
        object.push_str(&show(name));
        self.failure = Some(Failure {
            operation: "remove",
            object,
            source: errno.into(),
        });
    }
}

/// One directory on the way down.
struct Level {
    name: CString,
    /// Device and inode: what `..` of a directory below it must lead back to.
    identity: (u64, u64),
    /// Absent while far below it.
    dir: Option<Dir>,
    /// Nothing more is to be removed from it.
    over: bool,
    passes: usize,
}

impl Level {
    fn enter(parent: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        let handle = open_directory(parent, name)?;
        let stat = fstat(&handle)?;
        if stat.st_mode & 0o700 != 0o700 {
            fchmod(&handle, Mode::RWXU)?;
        }
        Ok(Self {
            name: name.to_owned(),
            identity: (stat.st_dev, stat.st_ino),
            dir: Some(Dir::new(handle)?),
            over: false,
            passes: 0,
        })
    }

    /// Comes back to this directory from one right below it, if it is not open still.
    fn reopen_from(&mut self, below: &Self) -> Result<(), Errno> {
        if self.dir.is_some() {
            return Ok(());
        }
        let handle = open_directory(below.handle()?, c"..")?;
        let stat = fstat(&handle)?;
        // Somebody moved it meanwhile: what is there now is not ours to remove.
        if (stat.st_dev, stat.st_ino) != self.identity {
            return Err(Errno::STALE);
        }
        self.dir = Some(Dir::new(handle)?);
        Ok(())
    }

    fn handle(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.dir.as_ref().ok_or(Errno::BADF)?.fd()
    }

    fn rewind(&mut self) {
        if let Some(dir) = &mut self.dir {
            dir.rewind();
        }
    }

    /// The name of the next entry, if there is one.
    fn next_name(&mut self) -> Result<Option<CString>, Errno> {
        while !self.over {
            let Some(entry) = self.dir.as_mut().ok_or(Errno::BADF)?.read() else {
                break;
            };
            let entry = entry?;
            if !is_dots(entry.file_name()) {
                return Ok(Some(entry.file_name().to_owned()));
            }
        }
        Ok(None)
    }
}

/// Removes `name` if it is no directory or an empty one, and enters it otherwise.
fn remove_or_enter(parent: BorrowedFd<'_>, name: &CStr) -> Result<Option<Level>, Errno> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ISDIR) => {}
        Err(errno) => return Err(errno),
    }
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Level::enter(parent, name).map(Some),
        // A mount point is busy, and so stays out of reach.
        Err(errno) => Err(errno),
    }
}
