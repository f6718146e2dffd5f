//! Patches of objects: merge patches, strategic ones, and server-side apply.

use serde_json::{Map, Value};

/// Applies a JSON merge patch.
pub(super) fn merge(object: &mut Value, patch: Value) {
    let Value::Object(fields) = patch else {
        *object = patch;
        return;
    };
    let object = object_of(object);
    for (name, value) in fields {
        if value.is_null() {
            object.remove(&name);
        } else {
            merge(object.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// Applies a strategic merge patch: lists of objects with a merge key are merged item by item.
///
/// # Errors
/// A directive that this server does not know.
pub(super) fn strategic_merge(object: &mut Value, patch: Value) -> Result<(), String> {
    let Value::Object(fields) = patch else {
        *object = patch;
        return Ok(());
    };
    let object = object_of(object);
    if let Some(kept) = fields.get("$retainKeys").and_then(Value::as_array) {
        object.retain(|name, _| kept.iter().any(|kept| kept == name));
    }
    for (name, value) in fields {
        match value {
            _ if name == "$retainKeys" || name.starts_with("$setElementOrder/") => {}
            _ if name.starts_with('$') => {
                return Err(format!("this server does not know the directive {name}"));
            }
            Value::Null => drop(object.remove(&name)),
            Value::Array(items) => {
                let list = object
                    .entry(name.clone())
                    .or_insert_with(|| Value::Array(Vec::new()));
                match list {
                    Value::Array(list)
                        if items.iter().all(|item| key_of(&name, item).is_some()) =>
                    {
                        merge_items(&name, list, items)?;
                    }
                    _ => *list = Value::Array(items),
                }
            }
            value => strategic_merge(object.entry(name).or_insert(Value::Null), value)?,
        }
    }
    Ok(())
}

fn merge_items(field: &str, list: &mut Vec<Value>, items: Vec<Value>) -> Result<(), String> {
    for mut item in items {
        let key = key_of(field, &item);
        let place = list.iter().position(|known| key_of(field, known) == key);
        let directive = item.as_object_mut().and_then(|item| item.remove("$patch"));
        match (directive.as_ref().and_then(Value::as_str), place) {
            (Some("delete"), place) => drop(place.map(|place| list.remove(place))),
            (Some(other), _) => return Err(format!("this server does not know $patch: {other}")),
            (None, Some(place)) => strategic_merge(&mut list[place], item)?,
            (None, None) => list.push(item),
        }
    }
    Ok(())
}

/// Server-side apply: sets what is applied now, and removes what the same manager applied before and leaves out now. Another
/// manager's fields are no conflict.
pub(super) fn apply(object: &mut Value, before: &Value, now: &Value) {
    remove_left_out(object, before, now);
    set_applied("", object, now);
}

fn remove_left_out(object: &mut Value, before: &Value, now: &Value) {
    let (Some(fields), Some(before)) = (object.as_object_mut(), before.as_object()) else {
        return;
    };
    for (name, was) in before {
        let Some(field) = fields.get_mut(name) else {
            continue;
        };
        match (was, now.get(name)) {
            (Value::Object(_), now) if !is_atomic(name) => {
                remove_left_out(field, was, now.unwrap_or(&Value::Null));
                if now.is_none() && field.as_object().is_some_and(Map::is_empty) {
                    fields.remove(name);
                }
            }
            (_, None) => drop(fields.remove(name)),
            (Value::Array(was), Some(now)) => {
                let Value::Array(list) = field else { continue };
                let counterpart = |item: &Value, among: &Value| {
                    let key = key_of(name, item)?;
                    among
                        .as_array()?
                        .iter()
                        .find(|other| key_of(name, other) == Some(key))
                        .cloned()
                };
                list.retain_mut(|item| {
                    let Some(was) = counterpart(item, &Value::Array(was.clone())) else {
                        return true;
                    };
                    let Some(now) = counterpart(item, now) else {
                        return false;
                    };
                    remove_left_out(item, &was, &now);
                    true
                });
            }
            _ => {}
        }
    }
}

fn set_applied(field: &str, object: &mut Value, now: &Value) {
    match (object, now) {
        (Value::Object(fields), Value::Object(now)) if !is_atomic(field) => {
            for (name, value) in now {
                match fields.get_mut(name) {
                    Some(field) => set_applied(name, field, value),
                    None => drop(fields.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(list), Value::Array(now))
            if now.iter().all(|item| key_of(field, item).is_some()) =>
        {
            for item in now {
                match list
                    .iter_mut()
                    .find(|known| key_of(field, known) == key_of(field, item))
                {
                    Some(known) => set_applied("", known, item),
                    None => list.push(item.clone()),
                }
            }
        }
        (object, now) => *object = now.clone(),
    }
}

/// Whether a map is replaced as a whole by an apply.
fn is_atomic(field: &str) -> bool {
    matches!(field, "nodeSelector" | "selector")
}

/// The value by which an item of a list is found; none for lists that are replaced as a whole.
fn key_of<'a>(field: &str, item: &'a Value) -> Option<&'a Value> {
    let key = match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets" => "name",
        "volumeMounts" => "mountPath",
        "ports" if item.get("containerPort").is_some() => "containerPort",
        "ports" => "port",
        "conditions" | "addresses" => "type",
        "ownerReferences" => "uid",
        "taints" => "key",
        _ => return None,
    };
    item.get(key)
}

/// The fields of an object; anything else becomes an empty object.
fn object_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value
        .as_object_mut()
        .unwrap_or_else(|| unreachable!("it is an object now"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patch_sets_and_removes_fields() {
        let mut object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "list": [1, 2]});
        merge(
            &mut object,
            json!({"metadata": {"labels": {"a": null, "c": "3"}}, "list": [3]}),
        );
        assert_eq!(
            object,
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}, "list": [3]})
        );
    }

    #[test]
    fn strategic_patch_merges_lists_by_key() {
        let mut object = json!({"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}], "terms": [1]});
        let patch = json!({
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "a", "args": ["y"]}, {"name": "b", "$patch": "delete"}, {"name": "c"}],
            "terms": [2],
        });
        strategic_merge(&mut object, patch).unwrap();
        let merged = json!([{"name": "a", "image": "1", "args": ["y"]}, {"name": "c"}]);
        assert_eq!(object, json!({"containers": merged, "terms": [2]}));
        assert!(
            strategic_merge(&mut object, json!({"$deleteFromPrimitiveList/args": ["y"]})).is_err()
        );
    }

    #[test]
    fn apply_removes_what_same_manager_leaves_out() {
        let before = json!({"spec": {
            "nodeSelector": {"os": "linux", "agent": "yes"},
            "containers": [{"name": "a", "env": [{"name": "X"}, {"name": "Y"}]}, {"name": "b"}],
        }});
        let now = json!({"spec": {
            "nodeSelector": {"os": "linux"},
            "containers": [{"name": "a", "env": [{"name": "Y", "value": "1"}]}],
        }});
        let mut object = before.clone();
        object["spec"]["paused"] = json!(true);
        object["status"] = json!({"ready": 3});
        apply(&mut object, &before, &now);
        let mut expected = now;
        expected["spec"]["paused"] = json!(true);
        expected["status"] = json!({"ready": 3});
        assert_eq!(object, expected);
    }
}
