//! Environment variables that make a program run something when it starts.
//!
//! An interpreter of a session starts before anybody has approved the first thing that it executes, and uploaded files are there
//! already. A variable that names code would run it then, uncounted and unseen. The table is data: each row says which program or
//! library reads the variable, and what that runs.

/// A variable, or all whose names begin that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartupVariable {
    /// Compared without regard to case: some programs do so as well.
    pub name: &'static str,
    /// Whether longer names that begin with it are meant too.
    pub is_prefix: bool,
    /// Who reads it, and what that runs.
    pub why: &'static str,
}

const fn prefix(name: &'static str, why: &'static str) -> StartupVariable {
    StartupVariable {
        name,
        is_prefix: true,
        why,
    }
}

const fn exact(name: &'static str, why: &'static str) -> StartupVariable {
    StartupVariable {
        name,
        is_prefix: false,
        why,
    }
}

/// All of them.
pub const STARTUP_VARIABLES: &[StartupVariable] = &[
    prefix("LD_", "the dynamic loader loads libraries that it names"),
    prefix(
        "GLIBC_TUNABLES",
        "the C library changes its allocator and its checks by it",
    ),
    prefix("GCONV_PATH", "the C library loads character converters from it"),
    prefix("LOCPATH", "the C library reads locales from it"),
    prefix("NLSPATH", "the C library reads format strings from it"),
    prefix(
        "OPENSSL_",
        "OpenSSL loads the providers and engines that its configuration names",
    ),
    prefix("KRB5_", "Kerberos loads the plugins that its configuration names"),
    prefix("SASL_PATH", "SASL loads plugins from it"),
    prefix("PKCS11_", "it names a library for keys"),
    prefix("NODE_", "Node takes options and modules from it"),
    prefix("NPM_CONFIG_", "npm takes scripts and shells from it"),
    prefix("TS_NODE_", "ts-node takes modules from it"),
    prefix("DENO_", "Deno takes options from it"),
    prefix("BUN_", "Bun takes options from it"),
    prefix("PYTHON", "Python takes paths, start-up files and modules from it"),
    prefix(
        "COVERAGE_PROCESS_START",
        "coverage runs the plugins of its configuration",
    ),
    prefix(
        "MATPLOTLIBRC",
        "matplotlib imports the backend that its configuration names",
    ),
    prefix("MPLBACKEND", "matplotlib imports the module that it names"),
    prefix("IPYTHONDIR", "IPython runs the start-up files in it"),
    prefix("JUPYTER_", "Jupyter runs the configuration in it"),
    prefix("PERL", "Perl loads modules and takes options from it"),
    prefix("RUBY", "Ruby loads libraries and takes options from it"),
    prefix("BUNDLE_", "Bundler runs the Gemfile that it names"),
    prefix("GEM_", "RubyGems loads plugins from it"),
    prefix(
        "PHP",
        "PHP reads its configuration, which names files to run, from it",
    ),
    prefix("LUA_", "Lua runs what it holds and loads modules from it"),
    prefix("JAVA_TOOL_OPTIONS", "Java takes agents and options from it"),
    prefix("_JAVA_OPTIONS", "Java takes agents and options from it"),
    prefix("JDK_JAVA_OPTIONS", "Java takes agents and options from it"),
    prefix("CLASSPATH", "Java loads classes from it"),
    prefix("MAVEN_", "Maven takes options from it"),
    prefix("GRADLE_", "Gradle takes options from it"),
    prefix("DOTNET_", ".NET loads start-up hooks and profilers that it names"),
    prefix("CORECLR_", ".NET loads the profiler that it names"),
    prefix("BASH_", "bash runs the file or the function that it holds"),
    prefix("BASHOPTS", "bash takes options from it"),
    prefix(
        "SHELLOPTS",
        "shells take options from it, tracing with PS4 among them",
    ),
    prefix("PROMPT_COMMAND", "bash runs it"),
    prefix("ZDOTDIR", "zsh runs the start-up files in it"),
    exact("ENV", "shells run the file that it names"),
    exact("PS4", "shells run the substitutions in it while they trace"),
    prefix("LESSOPEN", "less runs it"),
    prefix("GIT_", "git runs hooks, pagers and editors that it names"),
    prefix("GOFLAGS", "Go runs the tools that it names"),
    prefix("GOENV", "Go takes its settings from the file that it names"),
    prefix("RUSTC", "cargo runs it in the place of the compiler"),
    prefix("RUSTFLAGS", "the Rust compiler runs the linker that it names"),
    prefix("CARGO_", "cargo runs programs that it names"),
    prefix("GCC_EXEC_PREFIX", "gcc runs its parts from it"),
    prefix("COMPILER_PATH", "gcc runs its parts from it"),
    prefix("R_PROFILE", "R runs the profile that it names"),
    prefix("R_ENVIRON", "R takes its settings from the file that it names"),
    prefix("R_LIBS", "R loads packages from it"),
    prefix("JULIA_", "Julia runs start-up files from it"),
    prefix("TERMINFO", "terminal libraries read descriptions from it"),
    prefix(
        "XDG_CONFIG_",
        "programs read configuration from it, which may name code",
    ),
    prefix("XDG_DATA_", "programs read plugins from it"),
    prefix("GTK_", "GTK loads modules that it names"),
    prefix("GIO_", "GLib loads modules that it names"),
    prefix("GST_", "GStreamer loads plugins that it names"),
    prefix("QT_", "Qt loads plugins that it names"),
    prefix("LIBGL_", "graphics libraries load drivers that it names"),
    prefix("VK_ICD_", "Vulkan loads drivers that it names"),
    prefix("VK_DRIVER_", "Vulkan loads drivers that it names"),
    prefix("VK_LAYER_", "Vulkan loads layers from it"),
    prefix("VK_INSTANCE_LAYERS", "Vulkan loads layers that it names"),
    prefix("OCL_ICD_", "OpenCL loads drivers that it names"),
];

