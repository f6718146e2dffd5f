//! Writes by the store itself.

use super::{folder::*, *};

#[tokio::test]
async fn committed_object_becomes_a_file_of_its_own() {
    let mut folder = Folder::with(&[("mine.json", &json_service("mine", 1))]).await;
    let revision = folder
        .store
        .commit(vec![put("new", 5), put("mine", 6)])
        .await
        .unwrap();
    assert_eq!(folder.next_change().await, ["put mine 6", "put new 5"]);
    assert_eq!(folder.store.list(ROOT).await.unwrap().revision, revision);
    let text = fs::read_to_string(folder.path("default/service-new.yaml")).unwrap();
    assert!(
        text.starts_with("apiVersion: v1\nkind: Service\n"),
        "{text}"
    );
    assert!(
        fs::read_to_string(folder.path("mine.json"))
            .unwrap()
            .starts_with('{')
    );
    folder.assert_quiet().await;

    folder
        .store
        .commit(vec![delete("new"), delete("mine"), delete("none")])
        .await
        .unwrap();
    assert_eq!(folder.next_change().await, ["delete mine", "delete new"]);
    assert!(
        !folder.path("mine.json").exists() && !folder.path("default/service-new.yaml").exists()
    );
    folder.assert_quiet().await;
}

#[tokio::test]
async fn commit_of_other_objects_or_places_is_refused_entirely() {
    let elsewhere = TempDir::new().unwrap();
    let two = format!("{}---\n{}", service("a", 1), service("b", 1));
    let config_map = format!(
        "{}---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c}}}}\n",
        service("c", 1)
    );
    fs::write(elsewhere.path().join("e.yaml"), service("e", 1)).unwrap();
    let outer = TempDir::new().unwrap();
    let root = outer.path().to_owned();
    fs::create_dir(root.join("default")).unwrap();
    for (name, text) in [
        ("two.yaml", two),
        ("map.yaml", config_map),
        (".target", service("link", 1)),
        ("d1.yaml", service("d", 1)),
        ("d2.yaml", service("d", 1)),
        ("default/service-x.yaml", String::new()),
    ] {
        fs::write(root.join(name), text).unwrap();
    }
    symlink(".target", root.join("link.yaml")).unwrap();
    symlink(elsewhere.path(), root.join("out")).unwrap();
    let options = DirOptions {
        links: Links::Anywhere,
        ..DirOptions::default()
    };
    let folder = Folder::open_with(outer, root, options).await;

    let in_namespace =
        |namespace: &str| put_value(namespace, "web", &service_value(namespace, "web", 1));
    for (operation, reason) in [
        (put("a", 2), "two.yaml holds other objects too"),
        (delete("b"), "two.yaml holds other objects too"),
        (put("c", 2), "map.yaml holds other objects too"),
        (put("link", 2), "link.yaml is a symbolic link"),
        (delete("link"), "link.yaml is a symbolic link"),
        (put("d", 2), "d1.yaml and "),
        (put("x", 2), "is there already"),
        (delete("e"), "is outside the folder"),
        (in_namespace("out"), "is outside the folder"),
        (in_namespace(".."), "cannot be part of a file name"),
        (
            put_value("default", "bad", &service_value("default", "bad", 0)),
            "spec.ports[0].port",
        ),
        (
            put_value("default", "other", &service_value("default", "name", 1)),
            "the key is that of",
        ),
        (
            Operation::Put {
                key: "/elsewhere".to_owned(),
                value: "x".into(),
            },
            "no such keys",
        ),
    ] {
        let error = folder
            .store
            .commit(vec![put("fine", 1), operation])
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert!(
            !folder.path("default/service-fine.yaml").exists(),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn condition_that_does_not_hold_keeps_all_files_as_they_are() {
    let folder = Folder::with(&[("mine.json", &json_service("mine", 1))]).await;
    let mine = put("mine", 2);
    let key = mine.key().to_owned();
    let [entry] = folder
        .store
        .list(ROOT)
        .await
        .unwrap()
        .entries
        .try_into()
        .unwrap();
    let transact = |condition| {
        let operations = vec![mine.clone(), put("new", 5)];
        folder.store.transact(Transaction {
            conditions: vec![condition],
            operations,
        })
    };
    for condition in [
        Condition::Absent { key: key.clone() },
        Condition::Unchanged {
            key: key.clone(),
            mod_revision: entry.mod_revision + 1,
        },
        Condition::Since {
            key: key.clone(),
            create_revision: entry.create_revision + 1,
        },
    ] {
        let error = transact(condition).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Conflict { key: of } if *of == key),
            "{error:?}"
        );
        assert!(!folder.path("default/service-new.yaml").exists());
    }
    let condition = Condition::Unchanged {
        key,
        mod_revision: entry.mod_revision,
    };
    assert!(transact(condition).await.unwrap() > entry.mod_revision);
    assert!(folder.path("default/service-new.yaml").exists());
}
