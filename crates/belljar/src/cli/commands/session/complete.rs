//! Whether what was typed so far is a whole cell, so that no half one is sent.
//!
//! These scanners know just enough of a language to see brackets, strings and blocks. What they take for
//! whole the interpreter still judges; what can never become right is whole too, so that it can say why.

mod javascript;
mod python;
#[cfg(test)]
mod tests;

use belljar::Language;

/// Whether `text`, whose last line has just been ended, can be sent.
pub(super) fn is_complete(language: Language, text: &str) -> bool {
    match language {
        Language::Python => python::is_complete(text),
        _ => javascript::is_complete(text),
    }
}

/// Whether the last line is empty: somebody who is in a block and has nothing more to say.
fn ends_blank(text: &str) -> bool {
    text.rsplit_once('\n')
        .is_some_and(|(_, last)| last.trim().is_empty())
}

/// Brackets that wait for their other half.
#[derive(Debug, Default)]
struct Brackets(Vec<char>);

impl Brackets {
    fn open(&mut self, bracket: char) {
        self.0.push(bracket);
    }

    /// False if this one closes nothing: then nothing that follows can make the text right.
    fn close(&mut self, bracket: char) -> bool {
        let opening = match bracket {
            ')' => '(',
            ']' => '[',
            _ => '{',
        };
        self.0.pop() == Some(opening)
    }

    fn are_open(&self) -> bool {
        !self.0.is_empty()
    }
}
