//! What code shows: the Jupyter rules, within bounds.

use belljar::{Access, Event, Session, SessionBuilder};

use super::{good, value, with};
use crate::again::{alone, test_name};
use crate::machine;

/// A session that sees the Python packages of the test machine; tells where there are none.
pub(super) fn with_packages() -> Option<SessionBuilder> {
    let Some(venv) = machine::venv() else {
        machine::absent(
            "numpy, pandas and matplotlib in a session",
            "there is no venv; see tests/setup",
        );
        return None;
    };
    let lib = std::fs::read_dir(venv.join("lib"))
        .expect("its lib")
        .flatten()
        .map(|entry| entry.path().join("site-packages"))
        .find(|path| path.is_dir())
        .expect("site-packages");
    Some(
        Session::builder()
            .mount(&lib, "/packages", Access::ReadOnly)
            .env("PYTHONPATH", "/packages")
            .env("MPLCONFIGDIR", "/tmp")
            .env("OPENBLAS_NUM_THREADS", "1")
            .memory(belljar::Bytes::from_mib(1024))
            .timeout(std::time::Duration::from_secs(60)),
    )
}

#[test]
fn displays_come_in_order_and_as_they_happen() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let code = "class H:\n    def _repr_html_(self):\n        return '<b>x</b>'\ndisplay(H())\nprint('then')\ndisplay('text')";
            let (mut shown, mut printed) = (Vec::new(), Vec::new());
            let run = session
                .execute_with(code, &mut |event| match event {
                    Event::Display(display) => shown.push(display),
                    Event::Output(_, bytes) => printed.extend(bytes),
                    _ => {}
                })
                .await;
            let run = good(run);
            assert_eq!(run.outcome.displays, shown);
            assert_eq!(shown.len(), 2);
            assert_eq!(shown[0].data["text/html"], "<b>x</b>");
            assert!(shown[1].data["text/plain"].contains("text"));
            assert_eq!(printed, b"then\n");
        });
    });
}

#[test]
fn figures_and_tables_are_shown() {
    alone(test_name!(), || {
        let Some(builder) = with_packages() else { return };
        with(builder, async |session| {
            let code = "import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()";
            let run = good(session.execute(code).await);
            let png = &run.outcome.displays.first().expect("a figure").data["image/png"];
            assert!(png.starts_with("iVBOR"), "{}", &png[..40.min(png.len())]);
            let run = good(
                session
                    .execute("import pandas as pd\ndisplay(pd.DataFrame({'a': [1]}))")
                    .await,
            );
            let table = run.outcome.displays.first().expect("a table");
            assert!(table.data["text/html"].contains("<table"), "{:?}", table.data);
        });
    });
}

/// A display of 1 GB and a flood of displays: the outcome is bounded, the session goes on.
#[test]
fn displays_are_bounded_in_number_and_size() {
    alone(test_name!(), || {
        let builder = Session::builder().memory(belljar::Bytes::from_mib(2048));
        with(builder, async |session| {
            let run = session
                .execute("display('x' * 1_000_000_000)")
                .await
                .expect("an execution");
            let shown: usize = run
                .outcome
                .displays
                .iter()
                .flat_map(|display| display.data.values())
                .map(String::len)
                .sum();
            assert!(shown <= 16 << 20, "{shown}");
            assert_eq!(run.outcome.state_lost, None, "{:?}", run.outcome.error);
            let run = good(session.execute("for i in range(20_000): display(i)").await);
            assert!(
                run.outcome.displays.len() <= 1000,
                "{}",
                run.outcome.displays.len()
            );
            let run = good(
                session
                    .execute("for i in range(100): display('x' * 1_000_000)")
                    .await,
            );
            let shown: usize = run
                .outcome
                .displays
                .iter()
                .flat_map(|display| display.data.values())
                .map(String::len)
                .sum();
            assert!(shown <= 16 << 20, "{shown}");
            assert_eq!(value(session, "1 + 1").await, 2.into());
        });
    });
}
