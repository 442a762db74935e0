//! Runs of every kind and end, many at once: none is lost, each ends as it should, nothing is left. The
//! example `soak mixed` does it for longer.

use belljar::Seconds;
use belljar_linux::PoolSettings;

use super::{below, engine, mixture, prepare, python, runtime};
use crate::again::{alone, test_name};

const RUNS: usize = 300;

#[test]
fn mixed_runs_at_once_leave_nothing_behind() {
    alone(test_name!(), || {
        let mounts = below::mounts();
        let engine = engine(PoolSettings::default());
        // Or on a slow machine all of it is over before the first interpreter is warm.
        let mut request = python("print('fine')");
        request.limits.wall_time = Some(Seconds::whole(60));
        prepare(&engine, &request);
        let tally = runtime().block_on(mixture::run(&engine, RUNS, 16));
        assert_eq!(tally.answered(), RUNS, "{tally:#?}");
        assert!(tally.wrong.is_empty(), "{tally:#?}");
        // Which paths were taken depends on how busy the machine is, but not all on demand.
        let warm = |name: &&String| name.ends_with(super::FORKED) || name.ends_with(super::FORKED_AHEAD);
        assert!(
            tally.right.keys().any(|name| name.ends_with(super::MADE)),
            "{tally:#?}"
        );
        assert!(tally.right.keys().any(|name| warm(&name)), "{tally:#?}");
        drop(engine);
        below::expect_nothing();
        assert_eq!(below::mounts(), mounts);
    });
}
