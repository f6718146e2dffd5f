//! Properties for any desired and stored content.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 6] = ["web", "Web", "db", "x_y", "a/b", "t-web"];
const ADDRESSES: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2"];
const TAGS: [&str; 5] = [
    "env=t",
    "version=v1",
    "gRPC.port=90",
    "gRPC.port=80",
    "other",
];

fn instances() -> impl Strategy<Value = BTreeSet<Instance>> {
    let tags = prop::collection::btree_set(
        prop::sample::select(&TAGS[..]).prop_map(str::to_owned),
        0..3,
    );
    let one = (
        prop::sample::select(&ADDRESSES[..]),
        80_u16..82,
        any::<bool>(),
        tags,
    );
    let one = one.prop_map(|(address, port, ready, tags)| Instance {
        ready,
        tags,
        ..instance(address, port)
    });
    prop::collection::btree_set(one, 0..5)
}

fn catalog() -> impl Strategy<Value = Catalog> {
    let service = instances().prop_map(|instances| SourceService {
        instances,
        ..SourceService::default()
    });
    let known = prop::option::weighted(0.8, service.prop_map(Arc::new));
    prop::collection::btree_map(
        prop::sample::select(&NAMES[..]).prop_map(str::to_owned),
        known,
        0..5,
    )
}

fn registries() -> impl Strategy<Value = Registries> {
    let catalogs = [
        prop::option::weighted(0.8, catalog()),
        prop::option::weighted(0.8, catalog()),
    ];
    let aggregator = Aggregator {
        prefix_tag: "env".to_owned(),
        suffix_tag: "version".to_owned(),
        ..Aggregator::default()
    };
    catalogs.prop_map(move |catalogs| Registries {
        aggregator: aggregator.clone(),
        catalogs,
        ..Registries::default()
    })
}

/// Foreign services and endpoints, also with desired names, and one with an address of the range.
fn foreign() -> impl Strategy<Value = StoreContent> {
    let name = || prop::sample::select(&["web", "db", "t-web", "x-y", "else"][..]);
    let service = (
        name(),
        prop::sample::select(&["10.97.251.238", "10.97.0.9", "None"][..]),
    )
        .prop_map(|(name, ip)| {
            let service = Service {
                name: name.to_owned(),
                cluster_ip: ip.to_owned(),
                ..Service::default()
            };
            (
                key(Kind::Service, name),
                Object::from(Service {
                    namespace: "default".to_owned(),
                    ..service
                }),
            )
        });
    let endpoints = name().prop_map(|name| {
        let endpoints = Endpoints {
            name: name.to_owned(),
            ..Endpoints::default()
        };
        (
            key(Kind::Endpoints, name),
            Object::from(Endpoints {
                namespace: "default".to_owned(),
                ..endpoints
            }),
        )
    });
    prop::collection::vec(prop_oneof![service, endpoints], 0..4).prop_map(StoreContent::from_iter)
}

/// The store's content without cluster addresses, which depend on history.
fn without_addresses(store: &StoreContent) -> StoreContent {
    let mut store = store.clone();
    for object in store.values_mut() {
        if let Object::Service(service) = object {
            service.cluster_ips.clear();
            service.cluster_ip.clear();
            service.annotations.remove(stored::CLUSTER_IPS_ANNOTATION);
        }
    }
    store
}

proptest! {
    #[test]
    fn plan_after_an_applied_plan_has_no_writes(
        foreign in foreign(), before in registries(), now in registries()
    ) {
        let mut store = foreign;
        before.sync(&mut store);
        let plan = now.sync(&mut store);
        let again = now.plan(&store);
        prop_assert_eq!(&again.changes, &vec![]);
        prop_assert_eq!(again.problems, plan.problems);
        prop_assert_eq!(again.sizes, plan.sizes);
    }

    #[test]
    fn foreign_objects_are_never_touched(foreign in foreign(), before in registries(), now in registries()) {
        let mut store = foreign.clone();
        before.sync(&mut store);
        now.sync(&mut store);
        for (key, object) in &foreign {
            prop_assert_eq!(store.get(key), Some(object));
        }
    }

    #[test]
    fn order_in_which_registries_answer_does_not_matter(foreign in foreign(), all in registries()) {
        let only = |one: usize| {
            let mut some = all.clone();
            some.catalogs[1 - one] = None;
            some
        };
        let stores = [vec![all.clone()], vec![only(0), all.clone()], vec![only(1), all.clone()]].map(|answers| {
            let mut store = foreign.clone();
            for answers in answers {
                drop(answers.sync(&mut store));
            }
            without_addresses(&store)
        });
        prop_assert_eq!(&stores[0], &stores[1]);
        prop_assert_eq!(&stores[0], &stores[2]);
    }

    #[test]
    fn registries_without_an_answer_change_nothing(foreign in foreign(), before in registries()) {
        let mut store = foreign;
        before.sync(&mut store);
        let silent = Registries { catalogs: [None, None], ..before };
        prop_assert_eq!(silent.plan(&store).changes, vec![]);
    }

    #[test]
    fn edited_addresses_are_restored(foreign in foreign(), all in registries(), shift in 0_usize..3) {
        let mut all = all;
        for catalog in &mut all.catalogs {
            catalog.get_or_insert_default().values_mut().for_each(|service| {
                service.get_or_insert_default();
            });
        }
        let mut store = foreign;
        all.sync(&mut store);
        let before = store.clone();
        let owned: Vec<_> = stored(&before)
            .services
            .values()
            .map(|service| (key(Kind::Service, &service.name), service.cluster_ips.clone()))
            .collect();
        // Each gets the addresses of another one.
        for (i, (key, _)) in owned.iter().enumerate() {
            let Some(Object::Service(service)) = store.get_mut(key) else { panic!("{key}") };
            service.cluster_ips.clone_from(&owned[(i + shift) % owned.len()].1);
        }
        all.sync(&mut store);
        prop_assert_eq!(store, before);
    }

    #[test]
    fn no_two_services_have_one_cluster_address(foreign in foreign(), before in registries(), now in registries()) {
        let mut store = foreign;
        before.sync(&mut store);
        now.sync(&mut store);
        let mut seen = BTreeSet::new();
        for service in stored(&store).services.values() {
            for address in stored::addresses(service) {
                prop_assert!(seen.insert(address), "{} is given twice", address);
            }
        }
    }
}
