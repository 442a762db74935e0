//! Why an archive was refused.

use std::io;

use belljar_core::Bytes;
use belljar_core::path::PathError;
use zip::result::ZipError;

use super::MOST_ENTRIES;

/// Why an archive was refused. Names of entries are escaped: they are the archive's own words.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("cannot {operation} {object}: {source}")]
    Io {
        operation: &'static str,
        object: String,
        source: io::Error,
    },
    #[error("cannot read {object}: it is neither a tar, a tar.gz nor a zip archive")]
    Unrecognised { object: String },
    /// The archive does not keep to its own format.
    #[error("cannot read {object}: {flaw}")]
    Malformed { object: String, flaw: &'static str },
    #[error("cannot read {object}: {source}")]
    Zip { object: String, source: ZipError },
    #[error("cannot unpack {object}: it has more than {MOST_ENTRIES} entries")]
    TooMany { object: String },
    #[error("cannot unpack `{entry}`: with it the archive holds more than {limit}")]
    TooLarge { entry: String, limit: Bytes },
    #[error("cannot unpack `{entry}`: {source}")]
    Path { entry: String, source: PathError },
    #[error("cannot unpack `{entry}`: its name {flaw}")]
    Name { entry: String, flaw: &'static str },
    #[error("cannot unpack `{entry}`: it is {kind}")]
    Kind { entry: String, kind: &'static str },
    #[error("cannot unpack `{entry}`: the archive has it twice")]
    Twice { entry: String },
    #[error("cannot unpack `{entry}`: `{file}` is a file and cannot be a directory as well")]
    BelowFile { entry: String, file: String },
    #[error("cannot unpack `{entry}`: it is encrypted")]
    Encrypted { entry: String },
}

impl ArchiveError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check that the file is a whole archive that you may read",
            Self::Unrecognised { .. } => "pack it as .tar, .tar.gz or .zip",
            Self::Malformed { .. } | Self::Zip { .. } => {
                "it is damaged, cut short, or made to be read in two ways; pack it again"
            }
            Self::TooMany { .. } | Self::TooLarge { .. } => {
                "leave out what the program does not need, raise the disk limit, or mount the directory instead"
            }
            Self::Path { .. } | Self::Name { .. } => {
                "names must be plain text, relative, with `/` between their parts and no `..`"
            }
            Self::Kind { .. } => {
                "only plain files and directories are taken; pack with links followed (tar -h)"
            }
            Self::Twice { .. } | Self::BelowFile { .. } => "pack it again from a directory",
            Self::Encrypted { .. } => "pack it again without a password",
        }
    }
}
