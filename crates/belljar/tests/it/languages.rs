//! Every language of the table: what it prints, what it returns, and what its compiler says.
//!
//! `belljar languages --json` decides what is tried: a language that the machine has must work in
//! every respect, one that it lacks must be refused with what to install.

use crate::harness::{Done, Who, belljar, everyone, run_code};
use crate::machine::{absent, languages};

/// A program that prints its first argument and a line of its input, then ends with code 3, and one
/// that cannot be compiled.
struct Sample {
    language: &'static str,
    hello: &'static str,
    broken: &'static str,
}

const fn sample(language: &'static str, hello: &'static str, broken: &'static str) -> Sample {
    Sample {
        language,
        hello,
        broken,
    }
}

const SAMPLES: [Sample; 14] = [
    sample(
        "python",
        "import sys\nprint('hello', sys.argv[1], input())\nsys.exit(3)",
        "def f(:",
    ),
    sample(
        "javascript",
        "console.log('hello', process.argv[2], require('fs').readFileSync(0, 'utf8').trim()); process.exit(3)",
        "function (",
    ),
    sample(
        "typescript",
        "import * as fs from 'fs';\nconst word: string = process.argv[2];\n\
         console.log('hello', word, fs.readFileSync(0, 'utf8').trim());\nprocess.exit(3);",
        "const : number = (;",
    ),
    sample(
        "bash",
        "read -r line; echo \"hello $1 $line\"; exit 3",
        "if then ((",
    ),
    sample(
        "shell",
        "read -r line; echo \"hello $1 $line\"; exit 3",
        "if then (",
    ),
    sample(
        "c",
        "#include <stdio.h>\n#include <math.h>\nint main(int count, char **words) { char line[64];\n\
         if (!fgets(line, sizeof line, stdin)) return 9;\nprintf(\"hello %s %s\", words[1], line); return (int)sqrt(9.0 * count / 2); }",
        "int main(void) { return nonsense; }",
    ),
    sample(
        "cpp",
        "#include <iostream>\n#include <string>\n#include <thread>\nint main(int, char **words) { std::string line;\n\
         std::thread reader([&] { std::getline(std::cin, line); }); reader.join();\n\
         std::cout << \"hello \" << words[1] << ' ' << line << std::endl; return 3; }",
        "int main() { return nonsense; }",
    ),
    sample(
        "rust",
        "fn main() { let mut line = String::new(); std::io::stdin().read_line(&mut line).unwrap();\n\
         print!(\"hello {} {line}\", std::env::args().nth(1).unwrap()); std::process::exit(3); }",
        "fn main() { nonsense }",
    ),
    sample(
        "go",
        "package main\nimport (\"bufio\"; \"fmt\"; \"os\")\nfunc main() { line, _ := bufio.NewReader(os.Stdin).ReadString('\\n')\n\
         fmt.Printf(\"hello %s %s\", os.Args[1], line); os.Exit(3) }",
        "package main\nfunc main() { nonsense }",
    ),
    sample(
        "java",
        "import java.util.Scanner;\npublic class Main { public static void main(String[] words) {\n\
         System.out.println(\"hello \" + words[0] + \" \" + new Scanner(System.in).nextLine()); System.exit(3); } }",
        "public class Main { nonsense }",
    ),
    sample("ruby", "puts \"hello #{ARGV[0]} #{STDIN.gets}\"\nexit 3", "def ("),
    sample(
        "php",
        "<?php echo \"hello {$argv[1]} \" . fgets(STDIN); exit(3);",
        "<?php function (",
    ),
    sample("perl", "print \"hello $ARGV[0] \" . <STDIN>; exit 3;", "sub {("),
    sample(
        "lua",
        "print('hello ' .. arg[1] .. ' ' .. io.read('l'))\nos.exit(3)",
        "function (",
    ),
];

/// The samples of languages that `who` has.
fn present(who: Who) -> Vec<(&'static Sample, bool)> {
    let known = languages(who);
    assert_eq!(known.len(), SAMPLES.len(), "a language has no sample");
    SAMPLES
        .iter()
        .filter(|sample| known[sample.language].available)
        .map(|sample| (sample, known[sample.language].compiled))
        .collect()
}

