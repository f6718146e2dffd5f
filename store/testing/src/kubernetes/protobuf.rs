//! Lists in protobuf, as kube-proxy asks for them: to compare how many bytes they take. Only services, endpoint slices and nodes,
//! with the fields that such objects have.

use serde_json::Value;

use super::resource::Resource;

/// Begins every answer in protobuf.
const MAGIC: &[u8] = b"k8s\0";

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
        if value.is_null() { self } else { self.text(field, value) }
    }

    fn texts(self, field: u64, values: &Value) -> Self {
        items(values).iter().fold(self, |message, value| message.text(field, value))
    }

    fn number(mut self, field: u64, value: &Value) -> Self {
        let number = value.as_u64().unwrap_or_else(|| u64::from(value.as_bool().unwrap_or_default()));
        self.varint(field << 3);
        self.varint(number);
        self
    }

    fn optional_number(self, field: u64, value: &Value) -> Self {
        if value.is_null() { self } else { self.number(field, value) }
    }

    fn map(self, field: u64, value: &Value) -> Self {
        value.as_object().into_iter().flatten().fold(self, |message, (key, value)| {
            message.message(field, &Self::default().bytes(1, key.as_bytes()).text(2, value))
        })
    }

    fn each(self, field: u64, values: &Value, encode: impl Fn(&Value) -> Self) -> Self {
        items(values).iter().fold(self, |message, value| message.message(field, &encode(value)))
    }

    fn time(self, field: u64, value: &Value) -> Self {
        let Some(time) = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()) else {
            return self;
        };
        self.message(field, &Self::default().number(1, &time.as_second().into()).number(2, &0.into()))
    }
}

fn items(values: &Value) -> &[Value] {
    values.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A list.
pub(super) fn list(resource: Resource, metadata: &Value, objects: &[&str]) -> Vec<u8> {
    let head = Message::default()
        .text(1, &Value::Null)
        .text(2, &metadata["resourceVersion"])
        .text(3, &metadata["continue"]);
    let list = objects.iter().fold(Message::default().message(1, &head), |list, json| {
        let object: Value = serde_json::from_str(json).unwrap_or_default();
        let message = Message::default().message(1, &metadata_of(&object["metadata"]));
        list.message(
            2,
            &match resource.kind {
                "Service" => service(message, &object),
                "EndpointSlice" => endpoint_slice(message, &object),
                _ => message,
            },
        )
    });
    let type_meta = Message::default()
        .bytes(1, resource.api_version.as_bytes())
        .bytes(2, format!("{}List", resource.kind).as_bytes());
    let answer = Message::default().message(1, &type_meta).message(2, &list).bytes(3, b"").bytes(4, b"");
    [MAGIC, &answer.0].concat()
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
            .message(7, &Message::default().bytes(1, entry["fieldsV1"].to_string().as_bytes()))
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
        .map(11, &metadata["labels"])
        .map(12, &metadata["annotations"])
        .each(13, &metadata["ownerReferences"], owner)
        .each(17, &metadata["managedFields"], managed)
}

fn service(message: Message, object: &Value) -> Message {
    let spec = &object["spec"];
    let port = |port: &Value| {
        let target = &port["targetPort"];
        let target = Message::default()
            .number(1, &target.is_string().into())
            .number(2, &target.as_u64().into())
            .text(3, target);
        Message::default()
            .text(1, &port["name"])
            .text(2, &port["protocol"])
            .number(3, &port["port"])
            .message(4, &target)
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
        .optional(17, &spec["ipFamilyPolicy"])
        .texts(18, &spec["clusterIPs"])
        .texts(19, &spec["ipFamilies"])
        .optional(22, &spec["internalTrafficPolicy"]);
    message.message(2, &spec).message(3, &Message::default().message(1, &Message::default()))
}

fn endpoint_slice(message: Message, object: &Value) -> Message {
    let endpoint = |endpoint: &Value| {
        let conditions = &endpoint["conditions"];
        let conditions = Message::default()
            .optional_number(1, &conditions["ready"])
            .optional_number(2, &conditions["serving"])
            .optional_number(3, &conditions["terminating"]);
        let target = &endpoint["targetRef"];
        let target = Message::default()
            .text(1, &target["kind"])
            .text(2, &target["namespace"])
            .text(3, &target["name"])
            .text(4, &target["uid"])
            .text(5, &target["apiVersion"])
            .text(6, &target["resourceVersion"])
            .text(7, &target["fieldPath"]);
        Message::default()
            .texts(1, &endpoint["addresses"])
            .message(2, &conditions)
            .message(4, &target)
            .optional(6, &endpoint["nodeName"])
            .optional(7, &endpoint["zone"])
    };
    let port = |port: &Value| {
        Message::default().optional(1, &port["name"]).optional(2, &port["protocol"]).number(3, &port["port"])
    };
    message
        .each(2, &object["endpoints"], endpoint)
        .each(3, &object["ports"], port)
        .text(4, &object["addressType"])
}
