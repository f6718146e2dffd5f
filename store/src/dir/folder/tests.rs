use std::fs;

use tempfile::TempDir;
use tokio::time::advance;

use super::*;

const WEB: &str = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  ports:\n  - port: 80\n";

fn entries_after_reading(folder: &mut Folder, path: &Path) -> usize {
    folder.refresh_or_forget(path);
    folder.publish();
    folder.snapshot("/").entries.len()
}

/// The store sees the same file when its writer waits for the disk between emptying it and filling it again.
#[tokio::test(start_paused = true)]
async fn an_emptied_file_keeps_its_objects_while_its_writer_may_be_waiting_for_the_disk() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("web.yaml");
    let mut folder = Folder::new(root.path(), Links::Inside);
    fs::write(&path, WEB).unwrap();
    assert_eq!(entries_after_reading(&mut folder, &path), 1);

    for stall in [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3)] {
        fs::write(&path, "").unwrap();
        entries_after_reading(&mut folder, &path);
        advance(stall).await;
        assert_eq!(entries_after_reading(&mut folder, &path), 1, "{stall:?}");
        // The next stall counts from its own beginning.
        fs::write(&path, WEB).unwrap();
        entries_after_reading(&mut folder, &path);
    }

    fs::write(&path, "").unwrap();
    entries_after_reading(&mut folder, &path);
    advance(EMPTY_GRACE).await;
    assert_eq!(entries_after_reading(&mut folder, &path), 0);
}