/// The row for a variable of this name.
pub fn startup_variable(name: &str) -> Option<&'static StartupVariable> {
    STARTUP_VARIABLES.iter().find(|row| row.covers(name))
}

impl StartupVariable {
    fn covers(&self, name: &str) -> bool {
        let Some((head, rest)) = name.as_bytes().split_at_checked(self.name.len()) else {
            return false;
        };
        head.eq_ignore_ascii_case(self.name.as_bytes()) && (self.is_prefix || rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p65_variables_that_run_code_are_known_by_name_and_beginning() {
        for name in [
            "LD_PRELOAD",
            "OPENSSL_CONF",
            "openssl_conf",
            "OPENSSL_MODULES",
            "NODE_OPTIONS",
            "npm_config_script_shell",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "RUBYOPT",
            "PHPRC",
            "PHP_INI_SCAN_DIR",
            "LUA_INIT_5_4",
            "JAVA_TOOL_OPTIONS",
            "_JAVA_OPTIONS",
            "JDK_JAVA_OPTIONS",
            "BASH_ENV",
            "BASH_FUNC_ls%%",
            "ENV",
            "GIT_SSH_COMMAND",
            "RUSTC_WRAPPER",
            "R_PROFILE_USER",
            "GCONV_PATH",
        ] {
            assert!(startup_variable(name).is_some(), "{name}");
        }
        for name in [
            "",
            "PATH",
            "HOME",
            "LANG",
            "TZ",
            "ENVIRONMENT",
            "API_KEY",
            "MY_PYTHON",
            "DEBUG",
            "É",
        ] {
            assert_eq!(startup_variable(name), None, "{name}");
        }
    }

    #[test]
    fn each_row_has_its_reason_and_says_something_new() {
        for (at, row) in STARTUP_VARIABLES.iter().enumerate() {
            assert!(!row.name.is_empty() && row.why.len() > 10, "{row:?}");
            let first = STARTUP_VARIABLES.iter().position(|other| other.covers(row.name));
            assert_eq!(first, Some(at), "{row:?}");
        }
    }

    /// What an interpreter itself reads when it starts is part of the same table.
    #[test]
    fn the_variables_of_each_language_are_among_them() {
        for recipe in crate::language::TABLE.iter().flat_map(|spec| spec.recipes) {
            assert_eq!(
                recipe.runner.is_some(),
                recipe.code_variables.contains(&"OPENSSL_")
            );
            for name in recipe.code_variables {
                assert!(startup_variable(name).is_some(), "{name}");
            }
        }
    }
}
