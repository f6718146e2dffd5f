use std::fs;

use tempfile::TempDir;
use tokio::time::advance;

use super::*;

const WEB: &str =
    "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  ports:\n  - port: 80\n";

fn entries_after_reading(folder: &mut Folder, path: &Path) -> usize {
    folder.refresh_or_forget(path);
    folder.publish();
    folder.snapshot("/").entries.len()
}

/// A file is empty between truncation and write, for seconds if the disk stalls.
#[tokio::test(start_paused = true)]
async fn emptied_file_keeps_its_objects_during_a_write() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("web.yaml");
    let mut folder = Folder::new(root.path(), Links::Inside);
    fs::write(&path, WEB).unwrap();
    assert_eq!(entries_after_reading(&mut folder, &path), 1);

    for stall in [
        Duration::ZERO,
        Duration::from_secs(1),
        Duration::from_secs(3),
    ] {
        fs::write(&path, "").unwrap();
        entries_after_reading(&mut folder, &path);
        advance(stall).await;
        assert_eq!(entries_after_reading(&mut folder, &path), 1, "{stall:?}");
        // A complete file restarts the grace period, for the next stall.
        fs::write(&path, WEB).unwrap();
        entries_after_reading(&mut folder, &path);
        assert_eq!(
            folder.emptied(|_| false).count(),
            0,
            "it is not looked at again"
        );
    }

    fs::write(&path, "").unwrap();
    entries_after_reading(&mut folder, &path);
    advance(EMPTY_GRACE).await;
    assert_eq!(entries_after_reading(&mut folder, &path), 0);
}

#[test]
fn manifests_above_total_limit_are_refused() {
    let root = TempDir::new().unwrap();
    let mut folder = Folder::new(root.path(), Links::Inside);
    folder.limit = 2 * WEB.len() as u64;
    let paths = ["a", "b", "c"].map(|name| {
        let path = root.path().join(format!("{name}.yaml"));
        fs::write(&path, WEB.replace("web", &format!("we{name}"))).unwrap();
        path
    });
    for path in &paths {
        folder.refresh_or_forget(path);
    }
    folder.publish();
    let snapshot = folder.snapshot("/");
    assert_eq!(snapshot.entries.len(), 2);
    let [problem] = snapshot.problems.as_slice() else {
        panic!("{:?}", snapshot.problems)
    };
    assert!(
        problem
            .to_string()
            .contains("c.yaml: cannot be read: all manifests"),
        "{problem}"
    );
    // A file that is read again counts once, and a removed file no longer.
    fs::write(&paths[0], WEB.replace("web", "wed")).unwrap();
    fs::remove_file(&paths[1]).unwrap();
    for path in &paths {
        folder.refresh_or_forget(path);
    }
    folder.publish();
    let snapshot = folder.snapshot("/");
    assert_eq!(
        (snapshot.entries.len(), snapshot.problems.as_slice()),
        (2, &[][..])
    );
}
