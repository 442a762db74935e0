//! What Python code in a session means.

use belljar::value::{Array, Named};
use belljar::{Session, Value};

use super::{good, raised, value, with};
use crate::again::{alone, test_name};

/// R38: the document's examples give 328350 and 30, and json imports.
#[test]
fn r38_the_documents_examples() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let code = "total = 0\nfor i in range(100):\n    total += i ** 2\nresult = total";
            assert_eq!(value(session, code).await, Value::Int(328_350));
            assert_eq!(value(session, "x = 10\ny = 20\nx + y").await, Value::Int(30));
            let code = "import json\njson.loads('{\"a\": [1, 2.5, null]}')";
            let expected =
                Value::object([("a", Value::List(vec![1.into(), Value::Float(2.5), Value::None]))]);
            assert_eq!(value(session, code).await, expected);
        });
    });
}

/// R39: an import that is not allowed, and a file that is not there for the guest.
#[test]
fn r39_imports_are_limited_and_files_out_of_reach() {
    alone(test_name!(), || {
        with(
            Session::builder().allow_imports(["json", "math"]),
            async |session| {
                assert_eq!(
                    value(session, "import json, math\nmath.floor(2.5)").await,
                    Value::Int(2)
                );
                for code in ["import os", "from os import path", "__import__('os')"] {
                    let exception = raised(session, code).await;
                    assert_eq!(exception.kind, "ImportError", "{code}");
                    assert_eq!(exception.message, "Import 'os' not allowed", "{code}");
                }
                let exception = raised(session, "open('/etc/passwd')").await;
                assert!(
                    exception.kind == "PermissionError" || exception.kind == "FileNotFoundError",
                    "{exception:?}"
                );
                // What the code had before is still there.
                assert_eq!(value(session, "json.dumps([1])").await, "[1]".into());
            },
        );
    });
}

/// R41: return and await at the top level, and callables of the host.
#[test]
fn r41_top_level_return_and_await_and_host_callables() {
    alone(test_name!(), || {
        let builder = Session::builder()
            .tool("add", |a: i64, b: i64| a + b)
            .global("base", 10);
        with(builder, async |session| {
            assert_eq!(
                value(session, "if base > 5:\n    return 'big'\n'small'").await,
                "big".into()
            );
            let code = "import asyncio\nawait asyncio.sleep(0.01)\nkept = await add(base, 5)\nreturn kept";
            assert_eq!(value(session, code).await, Value::Int(15));
            assert_eq!(
                value(session, "kept + 1").await,
                Value::Int(16),
                "names persist in every form"
            );
            let run = good(session.execute("x = 1").await);
            assert_eq!(run.outcome.value, None);
        });
    });
}

/// R42: state persists, reset clears it and keeps files, logs give both streams.
#[test]
fn r42_state_persists_reset_clears_and_logs_are_kept() {
    alone(test_name!(), || {
        with(Session::builder().global("g", 1), async |session| {
            let code = "import sys\ndef f():\n    return state\nstate = [1]\nprint('out')\nprint('err', file=sys.stderr)\nopen('kept', 'w').write('x')";
            let run = good(session.execute(code).await);
            assert_eq!(run.outcome.stdout.text(), "out\n");
            assert_eq!(run.outcome.stderr.text(), "err\n");
            good(session.execute("state.append(2); print('more')").await);
            assert_eq!(value(session, "f()").await, Value::from(vec![1, 2]));
            session.reset().await.expect("a reset");
            let exception = raised(session, "state").await;
            assert_eq!(exception.kind, "NameError");
            assert_eq!(
                value(session, "(g, open('kept').read())").await,
                Value::from((1, "x"))
            );
            let logs = session.logs();
            assert_eq!(
                (logs.stdout.as_str(), logs.stderr.as_str()),
                ("out\nmore\n", "err\n")
            );
        });
    });
}

#[test]
fn exceptions_come_typed_and_show_the_users_own_lines() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let code = "def f(x):\n    return 1 / x\n\nf(0)";
            let run = session.execute(code).await.expect("an execution");
            let exception = run.outcome.exception.expect("an exception");
            assert_eq!(exception.kind, "ZeroDivisionError");
            assert_eq!(exception.line, Some(2), "{exception:?}");
            assert!(
                exception.traceback.contains("return 1 / x"),
                "{}",
                exception.traceback
            );
            assert!(
                !exception.traceback.contains("/.belljar"),
                "{}",
                exception.traceback
            );
            let error = run.outcome.error.expect("a reason");
            assert_eq!(error.kind.word(), "exception");
            assert_eq!(error.message, "raised ZeroDivisionError");
            assert_eq!(
                run.record.error_message.as_deref(),
                Some("raised ZeroDivisionError")
            );
            assert_eq!(run.outcome.exit_code, Some(1));
            // The record has this code's hash, not the session's.
            let again = session.execute(code).await.expect("an execution");
            assert_eq!(again.record.code_hash, run.record.code_hash);
            assert_ne!(
                good(session.execute("1").await).record.code_hash,
                run.record.code_hash
            );
        });
    });
}

