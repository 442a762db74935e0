//! Times every wall of this machine beside what people use by hand, in turns in one run; prints JSON.
//!
//! `belljar-bench-providers SOCKET IMAGE BUNDLE [ROUNDS]`: the socket of a Docker engine, an image with Python there, and a bundle for
//! `runsc` that runs `python3 -c pass`; `-` for what is not there.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a program that prints what it measured, and has nobody to give errors to"
)]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar::{Engine, ExecuteIo, Language, Policy, Provider, ProviderName, Request, Session};
use belljar_linux::NativeProvider;
use belljar_providers::{DockerProvider, DockerSettings, GvisorProvider, GvisorSettings, VenvProvider};
use serde_json::{Value, json};

/// How long the load lasts.
const LOAD: Duration = Duration::from_secs(5);
/// How many sessions idle at once.
const IDLE: usize = 8;

struct Wall {
    name: &'static str,
    provider: ProviderName,
    engine: Engine,
    image: Option<String>,
    /// What is waited for between two runs, so that what is made ahead can be.
    pause: Duration,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, image, bundle, rest @ ..] = &words[..] else {
        println!("{{\"error\": \"SOCKET IMAGE BUNDLE [ROUNDS]\"}}");
        std::process::exit(2);
    };
    let rounds = rest.first().and_then(|word| word.parse().ok()).unwrap_or(20);
    let walls = walls(socket, image);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); walls.len() + 3];
    // In turns, so that noise hits all alike; the first round is for warming up.
    for round in 0..=rounds {
        for (wall, times) in walls.iter().zip(&mut times) {
            std::thread::sleep(wall.pause);
            let began = Instant::now();
            runtime.block_on(once(wall));
            if round > 0 {
                times.push(began.elapsed());
            }
        }
        for (at, command) in by_hand(socket, image, bundle).into_iter().enumerate() {
            let Some(mut command) = command else { continue };
            let began = Instant::now();
            let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            assert!(ended.is_ok_and(|status| status.success()), "{command:?}");
            if round > 0 {
                times[walls.len() + at].push(began.elapsed());
            }
        }
    }
    let mut rows: Vec<Value> = Vec::new();
    for (wall, times) in walls.iter().zip(&times) {
        let rate = runtime.block_on(load(wall));
        let memory = runtime.block_on(idle(wall));
        rows.push(
            json!({ "name": wall.name, "p50_ms": percentile(times, 50), "p99_ms": percentile(times, 99),
            "runs": times.len(), "per_second": rate, "idle_session_mib": memory }),
        );
    }
    for (name, times) in ["docker run", "docker exec", "runsc run"]
        .iter()
        .zip(&times[walls.len()..])
    {
        if !times.is_empty() {
            rows.push(
                json!({ "name": name, "p50_ms": percentile(times, 50), "p99_ms": percentile(times, 99),
                "runs": times.len() }),
            );
        }
    }
    println!("{}", json!({ "rows": rows }));
}

fn walls(socket: &str, image: &str) -> Vec<Wall> {
    let wall = |name, provider, engine: Arc<dyn Provider>, image: Option<&str>, pause| Wall {
        name,
        provider,
        engine: Engine::new(engine),
        image: image.map(str::to_owned),
        pause: Duration::from_millis(pause),
    };
    let mut walls = vec![
        wall(
            "native, warm",
            ProviderName::Native,
            Arc::new(NativeProvider::new()),
            None,
            10,
        ),
        wall("venv", ProviderName::Venv, Arc::new(VenvProvider::new()), None, 0),
    ];
    let gvisor = |stock| {
        Arc::new(GvisorProvider::new(GvisorSettings {
            stock: Some(stock),
            ..GvisorSettings::default()
        }))
    };
    if gvisor(0).presence().is_ok() {
        walls.push(wall("gvisor, cold", ProviderName::Gvisor, gvisor(0), None, 0));
        walls.push(wall("gvisor, warm", ProviderName::Gvisor, gvisor(2), None, 700));
    }
    if socket != "-" {
        let docker = |stock, runtime: Option<&str>| {
            Arc::new(DockerProvider::new(DockerSettings {
                host: Some(format!("unix://{socket}")),
                stock: Some(stock),
                runtime: runtime.map(str::to_owned),
                ..DockerSettings::default()
            }))
        };
        walls.push(wall(
            "docker, cold",
            ProviderName::Docker,
            docker(0, None),
            Some(image),
            0,
        ));
        walls.push(wall(
            "docker, warm",
            ProviderName::Docker,
            docker(2, None),
            Some(image),
            700,
        ));
        walls.push(wall(
            "docker with runsc, warm",
            ProviderName::Docker,
            docker(2, Some("runsc")),
            Some(image),
            900,
        ));
    }
    walls
}

