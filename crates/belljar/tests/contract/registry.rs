//! A registry of the test's own, on loopback: an image is fetched from it, and how far that is is told.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use belljar::{DenialCode, Engine, ExecuteIo, Language, Policy, ProviderName, Request};
use belljar_engine::EngineError;
use belljar_providers::{DockerProvider, DockerSettings};
use sha2::{Digest, Sha256};

use super::{block_on, engines, spawn};

const NAME: &str = "team/empty";

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

#[test]
fn an_image_is_fetched_and_how_far_it_is_is_told() {
    let Some(own) = engines::docker(spawn) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (image, told) = (Arc::new(image()), Arc::new(Mutex::new(Vec::new())));
    let served = Arc::clone(&image);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let image = Arc::clone(&served);
            std::thread::spawn(move || serve(&image, stream));
        }
    });
    let hears = Arc::clone(&told);
    let engine = Engine::new(Arc::new(DockerProvider::new(DockerSettings {
        host: Some(format!("unix://{}", own.socket.display())),
        progress: Some(Arc::new(move |text: &str| {
            hears.lock().expect("a list").push(text.to_owned())
        })),
        ..DockerSettings::default()
    })));
    let name = format!("localhost:{port}/{NAME}");
    let mut request = Request::code(Language::Python, *b"print(1)");
    request.provider = Some(ProviderName::Docker);
    request.image = Some(name.clone());
    let policy = Policy::for_owner(&request).expect("a policy");
    // It was fetched, and looked into: it has no Python.
    match block_on(engine.execute(&policy, &request, ExecuteIo::default())) {
        Err(EngineError::Denied { denial, .. }) => {
            assert_eq!(denial.code, DenialCode::LanguageUnavailable, "{denial:?}");
        }
        other => panic!("{other:?}"),
    }
    let told = told.lock().expect("a list").clone();
    assert_eq!(
        told.first(),
        Some(&format!("fetching the image {name}")),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|line| line.contains(" of 1.0 MB") || line.contains(" of 1.1 MB")),
        "{told:?}"
    );
    assert_eq!(told.last(), Some(&format!("{name} is there")), "{told:?}");
    assert!(image.asked.load(Ordering::Relaxed) > 2);
    // The second time it is there.
    let before = image.asked.load(Ordering::Relaxed);
    assert!(block_on(engine.execute(&policy, &request, ExecuteIo::default())).is_err());
    assert_eq!(image.asked.load(Ordering::Relaxed), before);
}