#[test]
fn an_exit_is_an_exit_code_and_the_session_goes_on() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            good(session.execute("kept = 1").await);
            let run = session
                .execute("import sys; sys.exit(3)")
                .await
                .expect("an execution");
            assert_eq!(run.outcome.exit_code, Some(3));
            assert_eq!(run.outcome.error.expect("a reason").kind.word(), "exit_code");
            assert_eq!(run.outcome.state_lost, None);
            assert_eq!(value(session, "kept").await, Value::Int(1));
            // A process that really ends takes its variables along, and the files stay.
            good(session.execute("open('f', 'w').write('x')").await);
            let run = session
                .execute("import os; os._exit(4)")
                .await
                .expect("an execution");
            assert_eq!(run.outcome.exit_code, Some(4));
            assert_eq!(run.outcome.state_lost.expect("lost").word(), "variables");
            assert_eq!(value(session, "open('f').read()").await, "x".into());
        });
    });
}

/// Values keep their types both ways: what comes out is what went in as a global or through a tool.
#[test]
fn r45_values_keep_their_types_in_both_directions() {
    let values = [
        Value::None,
        Value::Bool(true),
        Value::Int(i64::MIN + 1),
        Value::BigInt("123456789012345678901234567890".to_owned()),
        Value::Float(0.1),
        Value::Float(f64::INFINITY),
        Value::Complex(1.0, -2.5),
        Value::from("größe \u{1f600} \0"),
        Value::bytes([0, 255, 7]),
        Value::List(vec![Value::Tuple(vec![1.into()]), Value::Set(vec![2.into()])]),
        Value::FrozenSet(vec![3.into()]),
        Value::object([("b", 1), ("a", 2)]),
        Value::object([("$", 1)]),
        Value::Dict(vec![
            (1.into(), "one".into()),
            (Value::Tuple(vec![2.into()]), Value::None),
        ]),
        Value::DateTime("2024-02-29T12:30:00.000001+02:00".to_owned()),
        Value::Date("2024-02-29".to_owned()),
        Value::Time("12:30:00".to_owned()),
        Value::Decimal("1.10".to_owned()),
        Value::Fraction("1/3".to_owned()),
        Value::Uuid("12345678-1234-5678-1234-567812345678".to_owned()),
    ];
    alone(test_name!(), || {
        let given = values.clone();
        let mut builder =
            Session::builder().raw_tool("echo", |arguments| async move { Ok(Value::List(arguments.args)) });
        for (index, value) in given.iter().enumerate() {
            builder = builder.global(format!("v{index}"), value.clone());
        }
        with(builder, async |session| {
            for (index, given) in given.iter().enumerate() {
                let run = good(session.execute(format!("v{index}")).await);
                let expected = (*given != Value::None).then(|| given.clone());
                assert_eq!(run.outcome.value, expected);
                let echoed = value(session, &format!("echo(v{index})")).await;
                assert_eq!(echoed, Value::List(vec![given.clone()]));
            }
            let code =
                "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: list\nP(1, [2])";
            let Value::DataClass(made) = value(session, code).await else {
                panic!("no dataclass")
            };
            assert_eq!(
                *made,
                Named {
                    name: "P".to_owned(),
                    fields: vec![("x".to_owned(), 1.into()), ("y".to_owned(), vec![2].into())],
                }
            );
            let Value::Repr(shown) = value(session, "object").await else {
                panic!("no repr")
            };
            assert_eq!(shown.text, "<class 'object'>");
        });
    });
}

#[test]
fn r45_numpy_and_pandas_come_as_data() {
    alone(test_name!(), || {
        let Some(python) = super::displays::with_packages() else {
            return;
        };
        with(python, async |session| {
            let code = "import numpy as np\nnp.array([[1, 2], [3, 4]], dtype='int16')";
            let Value::Array(array) = value(session, code).await else {
                panic!("no array")
            };
            let expected = Array {
                dtype: array.dtype.clone(),
                shape: vec![2, 2],
                bytes: vec![1, 0, 2, 0, 3, 0, 4, 0],
            };
            assert_eq!(*array, expected);
            assert!(
                array.dtype.contains("i2") || array.dtype == "int16",
                "{}",
                array.dtype
            );
            let Value::Scalar(scalar) = value(session, "np.float32(2.5)").await else {
                panic!("no scalar")
            };
            assert_eq!(scalar.value, Value::Float(2.5));
            let code = "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None]})";
            let Value::DataFrame(frame) = value(session, code).await else {
                panic!("no frame")
            };
            assert_eq!(frame.columns, ["a".into(), "b".into()]);
            assert_eq!(frame.rows[0], [1.into(), "x".into()]);
        });
    });
}
