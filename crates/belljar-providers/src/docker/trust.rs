//! Files that say whom guests trust, on the host, for engines to mount.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::scratch;

/// Those of one provider.
#[derive(Debug, Default)]
pub(super) struct TrustFiles(Mutex<Option<TempDir>>);

impl TrustFiles {
    /// The file with that in it.
    pub(super) fn with(&self, content: &[u8]) -> io::Result<PathBuf> {
        let mut dir = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever tidies up temporary files may have taken it.
        let dir = match dir.take().filter(|dir| dir.path().is_dir()) {
            Some(known) => dir.insert(known),
            None => {
                let made = scratch::directory("docker")?;
                // An engine may be another user's, and so are guests; there is nothing secret in it.
                fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755))?;
                dir.insert(made)
            }
        };
        let hash: String = Sha256::digest(content)[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let file = dir.path().join(format!("{hash}.pem"));
        if !file.exists() {
            let new = file.with_extension("new");
            fs::write(&new, content)?;
            fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
            fs::rename(&new, &file)?;
        }
        Ok(file)
    }
}
