//! What admission and eviction of ezswap (IEEE Access 2019) share: what it costs to be without a page.
//!
//! Source: III-B. "We set Cost to 1 for file-mapped pages because they require one read operation, and to 4 for
//! anonymous pages because abandoning an anonymous page requires a read operation and an additional write
//! operation."

/// What it costs to be without a page, in reads of flash.
pub const fn cost(file: bool) -> u64 {
    if file { 1 } else { 4 }
}
