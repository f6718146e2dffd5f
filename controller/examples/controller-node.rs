//! Writes the pages of web sites to a folder, on each node: a reconciler that watches three types, and reaps.
//!
//! `cargo run -p contiv-controller --example controller-node -- etcd://127.0.0.1:2379 TEMPLATES SITES`
//!
//! | object | value | leads to a site by |
//! |---|---|---|
//! | `/sites/NAME` | the name of a template in the folder TEMPLATES | |
//! | `/pages/NAME` | the key of its owner, a line break, a text | its owner, if that is a site |
//! | `/notices/NAME` | a text for all pages of the site of this name | its name |
//!
//! It runs on each node and writes nothing to the store, so it needs no lease.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use contiv_controller::{
    BoxError, BuildError, Context, Controller, Index, Key, Lease, Manager, Mapper, Object, Outcome,
    Placement, Reconciler, RequeueAfterError, ResourceType,
};
use contiv_store::Entry;
use tokio_util::sync::CancellationToken;

/// How long until a missing template is looked up again: no event reports its creation.
const TEMPLATE_RETRY: Duration = Duration::from_secs(10);

struct Page {
    owner: Key,
    text: String,
}

#[derive(Clone)]
struct Website {
    templates: PathBuf,
    folder: PathBuf,
    sites: ResourceType<String>,
    pages: ResourceType<Page>,
    notices: ResourceType<String>,
}

fn text(entry: &Entry) -> Result<String, std::string::FromUtf8Error> {
    String::from_utf8(entry.value.to_vec())
}

fn page(entry: &Entry) -> Result<Page, BoxError> {
    let text = text(entry)?;
    let (owner, text) = text
        .split_once('\n')
        .ok_or("a page begins with a line with the key of its owner")?;
    Ok(Page {
        owner: owner.into(),
        text: text.to_owned(),
    })
}

impl Website {
    fn new(templates: &Path, folder: &Path) -> Self {
        Self {
            templates: templates.to_owned(),
            folder: folder.to_owned(),
            sites: ResourceType::new("site", "/sites/", text),
            pages: ResourceType::new("page", "/pages/", page)
                .with_index(Index::single("owner", |page: &Object<Page>| {
                    Some(page.owner.to_string())
                })),
            notices: ResourceType::new("notice", "/notices/", text),
        }
    }

    fn controller(self) -> Result<Controller<String>, BuildError> {
        let reaping = self.clone();
        Controller::for_type(&self.sites)
            .named("sites")
            .with_placement(Placement::EachNode)
            .with_span(tracing::info_span!("sites", folder = %self.folder.display()))
            .with_watch(
                &self.pages,
                Mapper::map_owner_filtered(&self.sites, |page: &Page| Some(page.owner.clone())),
            )
            .with_watch(
                &self.notices,
                Mapper::replace_type(&self.notices, &self.sites),
            )
            .with_background(move |context: Context<String>| {
                let sites = reaping.clone();
                async move { sites.reap(&context).await }
            })
            .on_start(|| tracing::info!("sites are kept"))
            .on_stop(|| tracing::info!("sites stay as they are"))
            .with_reconciler(self)
            .build()
    }

