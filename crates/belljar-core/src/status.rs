//! The small vocabularies of REQUIREMENTS R1; each serialises to its lower-case word.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Declares an enum whose variants are words: `Display`, `FromStr` and serde all use the word.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl FromStr for $name {
            type Err = $crate::status::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|value| value.word() == text).ok_or_else(|| {
                    $crate::status::UnknownWord {
                        text: text.to_owned(),
                        known: Self::ALL.iter().map(|value| value.word()).collect(),
                    }
                })
            }
        }
    };
}
pub(crate) use words;

/// A word that is not one of those a vocabulary knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not known; use one of {}", known.join(", "))]
pub struct UnknownWord {
    pub text: String,
    pub known: Vec<&'static str>,
}

words! {
    /// How an execution stands.
    SandboxStatus {
        Pending = "pending",
        Running = "running",
        /// The program ran to its own end and returned 0.
        Completed = "completed",
        /// It ended with another exit code or a crash, ran out of memory, did not compile, or was refused.
        Failed = "failed",
        /// A time limit ended it.
        Timeout = "timeout",
        /// Somebody ended it: the caller, or a machine that went down.
        Killed = "killed",
    }
}

words! {
    /// How strong the wall is, weakest first.
    IsolationLevel {
        None = "none",
        Process = "process",
        Container = "container",
        Vm = "vm",
    }
}

words! {
    /// A wall by its name, weakest first.
    ProviderName {
        /// None at all: code that is trusted.
        Venv = "venv",
        /// Namespaces and filters of the machine's own kernel.
        Native = "native",
        /// Containers of Docker or Podman.
        Docker = "docker",
        /// A kernel of its own in user space.
        Gvisor = "gvisor",
    }
}

impl ProviderName {
    /// How strong its wall is.
    pub const fn isolation(self) -> IsolationLevel {
        match self {
            Self::Venv => IsolationLevel::None,
            Self::Native => IsolationLevel::Process,
            Self::Docker | Self::Gvisor => IsolationLevel::Container,
        }
    }

    /// Whether its sandboxes can be made of an image.
    pub const fn has_images(self) -> bool {
        matches!(self, Self::Docker)
    }
}

words! {
    /// What of the network a guest may reach, least first.
    NetworkPolicy {
        /// An empty network namespace.
        None = "none",
        /// Its own loopback only.
        Local = "local",
        /// Named hosts only.
        Restricted = "restricted",
        /// Every public address.
        Full = "full",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R1: each enum serialises to the lower-case words of the vocabulary table.
    #[test]
    fn enums_serialise_to_their_lower_case_words() {
        fn words_of<T: Serialize>(values: &[T]) -> Vec<String> {
            values
                .iter()
                .map(|value| serde_json::to_value(value).unwrap().as_str().unwrap().to_owned())
                .collect()
        }
        assert_eq!(
            words_of(SandboxStatus::ALL),
            ["pending", "running", "completed", "failed", "timeout", "killed"]
        );
        assert_eq!(
            words_of(IsolationLevel::ALL),
            ["none", "process", "container", "vm"]
        );
        assert_eq!(
            words_of(NetworkPolicy::ALL),
            ["none", "local", "restricted", "full"]
        );
        assert_eq!(
            words_of(crate::Lifecycle::ALL),
            ["setup", "ready", "running", "teardown", "error"]
        );
    }

    #[test]
    fn an_unknown_word_lists_the_known_ones() {
        let error = "bridged".parse::<NetworkPolicy>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`bridged` is not known; use one of none, local, restricted, full"
        );
    }
}
