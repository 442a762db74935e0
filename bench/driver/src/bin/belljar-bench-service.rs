//! Times `belljar serve` beside the engine that it uses: `belljar-bench-service BELLJAR HOME [STORE]`, results to standard output
//! as JSON. `bench/service` shows them.
//!
//! Everything is measured in turns in one run: the engine within this process, the service over loopback with a durable record
//! for each execution.

#[path = "../tree.rs"]
#[expect(dead_code, reason = "sessions have figures of their own")]
mod tree;

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Method;
use belljar::{Engine, ExecuteIo, Language, Policy, Request};
use belljar_server::client::{Client, ClientError};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

type Measured<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The first argument of the process that floods.
const FLOOD: &str = "flood";
const CODE: &str = "print(1 + 1)";
/// What a neighbour floods with: as many as can be started, and programs that keep the processors busy.
const FLOODS: [(&str, &str); 2] = [
    ("short", CODE),
    (
        "busy",
        "import time\nend = time.monotonic() + 0.2\nwhile time.monotonic() < end: pass\nprint(2)",
    ),
];

fn main() -> Measured<()> {
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (program, home) = match args.as_slice() {
        [_, word, url, key, code, seconds] if word == FLOOD => {
            let client = Client::remote(url, Some(key))?;
            let load = runtime.block_on(served_load(&client, code, 128, seconds.parse()?))?;
            return Ok(writeln!(std::io::stdout(), "{}", load.shown())?);
        }
        [_, program, home, ..] => (program.clone(), home.clone()),
        _ => return Err("usage: belljar-bench-service BELLJAR HOME [STORE]".into()),
    };
    let quick = std::env::var_os("BELLJAR_BENCH_QUICK").is_some();
    let results = runtime.block_on(measure(
        &program,
        Path::new(&home),
        args.get(3).map(String::as_str),
        quick,
    ))?;
    writeln!(std::io::stdout(), "{results}")?;
    Ok(())
}

async fn measure(program: &str, home: &Path, store: Option<&str>, quick: bool) -> Measured<Value> {
    let seconds = if quick { 1.0 } else { 5.0 };
    let server = Server::start(program, home, store)?;
    let admin = server.client(&server.key)?;
    let policy = json!({
        "policy_id": "load", "extends": "standard", "max_executions_per_minute": 4_000_000_000_u32,
        "max_executions_per_hour": 4_000_000_000_u32,
    });
    let _: Value = admin.call(Method::POST, "/v1/policies", Some(&policy)).await?;
    let engine = Arc::new(belljar::native_engine());
    let mut levels = Vec::new();
    for level in [1, 16, 64] {
        tell(&format!("{level} at the same time"))?;
        let (mut direct, mut served) = (Load::default(), Load::default());
        for turn in 0..3 {
            // The first turn warms both up and is not counted.
            let one = direct_load(&engine, level, seconds).await?;
            let other = served_load(&admin, CODE, level, seconds).await?;
            if turn > 0 {
                direct.add(one);
                served.add(other);
            }
        }
        levels.push(json!({ "level": level, "engine": direct.shown(), "service": served.shown() }));
    }
    tell("a flood beside a neighbour")?;
    let keys = tenants(&admin).await?;
    let mut fairness = serde_json::Map::new();
    for (name, code) in FLOODS {
        fairness.insert(
            name.to_owned(),
            beside_a_flood(&server, &keys, code, seconds).await?,
        );
    }
    tell("sessions that do nothing")?;
    let sessions = sessions(&admin, if quick { 50 } else { 1_000 }).await?;
    tell("slow clients")?;
    let slow = slow_clients(
        &server,
        &admin,
        if quick { 200 } else { 5_000 },
        if quick { 100 } else { 1_000 },
    )
    .await?;
    let verified: Value = admin
        .call(Method::GET, "/v1/audit/verify", None::<&Value>)
        .await?;
    server.end();
    Ok(json!({
        "store": if store.is_some() { "postgresql" } else { "sqlite" },
        "levels": levels, "fairness": fairness, "sessions": sessions, "slow_clients": slow, "audit": verified,
    }))
}

/// What many took, each.
#[derive(Default)]
struct Load {
    micros: Vec<u64>,
    seconds: f64,
    refused: u64,
}

impl Load {
    fn add(&mut self, other: Self) {
        self.micros.extend(other.micros);
        self.seconds += other.seconds;
        self.refused += other.refused;
    }

    fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let rank = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
        sorted.get(rank).map_or(0.0, |micros| *micros as f64 / 1e3)
    }

    fn shown(&self) -> Value {
        json!({
            "per_second": self.micros.len() as f64 / self.seconds, "p50_ms": self.percentile(0.5),
            "p99_ms": self.percentile(0.99), "refused": self.refused,
        })
    }
}

async fn direct_load(engine: &Arc<Engine>, level: usize, seconds: f64) -> Measured<Load> {
    let policy = Policy::builtin("standard").ok_or("no policy")?;
    let request = Request::code(Language::Python, CODE.as_bytes());
    let shared = Arc::new((policy, request));
    let engine = Arc::clone(engine);
    closed_loop(level, seconds, move || {
        let (engine, shared) = (Arc::clone(&engine), Arc::clone(&shared));
        async move {
            let ran = engine.execute(&shared.0, &shared.1, ExecuteIo::default()).await?;
            match ran.outcome.stdout.bytes() {
                b"2\n" => Ok(true),
                other => Err(format!("it printed {other:?}").into()),
            }
        }
    })
    .await
}

async fn served_load(client: &Client, code: &str, level: usize, seconds: f64) -> Measured<Load> {
    let (client, code) = (client.clone(), Arc::<str>::from(code));
    closed_loop(level, seconds, move || {
        let (client, code) = (client.clone(), Arc::clone(&code));
        async move { once(&client, &code).await }
    })
    .await
}

