//! What the documents say in numbers is what the code says.

use std::path::Path;

#[test]
fn formats_have_the_versions_that_the_page_names() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let page = std::fs::read_to_string(page).expect("the page");
    // Lines are broken anywhere.
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let journal = clew_store::journal::VERSION;
    let agents = clew_agent::protocol::VERSION;
    let trace = clew_trace::VERSION;
    let result = clew_report::FORMAT;
    for said in [
        format!("successor: version {journal}, which is in the journal"),
        format!("version of the layout of all segments ({journal})"),
        format!("between agents and daemon: version {agents}, internal"),
        format!("Version {agents}, over the SEQPACKET socket"),
        format!("in files: version {trace} is written, versions 1 to {trace} are read"),
        format!("version: {trace}; in version 1"),
        format!("of demos and replays: format {result}, in files"),
        format!("one object, format {result}."),
    ] {
        assert!(page.contains(&said), "docs/formats.md does not say: {said}");
    }
}
