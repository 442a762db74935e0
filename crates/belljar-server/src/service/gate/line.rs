//! Who is next: pure, with the time told.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use belljar_core::Weight;

use super::settings::GateSettings;

/// How long a tenant counts as being about after it has asked for something.
const ABOUT: Duration = Duration::from_secs(10);
/// How many run for each processor where nobody else is about: while one writes its record, another can compute.
const ALONE: usize = 4;
/// Processors are idle when sandboxes use less of them than this.
const IDLE: f64 = 0.7;
/// They are busy when sandboxes use more than this.
const BUSY: f64 = 0.85;

/// Somebody who may give up waiting.
pub(super) trait Patient {
    fn is_gone(&self) -> bool;
}

/// Those who wait and how many run.
#[derive(Debug)]
pub(super) struct Line<W> {
    pub(super) settings: GateSettings,
    pub(super) is_closed: bool,
    running: usize,
    tenants: HashMap<String, Queue<W>>,
    /// Tenants with somebody who waits, the next one first.
    turns: VecDeque<String>,
    /// The last two who asked for something, the later one first.
    about: [Option<(String, Instant)>; 2],
    /// When the next may start for a tenant who wants many, while others are about.
    next_start: Instant,
    /// Places beyond those that keep the processors busy, for programs that wait.
    spare: usize,
    /// Whether somebody would have had a place had there been more of these.
    wants_spare: bool,
    /// When somebody looks again, if anybody does.
    pub(super) awaited: Option<Instant>,
}

#[derive(Debug)]
struct Queue<W> {
    running: usize,
    waiting: VecDeque<W>,
}

/// What there is to do.
#[derive(Debug)]
pub(super) enum Next<W> {
    /// Somebody's turn has come.
    Turn {
        tenant: String,
        waiting: W,
        weight: Weight,
    },
    /// Nobody's, before something ends or this time has come.
    Nobody { until: Option<Instant> },
}

/// Why a tenant's turn has not come.
enum Hold {
    /// It has all that it may have.
    Share,
    /// The processors have enough to do.
    Busy,
    Until(Instant),
}

impl<W: Patient> Line<W> {
    pub(super) fn new(settings: GateSettings, now: Instant) -> Self {
        Self {
            settings: GateSettings {
                processors: settings.processors.max(1),
                ..settings
            },
            is_closed: false,
            running: 0,
            tenants: HashMap::new(),
            turns: VecDeque::new(),
            about: [None, None],
            next_start: now,
            spare: 0,
            wants_spare: false,
            awaited: None,
        }
    }

    /// Adds to a tenant's queue, if that is not full.
    pub(super) fn enter(&mut self, tenant: &str, waiting: W, now: Instant) -> Result<(), W> {
        self.saw(tenant, now);
        let queue = self.tenants.entry(tenant.to_owned()).or_insert_with(|| Queue {
            running: 0,
            waiting: VecDeque::new(),
        });
        queue.forget_gone();
        if queue.waiting.len() >= self.settings.queue {
            return Err(waiting);
        }
        queue.waiting.push_back(waiting);
        if queue.waiting.len() == 1 && !self.turns.iter().any(|name| name == tenant) {
            self.turns.push_back(tenant.to_owned());
        }
        Ok(())
    }

    /// One of a tenant's has ended.
    pub(super) fn leave(&mut self, tenant: &str) {
        self.running -= 1;
        if let Some(queue) = self.tenants.get_mut(tenant) {
            queue.running -= 1;
            if queue.running == 0 && queue.waiting.is_empty() {
                self.tenants.remove(tenant);
            }
        }
        // Those who come next may be of another kind.
        if self.running <= self.settings.processors {
            self.spare = 0;
        }
    }

    /// Gives one place away.
    pub(super) fn next(&mut self, now: Instant) -> Next<W> {
        let mut until = None;
        for _ in 0..self.turns.len() {
            if self.running >= self.settings.places {
                break;
            }
            let Some(tenant) = self.turns.pop_front() else {
                break;
            };
            let Some(queue) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            queue.forget_gone();
            if queue.waiting.is_empty() {
                continue;
            }
            match self.hold(&tenant, now) {
                None => {
                    if let Some((waiting, weight)) = self.start(&tenant) {
                        return Next::Turn {
                            tenant,
                            waiting,
                            weight,
                        };
                    }
                    continue;
                }
                Some(Hold::Share) => {}
                Some(Hold::Busy) => self.wants_spare = true,
                Some(Hold::Until(at)) => until = Some(at),
            }
            self.turns.push_back(tenant);
        }
        self.tenants
            .retain(|_, queue| queue.running > 0 || !queue.waiting.is_empty());
        Next::Nobody { until }
    }

