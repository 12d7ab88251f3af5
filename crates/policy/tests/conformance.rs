//! Every policy that can be registered is built as its parameters are by default, and keeps what all
//! must keep; so do the policies of all presets.

use clew_conformance::Broken;
use clew_core::{Admission, Eviction, Packing, Placement, Prefetch, Reclaim};
use clew_policy::schemes::{self, Choice, Kinds, Registry};
use toml::{Table, Value};

fn of_all<P: ?Sized + 'static>(
    kinds: &Kinds<P>,
    presets: impl Fn(&clew_policy::Scheme) -> Choice<P>,
    conforms: impl Fn(&Choice<P>) -> Result<(), Broken>,
) {
    let by_trigger: Table = "kind = 'by-trigger'\nrelaunch = 'recorded-set'\nfault = 'pre-decomp'"
        .parse()
        .expect("a table");
    let usual = kinds.names().map(|kind| {
        let written = match kind {
            "by-trigger" => Value::Table(by_trigger.clone()),
            kind => kind.into(),
        };
        kinds.read(kind, Some(written), |_| true).expect("a kind")
    });
    let all = usual.chain(schemes::all().iter().map(presets)).collect::<Vec<_>>();
    assert!(!all.is_empty());
    for choice in all {
        conforms(&choice).unwrap_or_else(|broken| panic!("{choice:?}: {broken}"));
    }
}

#[test]
fn every_reclaim_conforms() {
    let kinds = Registry::default().reclaim;
    of_all::<dyn Reclaim>(
        &kinds,
        |scheme| scheme.reclaim.clone(),
        |it| clew_conformance::reclaim(|| it.build()),
    );
}

#[test]
fn every_admission_conforms() {
    let kinds = Registry::default().admission;
    of_all::<dyn Admission>(
        &kinds,
        |scheme| scheme.admission.clone(),
        |it| clew_conformance::admission(|| it.build()),
    );
}

#[test]
fn every_packing_conforms() {
    let kinds = Registry::default().packing;
    of_all::<dyn Packing>(
        &kinds,
        |scheme| scheme.packing.clone(),
        |it| clew_conformance::packing(|| it.build()),
    );
}

#[test]
fn every_eviction_conforms() {
    let kinds = Registry::default().eviction;
    of_all::<dyn Eviction>(
        &kinds,
        |scheme| scheme.eviction.clone(),
        |it| clew_conformance::eviction(|| it.build()),
    );
}

#[test]
fn every_placement_conforms() {
    let kinds = Registry::default().placement;
    of_all::<dyn Placement>(
        &kinds,
        |scheme| scheme.placement.clone(),
        |it| clew_conformance::placement(|| it.build()),
    );
}

#[test]
fn every_prefetch_conforms() {
    let kinds = Registry::default().prefetch;
    of_all::<dyn Prefetch>(
        &kinds,
        |scheme| scheme.prefetch.clone(),
        |it| clew_conformance::prefetch(|| it.build()),
    );
}
