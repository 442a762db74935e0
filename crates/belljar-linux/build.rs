//! Builds what is embedded and is no part of this crate: the library that Python's zygote loads (src/sys/native), and the agent
//! (src/sys/agent).

use std::path::{Path, PathBuf};
use std::process::Command;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let source = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("src/sys");
    let out = PathBuf::from(variable("OUT_DIR")?);
    // They have no runtime. What the library needs of C's and of Python's it finds in the process that loads it.
    build(&source.join("native"), "lib.rs", &out.join("zygote.so"))?;
    build(&source.join("agent"), "main.rs", &out.join("agent"))
}

fn build(source: &Path, root: &str, result: &Path) -> Outcome {
    println!("cargo::rerun-if-changed={}", source.display());
    let flags = std::fs::read_to_string(source.join("flags"))?;
    let mut rustc = Command::new(variable("RUSTC")?);
    rustc
        .args(flags.lines())
        .args(["--target", &variable("TARGET")?])
        .arg("-o")
        .arg(result)
        .arg(source.join(root));
    if let Ok(linker) = variable("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let status = rustc.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{} could not be built: {status}", source.display()).into())
    }
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("cargo did not set {name}"))
}
