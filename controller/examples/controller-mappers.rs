//! Plans how applications are rolled out: every kind of mapper, from objects that an application does not name itself.
//!
//! `cargo run -p contiv-controller --example controller-mappers` prints which types lead to which.
//!
//! | object | value | leads to applications |
//! |---|---|---|
//! | `/apps/TEAM/NAME` | `RELEASE FOLDER` | |
//! | `/registries/HOST` | anything | whose release has an image from there: three steps |
//! | `/images/NAME` | `HOST DIGEST` | whose release has it: two steps |
//! | `/releases/NAME` | the name of an image | that run it |
//! | `/files/PATH` | anything | that mount a folder above it; and the one whose own file it is |
//! | `/pins/TEAM/NAME` | a digest | of the same name, if there is one |
//! | `/teams/NAME` | whether it may deploy: `yes` or `no` | of the team, by a query |
//!
//! The plan of `/apps/TEAM/NAME` is `/plans/TEAM/NAME`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use contiv_controller::{
    BoxError, BuildError, Caches, Context, Controller, Index, Key, Lease, Manager, Mapper, Object,
    Outcome, ResourceType, Transform, Write,
};
use contiv_store::Entry;
use contiv_store_testing::MemoryStore;

struct App {
    release: String,
    /// The folder that is mounted; with a slash at its end.
    folder: String,
}

#[derive(Clone)]
struct Types {
    apps: ResourceType<App>,
    registries: ResourceType<String>,
    images: ResourceType<[String; 2]>,
    releases: ResourceType<String>,
    files: ResourceType<String>,
    pins: ResourceType<String>,
    teams: ResourceType<String>,
    plans: ResourceType<String>,
}

fn text(entry: &Entry) -> Result<String, std::string::FromUtf8Error> {
    String::from_utf8(entry.value.to_vec())
}

fn two_words(entry: &Entry) -> Result<[String; 2], BoxError> {
    let text = text(entry)?;
    let (one, other) = text.split_once(' ').ok_or("two words are expected")?;
    Ok([one.to_owned(), other.to_owned()])
}

impl Types {
    fn new() -> Self {
        let app = |entry: &Entry| two_words(entry).map(|[release, folder]| App { release, folder });
        Self {
            apps: ResourceType::new("app", "/apps/", app),
            registries: ResourceType::new("registry", "/registries/", text),
            images: ResourceType::new("image", "/images/", two_words),
            releases: ResourceType::new("release", "/releases/", text),
            files: ResourceType::new("file", "/files/", text),
            pins: ResourceType::new("pin", "/pins/", text),
            teams: ResourceType::new("team", "/teams/", text),
            plans: ResourceType::new("plan", "/plans/", text),
        }
    }

    /// The name of an object of one of the types.
    fn name<T>(of: &ResourceType<T>) -> impl Fn(&Object<T>) -> Vec<String> + use<T> {
        let of = of.clone();
        move |object| {
            of.name_of(&object.key)
                .map(str::to_owned)
                .into_iter()
                .collect()
        }
    }

    fn controller(self) -> Result<Controller<App>, BuildError> {
        let Self {
            apps,
            registries,
            images,
            releases,
            files,
            pins,
            teams,
            plans,
        } = self.clone();
        let of_release = Mapper::cache_list(&apps, "release", Self::name(&releases));
        let of_image = Transform::list(&releases, "image", Self::name(&images));
        let of_registry = Transform::list(&images, "registry", Self::name(&registries))
            .then(of_image_again(&releases, &images));
        let of_folder = Mapper::cache_parents(&apps, "folder", {
            let name = Self::name(&files);
            move |file| name(file).pop().map(|path| format!("/{path}"))
        });
        let of_pin = Mapper::cache_get(&apps, {
            let (pins, apps) = (pins.clone(), apps.clone());
            move |pin| Some(apps.key(pins.name_of(&pin.key)?))
        });
        let of_team = {
            let name = Self::name(&teams);
            Mapper::new(move |caches, team| caches.query("apps of team", &name(team).concat()))
        };
        let path = {
            let name = Self::name(&apps);
            move |app: &Object<App>| name(app).pop()
        };
        Controller::for_type(&apps)
            .with_index(
                &apps,
                Index::single("release", |app: &Object<App>| Some(app.release.clone())),
            )
            .with_index(
                &apps,
                Index::single("folder", |app: &Object<App>| Some(app.folder.clone())),
            )
            .with_index(&apps, Index::single("path", path))
            .with_index(
                &images,
                Index::single("registry", |image: &Object<[String; 2]>| {
                    Some(image.value[0].clone())
                }),
            )
            .with_index(
                &releases,
                Index::single("image", |release: &Object<String>| {
                    Some(release.value.clone())
                }),
            )
            .with_query("apps of team", {
                let apps = apps.clone();
                move |caches: &Caches, team| {
                    let of_team = caches
                        .of(&apps)?
                        .view()
                        .by_index_prefix("path", &format!("{team}/"))?;
                    Ok(of_team.iter().map(|app| Arc::clone(&app.key)).collect())
                }
            })
            .with_watch(&registries, of_registry.then_map(of_release.clone()))
            .with_watch(
                &images,
                of_image
                    .then(Transform::list(&apps, "release", Self::name(&releases)))
                    .then_keys(),
            )
            .with_watch(&releases, of_release)
            .with_watch(
                &files,
                Mapper::multi(vec![of_folder, Mapper::replace_type(&files, &apps)]),
            )
            .with_watch(&pins, of_pin)
            .with_watch(&teams, of_team)
            .with_watch(&plans, Mapper::replace_type(&plans, &apps))
            .with_reconciler(move |context: Context<App>, key: Key| {
                let types = self.clone();
                async move { types.plan(&context, &key).await }
            })
            .build()
    }

