//! The commands that look at a service and manage it, by its URL and by the store of this machine.

use serde_json::{Value, json};

use super::Serving;
use crate::harness::{Done, TempDir, Who, belljar};

/// One command, with the store in `home`, or with a service's URL and key.
struct Way<'a> {
    home: &'a TempDir,
    service: Option<(&'a str, &'a str)>,
}

impl Way<'_> {
    fn run(&self, args: &[&str]) -> Done {
        let home = self.home.path().to_string_lossy().into_owned();
        let mut run = belljar(Who::User, args.iter().copied()).env("BELLJAR_HOME", &home);
        if let Some((url, key)) = self.service {
            run = run.env("BELLJAR_URL", url).env("BELLJAR_KEY", key);
        }
        run.go()
    }

    fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        self.run(&all).expect_code(0).json()
    }
}

/// Both ways, with a service that has run something.
fn both_ways(work: impl Fn(&Way<'_>)) {
    let home = TempDir::new();
    let server = Serving::start(Who::User, &home, &[]);
    let key = server.key.clone().expect("a key");
    for body in [
        r#"{"code": "print(1)", "run_id": "r1"}"#,
        r#"{"code": "x", "language": "c"}"#,
    ] {
        server
            .ask("POST", "/v1/executions", Some(&key), body)
            .expect("an answer");
    }
    let url = format!("http://{}", server.address);
    work(&Way {
        home: &home,
        service: Some((&url, &key)),
    });
    // The store can be looked at while it is served.
    work(&Way {
        home: &home,
        service: None,
    });
    server.end();
    work(&Way {
        home: &home,
        service: None,
    });
}

#[test]
fn keys_and_tenants_are_managed() {
    both_ways(|way| {
        let tenant = format!("team-{}", belljar_engine::fresh_id("t"));
        way.run(&["tenants", "create", &tenant, "--name", "A team"])
            .expect_code(0);
        let listed = way.json(&["tenants", "list"]);
        assert!(listed.to_string().contains(&tenant));
        let made = way
            .run(&[
                "keys",
                "create",
                "--role",
                "run",
                "--tenant",
                &tenant,
                "--expires",
                "1h",
            ])
            .expect_code(0);
        let key = made.stdout.clone();
        assert!(key.starts_with("bj_"), "{made:#?}");
        let id = key.split('_').nth(1).expect("an id");
        let table = way.run(&["keys", "list"]).expect_code(0).stdout;
        assert!(
            table.contains(id) && table.contains(&tenant) && table.contains("until 20"),
            "{table}"
        );
        // The secret is nowhere.
        assert!(!table.contains(key.trim().rsplit('_').next().expect("a secret")));
        way.run(&["keys", "revoke", id]).expect_code(0);
        let state = way.json(&["keys", "list"]);
        let revoked = state
            .as_array()
            .expect("keys")
            .iter()
            .find(|key| key["key_id"] == id)
            .expect("the key");
        assert!(revoked["revoked_at"].is_number());
        way.run(&["keys", "revoke", id]).expect_code(2);
        way.run(&["keys", "create", "--role", "king"]).expect_code(2);
        way.run(&["keys", "create", "--role", "run", "--tenant", "nobody"])
            .expect_code(2);
    });
}

#[test]
fn records_and_figures_are_shown() {
    both_ways(|way| {
        let records = way.json(&["records"]);
        assert_eq!(records.as_array().expect("records").len(), 2);
        let of_run = way.json(&["records", "--run", "r1", "--since", "1h"]);
        let id = of_run[0]["record_id"].as_str().expect("an id").to_owned();
        assert_eq!(
            way.run(&["records", &id]).expect_code(0).json()["status"],
            "completed"
        );
        let table = way.run(&["records", "--status", "failed"]).expect_code(0).stdout;
        assert!(
            table.starts_with("ID ") && table.contains("PolicyViolation"),
            "{table}"
        );
        let stats = way.json(&["stats"]);
        assert_eq!(
            (&stats["total_executions"], &stats["by_language"]),
            (&json!(2), &json!({"c": 1, "python": 1}))
        );
        let table = way.run(&["stats", "--bucket", "1h"]).expect_code(0).stdout;
        assert!(table.contains("status completed "), "{table}");
        way.run(&["records", "exe-none"]).expect_code(2);
        way.run(&["records", "--since", "yesterday"]).expect_code(2);
        way.run(&["records", "--status", "fine"]).expect_code(2);
    });
}

/// S4 on the command line.
#[test]
fn the_audit_is_verified_and_exported() {
    both_ways(|way| {
        let head = way.run(&["audit", "head"]).expect_code(0).stdout;
        let verified = way
            .run(&["audit", "verify", "--expect", head.trim()])
            .expect_code(0)
            .stdout;
        assert!(verified.ends_with("entries, none changed\n"), "{verified}");
        let wrong = format!("{}:{}", head.split(':').next().expect("a place"), "0".repeat(64));
        let broken = way.run(&["audit", "verify", "--expect", &wrong]).expect_code(1);
        assert!(
            broken.stderr.contains("not the one that was expected"),
            "{broken:#?}"
        );
        let lines = way.run(&["audit", "export"]).expect_code(0).stdout;
        assert_eq!(
            lines.lines().count().to_string(),
            head.split(':').next().expect("a place")
        );
        let csv = way
            .run(&["audit", "export", "--format", "csv"])
            .expect_code(0)
            .stdout;
        assert!(
            csv.starts_with("record_id,sandbox_id,tenant_id,") && csv.lines().count() == 3,
            "{csv}"
        );
        way.run(&["audit", "forget", "--older-than", "1h"]).expect_code(0);
        way.run(&["audit", "verify", "--expect", "x"]).expect_code(2);
    });
}

#[test]
fn policies_are_defined_and_deleted() {
    both_ways(|way| {
        let file = way.home.file(
            "team.toml",
            "policy_id = \"team\"\nextends = \"standard\"\nmax_memory_mb = 99\n",
        );
        let path = file.to_string_lossy().into_owned();
        let made = way.json(&["policy", "define", &path]);
        assert_eq!(
            (&made["origin"], &made["policy"]["max_memory_mb"]),
            (&json!("defined"), &json!(99))
        );
        way.run(&["policy", "delete", "team"]).expect_code(0);
        way.run(&["policy", "delete", "team"]).expect_code(2);
        way.run(&["policy", "delete", "standard"]).expect_code(2);
    });
}

/// A service with a policy under which everything has to be approved.
fn that_asks() -> (TempDir, Serving, String) {
    let home = TempDir::new();
    let server = Serving::start(Who::User, &home, &[]);
    let key = server.key.clone().expect("a key");
    let policy = r#"{"policy_id": "asks", "extends": "standard", "require_approval": true}"#;
    server
        .ask("POST", "/v1/policies", Some(&key), policy)
        .expect("an answer");
    (home, server, key)
}

#[test]
fn approvals_are_listed_shown_and_decided() {
    let (home, server, key) = that_asks();
    let url = format!("http://{}", server.address);
    let way = Way {
        home: &home,
        service: Some((&url, &key)),
    };
    let ask = |code: &str| {
        let body = json!({ "code": code, "policy_id": "asks", "user_id": "ada" }).to_string();
        let (status, answer) = server
            .ask("POST", "/v1/executions?mode=background", Some(&key), &body)
            .expect("an answer");
        assert_eq!(status, 202, "{answer}");
        answer["approval_id"].as_str().expect("an approval").to_owned()
    };
    let (first, second) = (ask("print('\u{1b}]0;title\u{7}')"), ask("print(2)"));
    let table = way.run(&["approvals"]).expect_code(0).stdout;
    assert!(table.contains(&first) && table.contains("pending"), "{table}");
    let shown = way.run(&["approvals", "show", &first]).expect_code(0).stdout;
    // P52: what the code would do to a terminal it does not.
    assert!(
        shown.contains("\\u{1b}]0;title") && !shown.contains('\u{1b}'),
        "{shown}"
    );
    way.run(&["approvals", "grant", &first]).expect_code(0);
    way.run(&["approvals", "grant", &first]).expect_code(2);
    way.run(&["approvals", "deny", &second]).expect_code(2);
    way.run(&["approvals", "deny", &second, "--reason", "no"])
        .expect_code(0);
    let all = way.json(&["approvals", "--state", "all"]);
    let states: Vec<_> = all
        .as_array()
        .expect("approvals")
        .iter()
        .map(|one| one["state"].clone())
        .collect();
    assert_eq!(states, ["denied", "granted"]);
    server.end();
}

/// What comes is told while it comes.
#[test]
fn approvals_are_watched() {
    use std::io::{BufRead, BufReader};
    let (_home, server, key) = that_asks();
    let url = format!("http://{}", server.address);
    let mut command = belljar(
        Who::User,
        ["approvals", "--watch", "--json", "--url", &url, "--key", &key],
    )
    .command();
    let mut watching = crate::harness::spawn(command.stdout(std::process::Stdio::piped()));
    let mut lines = BufReader::new(watching.stdout.take().expect("its output")).lines();
    let body = r#"{"code": "1", "policy_id": "asks"}"#;
    let (_, asked) = server
        .ask("POST", "/v1/executions?mode=background", Some(&key), body)
        .expect("an answer");
    let mut next =
        || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("a line")).expect("JSON") };
    let told = next();
    assert_eq!(
        (&told["approval_id"], &told["state"]),
        (&asked["approval_id"], &json!("pending"))
    );
    let path = format!(
        "/v1/approvals/{}/grant",
        asked["approval_id"].as_str().expect("an id")
    );
    server.ask("POST", &path, Some(&key), "{}").expect("an answer");
    assert_eq!(next()["state"], "granted");
    watching.kill().expect("an end");
    crate::harness::finish(watching);
    server.end();
}

