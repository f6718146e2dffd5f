//! Objects in protobuf. Only services, endpoint slices and nodes, with the fields that are of use to a node's proxy, and some others;
//! and the status of an error. The numbers are those of Kubernetes' `generated.proto`.

use serde_json::Value;

use super::resource::Resource;

/// Begins every answer in protobuf.
pub(super) const MAGIC: &[u8] = b"k8s\0";

const fn lowest_byte(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

/// A message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(lowest_byte(number) | 0x80);
            number >>= 7;
        }
        self.0.push(lowest_byte(number));
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// A string, which is written even if it is empty.
    fn text(self, field: u64, value: &Value) -> Self {
        self.bytes(field, value.as_str().unwrap_or_default().as_bytes())
    }

    /// A string that may be missing.
    fn optional(self, field: u64, value: &Value) -> Self {
        if value.is_null() {
            self
        } else {
            self.text(field, value)
        }
    }

    fn texts(self, field: u64, values: &Value) -> Self {
        items(values)
            .iter()
            .fold(self, |message, value| message.text(field, value))
    }

    fn number(mut self, field: u64, value: &Value) -> Self {
        let number = value
            .as_u64()
            .unwrap_or_else(|| u64::from(value.as_bool().unwrap_or_default()));
        self.varint(field << 3);
        self.varint(number);
        self
    }

    fn optional_number(self, field: u64, value: &Value) -> Self {
        if value.is_null() {
            self
        } else {
            self.number(field, value)
        }
    }

    fn map(self, field: u64, value: &Value) -> Self {
        value
            .as_object()
            .into_iter()
            .flatten()
            .fold(self, |message, (key, value)| {
                message.message(
                    field,
                    &Self::default().bytes(1, key.as_bytes()).text(2, value),
                )
            })
    }

    fn each(self, field: u64, values: &Value, encode: impl Fn(&Value) -> Self) -> Self {
        items(values).iter().fold(self, |message, value| {
            message.message(field, &encode(value))
        })
    }

    /// A message that may be missing.
    fn one(self, field: u64, value: &Value, encode: impl Fn(&Value) -> Self) -> Self {
        if value.is_null() {
            self
        } else {
            self.message(field, &encode(value))
        }
    }

    fn time(self, field: u64, value: &Value) -> Self {
        let Some(time) = value
            .as_str()
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
        else {
            return self;
        };
        self.message(
            field,
            &Self::default()
                .number(1, &time.as_second().into())
                .number(2, &0.into()),
        )
    }
}

fn items(values: &Value) -> &[Value] {
    values.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// True if the real server has objects of this type in protobuf, and this one too.
pub(super) fn has(resource: Resource) -> bool {
    matches!(resource.kind, "Service" | "EndpointSlice" | "Node")
}

/// A list.
pub(super) fn list(resource: Resource, metadata: &Value, objects: &[&str]) -> Vec<u8> {
    let head = Message::default()
        .text(1, &Value::Null)
        .text(2, &metadata["resourceVersion"])
        .text(3, &metadata["continue"])
        .optional_number(4, &metadata["remainingItemCount"]);
    let list = objects
        .iter()
        .fold(Message::default().message(1, &head), |list, json| {
            list.message(
                2,
                &object(resource, &serde_json::from_str(json).unwrap_or_default()),
            )
        });
    enveloped(
        resource.api_version,
        &format!("{}List", resource.kind),
        &list,
    )
}

/// An event of a watch, after its size.
pub(super) fn event(resource: Resource, event: &str, json: &str) -> Vec<u8> {
    let value = serde_json::from_str(json).unwrap_or_default();
    let object = match event {
        "ERROR" => status(&value),
        _ => enveloped(
            resource.api_version,
            resource.kind,
            &object(resource, &value),
        ),
    };
    let Message(event) = Message::default()
        .bytes(1, event.as_bytes())
        .message(2, &Message::default().bytes(1, &object));
    let size = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&size.to_be_bytes()[..], &event].concat()
}