#[test]
fn each_language_takes_arguments_and_input_and_passes_its_exit_code_on() {
    for who in everyone() {
        for (sample, compiled) in present(who) {
            let run = belljar(
                who,
                [
                    "run",
                    "--lang",
                    sample.language,
                    "-c",
                    sample.hello,
                    "--",
                    "world",
                ],
            );
            let done = run.stdin("from input\n").go().expect_code(3);
            assert_eq!(
                done.stdout, "hello world from input\n",
                "{} as {who:?}",
                sample.language
            );

            let run = run_code(who, sample.language, sample.hello, &["--memory", "256M"]);
            let outcome = &run.stdin("x\n").go().json()["outcome"];
            assert_eq!(
                outcome["compile"].is_object(),
                compiled,
                "{}: {outcome:#}",
                sample.language
            );
        }
    }
}

#[test]
fn a_program_that_cannot_be_read_says_so() {
    for who in everyone() {
        for (sample, compiled) in present(who) {
            let done = run_code(who, sample.language, sample.broken, &[]).go();
            let outcome = &done.json()["outcome"];
            assert_ne!(done.code, Some(0), "{} as {who:?}", sample.language);
            assert_eq!(outcome["status"], "failed");
            if compiled {
                assert_eq!(outcome["error"]["type"], "compile_failed", "{outcome:#}");
                assert_eq!(outcome["error"]["stage"], "compile");
                assert_eq!(
                    outcome["compile"]["exit_code"],
                    i64::from(done.code.unwrap_or(-1))
                );
                assert_eq!(outcome["stdout"], "");
            } else {
                assert_eq!(outcome["error"]["stage"], "run");
            }
            // Shown as it happens, what a compiler prints is an error whichever stream it chose.
            let done = belljar(who, ["run", "--lang", sample.language, "-c", sample.broken]).go();
            let says = done.stderr.len() + done.stdout.len();
            assert!(says > 10, "{} as {who:?}: {done:#?}", sample.language);
            if compiled {
                let last = done.stderr.lines().last().unwrap_or_default();
                assert!(last.starts_with("belljar: the compiler returned "), "{done:#?}");
                assert_eq!(done.stdout, "");
            }
        }
    }
}

#[test]
fn what_a_compiler_needs_is_not_what_the_program_gets() {
    let code = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
                int main(void) { for (;;) { char *p = malloc(1 << 20); if (!p) return 7; memset(p, 1, 1 << 20); } }";
    for who in everyone() {
        if !languages(who)["c"].available {
            absent("limits of compiled programs", "there is no C compiler");
            continue;
        }
        // The compiler needs far more than 16 MiB; the program may not have it.
        let done = run_code(who, "c", code, &["--memory", "16M"])
            .go()
            .expect_code(137);
        let outcome = &done.json()["outcome"];
        assert_eq!(outcome["compile"]["exit_code"], 0, "{outcome:#}");
        assert_eq!(outcome["error"]["type"], "out_of_memory");
        assert_eq!(outcome["error"]["stage"], "run");
    }
}

/// Every language can be missing: a PATH with nothing on it hides them all.
#[test]
fn a_language_that_is_not_here_is_refused_with_what_to_install() {
    let refused = |done: Done, language: &str, install: &str| {
        let denial = done.expect_code(126).json()["denial"].clone();
        assert_eq!(denial["code"], "language_unavailable", "{language}");
        let fix = denial["fix"].as_str().unwrap_or_default();
        assert!(fix.starts_with(&format!("install {install}")), "{fix}");
    };
    for who in everyone() {
        for (language, row) in languages(who) {
            let run = || run_code(who, &language, "x", &[]);
            refused(run().env("PATH", "/nonexistent").go(), &language, &row.install);
            if !row.available {
                absent(
                    &format!("running {language}"),
                    &format!("{who:?} has none (install {})", row.install),
                );
                refused(run().go(), &language, &row.install);
            }
        }
    }
}

#[test]
fn languages_are_known_by_their_other_names_and_endings() {
    let dir = crate::harness::TempDir::new();
    for who in everyone() {
        for (name, language) in [
            ("py", "python"),
            ("JS", "javascript"),
            ("sh", "shell"),
            ("pl", "perl"),
        ] {
            if languages(who)[language].available {
                let done = run_code(who, name, "", &[]).go().expect_code(126);
                assert_eq!(done.json()["record"]["language"], language);
            }
        }
        let script = dir.file("say.pl", "print 'by its ending';");
        let done = belljar(who, ["run", script.to_str().expect("plain")])
            .go()
            .expect_code(0);
        assert_eq!(done.stdout, "by its ending");
    }
}
