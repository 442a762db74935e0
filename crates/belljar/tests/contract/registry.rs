//! A registry of the test's own, on loopback: an image is fetched from it, and how far that is is told.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar::{DenialCode, Engine, ExecuteIo, Language, Policy, ProviderName, Request};
use belljar_engine::EngineError;
use belljar_providers::{DockerProvider, DockerSettings};
use sha2::{Digest, Sha256};

use super::{block_on, engines, spawn};

const NAME: &str = "team/empty";
/// How long some answers take.
const SLOW: Duration = Duration::from_secs(30);

/// What a registry has of one image: its manifest, and what that names.
struct Image {
    manifest: Vec<u8>,
    blobs: Vec<(String, Vec<u8>)>,
    asked: AtomicUsize,
}

fn digest(bytes: &[u8]) -> String {
    let sum: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{sum}")
}

/// An image of one file, which is no program.
fn image() -> Image {
    let mut archive = tar::Builder::new(Vec::new());
    let content = vec![b'x'; 1 << 20];
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    archive
        .append_data(&mut header, "file", content.as_slice())
        .expect("a file");
    let layer = archive.into_inner().expect("an archive");
    let config = serde_json::json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config = config.to_string().into_bytes();
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": config.len(), "digest": digest(&config),
        },
        "layers": [{
            "mediaType": "application/vnd.docker.image.rootfs.diff.tar",
            "size": layer.len(), "digest": digest(&layer),
        }],
    });
    Image {
        manifest: manifest.to_string().into_bytes(),
        blobs: vec![(digest(&config), config), (digest(&layer), layer)],
        asked: AtomicUsize::new(0),
    }
}

fn serve(image: &Image, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut request, mut line) = (String::new(), String::new());
        if stream.read_line(&mut request)? == 0 {
            return Ok(());
        }
        while stream.read_line(&mut line)? > 2 {
            line.clear();
        }
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let kind = "application/vnd.docker.distribution.manifest.v2+json";
        let found = match path.rsplit('/').next().unwrap_or("") {
            "" => Some(("application/json", &b"{}"[..])),
            _ if path.contains("/manifests/") => Some((kind, &image.manifest[..])),
            name => image
                .blobs
                .iter()
                .find(|(digest, _)| digest == name)
                .map(|(_, blob)| ("application/octet-stream", &blob[..])),
        };
        image.asked.fetch_add(1, Ordering::Relaxed);
        if path.contains("/slow/") {
            std::thread::sleep(SLOW);
        }
        let (status, kind, body) = found.map_or(("404 Not Found", "text/plain", &b""[..]), |(kind, body)| {
            ("200 OK", kind, body)
        });
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
             Docker-Distribution-Api-Version: registry/2.0\r\n\r\n",
            body.len(),
            digest(body),
        );
        stream.get_mut().write_all(head.as_bytes())?;
        if method != "HEAD" {
            stream.get_mut().write_all(body)?;
        }
    }
}

/// A registry with one image under any name; below `slow/` it takes its time. Returns what it has and its port.
fn registry() -> (Arc<Image>, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let image = Arc::new(image());
    let served = Arc::clone(&image);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let image = Arc::clone(&served);
            std::thread::spawn(move || serve(&image, stream));
        }
    });
    (image, port)
}

fn request(image: &str) -> Request {
    let mut request = Request::code(Language::Python, *b"print(1)");
    request.provider = Some(ProviderName::Docker);
    request.image = Some(image.to_owned());
    request
}

/// Why a request was refused by the policy of whoever asks for it.
async fn refused(engine: &Engine, request: &Request) -> DenialCode {
    let policy = Policy::for_owner(request).expect("a policy");
    refused_by(&policy, engine, request).await
}

async fn refused_by(policy: &Policy, engine: &Engine, request: &Request) -> DenialCode {
    match engine.execute(policy, request, ExecuteIo::default()).await {
        Err(EngineError::Denied { denial, .. }) => denial.code,
        other => panic!("{other:?}"),
    }
}

fn docker(own: &engines::Engine, told: &Arc<Mutex<Vec<String>>>) -> Engine {
    let hears = Arc::clone(told);
    Engine::new(Arc::new(DockerProvider::new(DockerSettings {
        host: Some(format!("unix://{}", own.socket.display())),
        progress: Some(Arc::new(move |text: &str| {
            hears.lock().expect("a list").push(text.to_owned());
        })),
        ..DockerSettings::default()
    })))
}

#[test]
fn an_image_is_fetched_and_how_far_it_is_is_told() {
    let Some(own) = engines::docker(spawn) else { return };
    let ((image, port), told) = (registry(), Arc::default());
    let engine = docker(own, &told);
    let name = format!("localhost:{port}/{NAME}");
    // It was fetched, and looked into: it has no Python.
    let code = block_on(refused(&engine, &request(&name)));
    assert_eq!(code, DenialCode::LanguageUnavailable);
    let told = told.lock().expect("a list").clone();
    assert_eq!(
        told.first(),
        Some(&format!("fetching the image {name}")),
        "{told:?}"
    );
    let far = |line: &String| line.contains(" of 1.0 MB") || line.contains(" of 1.1 MB");
    assert!(told.iter().any(far), "{told:?}");
    assert_eq!(told.last(), Some(&format!("{name} is there")), "{told:?}");
    // The second time it is there.
    let before = image.asked.load(Ordering::Relaxed);
    assert!(before > 2);
    block_on(refused(&engine, &request(&name)));
    assert_eq!(image.asked.load(Ordering::Relaxed), before);
}

/// Fetching makes an engine speak to whoever the name says: that is for who writes policies.
#[test]
fn what_no_policy_lists_is_not_fetched() {
    let Some(own) = engines::docker(spawn) else { return };
    let (image, port) = registry();
    let engine = docker(own, &Arc::default());
    let request = request(&format!("localhost:{port}/{NAME}"));
    let mut policy = Policy::builtin("standard").expect("built in");
    let code = block_on(refused_by(&policy, &engine, &request));
    assert_eq!(code, DenialCode::ImageUnavailable);
    assert_eq!(image.asked.load(Ordering::Relaxed), 0, "somebody was asked");
    policy.allowed_images = vec![format!("localhost:{port}/*")];
    let code = block_on(refused_by(&policy, &engine, &request));
    assert_eq!(code, DenialCode::LanguageUnavailable);
}

/// One image that takes its time keeps nobody from another.
#[test]
fn a_slow_image_holds_up_nobody_else() {
    let Some(own) = engines::docker(spawn) else { return };
    let (image, port) = registry();
    let engine = docker(own, &Arc::default());
    block_on(async {
        let slow = request(&format!("localhost:{port}/slow/empty"));
        let waiting = {
            let engine = engine.clone();
            tokio::spawn(async move { refused(&engine, &slow).await })
        };
        while image.asked.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let other = request(engines::BARE_IMAGE);
        let code = tokio::time::timeout(SLOW / 2, refused(&engine, &other)).await;
        assert_eq!(code, Ok(DenialCode::LanguageUnavailable));
        assert!(!waiting.is_finished(), "it was not slow");
        waiting.abort();
    });
}