/// A `Status`.
pub(super) fn status(status: &Value) -> Vec<u8> {
    let details = |details: &Value| {
        let cause = |cause: &Value| {
            Message::default()
                .text(1, &cause["reason"])
                .text(2, &cause["message"])
                .text(3, &cause["field"])
        };
        Message::default().each(4, &details["causes"], cause)
    };
    let message = Message::default()
        .message(1, &Message::default())
        .text(2, &status["status"])
        .text(3, &status["message"])
        .text(4, &status["reason"])
        .one(5, &status["details"], details)
        .number(6, &status["code"]);
    enveloped("v1", "Status", &message)
}

fn enveloped(api_version: &str, kind: &str, message: &Message) -> Vec<u8> {
    let type_meta = Message::default()
        .bytes(1, api_version.as_bytes())
        .bytes(2, kind.as_bytes());
    let answer = Message::default()
        .message(1, &type_meta)
        .message(2, message)
        .bytes(3, b"")
        .bytes(4, b"");
    [MAGIC, &answer.0].concat()
}

fn object(resource: Resource, object: &Value) -> Message {
    let message = Message::default().message(1, &metadata_of(&object["metadata"]));
    match resource.kind {
        "Service" => service(message, object),
        "EndpointSlice" => endpoint_slice(message, object),
        _ => node(message, object),
    }
}

fn metadata_of(metadata: &Value) -> Message {
    let owner = |owner: &Value| {
        Message::default()
            .text(1, &owner["kind"])
            .text(3, &owner["name"])
            .text(4, &owner["uid"])
            .text(5, &owner["apiVersion"])
            .optional_number(6, &owner["controller"])
            .optional_number(7, &owner["blockOwnerDeletion"])
    };
    let managed = |entry: &Value| {
        Message::default()
            .text(1, &entry["manager"])
            .text(2, &entry["operation"])
            .text(3, &entry["apiVersion"])
            .time(4, &entry["time"])
            .text(6, &entry["fieldsType"])
            .message(
                7,
                &Message::default().bytes(1, entry["fieldsV1"].to_string().as_bytes()),
            )
            .text(8, &entry["subresource"])
    };
    Message::default()
        .text(1, &metadata["name"])
        .text(2, &metadata["generateName"])
        .text(3, &metadata["namespace"])
        .text(4, &Value::Null)
        .text(5, &metadata["uid"])
        .text(6, &metadata["resourceVersion"])
        .number(7, &metadata["generation"])
        .time(8, &metadata["creationTimestamp"])
        .time(9, &metadata["deletionTimestamp"])
        .map(11, &metadata["labels"])
        .map(12, &metadata["annotations"])
        .each(13, &metadata["ownerReferences"], owner)
        .each(17, &metadata["managedFields"], managed)
}

fn service(message: Message, object: &Value) -> Message {
    let spec = &object["spec"];
    let target = |target: &Value| {
        Message::default()
            .number(1, &target.is_string().into())
            .number(2, &target.as_u64().into())
            .text(3, target)
    };
    let port = |port: &Value| {
        Message::default()
            .text(1, &port["name"])
            .text(2, &port["protocol"])
            .number(3, &port["port"])
            .one(4, &port["targetPort"], target)
            .number(5, &port["nodePort"])
            .optional(6, &port["appProtocol"])
    };
    let spec = Message::default()
        .each(1, &spec["ports"], port)
        .map(2, &spec["selector"])
        .text(3, &spec["clusterIP"])
        .text(4, &spec["type"])
        .texts(5, &spec["externalIPs"])
        .text(7, &spec["sessionAffinity"])
        .text(8, &spec["loadBalancerIP"])
        .texts(9, &spec["loadBalancerSourceRanges"])
        .text(10, &spec["externalName"])
        .text(11, &spec["externalTrafficPolicy"])
        .number(12, &spec["healthCheckNodePort"])
        .number(13, &spec["publishNotReadyAddresses"])
        .one(14, &spec["sessionAffinityConfig"], |config| {
            Message::default().one(1, &config["clientIP"], |client| {
                Message::default().optional_number(1, &client["timeoutSeconds"])
            })
        })
        .optional(17, &spec["ipFamilyPolicy"])
        .texts(18, &spec["clusterIPs"])
        .texts(19, &spec["ipFamilies"])
        .optional(21, &spec["loadBalancerClass"])
        .optional(22, &spec["internalTrafficPolicy"])
        .optional(23, &spec["trafficDistribution"]);
    let ingress = |ingress: &Value| {
        Message::default()
            .text(1, &ingress["ip"])
            .text(2, &ingress["hostname"])
            .optional(3, &ingress["ipMode"])
    };
    let load_balancer =
        Message::default().each(1, &object["status"]["loadBalancer"]["ingress"], ingress);
    message
        .message(2, &spec)
        .message(3, &Message::default().message(1, &load_balancer))
}

