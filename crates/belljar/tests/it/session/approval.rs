//! P65: where code needs approval, nothing that was uploaded runs before something is approved.

use std::process::Command;

use belljar::{Language, Policy, Session, Value};

use super::{run, value, with};
use crate::again::{alone, test_name};
use crate::harness::TempDir;

/// A library that leaves a file behind as soon as it is loaded.
const LIBRARY: &str = r#"
#include <fcntl.h>
__attribute__((constructor)) static void load(void) { open("early", O_CREAT | O_WRONLY, 0644); }
static const struct { int id; void (*function)(void); } nothing[] = {{0, 0}};
int OSSL_provider_init(const void *handle, const void *in, const void **out, void **context) { *out = nothing; return 1; }
"#;

/// A configuration of OpenSSL that loads it.
const CONFIGURATION: &str = "nodejs_conf = all\nopenssl_conf = all\n[all]\nproviders = list\n[list]\nown = of_own\ndefault = of_default\n\
                             [of_default]\nactivate = 1\n[of_own]\nmodule = /workspace/own.so\nactivate = 1\n";

fn library() -> Vec<u8> {
    let dir = TempDir::new();
    dir.file("own.c", LIBRARY);
    let (source, made) = (dir.path().join("own.c"), dir.path().join("own.so"));
    let done = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&made, &source])
        .status()
        .expect("a C compiler");
    assert!(done.success());
    std::fs::read(made).expect("a library")
}

fn policy(require_approval: bool) -> Policy {
    Policy {
        require_approval,
        ..Policy::builtin("standard").expect("a policy")
    }
}

/// Whether the library was loaded before anything was executed is seen with a policy that asks nobody; that is the negative control.
#[test]
fn p65_openssl_conf_runs_nothing_before_approval() {
    alone(test_name!(), || {
        let library = library();
        let builder = |require_approval| {
            Session::builder()
                .language(Language::Javascript)
                .policy(policy(require_approval))
                .approve()
                .file("own.so", &library)
                .file("openssl.cnf", CONFIGURATION)
        };
        let unchecked = builder(false).env("OPENSSL_CONF", "/workspace/openssl.cnf");
        with(unchecked, async |session| {
            let early = value(session, "require('fs').existsSync('early')").await;
            assert_eq!(early, Value::Bool(true), "the attack itself does not work");
        });
        run(async {
            for name in [
                "OPENSSL_CONF",
                "NODE_OPTIONS",
                "LD_PRELOAD",
                "GCONV_PATH",
                "BASH_ENV",
            ] {
                let refused = builder(true).env(name, "/workspace/openssl.cnf").build().await;
                let error = refused.expect_err(name).to_string();
                assert!(error.contains(name) && error.contains("approves"), "{error}");
            }
        });
        with(builder(true), async |session| {
            let early = value(session, "require('fs').existsSync('early')").await;
            assert_eq!(early, Value::Bool(false));
        });
    });
}

/// A variable that nobody knows as harmful is not there either while an interpreter starts, and is once code runs.
#[test]
fn p65_an_interpreter_starts_without_the_variables_of_its_request() {
    alone(test_name!(), || {
        for (language, code) in [
            (
                Language::Javascript,
                "[process.env.SOMETHING_NEW, require('fs').readFileSync('/proc/self/environ', 'utf8').includes('SOMETHING_NEW')]",
            ),
            (
                Language::Python,
                "import os\n[os.environ['SOMETHING_NEW'], 'SOMETHING_NEW' in open('/proc/self/environ').read()]",
            ),
        ] {
            let builder = Session::builder()
                .language(language)
                .policy(Policy {
                    fresh_interpreter: true,
                    ..policy(true)
                })
                .approve()
                .env("SOMETHING_NEW", "x");
            with(builder, async |session| {
                let seen = value(session, code).await;
                assert_eq!(seen, Value::List(vec!["x".into(), false.into()]), "{language}");
            });
        }
    });
}
