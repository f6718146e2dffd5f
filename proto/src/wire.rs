//! The common trait of stored messages.

use prost::Message;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    error::DecodeError,
    key::{Key, KeyError},
    kind::Kind,
    message::{
        endpoints::Endpoints,
        endpointslice::EndpointSlice,
        externalworkload::ExternalWorkload,
        ipalloc::CustomIpAllocation,
        namespace::Namespace,
        node::{Node, node_address},
        pod::{Pod, pod::container::port::Protocol},
        service::{Service, service::service_port::int_or_string},
        vppnode::VppNode,
    },
};

/// A message that is stored under its own key.
pub trait Wire: Message + Default + Serialize + DeserializeOwned {
    /// The type of its keys.
    const KIND: Kind;

    /// The key that belongs to the message.
    fn key(&self) -> Result<Key, KeyError>;

    /// Fills in the identity from the key where the message leaves it out.
    ///
    /// # Errors
    /// When it names another object than `key`.
    fn agree_with(&mut self, key: &Key) -> Result<(), DecodeError>;

    /// The path and number of the first enum field with an unknown number.
    fn unknown_enum(&self) -> Option<(String, i32)> {
        None
    }
}

macro_rules! wire {
    ($message:ty, $kind:ident, $name:ident $(, $namespace:ident)? $(; $unknown_enum:path)?) => {
        impl Wire for $message {
            const KIND: Kind = Kind::$kind;

            fn key(&self) -> Result<Key, KeyError> {
                let namespace = String::new() $(+ &self.$namespace)?;
                Key::new(Self::KIND, namespace, self.$name.as_str())
            }

            fn agree_with(&mut self, key: &Key) -> Result<(), DecodeError> {
                $(agree(stringify!($namespace), &mut self.$namespace, key.namespace(), key)?;)?
                agree(stringify!($name), &mut self.$name, key.name(), key)
            }

            $(fn unknown_enum(&self) -> Option<(String, i32)> {
                $unknown_enum(self)
            })?
        }
    };
}

wire!(Pod, Pod, name, namespace; unknown_enum_of_pod);
wire!(Service, Service, name, namespace; unknown_enum_of_service);
wire!(Endpoints, Endpoints, name, namespace);
wire!(EndpointSlice, EndpointSlice, name, namespace);
wire!(ExternalWorkload, ExternalWorkload, name, namespace);
wire!(Node, Node, name; unknown_enum_of_node);
wire!(Namespace, Namespace, name);
wire!(CustomIpAllocation, IpAllocation, pod_name, pod_namespace);

impl Wire for VppNode {
    const KIND: Kind = Kind::VppNode;

    fn key(&self) -> Result<Key, KeyError> {
        Key::new(Self::KIND, "", self.id.to_string())
    }

    fn agree_with(&mut self, key: &Key) -> Result<(), DecodeError> {
        let mut id = if self.id == 0 {
            String::new()
        } else {
            self.id.to_string()
        };
        agree("id", &mut id, key.name(), key)?;
        self.id = id.parse().map_err(|_| DecodeError::Identity {
            field: "id",
            found: id,
            key: key.clone(),
        })?;
        Ok(())
    }
}

fn agree(
    field: &'static str,
    found: &mut String,
    wanted: &str,
    key: &Key,
) -> Result<(), DecodeError> {
    if found.is_empty() {
        wanted.clone_into(found);
    }
    if found == wanted {
        Ok(())
    } else {
        Err(DecodeError::Identity {
            field,
            found: found.clone(),
            key: key.clone(),
        })
    }
}

fn unknown_enum_of_pod(pod: &Pod) -> Option<(String, i32)> {
    pod.container.iter().enumerate().find_map(|(c, container)| {
        container.port.iter().enumerate().find_map(|(p, port)| {
            let unknown = Protocol::try_from(port.protocol).is_err();
            unknown.then(|| (format!("container[{c}].port[{p}].protocol"), port.protocol))
        })
    })
}

fn unknown_enum_of_service(service: &Service) -> Option<(String, i32)> {
    service.port.iter().enumerate().find_map(|(p, port)| {
        let number = port.target_port.as_ref()?.r#type;
        let unknown = int_or_string::Type::try_from(number).is_err();
        unknown.then(|| (format!("port[{p}].target_port.type"), number))
    })
}

fn unknown_enum_of_node(node: &Node) -> Option<(String, i32)> {
    node.addresses.iter().enumerate().find_map(|(a, address)| {
        let unknown = node_address::Type::try_from(address.r#type).is_err();
        unknown.then(|| (format!("addresses[{a}].type"), address.r#type))
    })
}
