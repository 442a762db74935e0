//! The shortest way through everything.

use crate::harness::{belljar, everyone, run_code};

#[test]
fn a_program_runs_and_its_output_comes_back() {
    for who in everyone() {
        belljar(who, ["run", "-c", "print(1+1)"])
            .go()
            .expect_code(0)
            .expect_stdout("2\n");
        let done = run_code(who, "bash", "echo out; echo err >&2; exit 3", &[])
            .go()
            .expect_code(3);
        let outcome = &done.json()["outcome"];
        assert_eq!(outcome["stdout"], "out\n");
        assert_eq!(outcome["stderr"], "err\n");
        assert_eq!(outcome["exit_code"], 3);
        assert_eq!(outcome["status"], "failed");
    }
}