#[test]
fn a_service_that_is_not_there_is_said_with_a_hint() {
    let home = TempDir::new();
    let way = |url, key| Way {
        home: &home,
        service: Some((url, key)),
    };
    let gone = way("http://127.0.0.1:9", "x").run(&["records"]).expect_code(125);
    assert!(
        gone.stderr.contains("cannot reach http://127.0.0.1:9"),
        "{gone:#?}"
    );
    way("ftp://x", "x").run(&["records"]).expect_code(2);
    way("http://127.0.0.1:9", "a\nb").run(&["records"]).expect_code(2);
    let none = Way {
        home: &home,
        service: None,
    };
    let none = none.run(&["records"]).expect_code(2);
    assert!(none.stderr.contains("there is no store at"), "{none:#?}");
}

#[test]
fn the_configuration_says_where_each_value_came_from() {
    let home = TempDir::new();
    home.file(
        "belljar.toml",
        "queue = 7\nkey = \"s3cret\"\nstore = \"postgres://u:s3cret@h/x\"\n",
    );
    let place = home.path().to_string_lossy().into_owned();
    let shown = belljar(Who::User, ["config", "show", "--json"])
        .env("BELLJAR_HOME", &place)
        .env("BELLJAR_LISTEN", "127.0.0.1:9")
        .go()
        .expect_code(0);
    assert!(!shown.stdout.contains("s3cret"));
    let rows = shown.json();
    let row = |name: &str| {
        rows.as_array()
            .expect("rows")
            .iter()
            .find(|row| row["name"] == name)
            .expect(name)
            .clone()
    };
    assert_eq!(
        (&row("listen")["value"], &row("listen")["origin"]),
        (&json!("127.0.0.1:9"), &json!("variable BELLJAR_LISTEN"))
    );
    assert_eq!(row("queue")["value"], "7");
    assert!(
        row("queue")["origin"]
            .as_str()
            .expect("a place")
            .ends_with("belljar.toml")
    );
    assert_eq!(row("max_body")["origin"], "built in");
    let table = belljar(Who::User, ["config", "show"])
        .env("BELLJAR_HOME", &place)
        .go()
        .expect_code(0);
    assert!(table.stdout.starts_with("SETTING "));
}
