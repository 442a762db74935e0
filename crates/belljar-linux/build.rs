//! Builds the library that Python's zygote loads (src/sys/native), to be embedded like the other files of the runners.

use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("cargo did not set {name}"));
    let source = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("src/sys/native");
    println!("cargo::rerun-if-changed={}", source.display());
    // It has no runtime: what it needs of C's and of Python's it finds in the process that loads it.
    let flags = std::fs::read_to_string(source.join("flags"))?;
    let mut rustc = Command::new(variable("RUSTC")?);
    rustc
        .args(flags.lines())
        .args(["--target", &variable("TARGET")?])
        .arg("-o")
        .arg(PathBuf::from(variable("OUT_DIR")?).join("zygote.so"))
        .arg(source.join("lib.rs"));
    if let Ok(linker) = variable("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let status = rustc.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("src/sys/native could not be built: {status}").into())
    }
}
