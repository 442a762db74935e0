//! Whether the engine needs more memory while a guest prints without end.

use std::fs;

use belljar::{Bytes, Language, Seconds, native_engine};
use serde::Serialize;

use crate::{Measured, tree};

#[derive(Debug, Serialize)]
pub(crate) struct Printed {
    gib: u64,
    seconds: f64,
    /// How much more the engine had at its most than while 64 MiB were printed, which is past what is kept.
    grown: Option<u64>,
}

pub(crate) fn measure(gib: u64) -> Measured<Printed> {
    let engine = native_engine();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let print = |size: String| {
        let run = belljar::execute_code(format!("head -c {size} /dev/zero"))
            .language(Language::Bash)
            .engine(&engine)
            .timeout(Seconds::whole(300));
        runtime.block_on(async { run.await })
    };
    // Forgets the peak so far: other measurements have theirs.
    let forget = || fs::write("/proc/self/clear_refs", "5").is_ok();
    // The first one starts what is started once, the second fills what is kept.
    print("64M".to_owned())?;
    let reset = forget();
    print("64M".to_owned())?;
    let before = tree::own_status("VmHWM");
    let reset = reset && forget();
    let started = std::time::Instant::now();
    let outcome = print(format!("{gib}G"))?.outcome;
    let seconds = started.elapsed().as_secs_f64();
    let seen = outcome.stdout.bytes().len() as u64 + outcome.stdout.dropped();
    if !outcome.success() || seen != gib << 30 {
        return Err(format!(
            "printing {gib} GiB ended with {} after {}",
            outcome.status,
            Bytes::new(seen)
        )
        .into());
    }
    let peak = tree::own_status("VmHWM").filter(|_| reset);
    Ok(Printed {
        gib,
        seconds,
        grown: peak.zip(before).map(|(peak, before)| peak.saturating_sub(before)),
    })
}
