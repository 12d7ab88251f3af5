//! How much one daemon manages.

/// Pages that one daemon manages at most: 256 GiB of programs.
pub const MAX_PAGES: u64 = 1 << 26;

/// Address spaces that one daemon knows at most, those too small to be managed included. Never fewer
/// than descriptors (see [`crate::survival::pressure::limit_descriptors`]).
pub const MAX_SPACES: u32 = 1 << 16;
