//! Orders: what the answers of all six policies together come to.

use serde::Serialize;

use crate::app::{AppId, SpaceId};
use crate::policy::{FlashForm, Group};
use crate::tier::Tier;

/// What the mechanism is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Order {
    /// Take these pages out of the program and put them there.
    SwapOut {
        /// Whose they are.
        app: AppId,
        /// The one address space they are of.
        space: SpaceId,
        /// By the address of their first page, as many as one batch holds.
        groups: Vec<Group>,
        /// Where to.
        tier: Tier,
        /// How they lie there, if that is flash or a donor.
        #[serde(skip_serializing_if = "FlashForm::is_as_stored")]
        form: FlashForm,
    },
    /// Take these pages out of the tier that they are in and put them into another. Every page must
    /// end in one `Stored` (in its new tier, or in its old one if it could not be moved), `PageIn`,
    /// `Freed`, or the end of its space.
    Move {
        /// Whose they are.
        app: AppId,
        /// The one address space they are of.
        space: SpaceId,
        /// By the address of their first page, as many as one batch holds.
        groups: Vec<Group>,
        /// Where to.
        tier: Tier,
        /// How they lie there, if that is flash.
        #[serde(skip_serializing_if = "FlashForm::is_as_stored")]
        form: FlashForm,
    },
    /// Pack these pages, which are in the pool, like this. Nothing is told of it.
    Repack {
        /// Whose they are.
        app: AppId,
        /// The one address space they are of.
        space: SpaceId,
        /// By the address of their first page, as many as one batch holds.
        groups: Vec<Group>,
    },
    /// End this app and tell `Exit`. Until then no other is ended for lack of memory.
    EndApp {
        /// The app.
        app: AppId,
        /// Why; shown to the user.
        reason: &'static str,
    },
}