fn endpoint_slice(message: Message, object: &Value) -> Message {
    let hint = |hint: &Value| Message::default().text(1, &hint["name"]);
    let reference = |target: &Value| {
        Message::default()
            .text(1, &target["kind"])
            .text(2, &target["namespace"])
            .text(3, &target["name"])
            .text(4, &target["uid"])
            .text(5, &target["apiVersion"])
            .text(6, &target["resourceVersion"])
            .text(7, &target["fieldPath"])
    };
    let conditions = |conditions: &Value| {
        Message::default()
            .optional_number(1, &conditions["ready"])
            .optional_number(2, &conditions["serving"])
            .optional_number(3, &conditions["terminating"])
    };
    let endpoint = |endpoint: &Value| {
        Message::default()
            .texts(1, &endpoint["addresses"])
            .one(2, &endpoint["conditions"], conditions)
            .optional(3, &endpoint["hostname"])
            .one(4, &endpoint["targetRef"], reference)
            .optional(6, &endpoint["nodeName"])
            .optional(7, &endpoint["zone"])
            .one(8, &endpoint["hints"], |hints| {
                Message::default().each(1, &hints["forZones"], hint).each(
                    2,
                    &hints["forNodes"],
                    hint,
                )
            })
    };
    let port = |port: &Value| {
        Message::default()
            .optional(1, &port["name"])
            .optional(2, &port["protocol"])
            .optional_number(3, &port["port"])
            .optional(4, &port["appProtocol"])
    };
    message
        .each(2, &object["endpoints"], endpoint)
        .each(3, &object["ports"], port)
        .text(4, &object["addressType"])
}

fn node(message: Message, object: &Value) -> Message {
    let (spec, status) = (&object["spec"], &object["status"]);
    let taint = |taint: &Value| {
        Message::default()
            .text(1, &taint["key"])
            .text(2, &taint["value"])
            .text(3, &taint["effect"])
    };
    let address = |address: &Value| {
        Message::default()
            .text(1, &address["type"])
            .text(2, &address["address"])
    };
    let info = |info: &Value| {
        Message::default()
            .text(1, &info["machineID"])
            .text(2, &info["systemUUID"])
            .text(3, &info["bootID"])
            .text(4, &info["kernelVersion"])
            .text(5, &info["osImage"])
            .text(6, &info["containerRuntimeVersion"])
            .text(7, &info["kubeletVersion"])
            .text(8, &info["kubeProxyVersion"])
            .text(9, &info["operatingSystem"])
            .text(10, &info["architecture"])
    };
    let spec = Message::default()
        .text(1, &spec["podCIDR"])
        .text(2, &Value::Null)
        .text(3, &spec["providerID"])
        .number(4, &spec["unschedulable"])
        .each(5, &spec["taints"], taint)
        .texts(7, &spec["podCIDRs"]);
    let status = Message::default()
        .each(5, &status["addresses"], address)
        .one(7, &status["nodeInfo"], info);
    message.message(2, &spec).message(3, &status)
}
