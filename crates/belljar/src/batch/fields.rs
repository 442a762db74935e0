//! The fields of a JSON object, taken one by one with their types checked.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::closest::closest;

/// What is wrong with a field, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) message: String,
    pub(super) hint: String,
}

impl Wrong {
    pub(super) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

/// An object whose names are all known.
#[derive(Debug)]
pub(super) struct Fields {
    /// What stands before a field's name in messages.
    prefix: String,
    map: Map<String, Value>,
}

impl Fields {
    pub(super) fn of(prefix: &str, value: Value, known: &[&str]) -> Result<Self, Wrong> {
        let Value::Object(map) = value else {
            let what = if prefix.is_empty() {
                "a request".to_owned()
            } else {
                format!("`{}`", prefix.trim_end_matches('.'))
            };
            let hint = format!("write {{\"{}\": …}}", known.first().unwrap_or(&"name"));
            return Err(Wrong::new(
                format!("{what} must be an object, not {}", kind(&value)),
                hint,
            ));
        };
        if let Some(name) = map.keys().find(|name| !known.contains(&name.as_str())) {
            let hint = match closest(name, known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("the known ones are {}", known.join(", ")),
            };
            let name: String = name.chars().take(60).collect();
            return Err(Wrong::new(format!("`{prefix}{name}` is not a known field"), hint));
        }
        Ok(Self {
            prefix: prefix.to_owned(),
            map,
        })
    }

    /// The value of a field; one that is null is as good as not there.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Wrong> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(name, "text", &other, "\"…\"")),
        }
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, Wrong> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let example = "[\"one\", \"two\"]";
        let Value::Array(items) = value else {
            return Err(self.wrong_type(name, "a list of texts", &value, example));
        };
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Value::String(text) => texts.push(text),
                other => return Err(self.wrong_type(&format!("{name}[{index}]"), "text", &other, "\"…\"")),
            }
        }
        Ok(Some(texts))
    }

    /// An object of texts, as for variables and files.
    pub(super) fn named_texts(&mut self, name: &str) -> Result<BTreeMap<String, String>, Wrong> {
        let Some(value) = self.take(name) else {
            return Ok(BTreeMap::new());
        };
        let Value::Object(map) = value else {
            return Err(self.wrong_type(name, "an object of texts", &value, "{\"name\": \"text\"}"));
        };
        let mut texts = BTreeMap::new();
        for (key, value) in map {
            match value {
                Value::String(text) => texts.insert(key, text),
                other => return Err(self.wrong_type(&format!("{name}.{key}"), "text", &other, "\"…\"")),
            };
        }
        Ok(texts)
    }

    /// A quantity as the command line takes it: text with a unit, or a plain number.
    pub(super) fn quantity(&mut self, name: &str, example: &str) -> Result<Option<String>, Wrong> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(self.wrong_type(name, "text or a number", &other, example)),
        }
    }

    pub(super) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Wrong> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(self.wrong_type(name, "a list", &other, "[…]")),
        }
    }

    /// A field's name as messages have it.
    pub(super) fn named(&self, name: &str) -> String {
        format!("`{}{name}`", self.prefix)
    }

    pub(super) fn wrong_type(&self, name: &str, wanted: &str, found: &Value, example: &str) -> Wrong {
        let short: String = name.chars().take(60).collect();
        Wrong::new(
            format!("{} must be {wanted}, not {}", self.named(&short), kind(found)),
            format!("for example {example}"),
        )
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
