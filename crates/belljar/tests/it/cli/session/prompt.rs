//! A person at a terminal.

use std::fs;
use std::time::Duration;

use super::terminal::{CTRL_C, PROMPT, Terminal};
use crate::harness::{Run, TempDir, Who, belljar, everyone};

fn session(who: Who, dir: &TempDir, args: &[&str]) -> Run {
    belljar(who, ["session"].iter().chain(args).copied())
        .cwd(dir.path())
        .env("XDG_STATE_HOME", &dir.path().join("state").to_string_lossy())
}

#[test]
fn cells_are_executed_and_ctrl_d_leaves() {
    for who in everyone() {
        let dir = TempDir::new();
        let mut terminal = Terminal::start(session(who, &dir, &[]));
        assert_eq!(terminal.cell("x = 41"), "");
        assert_eq!(terminal.cell("x + 1"), "42\n");
        assert_eq!(terminal.cell("def f(a):"), "");
        assert_eq!(terminal.cell("\treturn [a,"), "");
        assert_eq!(terminal.cell("a]"), "");
        assert_eq!(terminal.cell(""), "");
        assert_eq!(terminal.cell("f('y')"), "[\"y\", \"y\"]\n");
        // Several lines at once, by a terminal that tells pasted text from typed text.
        assert_eq!(
            terminal.cell("\x1b[200~def g():\r    return 1\r\r    # no end\r\rg()\x1b[201~"),
            "1\n"
        );
        // Text that is left open, and an exception in red.
        assert_eq!(terminal.cell("print('left', end='')"), "left\n");
        let shown = terminal.cell("1 / 0");
        assert!(shown.starts_with("\x1b[31mTraceback"), "{shown:?}");
        assert!(
            shown.ends_with("ZeroDivisionError: division by zero\x1b[0m\n"),
            "{shown:?}"
        );
        terminal.leave();
        let kept = fs::read_to_string(dir.path().join("state/belljar/history")).expect("a history");
        assert!(
            kept.contains("\nx + 1\n") && kept.contains("def f(a):\\n    return [a,\\na]\n"),
            "{kept}"
        );
    }
}

/// Text that is typed faster than it is executed is not lost, nor is what a terminal without
/// bracketed paste pastes.
#[test]
fn lines_that_come_at_once_are_all_read() {
    for who in everyone() {
        let dir = TempDir::new();
        let mut terminal = Terminal::start(session(who, &dir, &[]));
        terminal.type_in("a = 1\rif a:\r    b = 2\r\rprint('sum', a + b)\r");
        terminal.expect("sum 3\r\n");
        terminal.expect(PROMPT);
        terminal.leave();
    }
}

#[test]
fn ctrl_c_interrupts_a_cell_and_keeps_its_state() {
    for who in everyone() {
        let dir = TempDir::new();
        let mut terminal = Terminal::start(session(who, &dir, &[]));
        terminal.cell("x = 5");
        terminal.cell("busy = 'while 1: pass'");
        terminal.type_in("print('on', flush=True); exec(busy)\r");
        terminal.expect("\r\non\r\n");
        terminal.type_in(CTRL_C);
        terminal.expect("KeyboardInterrupt");
        terminal.expect(PROMPT);
        assert_eq!(terminal.cell("x"), "5\n");
        // At the prompt it clears what was typed, also of a cell that goes over lines.
        terminal.type_in("x = 6");
        terminal.type_in(CTRL_C);
        terminal.expect(PROMPT);
        assert_eq!(terminal.cell("def f():"), "");
        terminal.type_in(CTRL_C);
        terminal.expect(PROMPT);
        assert_eq!(terminal.cell("x"), "5\n");
        terminal.leave();
    }
}

#[test]
fn ctrl_c_twice_starts_a_new_interpreter() {
    for who in everyone() {
        let dir = TempDir::new();
        let mut terminal = Terminal::start(session(who, &dir, &[]));
        terminal.cell("x = open('kept', 'w').write('y')");
        // Within one call of C, where Python looks at no signals.
        terminal.type_in("print('on', flush=True); any(iter(int, 1))\r");
        terminal.expect("\r\non\r\n");
        terminal.type_in(CTRL_C);
        std::thread::sleep(Duration::from_millis(500));
        terminal.type_in(CTRL_C);
        terminal.expect("variables are lost, files are kept");
        terminal.expect("a new interpreter is ready");
        terminal.expect(PROMPT);
        let shown = terminal.cell("x");
        assert!(shown.contains("NameError"), "{shown}");
        assert_eq!(terminal.cell("open('kept').read()"), "\"y\"\n");
        terminal.leave();
    }
}

#[test]
fn a_limit_that_takes_the_state_is_told() {
    for who in everyone() {
        let dir = TempDir::new();
        let mut terminal = Terminal::start(session(who, &dir, &["--timeout", "1s"]));
        terminal.cell("x = 5");
        let shown = terminal.cell("exec('while 1: pass')");
        assert!(
            shown.contains("belljar: the cell did not end within 1 s\nhint: "),
            "{shown}"
        );
        assert!(shown.contains("belljar: all variables"), "{shown}");
        assert!(terminal.cell("x").contains("NameError"));
        terminal.leave();
    }
}

