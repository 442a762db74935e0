//! From a plan to the shape of its sandbox, and to the warm interpreter that could serve it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use belljar_core::{Control, Plan, Stage, Warm};

use super::group::limits_of;
use super::pool::{Recipe, Shape};
use super::raise::{Wanted, WantedGuest};
use super::shared::Shared;
use super::shown::{self, Shown};
use super::spec;
use super::zygote::{Errand, Life, Purpose, Zygote};
use crate::wire::{GuestSpec, ZygoteSpec};

/// How long a zygote may take to import what it is to import.
const IMPORTING: Duration = Duration::from_secs(120);
/// How long it is waited for without a look at whether it is still needed.
const SLICE: Duration = Duration::from_millis(20);

/// What makes one zygote different from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Breed {
    shows: Vec<Shown>,
    runner: Vec<String>,
    env: BTreeMap<String, String>,
    preload: Vec<String>,
}

/// What of a plan decides how its sandbox is made. It holds nothing of what will run in it.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    pub shape: Shape,
    /// The zygote that could fork its guest.
    breed: Option<Breed>,
    purpose: Purpose,
}

/// The outline of `plan`'s sandbox; `None` where it is one of a kind.
pub(crate) fn outline(shared: &Shared, plan: &Plan) -> Option<Outline> {
    if spec::has_private_root(plan) {
        return None;
    }
    let stage = plan.stages().last()?;
    let warm = stage
        .warm()
        .filter(|_| shared.is_warm() && plan.stages().len() == 1);
    let preload = warm
        .map(|warm| preload_of(shared, plan, warm))
        .unwrap_or_default();
    let shows = Shown::of(plan);
    let purpose = match warm.and_then(Warm::script) {
        Some(_) => Purpose::Program,
        None => Purpose::Cells,
    };
    let guest = warm.map(|warm| (guest(shared, plan, stage, warm), preload.clone(), purpose));
    let breed = warm.filter(|warm| warm.forks()).map(|warm| Breed {
        shows: shows.clone(),
        runner: warm.runner().to_vec(),
        env: warm.env().clone(),
        preload,
    });
    Some(Outline {
        shape: Shape {
            shows,
            shell: spec::shell(plan),
            limits: limits_of(plan.limits()),
            guest,
        },
        breed,
        purpose,
    })
}

/// What the environment says, or for the host's own Python what the settings say.
fn preload_of(shared: &Shared, plan: &Plan, warm: &Warm) -> Vec<String> {
    if plan.environment().is_none() && warm.forks() {
        shared.pool_settings().preload.clone()
    } else {
        warm.preload().to_vec()
    }
}

/// The runner that waits: what the stage may do, without anything of the request's.
fn guest(shared: &Shared, plan: &Plan, stage: &Stage, warm: &Warm) -> GuestSpec {
    let mut spec = spec::guest(plan, stage, shared.machine());
    spec.argv = warm.runner().to_vec();
    spec.env = warm.env().clone().into_iter().collect();
    // Its clock starts when it gets something to do.
    spec.wall_millis = u64::MAX;
    spec
}

impl Outline {
    /// How one more of it is made ahead of time.
    pub(crate) fn recipe(&self) -> Recipe {
        let outline = self.clone();
        Recipe::new(move |shared, hurry| {
            let zygote = match &outline.breed {
                Some(breed) => {
                    let zygote = shared.zygote(breed)?;
                    // Without one there is nothing that could wait: an empty shell is stock as well.
                    wait(shared, &zygote).then_some(zygote)
                }
                None => None,
            };
            outline.wanted(shared, zygote, true, hurry)
        })
    }

    /// How it is made on demand: with a fork where a zygote is ready, else an empty shell.
    pub(crate) fn on_demand(&self, shared: &Arc<Shared>) -> Option<Wanted> {
        let zygote = self
            .breed
            .as_ref()
            .and_then(|breed| shared.zygote_if_there(breed))
            .filter(|zygote| zygote.life() == Life::Ready);
        self.wanted(shared, zygote, false, shared.pool().is_short(&self.shape))
    }

    /// `ahead` of any demand; in a `hurry`, without what only saves somebody's time.
    fn wanted(
        &self,
        shared: &Arc<Shared>,
        zygote: Option<Arc<Zygote>>,
        ahead: bool,
        hurry: bool,
    ) -> Option<Wanted> {
        let guest = match (&self.shape.guest, &self.breed, zygote) {
            (Some((spec, ..)), Some(_), Some(zygote)) => Some(WantedGuest {
                spec: spec.clone(),
                zygote: Some((
                    zygote,
                    Errand {
                        purpose: self.purpose,
                        rehearse: ahead && !hurry,
                        // Where no cgroup counts memory it is added up for each process, and the holder's would count twice.
                        hold: self.purpose == Purpose::Program && !hurry && shared.has(Control::MemoryCgroup),
                    },
                )),
            }),
            // Starting the runner takes as long as starting the interpreter, so only ahead of time.
            (Some((spec, ..)), None, _) if ahead => Some(WantedGuest {
                spec: spec.clone(),
                zygote: None,
            }),
            _ => None,
        };
        Some(Wanted {
            nursery: shared.nursery_showing(&self.shape.shows).ok()?,
            shell: self.shape.shell.clone(),
            limits: self.shape.limits,
            // An execution of a session may ask for one; a program runs once, with what it was planned with.
            shares: self.purpose == Purpose::Cells || shared.weighs(),
            guest,
            files: None,
        })
    }
}

/// Waits until a zygote can fork; not at all once nobody needs it any more.
fn wait(shared: &Shared, zygote: &Zygote) -> bool {
    let until = Instant::now() + IMPORTING;
    while Instant::now() < until && !shared.pool().is_closed() {
        match zygote.wait(SLICE) {
            Life::Starting => {}
            life => return life == Life::Ready,
        }
    }
    false
}

impl Shared {
    /// The zygote of that breed, started where there is none; `None` where it cannot be had.
    fn zygote(self: &Arc<Self>, breed: &Breed) -> Option<Arc<Zygote>> {
        let mut zygotes = self.zygotes.lock().unwrap_or_else(PoisonError::into_inner);
        match zygotes.get(breed) {
            Some(zygote) if !matches!(zygote.life(), Life::Lost) => Some(Arc::clone(zygote)),
            _ => {
                let spec = ZygoteSpec {
                    argv: breed
                        .runner
                        .iter()
                        .cloned()
                        .chain(["zygote".to_owned()])
                        .collect(),
                    env: breed.env.clone().into_iter().collect(),
                };
                let nursery = self.nursery_showing(&breed.shows).ok()?;
                let host_ids = self.machine().host_ids;
                let zygote = Zygote::start(nursery, host_ids, spec, &breed.preload).ok()?;
                zygotes.retain(|other, _| !shown::is_outdated(&other.shows, &breed.shows));
                zygotes.insert(breed.clone(), Arc::clone(&zygote));
                Some(zygote)
            }
        }
    }

    fn zygote_if_there(&self, breed: &Breed) -> Option<Arc<Zygote>> {
        let zygotes = self.zygotes.lock().unwrap_or_else(PoisonError::into_inner);
        zygotes.get(breed).cloned()
    }
}
