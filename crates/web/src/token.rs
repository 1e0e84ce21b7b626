// SPDX-License-Identifier: MIT OR Apache-2.0
//! The token that who looks has to know.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use freeway_console::{Exit, Stop};

use crate::secret;

/// Shorter ones are guessed.
const CHARACTERS_MIN: usize = 16;
const CHARACTERS_MAX: usize = 256;

/// The token.
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads the only line of a file that not everybody may read.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do.
    pub fn read(file: &Path) -> Result<Self, Stop> {
        let stop = |words: String| {
            let message = format!("token file {}: {words}", file.display());
            Stop::new(Exit::Config, message)
        };
        let read = || Ok((fs::metadata(file)?, fs::read_to_string(file)?));
        let (meta, text) = read().map_err(|error: std::io::Error| stop(error.to_string()))?;
        if meta.permissions().mode() & 0o007 != 0 {
            return Err(stop("all users may use it; run `chmod o= FILE`".into()));
        }
        let token = text.trim();
        let fits = (CHARACTERS_MIN..=CHARACTERS_MAX).contains(&token.len());
        if !fits || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(stop(format!(
                "a token is one word of {CHARACTERS_MIN} to {CHARACTERS_MAX} letters, digits and signs; \
                 `openssl rand -hex 16` makes one"
            )));
        }
        Ok(Self(token.into()))
    }

    /// True of the same word.
    pub fn is(&self, word: &str) -> bool {
        secret::equal(self.0.as_bytes(), word.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_one_word_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str, mode| {
            fs::write(file.path(), text).unwrap();
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            Token::read(file.path())
        };
        let token = read("0123456789abcdef\n", 0o640).unwrap();
        assert!(token.is("0123456789abcdef") && !token.is("0123456789abcdeF"));
        assert!(!token.is(""));
        for (text, mode, words) in [
            ("0123456789abcdef", 0o644, "chmod"),
            ("", 0o600, "one word"),
            ("short", 0o600, "one word"),
            ("0123456789 abcdef", 0o600, "one word"),
            ("0123456789\nabcdef", 0o600, "one word"),
        ] {
            let stop = read(text, mode).unwrap_err();
            assert_eq!(stop.exit, Exit::Config);
            assert!(stop.to_string().contains(words), "{stop}");
        }
        let stop = Token::read(Path::new("/nowhere")).unwrap_err();
        assert!(
            stop.to_string().contains("/nowhere: No such file"),
            "{stop}"
        );
    }
}
