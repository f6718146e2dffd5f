//! A stored object of any type.

use crate::{
    error::{DecodeError, EncodeError},
    key::{Key, KeyError},
    kind::Kind,
    message::{
        endpoints::Endpoints, endpointslice::EndpointSlice, externalworkload::ExternalWorkload,
        ipalloc::CustomIpAllocation, namespace::Namespace, node::Node, pod::Pod, service::Service,
        vppnode::VppNode,
    },
    value,
    wire::Wire,
};

macro_rules! objects {
    ($($kind:ident($message:ident),)+) => {
        /// A stored object of any type, for code that treats all types alike.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "the variants are those of `Kind`")]
        pub enum Object {
            $($kind($message),)+
        }

        impl Object {
            /// Reads the value stored under `key`.
            ///
            /// Parts of the identity (name, namespace, node id) that the value leaves out are taken from the key.
            ///
            /// # Errors
            /// When the value is not the message it should be, or names another object than the key does.
            pub fn decode(key: &Key, value: &[u8]) -> Result<Self, DecodeError> {
                match key.kind() {
                    $(Kind::$kind => {
                        let mut message: $message = value::decode(value)?;
                        message.agree_with(key)?;
                        Ok(Self::$kind(message))
                    })+
                }
            }

            /// Writes the object as [`value::encode`] does.
            pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
                match self {
                    $(Self::$kind(message) => value::encode(message),)+
                }
            }

            /// Writes the object as [`value::encode_binary`] does.
            pub fn encode_binary(&self) -> Result<Vec<u8>, EncodeError> {
                match self {
                    $(Self::$kind(message) => value::encode_binary(message),)+
                }
            }

            /// The key that belongs to the object.
            pub fn key(&self) -> Result<Key, KeyError> {
                match self {
                    $(Self::$kind(message) => message.key(),)+
                }
            }

            /// The resource type.
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)+
                }
            }
        }

        $(impl From<$message> for Object {
            fn from(message: $message) -> Self {
                Self::$kind(message)
            }
        })+
    };
}

objects! {
    Pod(Pod),
    Service(Service),
    Endpoints(Endpoints),
    EndpointSlice(EndpointSlice),
    ExternalWorkload(ExternalWorkload),
    Node(Node),
    Namespace(Namespace),
    VppNode(VppNode),
    IpAllocation(CustomIpAllocation),
}
