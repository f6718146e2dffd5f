//! Interns strings that many objects contain: the names of nodes, namespaces and ports, and of the services of slices.

#![expect(
    clippy::disallowed_types,
    reason = "names are looked up and counted; their order shows nowhere"
)]

use std::{collections::HashSet, sync::Arc};

use foldhash::fast::RandomState;

use crate::{
    NodeName, Object,
    object::{EndpointAddress, EndpointPort},
};

/// Every name in use, and some that are no longer used.
#[derive(Debug, Clone, Default)]
pub struct StringInterner {
    /// Few names, looked up for each endpoint.
    common: HashSet<Arc<str>, RandomState>,
    services: HashSet<Arc<str>, RandomState>,
    /// How many names there were after unused ones were last dropped.
    kept: usize,
}

impl StringInterner {
    /// Replaces the names of an object by shared ones.
    pub fn share(&mut self, object: &mut Object) {
        match object {
            Object::Service(service) => {
                share(&mut self.common, &mut service.id.namespace);
                share(&mut self.services, &mut service.id.name);
                for port in &mut service.ports {
                    share(&mut self.common, &mut port.name);
                }
            }
            Object::Endpoints(endpoints) => {
                let namespace = self.share_namespace(&mut endpoints.id.namespace);
                share(&mut self.services, &mut endpoints.id.name);
                for subset in &mut endpoints.subsets {
                    self.share_endpoints(
                        subset.addresses.iter_mut(),
                        &mut subset.ports,
                        &namespace,
                    );
                }
            }
            Object::EndpointSlice(slice) => {
                let namespace = self.share_namespace(&mut slice.id.namespace);
                if let Some(service) = &mut slice.service {
                    self.share_other(&mut service.namespace, &namespace);
                    share(&mut self.services, &mut service.name);
                }
                let addresses = slice
                    .endpoints
                    .iter_mut()
                    .map(|endpoint| &mut endpoint.address);
                self.share_endpoints(addresses, &mut slice.ports, &namespace);
            }
            Object::Pod(pod) => share(&mut self.common, &mut pod.id.namespace),
            Object::Node(_) | Object::VppNode(_) | Object::IpAllocation(_) => {}
        }
        self.drop_unused();
    }

    /// Shares the namespace of an object. Returns its old and its new value.
    fn share_namespace(&mut self, namespace: &mut Arc<str>) -> [Arc<str>; 2] {
        let before = Arc::clone(namespace);
        share(&mut self.common, namespace);
        [before, Arc::clone(namespace)]
    }

    /// Shares another namespace of the same object. Most equal that of the object, and need no lookup.
    fn share_other(&mut self, other: &mut Arc<str>, [before, now]: &[Arc<str>; 2]) {
        if Arc::ptr_eq(other, before) {
            *other = Arc::clone(now);
        } else {
            share(&mut self.common, other);
        }
    }

    fn share_endpoints<'a>(
        &mut self,
        addresses: impl Iterator<Item = &'a mut EndpointAddress>,
        ports: &mut [EndpointPort],
        namespace: &[Arc<str>; 2],
    ) {
        for EndpointAddress { node_name, pod, .. } in addresses {
            if let Some(NodeName(name)) = node_name {
                share(&mut self.common, name);
            }
            if let Some(pod) = pod {
                self.share_other(&mut pod.namespace, namespace);
            }
        }
        for port in ports {
            share(&mut self.common, &mut port.name);
        }
    }

    /// Runs whenever the number of names has doubled, so that its cost for each name is negligible.
    fn drop_unused(&mut self) {
        const MIN_KEPT: usize = 1000;
        if self.common.len() + self.services.len() > 2 * self.kept.max(MIN_KEPT) {
            for names in [&mut self.common, &mut self.services] {
                names.retain(|name| Arc::strong_count(name) > 1);
            }
            self.kept = self.common.len() + self.services.len();
        }
    }
}

fn share(names: &mut HashSet<Arc<str>, RandomState>, name: &mut Arc<str>) {
    if let Some(known) = names.get(&**name) {
        *name = Arc::clone(known);
    } else {
        names.insert(Arc::clone(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        EndpointSliceId, ServiceId,
        object::{AddressType, EndpointSlice},
    };

    fn slice(name: &str, service: &str) -> Object {
        Object::EndpointSlice(EndpointSlice {
            id: EndpointSliceId::new("default", name),
            service: Some(ServiceId::new("default", service)),
            address_type: AddressType::Ipv4,
            is_supplement: false,
            endpoints: [].into(),
            ports: [].into(),
        })
    }

    #[test]
    fn slices_of_one_service_hold_one_name() {
        let mut names = StringInterner::default();
        let [a, b] = ["a", "b"].map(|name| {
            let mut object = slice(name, "web");
            names.share(&mut object);
            let Object::EndpointSlice(EndpointSlice {
                service: Some(service),
                ..
            }) = object
            else {
                panic!("{object:?}")
            };
            service
        });
        assert!(Arc::ptr_eq(&a.name, &b.name) && Arc::ptr_eq(&a.namespace, &b.namespace));
    }

    #[test]
    fn unused_interned_names_are_removed() {
        let mut names = StringInterner::default();
        for number in 0..10_000 {
            names.share(&mut slice("a", &format!("service-{number}")));
        }
        assert!(names.services.len() <= 2001, "{}", names.services.len());
    }
}
