//! The agent, for providers whose walls are somebody else's: its image, and what it is told to start a guest.

use belljar_core::mount::Access;
use belljar_core::plan::WORK_DIR;
use belljar_core::{NetworkPolicy, Plan, Stage};
use landlock::{ABI, Access as _, AccessFs, AccessNet, BitFlags, Scope};
use rustix::process::Resource;

use crate::host::{runners, spec};
use crate::init::calls::{Arg, Call, encode};
use crate::init::landlock::DEVICES;
use crate::init::plan::{
    first_to_die, install, is_limit_of, limit_calls, no_capabilities, no_new_privileges,
};
use crate::policies::{FilterOptions, PreparedFilters};
pub use crate::sys::agent_wire as wire;

/// The agent itself: a program that needs nothing but a kernel.
pub const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent"));

/// The files of the runners: where each stands inside, and what is in it.
pub fn runner_files() -> impl Iterator<Item = (String, Vec<u8>)> {
    runners::files()
}

/// Where an agent is, as far as its guests depend on it.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Where the work directory is, as the agent sees it.
    pub work_dir: String,
    /// Paths that are somewhere else there than in a sandbox of the native provider, and where.
    pub places: Vec<(String, String)>,
    /// Variables that every guest has there.
    pub variables: Vec<(String, String)>,
    /// Landlock's version there; 0 where there is none.
    pub landlock: u32,
    /// What the agent's own limits can be raised to: no guest's can be above that.
    pub ceilings: [u64; wire::LIMITS],
    /// Whether the kernel bounds the memory of everything there together.
    pub memory_accounted: bool,
    /// Whether guests get walls of their own inside.
    pub walls: bool,
    /// The users that guests become, where the agent is another one; they have none of its capabilities.
    pub users: Option<Users>,
}

/// The users of a place where the agent is another one.
#[derive(Clone, Copy, Debug)]
pub struct Users {
    /// Owns the work directory.
    pub writer: u32,
    /// Owns nothing: a guest that may not write.
    pub reader: u32,
}

impl Surroundings {
    /// A path where it is there; any other text as it is.
    fn placed(&self, text: &str) -> String {
        let moved = self.places.iter().find_map(|(from, to)| {
            let rest = text.strip_prefix(from.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
        });
        moved.unwrap_or_else(|| text.to_owned())
    }
}

/// What the agent is told to start a guest, and what the calls in it are for.
#[derive(Debug)]
pub struct Start {
    pub frame: Vec<u8>,
    steps: Vec<&'static str>,
}

impl Start {
    /// What the agent calls a step that failed.
    pub fn step(&self, number: u32) -> &'static str {
        match number {
            wire::STEP_FORK => "Fork",
            wire::STEP_LANDLOCK => "Landlock",
            wire::STEP_EXEC => "Exec",
            wire::STEP_STREAMS => "Streams",
            _ => self.steps.get(number as usize).copied().unwrap_or("Unknown"),
        }
    }

    /// The guest of one stage. One with a `channel` is an interpreter that waits for what it is told there.
    pub fn new(plan: &Plan, stage: &Stage, surroundings: &Surroundings, channel: bool) -> Self {
        let streams = if channel { 4 } else { 3 };
        let has_landlock = surroundings.walls && surroundings.landlock > 0;
        let calls = calls(stage, surroundings, streams, has_landlock);
        let rules = if has_landlock {
            rules(plan, stage, surroundings)
        } else {
            Vec::new()
        };
        let mut frame = vec![if channel { wire::WITH_CHANNEL } else { 0 }];
        put(&mut frame, &rules);
        put(&mut frame, &encode(&calls));
        let place = |text: &str| surroundings.placed(text);
        let argv: Vec<String> = stage.argv().iter().map(|word| place(word)).collect();
        let mut env = stage.env().clone();
        env.values_mut().for_each(|value| *value = place(value));
        env.extend(surroundings.variables.iter().cloned());
        let path = env.get("PATH").cloned().unwrap_or_default();
        texts(&mut frame, argv.iter().cloned());
        let variables: Vec<_> = env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        texts(&mut frame, variables.into_iter());
        texts(&mut frame, programs(argv.first(), &path).into_iter());
        Self {
            frame,
            steps: calls.iter().map(|call| call.step).collect(),
        }
    }
}

fn put(frame: &mut Vec<u8>, bytes: &[u8]) {
    frame.extend((bytes.len() as u32).to_le_bytes());
    frame.extend(bytes);
}

fn texts(frame: &mut Vec<u8>, all: impl ExactSizeIterator<Item = String>) {
    frame.extend((all.len() as u32).to_le_bytes());
    for text in all {
        put(frame, &[text.as_bytes(), b"\0"].concat());
    }
}

/// The programs that the first word may mean, as a shell looks for them.
fn programs(program: Option<&String>, path: &str) -> Vec<String> {
    let Some(program) = program else {
        return Vec::new();
    };
    if program.contains('/') {
        return vec![program.clone()];
    }
    path.split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| format!("{dir}/{program}"))
        .collect()
}

