// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was gathered so far, and what could not be.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use super::archive::Archive;
use super::redact::Redactor;
use super::secrets;

/// The folder in the archive.
const FOLDER: &str = "freeway-support";

/// A file of the archive.
#[derive(Debug, Serialize)]
pub struct Gathered {
    /// Its name in the archive's folder.
    pub name: String,
    /// Its length, uncompressed.
    pub bytes: usize,
    /// There was more than fits.
    pub cut: bool,
}

/// What is not there.
#[derive(Debug, Serialize)]
pub struct Missing {
    /// What it would be called.
    pub name: String,
    /// Why.
    pub why: String,
}

/// An archive that grows.
pub struct Collection<W: Write> {
    archive: Archive<W>,
    redactor: Option<Redactor>,
    pub files: Vec<Gathered>,
    pub missing: Vec<Missing>,
}

impl<W: Write> Collection<W> {
    /// An empty one. `redact`: addresses become made-up ones.
    pub fn new(out: W, now_s: u64, redact: bool) -> Self {
        Self {
            archive: Archive::new(out, now_s),
            redactor: redact.then(Redactor::default),
            files: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Adds text, or notes why there is none.
    pub fn add(&mut self, name: &str, text: Result<(String, bool), String>) -> io::Result<()> {
        match text {
            Ok((text, cut)) => self.put(name, &secrets::removed(&text), cut),
            Err(why) => {
                self.miss(name, &why);
                Ok(())
            }
        }
    }

    /// The same of a value, as JSON.
    pub fn add_value<T: Serialize>(
        &mut self,
        name: &str,
        value: Result<T, String>,
    ) -> io::Result<()> {
        let value = value.and_then(|v| serde_json::to_value(v).map_err(|error| error.to_string()));
        match value {
            Ok(mut value) => {
                secrets::removed_of(&mut value);
                self.put(name, &(format!("{value:#}") + "\n"), false)
            }
            Err(why) => {
                self.miss(name, &why);
                Ok(())
            }
        }
    }

    /// The same of JSON that another program prints.
    pub fn add_json(&mut self, name: &str, text: Result<(String, bool), String>) -> io::Result<()> {
        let value = text
            .as_ref()
            .ok()
            .and_then(|(text, _)| serde_json::from_str::<Value>(text).ok());
        match value {
            Some(value) => self.add_value(name, Ok(value)),
            // cut, or of a version that does not know JSON
            None => self.add(name, text),
        }
    }

    /// Ends it with the list of what is there and what is not.
    pub fn finish(mut self) -> io::Result<(W, Vec<Gathered>, Vec<Missing>)> {
        let lines = self.missing.iter();
        let mut missing: String = lines.map(|m| format!("{}: {}\n", m.name, m.why)).collect();
        if missing.is_empty() {
            missing.push_str("nothing\n");
        }
        self.put("missing.txt", &missing, false)?;
        Ok((self.archive.finish()?, self.files, self.missing))
    }

    fn miss(&mut self, name: &str, why: &str) {
        let (name, why) = (self.redacted(name), self.redacted(&secrets::removed(why)));
        self.missing.push(Missing { name, why });
    }

    fn put(&mut self, name: &str, text: &str, cut: bool) -> io::Result<()> {
        let (name, text) = (self.redacted(name), self.redacted(text));
        self.archive
            .add(&format!("{FOLDER}/{name}"), text.as_bytes())?;
        let bytes = text.len();
        self.files.push(Gathered { name, bytes, cut });
        Ok(())
    }

    fn redacted(&mut self, text: &str) -> String {
        match &mut self.redactor {
            Some(redactor) => redactor.text(text),
            None => text.to_owned(),
        }
    }
}
