//! Names that programs give themselves and their apps: what of them enters the daemon. Whoever shows
//! them does so as [`clew_core::shown`] says.

use clew_agent::protocol::MAX_NAME;

/// The name that these bytes are: UTF-8, at most [`MAX_NAME`] bytes, ending with a whole character.
pub fn bounded(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text[..text.floor_char_boundary(MAX_NAME)].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_valid() {
        assert_eq!(bounded("Zeitung für Köln".as_bytes()), "Zeitung für Köln");
        assert_eq!(bounded(b"a\xff\xfeb"), "a\u{fffd}\u{fffd}b");
        // Each of them takes three bytes.
        assert_eq!(bounded(&[0xff; MAX_NAME]), "\u{fffd}".repeat(21));
        assert_eq!(bounded("ö".repeat(60).as_bytes()), "ö".repeat(31));
        assert_eq!(bounded(b""), "");
    }
}