    /// Whether a tenant's next has to wait, and for what. Where it has not, its start is counted.
    fn hold(&mut self, tenant: &str, now: Instant) -> Option<Hold> {
        let GateSettings {
            share, processors, ..
        } = self.settings;
        let queue = self.tenants.get(tenant)?;
        if queue.running >= share {
            return Some(Hold::Share);
        }
        // Whoever wants no more than there are processors is never held.
        if queue.running + queue.waiting.len() <= processors {
            return None;
        }
        let has_others = self.has_others(tenant, now);
        let busy = match has_others {
            true => processors,
            false => processors.saturating_mul(ALONE),
        };
        // Everybody has one, whatever the others have.
        if queue.running > 0 && self.running >= busy + self.spare {
            return Some(Hold::Busy);
        }
        if has_others {
            if now < self.next_start {
                return Some(Hold::Until(self.next_start));
            }
            self.next_start = now + self.settings.pace();
        }
        None
    }

    fn start(&mut self, tenant: &str) -> Option<(W, Weight)> {
        let queue = self.tenants.get_mut(tenant)?;
        let waiting = queue.waiting.pop_front()?;
        queue.running += 1;
        self.running += 1;
        if !queue.waiting.is_empty() {
            self.turns.push_back(tenant.to_owned());
        }
        Some((waiting, Weight::among(queue.running)))
    }

    fn saw(&mut self, tenant: &str, now: Instant) {
        match &mut self.about[0] {
            Some((latest, at)) if latest == tenant => *at = now,
            latest => {
                let before = latest.replace((tenant.to_owned(), now));
                self.about[1] = before;
            }
        }
    }

    /// Whether somebody else than this tenant, of whom somebody waits, is about.
    fn has_others(&self, tenant: &str, now: Instant) -> bool {
        if self.tenants.len() > 1 {
            return true;
        }
        let other = self.about.iter().flatten().find(|(name, _)| name != tenant);
        other.is_some_and(|(_, at)| now.duration_since(*at) < ABOUT)
    }

    /// How many run and how many wait.
    pub(super) fn load(&self) -> (usize, usize) {
        let waiting = self.tenants.values().map(|queue| queue.waiting.len()).sum();
        (self.running, waiting)
    }

    /// Whether it matters how busy the processors are: somebody waits for that, or was let in for it.
    pub(super) const fn wants_measure(&self) -> bool {
        self.wants_spare || self.spare > 0
    }

    /// How much of the processors sandboxes use, 1.0 being all of it: programs that wait leave room for others.
    pub(super) fn saw_use(&mut self, part: f64) {
        if part > BUSY {
            self.spare = 0;
        } else if part < IDLE && self.wants_spare {
            self.spare = (self.spare + self.settings.processors).min(self.settings.places);
        }
        self.wants_spare = false;
    }
}

impl<W: Patient> Queue<W> {
    /// Those who gave up take nobody's place.
    fn forget_gone(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_gone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Patient for u32 {
        fn is_gone(&self) -> bool {
            *self == GONE
        }
    }

    const GONE: u32 = u32::MAX;

    fn line(places: usize, share: usize, processors: usize) -> (Line<u32>, Instant) {
        let settings = GateSettings {
            places,
            share,
            queue: 100,
            processors,
            start: Duration::from_millis(20),
        };
        let now = Instant::now();
        (Line::new(settings, now), now)
    }

    fn starts(line: &mut Line<u32>, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| match line.next(now) {
            Next::Turn { waiting, .. } => Some(waiting),
            Next::Nobody { .. } => None,
        })
        .collect()
    }

    #[test]
    fn tenants_take_turns_however_long_ones_queue_is() {
        let (mut line, now) = line(1, 1, 100);
        for who in 0..10 {
            line.enter("a", who, now).unwrap();
        }
        line.enter("b", 100, now).unwrap();
        assert_eq!(starts(&mut line, now), [0]);
        line.leave("a");
        assert_eq!(starts(&mut line, now), [100]);
        line.leave("b");
        assert_eq!(starts(&mut line, now), [1]);
    }

    #[test]
    fn no_tenant_has_all_places() {
        let (mut line, now) = line(4, 3, 100);
        for who in 0..4 {
            line.enter("a", who, now).unwrap();
        }
        line.enter("b", 100, now).unwrap();
        assert_eq!(starts(&mut line, now), [0, 100, 1, 2]);
        assert_eq!(line.load(), (4, 1));
        line.leave("a");
        assert_eq!(starts(&mut line, now), [3]);
        for tenant in ["a", "a", "a", "b"] {
            line.leave(tenant);
        }
        assert!(starts(&mut line, now).is_empty());
        assert!(line.tenants.is_empty());
    }

    #[test]
    fn those_who_gave_up_take_nobodys_place() {
        let (mut line, now) = line(1, 1, 100);
        line.settings.queue = 2;
        line.enter("a", GONE, now).unwrap();
        line.enter("a", 1, now).unwrap();
        line.enter("a", 2, now).unwrap();
        assert_eq!(line.enter("a", 3, now), Err(3));
        line.enter("b", 4, now).unwrap();
        assert_eq!(starts(&mut line, now), [1]);
    }

    #[test]
    fn a_tenants_executions_together_weigh_as_much_as_one() {
        let (mut line, now) = line(8, 8, 100);
        for who in 0..4 {
            line.enter("a", who, now).unwrap();
        }
        line.enter("b", 100, now).unwrap();
        let mut weights = HashMap::<String, Vec<u8>>::new();
        while let Next::Turn { tenant, weight, .. } = line.next(now) {
            weights.entry(tenant).or_default().push(weight.get());
        }
        assert_eq!(weights["a"], [100, 50, 33, 25]);
        assert_eq!(weights["b"], [100]);
    }

