//! Tool calls as a guest may ask for them, without a guest.

use tokio::sync::mpsc;

use super::builder::MessageBuilder;
use super::calls::{Asked, Calls, Refusal};
use super::message::Message;
use crate::tools::Tools;
use belljar_core::SessionRules;

fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work);
}

fn tools() -> Tools {
    let mut tools = Tools::new();
    tools.add_async("one", || async { 1 });
    tools.add_async("hang", std::future::pending::<()>);
    tools
}

fn calls(budget: u32) -> (Calls, mpsc::UnboundedReceiver<super::Event>) {
    let (events, heard) = mpsc::unbounded_channel();
    let rules = SessionRules {
        max_tool_calls: budget,
        ..SessionRules::default()
    };
    (
        Calls::new((tools(), None), &rules, 0, events, MessageBuilder::shared(None)),
        heard,
    )
}

fn asked(call: u64, name: &str) -> Asked {
    Asked {
        call,
        name: name.to_owned(),
        message: Message {
            bytes: b"{}".to_vec(),
            values: 1,
        },
    }
}

fn kind(answer: Option<Vec<u8>>) -> String {
    let answer: serde_json::Value = serde_json::from_slice(&answer.unwrap()).unwrap();
    answer["type"].as_str().unwrap().to_owned()
}

/// A tool that somebody has to approve is not called where there is nobody to ask.
#[test]
fn without_anybody_to_ask_what_needs_approval_is_refused() {
    run(async {
        let (events, _heard) = mpsc::unbounded_channel();
        let rules = SessionRules {
            approve_tools: vec!["one".to_owned()],
            ..SessionRules::default()
        };
        let mut calls = Calls::new((tools(), None), &rules, 0, events, MessageBuilder::shared(None));
        let (refusal, answer) = calls.ask(asked(1, "one")).unwrap_err();
        assert_eq!(
            (refusal, kind(answer).as_str()),
            (Refusal::Other, "PermissionError")
        );
        assert!(calls.ask(asked(2, "hang")).is_ok());
    });
}

#[test]
fn numbers_count_up_and_are_used_once() {
    run(async {
        let (mut calls, _heard) = calls(100);
        calls.ask(asked(5, "one")).unwrap();
        let answer = calls.next().await;
        assert_eq!(answer, br#"{"op":"tool_result","call":5,"value":1}"#);
        for number in [5, 4, 0] {
            let (refusal, answer) = calls.ask(asked(number, "one")).unwrap_err();
            assert_eq!(
                (refusal, kind(answer).as_str()),
                (Refusal::Replay, "ToolCallReplayed")
            );
        }
        calls.ask(asked(6, "hang")).unwrap();
        // The answer to a call that is under way is its own.
        assert_eq!(calls.ask(asked(6, "one")), Err((Refusal::Replay, None)));
        let (records, last) = calls.finish();
        assert_eq!(last, 6);
        let told: Vec<_> = records
            .iter()
            .map(|record| (record.call, record.error.as_deref()))
            .collect();
        assert_eq!(told, [(5, None), (6, Some("Cancelled"))]);
    });
}

#[test]
fn what_is_too_much_is_refused_and_costs_nothing() {
    run(async {
        let (mut calls, _heard) = calls(2_000);
        let mut refused = 0;
        for number in 1..=1_500 {
            if let Err((_, answer)) = calls.ask(asked(number, "hang")) {
                assert_eq!(kind(answer), "ToolQueueFull");
                refused += 1;
            }
        }
        assert_eq!(refused, 1_500 - 1_000 - 5, "five run and a thousand wait");
        let (_, answer) = calls.ask(asked(9_999, "absent")).unwrap_err();
        assert_eq!(kind(answer), "ToolNotFound");
    });
}

#[test]
fn the_budget_is_counted() {
    run(async {
        let (mut calls, _heard) = calls(1);
        calls.ask(asked(1, "one")).unwrap();
        let (_, answer) = calls.ask(asked(2, "one")).unwrap_err();
        assert_eq!(kind(answer), "ToolBudgetExceeded");
        let _ = calls.next().await;
        let (_, answer) = calls.ask(asked(3, "one")).unwrap_err();
        assert_eq!(
            kind(answer),
            "ToolBudgetExceeded",
            "one that has ended counts as well"
        );
    });
}

/// P64: what waits is bounded in bytes as well, and counts no more once its turn has come.
#[test]
fn p64_calls_that_wait_are_bounded_in_bytes() {
    run(async {
        let (mut calls, _heard) = calls(100);
        let large = |call| Asked {
            message: Message {
                bytes: format!("{{\"args\":[\"{}\"]}}", "x".repeat(8 << 20)).into_bytes(),
                values: 3,
            },
            ..asked(call, "hang")
        };
        let refused = (1..=20).filter(|call| calls.ask(large(*call)).is_err()).count();
        assert_eq!(refused, 20 - 5 - 3, "five run, and three wait");
        calls.ask(asked(21, "one")).unwrap();
    });
}
