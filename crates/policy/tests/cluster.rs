//! A fault brings what is stored of its cluster, and nothing else.

use clew_conformance::{World, page};
use clew_core::{Prefetch, Tier, Trigger};
use clew_policy::prefetch::cluster::Cluster;

#[test]
fn the_stored_rest_of_the_cluster_comes() {
    let mut world = World::new(&[1]);
    for vpn in [7, 8, 10, 11, 12] {
        world.table.stored.insert(page(0, vpn), Tier::Pool);
    }
    let (mut cluster, mut out) = (Cluster::new(4), Vec::new());
    cluster.pick_prefetch(Trigger::Fault(page(0, 10)), &world.view(), &mut out);
    assert_eq!(out, [page(0, 8), page(0, 11)]);
    cluster.pick_prefetch(Trigger::Hit(page(0, 10)), &world.view(), &mut out);
    assert_eq!(out.len(), 2);
}