    /// Whoever wants many starts them one after the other while others are about, and whoever wants one does not wait.
    #[test]
    fn a_flood_is_paced_while_others_are_about() {
        let (mut line, now) = line(100, 75, 2);
        line.spare = 100;
        for who in 0..10 {
            line.enter("flood", who, now).unwrap();
        }
        assert_eq!(starts(&mut line, now).len(), 10, "nobody else is there");
        for who in 10..50 {
            line.enter("flood", who, now).unwrap();
        }
        line.enter("calm", 100, now).unwrap();
        assert_eq!(starts(&mut line, now), [10, 100]);
        let Next::Nobody { until: Some(until) } = line.next(now) else {
            panic!("somebody waits for a start");
        };
        assert_eq!(until, now + Duration::from_millis(10));
        assert_eq!(starts(&mut line, until), [11]);
        // Later nobody else is about any more.
        line.leave("calm");
        assert_eq!(starts(&mut line, now + ABOUT).len(), 38);
    }

    /// Programs that keep the processors busy are as many as those; others come in while these wait.
    #[test]
    fn there_is_room_beyond_the_processors_for_programs_that_wait() {
        let (mut line, now) = line(16, 12, 1);
        for who in 0..40 {
            line.enter("a", who, now).unwrap();
        }
        assert_eq!(starts(&mut line, now).len(), 4);
        assert!(line.wants_measure());
        line.saw_use(0.2);
        assert_eq!(starts(&mut line, now).len(), 1);
        line.saw_use(0.8);
        assert_eq!(starts(&mut line, now).len(), 0, "neither busy nor idle");
        for _ in 0..10 {
            line.saw_use(0.0);
            starts(&mut line, now);
        }
        assert_eq!(line.load(), (12, 28), "the tenant's share");
        line.saw_use(1.0);
        for _ in 0..9 {
            line.leave("a");
        }
        assert_eq!(starts(&mut line, now).len(), 1);
        // While others are about, those who want many have no more than there are processors.
        line.enter("b", 100, now).unwrap();
        assert_eq!(starts(&mut line, now), [100]);
        for tenant in ["b", "a", "a", "a", "a"] {
            line.leave(tenant);
        }
        assert_eq!(starts(&mut line, now).len(), 1);
        assert_eq!(starts(&mut line, now + Duration::from_secs(1)).len(), 0);
        line.leave("a");
        assert_eq!(starts(&mut line, now + Duration::from_secs(1)).len(), 1);
    }
    /// Others who keep all processors busy, each with one of their own, do not keep a tenant from its first.
    #[test]
    fn everybody_has_one() {
        let (mut line, now) = line(16, 12, 2);
        for (who, tenant) in ["a", "b", "c", "d"].into_iter().enumerate() {
            line.enter(tenant, who as u32, now).unwrap();
        }
        assert_eq!(starts(&mut line, now).len(), 4);
        for who in 10..13 {
            line.enter("e", who, now).unwrap();
        }
        assert_eq!(starts(&mut line, now), [10]);
        line.saw_use(1.0);
        assert!(starts(&mut line, now + Duration::from_secs(1)).is_empty());
        // Its second comes when there is room for it.
        for tenant in ["a", "b", "c", "d"] {
            line.leave(tenant);
        }
        assert_eq!(starts(&mut line, now + Duration::from_secs(1)), [11]);
    }

    /// Somebody who waits is about, however long they wait.
    #[test]
    fn who_waits_is_not_forgotten() {
        let (mut line, now) = line(16, 12, 1);
        for who in 0..20 {
            line.enter("flood", who, now).unwrap();
        }
        assert_eq!(starts(&mut line, now).len(), 4);
        line.enter("other", 100, now).unwrap();
        line.enter("other", 101, now).unwrap();
        assert_eq!(starts(&mut line, now), [100]);
        let later = now + ABOUT * 2;
        line.leave("flood");
        assert!(
            starts(&mut line, later).is_empty(),
            "the flood has more than there are processors"
        );
        for _ in 0..3 {
            line.leave("flood");
        }
        line.leave("other");
        assert_eq!(starts(&mut line, later).len(), 2, "each has one");
    }

    /// What programs that waited left room for is gone with them.
    #[test]
    fn room_for_programs_that_wait_goes_with_them() {
        let (mut line, now) = line(16, 12, 1);
        for who in 0..12 {
            line.enter("a", who, now).unwrap();
        }
        starts(&mut line, now);
        while line.load().1 > 0 {
            line.saw_use(0.0);
            starts(&mut line, now);
        }
        line.saw_use(0.0);
        assert!(line.wants_measure(), "they may begin to compute");
        for _ in 0..12 {
            line.leave("a");
        }
        assert!(!line.wants_measure());
        for who in 0..12 {
            line.enter("a", who, now).unwrap();
        }
        assert_eq!(starts(&mut line, now).len(), ALONE);
    }
}
