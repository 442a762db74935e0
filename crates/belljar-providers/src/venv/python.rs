//! A virtual environment for the moment: what `python -m venv` makes, without asking Python.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use belljar_core::{Language, Plan};

/// What such an environment changes for its guests.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    pub places: Vec<(String, String)>,
    pub variables: Vec<(String, String)>,
}

/// Makes one below `dir` for a plan that runs Python and names no environment of its own.
pub(super) fn fresh(plan: &Plan, dir: &Path) -> io::Result<Fresh> {
    let stage = plan.stages().last();
    let program = stage.and_then(|stage| stage.argv().first());
    let (Some(Language::Python), None, Some(program)) = (plan.language(), plan.environment(), program) else {
        return Ok(Fresh::default());
    };
    let program = Path::new(program);
    let (Some(home), true) = (program.parent(), program.is_absolute()) else {
        return Ok(Fresh::default());
    };
    let (root, bin) = (dir.join("venv"), dir.join("venv/bin"));
    fs::create_dir_all(&bin)?;
    let settings = format!("home = {}\ninclude-system-site-packages = true\n", home.display());
    fs::write(root.join("pyvenv.cfg"), settings)?;
    for name in ["python", "python3"] {
        symlink(program, bin.join(name))?;
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Ok(Fresh {
        places: vec![(text(program), text(&bin.join("python3")))],
        variables: vec![
            ("VIRTUAL_ENV".to_owned(), text(&root)),
            (
                "PATH".to_owned(),
                format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()),
            ),
        ],
    })
}
