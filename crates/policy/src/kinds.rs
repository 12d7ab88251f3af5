//! The answers that a question may get, as data: what each is called, its parameters, how it is built.
//!
//! A mechanism's own file has all of that, as an [`Answer`] that serde can read; a line in the table of
//! its question registers it ([`Kinds::with`], [`Registry`](crate::schemes::Registry)). Whoever has a policy in
//! another crate adds it to a registry of his own.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use clew_core::Tier;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use toml::{Table, Value};

use crate::written::{SchemeError, parameters};

/// A mechanism with its parameters, as a scheme names it: an answer to the question whose policies are
/// `P`, such as `dyn Reclaim`.
pub trait Answer<P: ?Sized>: Any + fmt::Debug + erased_serde::Serialize + Send + Sync {
    /// What it is called and shown as, and what the rest of a scheme has to know about it.
    fn about(&self) -> About;

    /// A policy that has seen nothing yet.
    fn build(&self) -> Box<P>;

    /// Why its parameters make no sense together, if they do not.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// What there is to know about an answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// What a scheme calls it, whatever its parameters are.
    pub kind: &'static str,
    /// What the table of schemes shows.
    pub shown: String,
    /// It answers nothing, ever.
    pub idle: bool,
    /// A reclaim that knows which pages are hot.
    pub keeps_hot_list: bool,
    /// A prefetcher that asks which pages are hot.
    pub needs_hot_list: bool,
    /// A prefetcher that answers relaunches, and may do so beside another one that answers faults.
    pub at_relaunch: bool,
    /// A prefetcher that answers faults and hits, and may do so beside another one for relaunches.
    pub at_fault: bool,
    /// The tiers that a placement can do nothing without.
    pub tiers: &'static [Tier],
    /// The tiers that it uses where they are there, and does without where they are not.
    pub may_use: &'static [Tier],
    /// An admission that may say no: what it rejects needs another place than the pool.
    pub rejects: bool,
    /// An admission that lets clean pages of files in, a reclaim that hands them out.
    pub takes_files: bool,
    /// An eviction that picks frames: it needs a pool whose frames zpages share.
    pub needs_frames: bool,
    /// A placement by page: what goes to a donor goes there as it comes, each page by itself.
    pub page_by_page: bool,
    /// How often a placement wants the device that flash is on to be looked at, seconds; never, if it
    /// does not ask for it.
    pub device_sample_s: Option<u32>,
    /// What a placement lends to the kernel's zram, where there is one, in per cent of the budget.
    pub kernel_share_pct: u32,
}

impl About {
    /// What most answers say of themselves: their kind, and what the table of schemes shows.
    pub fn of(kind: &'static str, shown: impl Into<String>) -> About {
        About { kind, shown: shown.into(), ..About::default() }
    }
}

/// The answer that a scheme has chosen.
pub type Choice<P> = Arc<dyn Answer<P>>;

impl<P: ?Sized + 'static> dyn Answer<P> {
    /// Its parameters, if these are `A`'s.
    pub fn parameters<A: 'static>(&self) -> Option<&A> {
        let answer: &dyn Any = self;
        answer.downcast_ref()
    }
}

impl<P: ?Sized + 'static> Serialize for dyn Answer<P> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            kind: &'static str,
            #[serde(flatten)]
            parameters: &'a dyn erased_serde::Serialize,
        }
        Written { kind: self.about().kind, parameters: self }.serialize(to)
    }
}

/// Makes `Plain`, the answer of a policy that has no parameters.
#[macro_export]
macro_rules! plain {
    ($policy:ty as dyn $question:ident, $about:expr) => {
        /// The policy as an answer; it has no parameters.
        #[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Plain {}

        impl $crate::schemes::Answer<dyn $question> for Plain {
            fn about(&self) -> $crate::schemes::About {
                $about
            }

            fn build(&self) -> Box<dyn $question> {
                Box::new(<$policy>::default())
            }
        }
    };
}

/// Reads the parameters of one kind; its fields are named from there on.
pub type Read<P> = fn(Table, &Kinds<P>) -> Result<Choice<P>, SchemeError>;

/// The kinds of answers that one question may get.
pub struct Kinds<P: ?Sized>(Vec<(About, Read<P>)>);

impl<P: ?Sized + 'static> Kinds<P> {
    /// No kinds yet.
    pub fn none() -> Kinds<P> {
        Kinds(Vec::new())
    }

    /// Registers `A`, in the place of another of that name.
    pub fn with<A: Answer<P> + Default + DeserializeOwned>(self) -> Kinds<P> {
        self.with_reader(A::default().about(), |table, _| Ok(Arc::new(parameters::<A>(table)?)))
    }

    /// Registers a kind that is read otherwise: `read` gets its parameters and the kinds there are.
    pub fn with_reader(mut self, about: About, read: Read<P>) -> Kinds<P> {
        self.0.retain(|(known, _)| known.kind != about.kind);
        self.0.push((about, read));
        self
    }

    /// What they are called.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(about, _)| about.kind)
    }

    /// Reads what is written at `field`, a kind or a table with one and its parameters, of the kinds that
    /// are by default as `fits` says.
    pub fn read(
        &self,
        field: &str,
        written: Option<Value>,
        fits: fn(&About) -> bool,
    ) -> Result<Choice<P>, SchemeError> {
        let refused = |field: &str, found: Option<&Value>| {
            let fitting = self.0.iter().filter(|(about, _)| fits(about));
            let names: Vec<String> =
                fitting.map(|(about, _)| format!("{:?}", about.kind)).collect();
            let or = if field.ends_with(".kind") { "" } else { ", or a table with such a kind" };
            SchemeError::expected(field, found, &format!("{}{or}", names.join(" or ")))
        };
        let at_kind = format!("{field}.kind");
        let (name, table) = match written {
            Some(Value::Table(mut table)) => {
                let name = table.remove("kind").ok_or_else(|| refused(&at_kind, None))?;
                (name, table)
            }
            Some(name) if name.is_str() => (name, Table::new()),
            other => return Err(refused(field, other.as_ref())),
        };
        let named = |about: &About| Some(about.kind) == name.as_str() && fits(about);
        let kind = self.0.iter().find(|(about, _)| named(about));
        let (_, read) = kind.ok_or_else(|| refused(&at_kind, Some(&name)))?;
        let choice = read(table, self).map_err(|error| error.below(field))?;
        choice.validate().map_err(|why| SchemeError::field(field, None, why))?;
        Ok(choice)
    }
}