/// One execution; false if the service said to come again.
async fn once(client: &Client, code: &str) -> Measured<bool> {
    let body = json!({ "code": code, "policy_id": "load" });
    match client
        .call::<Value>(Method::POST, "/v1/executions", Some(&body))
        .await
    {
        Ok(answer) if answer["outcome"]["stdout"] == "2\n" => Ok(true),
        Ok(answer) => Err(format!("it answered {answer}").into()),
        Err(ClientError::Problem(problem)) if problem.status == 429 => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// So many who each ask again as soon as they are answered.
async fn closed_loop<F>(
    level: usize,
    seconds: f64,
    ask: impl Fn() -> F + Clone + Send + 'static,
) -> Measured<Load>
where
    F: Future<Output = Measured<bool>> + Send,
{
    let (began, until) = (Instant::now(), Instant::now() + Duration::from_secs_f64(seconds));
    let tasks: Vec<_> = (0..level)
        .map(|_| {
            let ask = ask.clone();
            tokio::spawn(async move {
                let (mut micros, mut refused) = (Vec::new(), 0);
                while Instant::now() < until {
                    let asked = Instant::now();
                    match ask().await? {
                        true => micros.push(asked.elapsed().as_micros() as u64),
                        false => refused += 1,
                    }
                }
                Measured::Ok((micros, refused))
            })
        })
        .collect();
    let mut load = Load::default();
    for task in tasks {
        let (micros, refused) = task.await??;
        load.micros.extend(micros);
        load.refused += refused;
    }
    load.seconds = began.elapsed().as_secs_f64();
    Ok(load)
}

/// Keys of a calm tenant and of one that floods.
async fn tenants(admin: &Client) -> Measured<[String; 2]> {
    let mut keys = [String::new(), String::new()];
    for (tenant, key) in ["calm", "flood"].into_iter().zip(&mut keys) {
        let body = json!({ "tenant_id": tenant });
        let _: Value = admin.call(Method::POST, "/v1/tenants", Some(&body)).await?;
        let body = json!({ "tenant_id": tenant, "roles": ["run"] });
        let made: Value = admin.call(Method::POST, "/v1/keys", Some(&body)).await?;
        *key = made["key"].as_str().unwrap_or_default().to_owned();
    }
    Ok(keys)
}

/// One tenant alone, and the same beside another that sends as much as it can.
async fn beside_a_flood(server: &Server, keys: &[String; 2], code: &str, seconds: f64) -> Measured<Value> {
    let calm = server.client(&keys[0])?;
    let (mut alone, mut beside, mut flooded) = (Load::default(), Load::default(), Vec::new());
    for _ in 0..3 {
        alone.add(served_load(&calm, CODE, 1, seconds).await?);
        let url = format!("http://{}", server.address);
        // A process of its own, as it would be: nobody waits in the queues of another's client.
        let flooding = tokio::process::Command::new(std::env::current_exe()?)
            .args([FLOOD, &url, &keys[1], code, &(seconds + 1.0).to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        beside.add(served_load(&calm, CODE, 1, seconds).await?);
        flooded.push(serde_json::from_slice::<Value>(
            &flooding.wait_with_output().await?.stdout,
        )?);
    }
    let rate = |load: &Value| load["per_second"].as_f64().unwrap_or_default();
    Ok(json!({
        "alone": alone.shown(), "beside_a_flood": beside.shown(),
        "the_flood": { "per_second": flooded.iter().map(rate).sum::<f64>() / flooded.len() as f64, "each": flooded },
        "p99_ratio": beside.percentile(0.99) / alone.percentile(0.99),
    }))
}

/// Memory of sessions that do nothing, each.
async fn sessions(admin: &Client, count: u64) -> Measured<Value> {
    let open = async || -> Measured<String> {
        let body = json!({ "policy_id": "load" });
        let made: Value = admin.call(Method::POST, "/v1/sessions", Some(&body)).await?;
        Ok(made["session_id"].as_str().unwrap_or_default().to_owned())
    };
    // What there is of any number of them is there with the first.
    let mut ids = vec![open().await?];
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = tree::memory();
    let began = Instant::now();
    for _ in 1..count {
        ids.push(open().await?);
    }
    let seconds = began.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = tree::memory();
    let each = before
        .zip(after)
        .map(|(before, after)| after.saturating_sub(before) / (count - 1).max(1));
    for id in ids {
        let _: Value = admin
            .call(Method::DELETE, &format!("/v1/sessions/{id}"), None::<&Value>)
            .await?;
    }
    Ok(json!({ "sessions": count, "bytes_each": each, "opened_per_second": (count - 1) as f64 / seconds }))
}

/// Many who begin a request and do not end it, and many who run something meanwhile.
async fn slow_clients(server: &Server, admin: &Client, slow: usize, runs: usize) -> Measured<Value> {
    let mut sockets = Vec::new();
    for _ in 0..slow {
        let mut socket = tokio::net::TcpStream::connect(&server.address).await?;
        socket.write_all(b"POST /v1/executions HTTP/1.1\r\nHo").await?;
        sockets.push(socket);
    }
    let began = Instant::now();
    let tasks: Vec<_> = (0..runs)
        .map(|_| {
            let admin = admin.clone();
            tokio::spawn(async move { once(&admin, CODE).await })
        })
        .collect();
    let (mut ran, mut busy, mut failed) = (0, 0, Vec::new());
    for task in tasks {
        match task.await? {
            Ok(true) => ran += 1,
            Ok(false) => busy += 1,
            Err(error) => failed.push(error.to_string()),
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    drop(sockets);
    failed.truncate(3);
    Ok(
        json!({ "slow": slow, "runs": runs, "ran": ran, "told_to_come_again": busy, "failed": failed, "seconds": seconds }),
    )
}

struct Server {
    child: Child,
    address: String,
    key: String,
}

impl Server {
    fn start(program: &str, home: &Path, store: Option<&str>) -> Measured<Self> {
        let mut command = Command::new(program);
        command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--queue",
                "2000",
                "--sessions",
                "2000",
            ])
            .env("BELLJAR_HOME", home)
            .env("BELLJAR_LOG_LEVEL", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(store) = store {
            command.args(["--store", store]);
        }
        let mut child = command.spawn()?;
        let mut messages = BufReader::new(child.stderr.take().ok_or("no messages")?);
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            if messages.read_line(&mut line)? == 0 {
                return Err(format!("it ended at once: {said}").into());
            }
            if let Some((_, rest)) = line.split_once("serving on http://") {
                break rest.split(',').next().unwrap_or_default().to_owned();
            }
            said += &line;
        };
        std::thread::spawn(move || {
            let _ = messages.read_to_string(&mut String::new());
        });
        let mut key = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut key)?;
        Ok(Self {
            child,
            address,
            key: key.trim().to_owned(),
        })
    }

    fn client(&self, key: &str) -> Measured<Client> {
        Ok(Client::remote(&format!("http://{}", self.address), Some(key))?)
    }

    fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says to whoever waits what is being measured.
fn tell(what: &str) -> Measured<()> {
    Ok(writeln!(std::io::stderr(), "bench: {what}")?)
}
