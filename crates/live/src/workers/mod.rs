//! Work that takes time and asks no policy: what there is, and what comes of it. It is handed in at the [`desk`], and
//! a [`crew`] of workers does it.

pub mod crew;
pub mod desk;
mod perform;
pub mod shares;
pub mod work;
