//! Sessions in an environment, and an engine that outlives what it has shown.

use std::path::Path;

use belljar::environment::Environments;
use belljar::{Engine, Error, Session};

use super::Place;
use super::wheel::Wheel;
use crate::again::{alone, test_name};
use crate::harness::{TempDir, Who, is_root};

async fn open(engine: &Engine) -> Result<Session, Error> {
    Session::builder().engine(engine).environment("x").build().await
}

async fn value(session: &Session, code: &str) -> Option<belljar::Value> {
    let run = session.execute(code).await.expect("an execution");
    assert!(run.outcome.success(), "{:#?}", run.outcome);
    run.outcome.value
}

#[test]
fn a_session_has_the_environments_packages_and_keeps_them() {
    alone(test_name!(), || {
        let who = if is_root() { Who::Root } else { Who::User };
        // Within a sandbox's own /tmp an environment is attached anew for each.
        try_below(who, Path::new("/tmp"));
        if is_root() {
            // Elsewhere it is shared, and a pool keeps sandboxes that show it. Only root can write there.
            try_below(who, Path::new("/var/lib"));
        }
    });
}

fn try_below(who: Who, base: &Path) {
    let place = Place::with(who, TempDir::below(base));
    let wheel = place.put(&Wheel::new("used", "1.0").module("used", "V = 7"));
    let make = ["x", "--packages", &wheel, "--preload", "used"];
    place.create(&make);
    let store = Environments::below(&place.dir.path().join("home"));
    let engine = belljar::native_engine().with_environments(store.clone());
    let name = "x".parse().expect("a name");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        // Often enough that some come out of the pool, with forks of the environment's interpreter.
        for _ in 0..4 {
            let session = open(&engine).await.expect("a session");
            assert_eq!(value(&session, "import used; used.V").await, Some(7.into()));
            let refusal = store.remove(&name).expect_err("it is in use").to_string();
            assert!(refusal.contains("in use"), "{refusal}");
            session.close().await.expect("an end");
        }
        store.remove(&name).expect("nobody uses it");
        assert!(open(&engine).await.is_err());
    });
    // The same again stands at the same place, and is another: what showed the first must not serve it.
    place.create_beside(&make);
    runtime.block_on(async {
        for _ in 0..4 {
            let session = open(&engine).await.expect("a session");
            assert_eq!(value(&session, "import used; used.V").await, Some(7.into()));
            session.close().await.expect("an end");
        }
    });
}
