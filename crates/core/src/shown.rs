//! Text that comes from others, as a terminal shows it.
//!
//! Names of programs and apps, and whatever a program or the other end of a socket says, may hold
//! anything: sequences that move the cursor, line ends, characters that turn the reading direction
//! over or are not seen at all. They are shown as what they are.

use std::borrow::Cow;

/// `text` in one line in which every character is seen and takes columns: `\n`, `\x1b`, `\u{202e}`
/// in place of those that are not.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// The beginning of `text`, as [`shown`]: at most so many characters, whatever others say.
pub fn beginning_shown(text: &str, most: usize) -> String {
    let first: String = text.chars().take(most).collect();
    shown(&first).chars().take(most).collect()
}

/// As [`shown`], and line ends stay.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(|c| stays(c) || is_seen(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if stays(c) || is_seen(c) => out.push(c),
            '\0' | '\t' | '\n' | '\r' => out.extend(c.escape_debug()),
            c if u32::from(c) < 0x100 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(out)
}

/// JSON text in which every character is seen, and which says the same: only strings may hold others,
/// line ends apart.
pub fn shown_json(json: &str) -> Cow<'_, str> {
    if json.chars().all(|c| c == '\n' || is_seen(c)) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if c == '\n' || is_seen(c) {
            out.push(c);
            continue;
        }
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(out)
}

/// Whether a character is seen as itself wherever it stands. (The library escapes quotes too, which
/// are harmless here.)
fn is_seen(c: char) -> bool {
    matches!(c, ' '..='~') || (!c.is_ascii() && c.escape_debug().count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_said() {
        for (text, wanted) in [
            ("redis-server 'a' \"b\" \\ c", "redis-server 'a' \"b\" \\ c"),
            ("größe 中文 λ", "größe 中文 λ"),
            ("a\x1b[2J\nb", "a\\x1b[2J\\nb"),
            ("\0\t\r\x07\x08\x7f", "\\0\\t\\r\\x07\\x08\\x7f"),
            // C1: some terminals take U+009B for ESC [.
            ("\u{9b}2J\u{85}", "\\x9b2J\\x85"),
            ("\u{202e}gnp.exe\u{2066}", "\\u{202e}gnp.exe\\u{2066}"),
            ("a\u{200b}b\u{200d}c\u{feff}\u{2028}", "a\\u{200b}b\\u{200d}c\\u{feff}\\u{2028}"),
            ("e\u{301}\u{ad}\u{a0}", "e\\u{301}\\xad\\xa0"),
            ("\u{e0041}\u{e000}", "\\u{e0041}\\u{e000}"),
        ] {
            assert_eq!(shown(text), wanted, "{text:?}");
            assert_eq!(shown(&shown(text)), wanted, "it changes nothing the second time");
        }
        assert_eq!(shown_lines("a\nb\r\n\x1b"), "a\nb\\r\n\\x1b");
    }

    #[test]
    fn every_control_character_is_escaped() {
        for c in (0..=0x10ffffu32).filter_map(char::from_u32).filter(|c| c.is_control()) {
            let text = shown(&c.to_string()).into_owned();
            assert!(text.starts_with('\\') && text.chars().all(|c| !c.is_control()), "{text}");
        }
    }

    #[test]
    fn json_says_the_same() {
        let json = "{\n  \"a\": \"\u{9b}\u{202e}ü\u{e0041}\"\n}";
        let wanted = "{\n  \"a\": \"\\u009b\\u202eü\\udb40\\udc41\"\n}";
        assert_eq!(shown_json(json), wanted);
    }
}
