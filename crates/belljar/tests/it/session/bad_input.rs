//! Input that is broken, absurd or endless: a clear typed error within its limits, and the session goes on.

use std::time::Duration;

use belljar::{ErrorKind, Language, SandboxStatus, Session, Value};

use super::{good, raised, run, value, with};
use crate::again::{alone, test_name};

#[test]
fn broken_code_is_a_syntax_error_and_changes_nothing() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            good(session.execute("x = 1").await);
            for code in [
                "x = 2\ndef f(:",
                "x = 2\n  indented",
                "'unclosed",
                "x = 2\nreturn = 1",
                "x = 2\n\u{0}",
            ] {
                let exception = raised(session, code).await;
                assert!(
                    ["SyntaxError", "IndentationError", "ValueError"].contains(&exception.kind.as_str()),
                    "{code:?}: {exception:?}"
                );
                assert_eq!(value(session, "x").await, Value::Int(1), "{code:?}");
            }
            let exception = raised(session, "x = 2\ndef f(:").await;
            assert_eq!(exception.line, Some(2));
            for code in ["", "\n\n", "# nothing"] {
                assert_eq!(good(session.execute(code).await).outcome.value, None);
            }
        });
        with(
            Session::builder().language(Language::Javascript),
            async |session| {
                assert_eq!(raised(session, "'a\u{0}' + ").await.kind, "SyntaxError");
                assert_eq!(value(session, "'a\u{0}'.length").await, Value::Int(2));
            },
        );
    });
}

#[test]
fn a_hundred_megabytes_of_code_are_refused_before_anything_runs() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let error = session
                .execute("#".repeat(100_000_000))
                .await
                .expect_err("a refusal");
            assert_eq!(
                error.to_string(),
                "95.3 MiB of code are more than the 8 MiB that one execution takes"
            );
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.hint().is_some());
            // What is just allowed is taken.
            let code = format!("{}\n7", "#".repeat((8 << 20) - 2));
            assert_eq!(value(session, &code).await, Value::Int(7));
        });
    });
}

#[test]
fn values_that_are_too_deep_or_large_are_cut_and_say_so() {
    alone(test_name!(), || {
        let builder = Session::builder().memory(belljar::Bytes::from_mib(1024));
        with(builder, async |session| {
            let code = "v = []\nfor _ in range(10_000): v = [v]\nv";
            let mut deep = value(session, code).await;
            let mut depth = 0;
            while let Value::List(items) = deep {
                deep = items.into_iter().next().expect("an item");
                depth += 1;
            }
            let Value::Cut(cut) = deep else { panic!("{deep:?}") };
            assert_eq!(cut.why, "depth");
            assert!(depth <= 60, "{depth}");
            let large = value(session, "'x' * 100_000_000").await;
            assert!(large.to_json().expect("JSON").len() <= 9 << 20);
            let many = value(session, "[0] * 50_000_000").await;
            assert!(many.to_json().expect("JSON").len() <= 9 << 20);
            let code = "v = []\nv.append(v)\nv";
            assert!(value(session, code).await.to_string().contains("cycle"));
            assert_eq!(value(session, "1").await, Value::Int(1));
        });
    });
}

#[test]
fn a_repr_that_never_ends_or_lies_is_contained() {
    alone(test_name!(), || {
        with(
            Session::builder().timeout(Duration::from_secs(2)),
            async |session| {
                let code = "class Endless:\n    def __repr__(self):\n        while True: pass\nEndless()";
                let run = session.execute(code).await.expect("an execution");
                assert_eq!(run.outcome.status, SandboxStatus::Timeout);
                assert_eq!(value(session, "1").await, Value::Int(1));
                let code = "class Raises:\n    def __repr__(self):\n        raise ValueError('no')\nRaises()";
                let run = session.execute(code).await.expect("an execution");
                assert!(run.outcome.value.is_some() || run.outcome.exception.is_some());
                let code = "class Lies:\n    def __repr__(self):\n        return 7\nLies()";
                let run = session.execute(code).await.expect("an execution");
                assert!(run.outcome.value.is_some() || run.outcome.exception.is_some());
                assert_eq!(value(session, "2").await, Value::Int(2));
            },
        );
    });
}

#[test]
fn bad_names_and_globals_are_refused_when_the_session_is_made() {
    alone(test_name!(), || {
        run(async {
            let refused =
                async |builder: belljar::SessionBuilder| builder.build().await.expect_err("a refusal");
            for name in ["", "a b", "1x", "a.b", "x\n"] {
                let error = refused(Session::builder().global(name, 1)).await;
                assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
                let error = refused(Session::builder().tool(name, || 1)).await;
                assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
            }
            let mut deep = Value::None;
            for _ in 0..200 {
                deep = Value::List(vec![deep]);
            }
            let error = refused(Session::builder().global("deep", deep)).await;
            assert!(error.to_string().contains("nested deeper than 60"), "{error}");
            let error = refused(Session::builder().global("large", "x".repeat(70 << 20))).await;
            assert!(error.to_string().contains("64 MiB"), "{error}");
            let error = refused(Session::builder().language(Language::Bash)).await;
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let policy = belljar::Policy::builtin("standard").expect("standard");
            let error = refused(Session::builder().policy(policy).max_tool_calls(101)).await;
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let error = refused(Session::builder().timeout(Duration::from_millis(1))).await;
            assert!(
                error.to_string().starts_with("the interpreter did not start"),
                "{error}"
            );
        });
    });
}