fn by_hand(socket: &str, image: &str, bundle: &str) -> [Option<Command>; 3] {
    let docker = |words: &[&str]| {
        let mut command = Command::new("docker");
        command.args(["-H", &format!("unix://{socket}")]).args(words);
        command
    };
    let has_docker = socket != "-";
    let python = ["python3", "-I", "-S", "-c", "print(1 + 1)"];
    let run = has_docker.then(|| {
        let mut command = docker(&["run", "--rm", "--network=none", image]);
        command.args(python);
        command
    });
    let exec = has_docker.then(|| {
        let mut command = docker(&["exec", "belljar-bench"]);
        command.args(python);
        command
    });
    let runsc = (bundle != "-").then(|| {
        let id = format!("bench-{}", std::process::id());
        let mut command = Command::new("runsc");
        command.args([
            "--network=none",
            "--platform=systrap",
            "--ignore-cgroups",
            "run",
            "--bundle",
            bundle,
            &id,
        ]);
        command
    });
    [run, exec, runsc]
}

fn request(wall: &Wall) -> Request {
    let mut request = Request::code(Language::Python, *b"print(1 + 1)");
    request.provider = Some(wall.provider);
    request.image.clone_from(&wall.image);
    request.approved = wall.provider == ProviderName::Venv;
    request
}

async fn once(wall: &Wall) {
    let request = request(wall);
    let policy = Policy::for_owner(&request).expect("a policy");
    let run = wall.engine.execute(&policy, &request, ExecuteIo::default()).await;
    let run = run.expect("a run");
    assert_eq!(
        run.outcome.stdout.text(),
        "2\n",
        "{}: {:?}",
        wall.name,
        run.outcome.error
    );
}

/// Runs in a second, two at a time without pause.
async fn load(wall: &Wall) -> f64 {
    let began = Instant::now();
    let some = async {
        let mut count = 0u32;
        while began.elapsed() < LOAD {
            once(wall).await;
            count += 1;
        }
        count
    };
    let others = async {
        let mut count = 0u32;
        while began.elapsed() < LOAD {
            once(wall).await;
            count += 1;
        }
        count
    };
    let (one, other) = tokio::join!(some, others);
    f64::from(one + other) / began.elapsed().as_secs_f64()
}

/// Memory of the machine that one idle session takes, in MiB.
async fn idle(wall: &Wall) -> f64 {
    let session = async || {
        let builder = Session::builder().engine(&wall.engine).provider(wall.provider);
        let builder = match &wall.image {
            Some(image) => builder.image(image),
            None => builder,
        };
        let builder = if wall.provider == ProviderName::Venv {
            builder.approve()
        } else {
            builder
        };
        let session = builder.build().await.expect("a session");
        session.execute("x = 1").await.expect("a cell");
        session
    };
    // What the first one brings with it stays.
    let first = session().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = available();
    let mut open = Vec::new();
    for _ in 0..IDLE {
        open.push(session().await);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let taken = before - available();
    for session in open.into_iter().chain([first]) {
        session.close().await.expect("the end of a session");
    }
    taken / IDLE as f64
}

fn available() -> f64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("meminfo");
    let row = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: f64 = row
        .and_then(|row| row.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .expect("a number");
    kib / 1024.0
}

fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}