    /// Writes the plan of an application, and deletes that of one that is gone.
    async fn plan(&self, context: &Context<App>, key: &Key) -> Result<Outcome, BoxError> {
        let name = self.apps.name_of(key).ok_or("not an application")?;
        let plan_key = self.plans.key(name);
        let stored = context.cache_of(&self.plans)?.get(&plan_key);
        let plan = context
            .cache()
            .get(key)
            .map(|app| self.plan_of(context, name, &app))
            .transpose()?;
        let write = match (plan, stored) {
            (Some(plan), None) => Write::create(&plan_key, plan),
            (Some(plan), Some(stored)) if stored.value != plan => Write::update(&stored, plan),
            (None, Some(stored)) => Write::delete(&stored),
            _ => return Ok(Outcome::Done),
        };
        context.writer().commit(vec![write]).await?;
        Ok(Outcome::Done)
    }

    fn plan_of(&self, context: &Context<App>, name: &str, app: &App) -> Result<String, BoxError> {
        let (team, _) = name
            .split_once('/')
            .ok_or("an application is called TEAM/NAME")?;
        let allowed = context.cache_of(&self.teams)?.get(&self.teams.key(team));
        if allowed.is_none_or(|allowed| allowed.value != "yes") {
            return Ok(format!("team {team} may not deploy"));
        }
        let pinned = context
            .cache_of(&self.pins)?
            .get(&self.pins.key(name))
            .map(|pin| pin.value.clone());
        let release = context
            .cache_of(&self.releases)?
            .get(&self.releases.key(&app.release));
        let images = context.cache_of(&self.images)?;
        let image = release.and_then(|release| images.get(&self.images.key(&release.value)));
        let digest = pinned.or_else(|| image.map(|image| image.value[1].clone()));
        let files = context.cache_of(&self.files)?;
        let below = self.files.key(app.folder.trim_start_matches('/'));
        let mounted = files
            .view()
            .iter()
            .filter(|file| file.key.starts_with(below.as_ref()))
            .count();
        Ok(format!(
            "{} with {mounted} files",
            digest.as_deref().unwrap_or("no image")
        ))
    }
}

/// From an image to the releases that have it.
fn of_image_again(
    releases: &ResourceType<String>,
    images: &ResourceType<[String; 2]>,
) -> Transform<[String; 2], String> {
    Transform::list(releases, "image", Types::name(images))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut manager = Manager::new(MemoryStore::new().shared(), Lease::always_leader());
    manager.register(Types::new().controller()?)?;
    manager.validate_dependencies()?;
    print!("{}", manager.dependencies().to_mermaid());
    Ok(())
}

#[cfg(test)]
mod tests {
    use contiv_controller::testing::TestController;
    use contiv_store::{Operation, Store};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn mappers_lead_from_everything_that_counts_to_the_application() {
        let store = MemoryStore::new();
        for (key, value) in [
            ("/apps/red/web", "v2 /etc/web/"),
            ("/apps/red/db", "v7 /etc/db/"),
            ("/apps/blue/web", "v2 /etc/blue/"),
            ("/registries/hub", ""),
            ("/images/nginx", "hub sha:1"),
            ("/images/unused", "hub sha:9"),
            ("/releases/v2", "nginx"),
            ("/files/etc/web/tls.crt", "x"),
            ("/files/red/db", "x"),
            ("/pins/red/db", "sha:7"),
            ("/pins/red/none", "sha:7"),
            ("/teams/red", "yes"),
        ] {
            store
                .commit(vec![Operation::Put {
                    key: key.to_owned(),
                    value: value.into(),
                }])
                .await
                .unwrap();
        }
        let types = Types::new();
        let mut controller =
            TestController::new(types.clone().controller().unwrap(), store.shared());
        let both = ["/apps/blue/web", "/apps/red/web"];
        macro_rules! assert_leads {
            ($of:ident, $key:expr, $to:expr) => {
                let keys = controller.dry_run_mapper(&types.$of, $key).await.unwrap();
                let keys: Vec<&str> = keys.iter().map(|key| key.as_ref()).collect();
                assert_eq!(keys, $to, "{}", $key);
            };
        }
        assert_leads!(registries, "/registries/hub", both);
        assert_leads!(images, "/images/nginx", both);
        assert_leads!(images, "/images/unused", [] as [&str; 0]);
        assert_leads!(releases, "/releases/v2", both);
        assert_leads!(
            files,
            "/files/etc/web/tls.crt",
            ["/apps/etc/web/tls.crt", "/apps/red/web"]
        );
        assert_leads!(files, "/files/red/db", ["/apps/red/db"]);
        assert_leads!(pins, "/pins/red/db", ["/apps/red/db"]);
        assert_leads!(pins, "/pins/red/none", [] as [&str; 0]);
        assert_leads!(teams, "/teams/red", ["/apps/red/db", "/apps/red/web"]);

        for (app, plan) in [
            ("red/web", "sha:1 with 1 files"),
            ("red/db", "sha:7 with 0 files"),
            ("blue/web", "team blue may not deploy"),
        ] {
            controller.reconcile(&format!("/apps/{app}")).await.unwrap();
            let stored = store.list(&format!("/plans/{app}")).await.unwrap();
            assert_eq!(stored.entries[0].value, plan, "{app}");
        }
        store
            .commit(vec![Operation::Delete {
                key: "/apps/red/db".to_owned(),
            }])
            .await
            .unwrap();
        controller.reconcile("/apps/red/db").await.unwrap();
        assert!(
            store
                .list("/plans/red/db")
                .await
                .unwrap()
                .entries
                .is_empty()
        );
    }
}
