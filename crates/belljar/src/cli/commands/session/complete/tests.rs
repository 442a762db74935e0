use super::*;
use proptest::prelude::*;

fn all(language: Language, complete: &[&str], open: &[&str]) {
    for text in complete {
        assert!(is_complete(language, text), "{text:?} is whole");
    }
    for text in open {
        assert!(!is_complete(language, text), "{text:?} is not whole");
    }
}

#[test]
fn python_cells() {
    all(
        Language::Python,
        &[
            "",
            "1 + 1",
            "# only a comment",
            "x = [1,\n  2]",
            "x = [1, # (\n  2]",
            "s = '''a\n\nb'''",
            "s = \"it's\"",
            "s = r'\\'",
            "x = 1 + \\\n  2",
            "def f():\n    return 1\n",
            "def f():\n    return 1\n    ",
            "def f():\n    return 1\n\nf()",
            "if x: pass\n",
            "match = 3",
            "classes = 1",
            "iffy(1)",
            "d = {'a': 1}",
            "x[1:2]",
            "try:\n  1\nexcept E:\n  2\n",
            "x = 'a#b'",
            "f\"{x['a']}\"",
            "for i in range(3): print(i)\n",
            // What can only be wrong is for the interpreter to say.
            "x = )",
            "(]",
            "s = 'open",
            "s = 'open\n",
            "def f():\n",
        ],
        &[
            "(",
            "x = [1,",
            "x = [1,\n\n",
            "x = {'a': (1,\n 2)",
            "s = '''a",
            "s = '''a\n\n",
            "s = \"\"\"a\"\"",
            "s = 'a\\",
            "x = 1 + \\",
            "def f():",
            "def f():\n    return 1",
            "def f():\n    # a comment",
            "def f(a,",
            "def f():  # why",
            "class A:\n    def f(self):\n        pass",
            "if x: pass",
            "async def f():\n  pass",
            "@decorator",
            "match x:",
            "else: 1",
            "x = (  # )",
        ],
    );
}

#[test]
fn javascript_cells() {
    all(
        Language::Javascript,
        &[
            "",
            "1 + 1",
            "const f = (a) => {\n  return a\n}",
            "`a ${1 + `b ${2}`} c`",
            "`a\nb`",
            "'it\\'s'",
            "\"{\"",
            "/[/(]/.test('x')",
            "x = /(/",
            "return /{/",
            "a / b / c",
            "(1) / (2)",
            "a /* { */ + 1",
            "1 // {",
            "x++",
            "if (x) { y } else { z }",
            "x = {a: `}`}",
            "x +\n",
            "}",
            "(]",
            "'open",
            "/open(",
        ],
        &[
            "{",
            "function f() {",
            "f(1,\n\n",
            "[1, 2",
            "`open",
            "`a ${1",
            "`a ${`b`",
            "`a ${1} b",
            "/* open",
            "x =",
            "1 +",
            "a &&",
            "'a\\",
            "x = { // }",
            "`a ${ {b: 1}",
        ],
    );
}

proptest! {
    /// Nothing that can be typed breaks them, and both are quick about long texts.
    #[test]
    fn any_text_is_judged(text in "[\\PC\n\\\\'\"`/(){}\\[\\]$#:@ ]{0,200}") {
        for language in [Language::Python, Language::Javascript] {
            is_complete(language, &text);
            // A whole cell does not become open by an empty line, nor by two.
            if is_complete(language, &text) && !text.ends_with('\\') {
                prop_assert!(is_complete(language, &format!("{text}\n\n")), "{text:?}");
            }
        }
    }
}

#[test]
fn ten_megabytes_are_judged_at_once() {
    let started = std::time::Instant::now();
    let long = "x = [1, 'two', `three`] # and so on\n".repeat(300_000);
    for language in [Language::Python, Language::Javascript] {
        is_complete(language, &long);
    }
    let nested = "(".repeat(10_000_000);
    assert!(!is_complete(Language::Python, &nested));
    assert!(!is_complete(Language::Javascript, &nested));
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