    /// Removes the folders of sites that went while nothing ran here, once all sites of the store are listed. One that was never
    /// readable stays: it is not in the cache, and not deleted.
    async fn reap(&self, context: &Context<String>) -> Result<(), BoxError> {
        if context
            .stop()
            .run_until_cancelled(context.cache().wait_for_revision(0))
            .await
            .transpose()?
            .is_none()
        {
            return Ok(());
        }
        let sites = context.cache().view();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let key = self.sites.key(&entry.file_name().to_string_lossy());
            if sites.get(&key).is_none() && sites.unreadable(&key).is_none() {
                tracing::info!(%key, "removing a site that is gone");
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// The template; while it is missing the reconciliation ends and is tried later, without counting as a failure.
    fn template(&self, name: &str) -> Result<String, BoxError> {
        match fs::read_to_string(self.templates.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(RequeueAfterError(TEMPLATE_RETRY).into())
            }
            read => Ok(read?),
        }
    }

    /// The desired files of the site, by name.
    fn desired(
        &self,
        context: &Context<String>,
        key: &Key,
        template: &str,
    ) -> Result<BTreeMap<String, String>, BoxError> {
        let notice = self.sites.name_of(key).map(|name| self.notices.key(name));
        let notices = context.cache_of(&self.notices)?;
        let notice = notice
            .and_then(|key| notices.get(&key))
            .map_or_else(String::new, |notice| notice.value.clone());
        let pages = context
            .cache_of(&self.pages)?
            .view()
            .by_index("owner", key)?;
        let file = |page: &Object<Page>| {
            let name = self.pages.name_of(&page.key).unwrap_or_default();
            (
                name.to_owned(),
                template
                    .replace("{notice}", &notice)
                    .replace("{text}", &page.text),
            )
        };
        Ok(pages.iter().map(|page| file(page)).collect())
    }
}

impl Reconciler<String> for Website {
    async fn reconcile(&self, context: Context<String>, key: Key) -> Result<Outcome, BoxError> {
        let folder = self
            .folder
            .join(self.sites.name_of(&key).ok_or("not a site")?);
        let Some(site) = context.cache().get(&key) else {
            return match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
                _ => Ok(Outcome::Done),
            };
        };
        let desired = self.desired(&context, &key, &self.template(&site)?)?;
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if !desired.contains_key(entry.file_name().to_string_lossy().as_ref()) {
                fs::remove_file(entry.path())?;
            }
        }
        let is_current = |(name, text): &(&String, &String)| {
            fs::read_to_string(folder.join(name)).is_ok_and(|stored| stored == **text)
        };
        match desired.iter().find(|file| !is_current(file)) {
            None => Ok(Outcome::Done),
            // One file in a run: a site with many pages does not hold up the others.
            Some((name, text)) => {
                fs::write(folder.join(name), text)?;
                tracing::info!(%key, name, "written");
                Ok(Outcome::RequeueNow)
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let mut arguments = env::args().skip(1);
    let (Some(url), Some(templates), Some(folder)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: controller-node STORE TEMPLATES SITES".into());
    };
    let store =
        contiv_store::open(&url.parse()?, contiv_store::etcd::EtcdAccess::default()).await?;
    // Nobody holds this lease; what runs on each node does not ask for it.
    let (_holder, lease) = Lease::manual();
    let mut manager = Manager::new(store, lease).with_grace_period(Duration::from_secs(5));
    manager.register(Website::new(Path::new(&templates), Path::new(&folder)).controller()?)?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    tokio::signal::ctrl_c().await?;
    stop.cancel();
    running.await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use contiv_store::{Operation, Store};
    use contiv_store_testing::MemoryStore;

    use super::*;

    async fn put(store: &MemoryStore, key: &str, value: &'static str) {
        store
            .commit(vec![Operation::Put {
                key: key.to_owned(),
                value: value.into(),
            }])
            .await
            .unwrap();
    }

    async fn settle() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// All files below a folder, with their texts.
    fn files(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for site in fs::read_dir(folder).unwrap() {
            let site = site.unwrap();
            for file in fs::read_dir(site.path()).unwrap() {
                let file = file.unwrap();
                let (site, name) = (site.file_name(), file.file_name());
                let text = fs::read_to_string(file.path()).unwrap();
                found.push(format!("{}/{}: {text}", site.display(), name.display()));
            }
        }
        found.sort();
        found
    }

    #[tokio::test(start_paused = true)]
    async fn sites_are_written_on_each_node_and_reaped() {
        let (templates, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for old in ["gone", "shop"] {
            fs::create_dir(folder.path().join(old)).unwrap();
            fs::write(folder.path().join(old).join("old"), "old").unwrap();
        }
        let store = MemoryStore::new();
        put(&store, "/sites/shop", "plain").await;
        put(&store, "/pages/home", "/sites/shop\nhello").await;
        put(&store, "/pages/about", "/sites/shop\nus").await;
        put(&store, "/pages/draft", "/drafts/shop\nnot yet").await;
        let (holder, lease) = Lease::manual();
        let mut manager = Manager::new(store.shared(), lease);
        manager
            .register(
                Website::new(templates.path(), folder.path())
                    .controller()
                    .unwrap(),
            )
            .unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(manager.run(stop.clone()));
        settle().await;
        // It waits for its template, which is no failure, so unknown objects are reaped.
        assert_eq!(files(folder.path()), ["shop/old: old"]);
        fs::write(templates.path().join("plain"), "{notice}<p>{text}").unwrap();
        tokio::time::sleep(TEMPLATE_RETRY).await;
        assert_eq!(
            files(folder.path()),
            ["shop/about: <p>us", "shop/home: <p>hello"]
        );
        put(&store, "/notices/shop", "closed").await;
        put(&store, "/notices/other", "of no site").await;
        store
            .commit(vec![Operation::Delete {
                key: "/pages/about".to_owned(),
            }])
            .await
            .unwrap();
        settle().await;
        assert_eq!(files(folder.path()), ["shop/home: closed<p>hello"]);
        store
            .commit(vec![Operation::Delete {
                key: "/sites/shop".to_owned(),
            }])
            .await
            .unwrap();
        settle().await;
        assert_eq!(files(folder.path()), Vec::<String>::new());
        stop.cancel();
        running.await.unwrap();
        drop(holder);
    }
}
