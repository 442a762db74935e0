//! Host tools: what guest code may call, how often, and what of it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar::{Event, Language, Session, ToolError, Value};

use super::{good, raised, value, with};
use crate::again::{alone, test_name};

/// R41, R45: sync and async on both sides, and each call in the record with its duration and size.
#[test]
fn r45_tools_are_called_from_both_kinds_of_code_and_recorded() {
    alone(test_name!(), || {
        let builder = Session::builder()
            .tool("add", |a: i64, b: i64| a + b)
            .async_tool("later", |text: String| async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                text.to_uppercase()
            })
            .raw_tool("named", |mut arguments| async move {
                let first: i64 = arguments.take(0, "first")?;
                let second: Option<i64> = arguments.take(1, "second")?;
                Ok(Value::from((first, second)))
            });
        with(builder, async |session| {
            let mut events = Vec::new();
            let code = "import asyncio\nasync def f():\n    return await later('b')\nr = [add(1, 2), later('a'), named(1, second=2), await f()]\nr";
            let run = session
                .execute_with(
                    "[add(1, 2), later('a'), named(1, second=2)]",
                    &mut |event| match event {
                        Event::ToolStarted { name, .. } => events.push(format!("start {name}")),
                        Event::ToolEnded(call) => events.push(format!("end {}", call.name)),
                        _ => {}
                    },
                )
                .await;
            let run = good(run);
            let expected = Value::List(vec![3.into(), "A".into(), (1, 2).into()]);
            assert_eq!(run.outcome.value, Some(expected));
            assert_eq!(
                events,
                [
                    "start add",
                    "end add",
                    "start later",
                    "end later",
                    "start named",
                    "end named"
                ]
            );
            let calls = &run.record.tool_calls;
            assert_eq!(
                calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(),
                ["add", "later", "named"]
            );
            assert!(calls[1].duration.get() >= 0.05 && calls[1].duration.get() < 5.0);
            assert!(
                calls
                    .iter()
                    .all(|call| call.argument_bytes > 0 && call.result_bytes > 0 && call.error.is_none())
            );
            assert_eq!(run.outcome.tool_calls, *calls);
            // In code that awaits, a tool is awaited.
            let code = code.replace(
                "[add(1, 2), later('a'), named(1, second=2), await f()]",
                "[await add(1, 2), await later('a'), await f()]",
            );
            let expected = Value::List(vec![3.into(), "A".into(), "B".into()]);
            assert_eq!(value(session, &code).await, expected);
        });
    });
}

/// Calls under `gather` run at the same time, as many as the policy permits.
#[test]
fn r45_calls_run_in_parallel_up_to_the_limit() {
    alone(test_name!(), || {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (running, peak) = (Arc::clone(&now), Arc::clone(&most));
        let builder = Session::builder().async_tool("work", move |number: i64| {
            let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
            async move {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(500)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                number * 2
            }
        });
        with(builder, async |session| {
            let code = "import asyncio\nawait asyncio.gather(*[work(i) for i in range(10)])";
            let expected: Vec<i64> = (0..10).map(|number| number * 2).collect();
            assert_eq!(value(session, code).await, expected.into());
            assert_eq!(most.load(Ordering::SeqCst), 5);
        });
    });
}

#[test]
fn r45_errors_of_tools_cross_typed_and_can_be_caught() {
    alone(test_name!(), || {
        let builder = Session::builder()
            .tool("fails", |kind: String| -> Result<(), ToolError> {
                Err(ToolError::new(kind, "said the host"))
            })
            .tool("reads", || std::fs::read_to_string("/nonexistent/x"))
            .tool("panics", || -> i64 { panic!("a secret of the host") })
            .tool("deep", || {
                let mut value = Value::None;
                for _ in 0..500 {
                    value = Value::List(vec![value]);
                }
                value
            })
            .tool("add", |a: i64, b: i64| a + b);
        with(builder, async |session| {
            for (code, kind, message) in [
                ("fails('ValueError')", "ValueError", "said the host"),
                ("fails('MadeUp')", "MadeUp", "said the host"),
                ("reads()", "FileNotFoundError", "No such file"),
                ("panics()", "ToolPanicked", "unexpected"),
                ("deep()", "ToolResultInvalid", "nested deeper"),
                ("add(1)", "TypeError", "takes 2 arguments, not 1"),
                (
                    "add(1, 'x')",
                    "TypeError",
                    "argument 2: expected a whole number, got text",
                ),
                ("add(1, b=2)", "TypeError", "keyword"),
            ] {
                let exception = raised(session, code).await;
                assert_eq!(exception.kind, kind, "{code}: {exception:?}");
                assert!(exception.message.contains(message), "{code}: {exception:?}");
                assert!(!exception.traceback.contains("secret"));
            }
            let code =
                "try:\n    fails('ValueError')\nexcept ValueError as error:\n    caught = str(error)\ncaught";
            assert_eq!(value(session, code).await, "said the host".into());
            let run = session.execute("fails('KeyError')").await.expect("an execution");
            assert_eq!(run.record.tool_calls[0].error.as_deref(), Some("KeyError"));
        });
    });
}

