//! The known name that somebody probably meant.

/// The one of `known` that is one change away from `typed`, or two where it is long.
pub(super) fn closest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    // Nothing that long is a slip of the hand, and counting changes takes time.
    if typed.len() > 40 {
        return None;
    }
    known
        .iter()
        .map(|name| (changes(typed, name), *name))
        .filter(|(count, name)| *count <= if name.len() > 5 { 2 } else { 1 })
        .min()
        .map(|(_, name)| name)
}

/// How many letters must be put in, left out or replaced.
fn changes(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = line;
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["stdin", "args", "id", "expected_stdout"];
        assert_eq!(closest("stdn", &known), Some("stdin"));
        assert_eq!(closest("expected_output", &known), None);
        assert_eq!(closest("expected_stdoutt", &known), Some("expected_stdout"));
        assert_eq!(closest("arg", &known), Some("args"));
        assert_eq!(closest("xy", &known), None);
        assert_eq!(closest("nope", &["code"]), None);
        assert_eq!(closest("", &known), None);
        assert_eq!(changes("kitten", "sitting"), 3);
    }
}