/// The calls that make a fork of the agent a guest, in their order.
fn calls(stage: &Stage, surroundings: &Surroundings, streams: usize, has_landlock: bool) -> Vec<Call> {
    let mut calls = Vec::new();
    for stream in 0..streams {
        let args = [Arg::Fd(stream), (stream as i64).into(), 0.into()];
        calls.push(Call::new("Stdio", libc::SYS_dup3, args));
    }
    if streams > 3 {
        // The runner closes it for programs that it starts itself.
        let args = [3.into(), i64::from(libc::F_SETFD).into(), 0.into()];
        calls.push(Call::new("Stdio", libc::SYS_fcntl, args));
    }
    calls.push(Call::new("NewSession", libc::SYS_setsid, []));
    calls.push(Call::new("WorkDir", libc::SYS_umask, [0o022.into()]));
    let work_dir = Arg::text(&surroundings.work_dir);
    calls.push(Call::new("WorkDir", libc::SYS_chdir, [work_dir]));
    first_to_die("FirstToDie", &mut calls);
    let mut limits = spec::guest_limits(stage);
    if surroundings.walls && !stage.file_write() && !has_landlock && surroundings.users.is_none() {
        // Nothing else keeps it from writing: no file may hold a byte.
        limits.file_size = 0;
    }
    let ceilings = &surroundings.ceilings;
    let ceiling = |resource: Resource| ceilings.get(resource as usize).copied().unwrap_or(u64::MAX);
    calls.extend(
        limit_calls("Rlimits", &limits, 1, ceiling)
            .into_iter()
            .map(|call| {
                // Not every kernel has these, and none of them is a wall.
                let of = |resource: u32| is_limit_of(&call, resource);
                let minor = [
                    libc::RLIMIT_MSGQUEUE,
                    libc::RLIMIT_SIGPENDING,
                    libc::RLIMIT_NICE,
                    libc::RLIMIT_RTPRIO,
                ];
                if minor.into_iter().any(of) {
                    call.optional()
                } else {
                    call
                }
            }),
    );
    if !surroundings.walls {
        return calls;
    }
    if let Some(users) = surroundings.users {
        for capability in OF_THE_AGENT {
            let args = [i64::from(libc::PR_CAPBSET_DROP), capability, 0, 0, 0];
            calls.push(Call::new("NoCapabilities", libc::SYS_prctl, args.map(Arg::Number)).expect(0));
        }
        let user = if stage.file_write() {
            users.writer
        } else {
            users.reader
        };
        let user = || Arg::from(i64::from(user));
        calls.push(Call::new("User", libc::SYS_setgroups, [0.into(), 0.into()]).expect(0));
        calls.push(Call::new("User", libc::SYS_setresgid, [user(), user(), user()]).expect(0));
        calls.push(Call::new("User", libc::SYS_setresuid, [user(), user(), user()]).expect(0));
    }
    // The bounding set is the container's to empty: it takes a capability to do that.
    let mut dropping = Vec::new();
    no_capabilities("NoCapabilities", 0, &mut dropping);
    calls.extend(dropping.into_iter().map(|call| {
        // Not every kernel knows ambient ones. What has none is looked at afterwards.
        let ambient = call.args.first() == Some(&Arg::Number(i64::from(libc::PR_CAP_AMBIENT)));
        if ambient { call.optional() } else { call }
    }));
    calls.extend(no_new_privileges("NoNewPrivileges"));
    if has_landlock {
        let args = [Arg::Fd(streams), 0.into()];
        calls.push(Call::new("Landlock", libc::SYS_landlock_restrict_self, args).expect(0));
    }
    let options = FilterOptions {
        memory_accounted: surroundings.memory_accounted,
        supervised: false,
    };
    calls.push(install(PreparedFilters::default().guest(options), "Seccomp"));
    calls
}

/// Those that an agent has which is another user than its guests: to give files away, to read and write what is theirs, to end them, to
/// become them, and to keep all of it from them.
const OF_THE_AGENT: [i64; 7] = [0, 1, 3, 5, 6, 7, 8];

/// Landlock's rules for a guest: as init makes them for the native provider's, but for a kernel that the agent sees.
fn rules(plan: &Plan, stage: &Stage, surroundings: &Surroundings) -> Vec<u8> {
    let abi = ABI::from(surroundings.landlock.min(ABI::V9 as u32) as i32);
    let all = AccessFs::from_all(abi);
    let net = if plan.network() == NetworkPolicy::None {
        AccessNet::from_all(abi)
    } else {
        BitFlags::EMPTY
    };
    let words = [all.bits(), net.bits(), Scope::from_all(abi).bits()];
    // An older kernel knows fewer of them.
    let known = match surroundings.landlock {
        0..4 => 1,
        4..6 => 2,
        _ => 3,
    };
    let attributes: Vec<u8> = words[..known]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let device = (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev) & all;
    let mut allowed = vec![("/".to_owned(), AccessFs::from_read(abi))];
    allowed.extend(DEVICES.map(|path| (path.to_owned(), device)));
    if stage.file_write() {
        let writable = [WORK_DIR, "/tmp", "/dev/shm"].map(|path| (path.to_owned(), all));
        allowed.extend(writable);
        let mounts = plan.mounts().iter();
        allowed.extend(
            mounts
                .filter(|mount| mount.access() == Access::ReadWrite)
                .map(|mount| {
                    let access = if mount.host().is_dir() {
                        all
                    } else {
                        AccessFs::from_file(abi)
                    };
                    (mount.guest().to_string_lossy().into_owned(), access)
                }),
        );
    }
    let mut said = Vec::new();
    put(&mut said, &attributes);
    said.extend((allowed.len() as u32).to_le_bytes());
    for (path, access) in allowed {
        put(&mut said, &access.bits().to_le_bytes());
        put(&mut said, &[path.as_bytes(), b"\0"].concat());
    }
    said
}
