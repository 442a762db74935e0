//! JavaScript in a session.

use std::time::Duration;

use belljar::{Language, SandboxStatus, Session, Value};

use super::{good, raised, value, with};
use crate::again::{alone, test_name};

fn javascript() -> belljar::SessionBuilder {
    Session::builder().language(Language::Javascript)
}

#[test]
fn names_files_and_values_persist() {
    alone(test_name!(), || {
        with(
            javascript().global("given", Value::object([("a", 1)])),
            async |session| {
                good(
                    session
                        .execute("const x = 20; let y = given.a + 21; function twice(n) { return 2 * n }")
                        .await,
                );
                assert_eq!(value(session, "x + y").await, Value::Int(42));
                assert_eq!(
                    value(session, "await Promise.resolve(twice(y))").await,
                    Value::Int(44)
                );
                let code = "console.log('out'); console.error('err'); require('fs').writeFileSync('f', 'kept'); [1, 'a', null, 1.5]";
                let run = good(session.execute(code).await);
                assert_eq!(
                    run.outcome.value,
                    Some(Value::List(vec![
                        1.into(),
                        "a".into(),
                        Value::None,
                        Value::Float(1.5)
                    ]))
                );
                assert_eq!(
                    (
                        run.outcome.stdout.text().as_str(),
                        run.outcome.stderr.text().as_str()
                    ),
                    ("out\n", "err\n")
                );
                assert_eq!(
                    value(session, "123456789012345678901234567890n").await,
                    Value::BigInt("123456789012345678901234567890".to_owned())
                );
                assert_eq!(value(session, "new Set([1])").await, Value::Set(vec![1.into()]));
                assert_eq!(
                    value(session, "Buffer.from([1, 255])").await,
                    Value::bytes([1, 255])
                );
                session.reset().await.expect("a reset");
                assert_eq!(raised(session, "x").await.kind, "ReferenceError");
                assert_eq!(
                    value(session, "require('fs').readFileSync('f', 'utf8')").await,
                    "kept".into()
                );
                assert_eq!(value(session, "given.a").await, Value::Int(1));
            },
        );
    });
}

#[test]
fn mistakes_are_typed_and_a_timeout_is_survived() {
    alone(test_name!(), || {
        with(javascript().timeout(Duration::from_secs(2)), async |session| {
            assert_eq!(raised(session, "let = ;").await.kind, "SyntaxError");
            let exception = raised(session, "1;\nnull.x").await;
            assert_eq!(
                (exception.kind.as_str(), exception.line),
                ("TypeError", Some(2)),
                "{exception:?}"
            );
            let run = session.execute("while (true) {}").await.expect("an execution");
            assert_eq!(run.outcome.status, SandboxStatus::Timeout);
            assert!(run.outcome.state_lost.is_some());
            assert_eq!(value(session, "1 + 1").await, Value::Int(2));
        });
    });
}