/// P52: what the code prints, shows, raises and names stays text.
#[test]
fn escape_sequences_stay_text() {
    for who in everyone() {
        let dir = TempDir::new();
        let mut terminal = Terminal::start(session(who, &dir, &[]));
        for cell in [
            r"print('\x1b]0;evil\x07 \x9b2J')",
            r"import sys; sys.stderr.write('\x1b[2J\u202e')",
            r"type('R', (), {'__repr__': lambda s: '\x1b[2Jevil'})()",
            r"display(type('D', (), {'_repr_mimebundle_': lambda s, **k: {'text/plain': '\x1b[2Jevil'}})())",
            r"raise ValueError('\x1b[2Jevil')",
            r"x = open('\x1b[2Jname', 'w').close()",
            ":files",
            ":logs",
        ] {
            let shown = terminal.cell(cell).replace("\x1b[31m", "").replace("\x1b[0m", "");
            let bad = shown
                .chars()
                .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}');
            assert!(!bad, "{cell}: {shown:?}");
        }
        terminal.leave();
    }
}

#[test]
fn the_commands_of_the_prompt() {
    for who in everyone() {
        let dir = TempDir::new();
        dir.file("in data.txt", "from the host");
        dir.file("taken.txt", "mine");
        let mut terminal = Terminal::start(session(who, &dir, &[]));
        assert!(terminal.cell(":receipt").contains("no cell has run yet"));
        assert!(terminal.cell(":help").contains(":put HOST [GUEST]"));
        assert!(terminal.cell(":files").contains("empty"));
        assert_eq!(
            terminal.cell(":put 'in data.txt' in.txt"),
            "belljar: put `in.txt` (13 B)\n"
        );
        assert_eq!(
            terminal.cell("open('out.txt', 'w').write(open('in.txt').read().upper())"),
            "13\n"
        );
        assert_eq!(terminal.cell(":files"), "in.txt   13 B\nout.txt  13 B\n");
        assert_eq!(terminal.cell(":get out.txt"), "belljar: got out.txt (13 B)\n");
        assert_eq!(
            fs::read(dir.path().join("out.txt")).expect("a file"),
            b"FROM THE HOST"
        );
        for wrong in [
            ":get out.txt taken.txt",
            ":get nosuch",
            ":put nosuch",
            ":put /dev/zero",
            ":get ../x",
            ":nope",
            ":files x",
        ] {
            let shown = terminal.cell(wrong);
            assert!(shown.starts_with("belljar: "), "{wrong}: {shown}");
        }
        assert!(terminal.cell(":nope").contains("\nhint: :help lists them"));
        assert_eq!(fs::read(dir.path().join("taken.txt")).expect("a file"), b"mine");
        assert_eq!(terminal.cell("x = print('logged')"), "logged\n");
        assert_eq!(terminal.cell(":logs"), "logged\n");
        assert!(terminal.cell(":limits").contains("256 MiB"));
        assert!(terminal.cell(":receipt").contains("seccomp"));
        terminal.cell("y = 1");
        assert!(terminal.cell(":reset").contains("a new interpreter is ready"));
        assert!(terminal.cell("y").contains("NameError"));
        terminal.type_in(":quit\r");
        assert_eq!(terminal.end(), 0);
    }
}

#[test]
fn pictures_are_saved_and_named() {
    for who in everyone() {
        let dir = TempDir::new();
        let mut terminal = Terminal::start(session(who, &dir, &[]));
        terminal.cell("P = type('P', (), {'_repr_png_': lambda s: b'png'})");
        assert_eq!(terminal.cell("P()"), "belljar: saved belljar-2-1.png (3 B)\n");
        assert_eq!(
            fs::read(dir.path().join("belljar-2-1.png")).expect("a picture"),
            b"png"
        );
        terminal.leave();
    }
}

/// A session that cannot start says so although nobody has typed anything, and gives the terminal back.
#[test]
fn a_denial_ends_the_prompt() {
    for who in everyone() {
        let dir = TempDir::new();
        let mut terminal = Terminal::open(session(who, &dir, &["--lang", "ruby"]));
        terminal.expect("belljar: ruby has no interpreter that stays");
        terminal.expect("hint: ");
        assert_eq!(terminal.end(), 126);
    }
}

#[test]
fn javascript_has_the_same_prompt() {
    for who in everyone() {
        let dir = TempDir::new();
        let mut terminal = Terminal::start(session(who, &dir, &["--lang", "javascript", "--no-history"]));
        assert_eq!(terminal.cell("const f = (a) => {"), "");
        assert_eq!(terminal.cell("return `${a}!`"), "");
        assert_eq!(terminal.cell("}"), "");
        assert_eq!(terminal.cell("f('x')"), "\"x!\"\n");
        terminal.type_in("console.log('on'); while (true) {}\r");
        terminal.expect("\r\non\r\n");
        terminal.type_in(CTRL_C);
        terminal.expect(PROMPT);
        assert_eq!(terminal.cell("f('y')"), "\"y!\"\n");
        terminal.leave();
        assert!(!dir.path().join("state").exists());
    }
}

/// Neither NUL bytes nor 10 MB at once break the prompt.
#[test]
fn absurd_input_leaves_the_prompt_usable() {
    let who = everyone()[0];
    let dir = TempDir::new();
    let mut terminal = Terminal::start(session(who, &dir, &[]));
    terminal.cell("x = 3");
    terminal.type_in("\0\0x\0\r");
    terminal.expect(PROMPT);
    let paste = format!("\x1b[200~x = '{}'\x1b[201~\r", "y".repeat(10 << 20));
    terminal.type_in(&paste);
    terminal.expect("more than the 8 MiB");
    terminal.expect(PROMPT);
    assert_eq!(terminal.cell("x"), "3\n");
    terminal.leave();
}