/// R45: the 101st call of an execution fails by default, and the next execution starts anew.
#[test]
fn r45_the_101st_call_fails() {
    alone(test_name!(), || {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let builder = Session::builder().tool("tick", move || counted.fetch_add(1, Ordering::SeqCst) as u64);
        with(builder, async |session| {
            let code = "for number in range(101):\n    tick()";
            let run = session.execute(code).await.expect("an execution");
            let exception = run.outcome.exception.expect("a refusal");
            assert_eq!(exception.kind, "ToolBudgetExceeded");
            assert!(exception.message.contains("100"), "{}", exception.message);
            assert_eq!(value(session, "number").await, Value::Int(100));
            assert_eq!(count.load(Ordering::SeqCst), 100);
            assert_eq!(run.record.tool_calls.len(), 100);
            assert_eq!(value(session, "tick()").await, Value::Int(100));
        });
        with(
            Session::builder().tool("tick", || 1).max_tool_calls(2),
            async |session| {
                let exception = raised(session, "tick(); tick(); tick()").await;
                assert_eq!(exception.kind, "ToolBudgetExceeded");
            },
        );
    });
}

/// S3: a hundred thousand calls; the budget holds and the session goes on.
#[test]
fn s3_a_flood_of_calls_is_refused_one_by_one() {
    alone(test_name!(), || {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let builder = Session::builder()
            .timeout(Duration::from_secs(120))
            .cpu_time(belljar::Seconds::whole(120))
            .async_tool("tick", move || {
                counted.fetch_add(1, Ordering::SeqCst);
                async {}
            });
        with(builder, async |session| {
            let code = "refused = 0\nfor _ in range(100_000):\n    try:\n        tick()\n    except ToolError:\n        refused += 1\nrefused";
            let run = good(session.execute(code).await);
            assert_eq!(run.outcome.value, Some(99_900.into()));
            assert_eq!(count.load(Ordering::SeqCst), 100);
            assert_eq!(run.outcome.tool_calls.len(), 100);
            assert_eq!(value(session, "1").await, Value::Int(1));
        });
    });
}

/// A tool that hangs holds up its own execution alone, and is dropped with it.
#[test]
fn a_tool_that_hangs_is_dropped_at_the_deadline() {
    struct Guard(Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    alone(test_name!(), || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&dropped);
        let builder = Session::builder()
            .timeout(Duration::from_secs(1))
            .async_tool("hang", move || {
                let guard = Guard(Arc::clone(&count));
                async move {
                    tokio::time::sleep(Duration::from_secs(600)).await;
                    drop(guard);
                }
            });
        with(builder, async |session| {
            let run = session.execute("hang()").await.expect("an execution");
            assert_eq!(run.outcome.error.expect("a reason").kind.word(), "timeout");
            assert_eq!(run.outcome.tool_calls[0].error.as_deref(), Some("Cancelled"));
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
            assert_eq!(value(session, "1").await, Value::Int(1));
        });
    });
}

#[test]
fn a_call_after_its_execution_is_refused() {
    alone(test_name!(), || {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let builder = Session::builder().tool("tick", move || counted.fetch_add(1, Ordering::SeqCst) as u64);
        with(builder, async |session| {
            let code = "import threading, time\nfailed = []\ndef later():\n    time.sleep(0.3)\n    try: tick()\n    except BaseException as error: failed.append(type(error).__name__)\nthreading.Thread(target=later, daemon=True).start()";
            good(session.execute(code).await);
            tokio::time::sleep(Duration::from_millis(600)).await;
            good(session.execute("time.sleep(0.3)").await);
            let told = value(session, "failed").await;
            assert_eq!(count.load(Ordering::SeqCst), 0, "{told}");
        });
    });
}

#[test]
fn javascript_calls_tools_as_well() {
    alone(test_name!(), || {
        let builder = Session::builder()
            .language(Language::Javascript)
            .tool("add", |a: i64, b: i64| a + b)
            .tool("fails", || -> Result<(), ToolError> {
                Err(ToolError::new("RangeError", "said the host"))
            });
        with(builder, async |session| {
            assert_eq!(value(session, "await add(2, 3)").await, Value::Int(5));
            let code = "(await Promise.all([add(1, 1), add(2, 2)])).join()";
            assert_eq!(value(session, code).await, "2,4".into());
            let exception = raised(session, "await fails()").await;
            assert_eq!(
                (exception.kind.as_str(), exception.message.as_str()),
                ("RangeError", "said the host")
            );
        });
    });
}
