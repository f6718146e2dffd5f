//! The route renderer on the modelled kernel. Long runs: `scripts/simulate`.

use contiv_sim::route_world::RouteWorld;

#[test]
fn routes_are_those_that_services_need_despite_faults() {
    let mut checks = 0;
    for seed in 0..40 {
        let mut world = RouteWorld::new(seed);
        world
            .run(300)
            .unwrap_or_else(|violation| panic!("{violation}"));
        checks += world.checks();
    }
    assert!(checks > 5000, "{checks}");
}
