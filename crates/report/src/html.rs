//! What pages are made of.

pub(crate) const TEMPLATE: &str = include_str!("page.htm");

/// Text that is safe in HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(crate) fn items(lines: &[String]) -> String {
    lines.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect()
}

/// Puts each value in its `{{place}}`, in one pass: what a value contains is not looked at again.
pub(crate) fn filled(template: &str, values: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after.split_once("}}").expect("the template closes its places");
        let value = values.iter().find(|(one, _)| *one == name);
        text += before;
        text += &value.unwrap_or_else(|| panic!("the template knows no place '{name}'")).1;
        rest = behind;
    }
    text + rest
}
