//! What a client shows to the API server besides a certificate: a token, or a user's password.
//!
//! `kube` panics on a token that no header can have, and sends a token file as it is. Here white space at the ends of a token is no
//! part of it, as in client-go, and what cannot be sent is an error that names the file or the field.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use http::{HeaderValue, Request, header::AUTHORIZATION};
use jiff::Timestamp;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tracing::{info, warn};

use super::exec_plugin::{self, PluginCredentials};

/// The header `Authorization` of all requests.
#[derive(Clone)]
pub(super) enum Authorization {
    /// There is none: the certificate says who this is, or nobody is known.
    None,
    Fixed(HeaderValue),
    File(Arc<TokenFile>),
}

/// The credentials of a user of a kubeconfig.
pub(super) struct Credentials {
    pub(super) authorization: Authorization,
    /// When those of a plugin expire.
    pub(super) expires_at: Option<Timestamp>,
}

impl Credentials {
    /// Takes everything but the certificate out of `user`, so that `kube` handles nothing of it; a plugin's certificate is put in.
    ///
    /// # Errors
    /// The file or the field that cannot be used.
    pub(super) async fn take(user: &mut AuthInfo) -> Result<Self, String> {
        check_impersonation(user)?;
        let fixed = |authorization| {
            Ok(Self {
                authorization,
                expires_at: None,
            })
        };
        // Empty fields count as missing, as in client-go.
        let token = user
            .token
            .take()
            .filter(|token| !token.expose_secret().is_empty());
        let token_file = user
            .token_file
            .take()
            .filter(|file| !file.is_empty())
            .map(PathBuf::from);
        let (name, password) = (user.username.take(), user.password.take());
        let (plugin, provider) = (user.exec.take(), user.auth_provider.take());
        if let Some(provider) = provider {
            let token = provider
                .config
                .get("id-token")
                .filter(|_| provider.name == "oidc");
            let token = token.ok_or_else(|| {
                format!(
                    "auth-provider {:?} is not supported; use exec, with a plugin",
                    provider.name
                )
            })?;
            return fixed(Authorization::Fixed(
                bearer(token).map_err(|reason| format!("auth-provider: id-token: {reason}"))?,
            ));
        }
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let password = password.unwrap_or_default();
            return fixed(Authorization::Fixed(basic(&name, &password)?));
        }
        let inline = token.map(|token| {
            bearer(token.expose_secret()).map_err(|reason| format!("token: {reason}"))
        });
        if let Some(file) = token_file {
            // As in client-go: the token beside it counts while the file cannot be used.
            let read = match (read_token(&file), inline) {
                (Err(_), Some(inline)) => inline,
                (read, _) => read,
            };
            return fixed(Authorization::File(Arc::new(TokenFile::new(file, read?))));
        }
        if let Some(inline) = inline {
            return fixed(Authorization::Fixed(inline?));
        }
        let Some(plugin) = plugin else {
            return fixed(Authorization::None);
        };
        let named =
            |reason: String| format!("exec: the plugin {}: {reason}", exec_plugin::name(&plugin));
        let PluginCredentials {
            token,
            certificate,
            expires_at,
        } = exec_plugin::run(&plugin).await.map_err(named)?;
        if let Some((certificate, key)) = certificate {
            user.client_certificate_data = Some(BASE64.encode(certificate));
            user.client_key_data = Some(BASE64.encode(key).into());
        }
        let authorization = match token {
            None => Authorization::None,
            Some(token) => Authorization::Fixed(
                bearer(&token).map_err(|reason| named(format!("token: {reason}")))?,
            ),
        };
        Ok(Self {
            authorization,
            expires_at,
        })
    }
}

impl Authorization {
    /// Adds the header.
    pub(super) fn authorize<B>(&self, mut request: Request<B>) -> Request<B> {
        let header = match self {
            Self::None => return request,
            Self::Fixed(header) => header.clone(),
            Self::File(file) => file.current(),
        };
        request.headers_mut().insert(AUTHORIZATION, header);
        request
    }
}

/// A file with a token, which is read for each request: there are few.
pub(super) struct TokenFile {
    path: PathBuf,
    last: Mutex<LastToken>,
}

struct LastToken {
    header: HeaderValue,
    /// Why the file cannot be used now.
    problem: Option<String>,
}

impl TokenFile {
    const fn new(path: PathBuf, header: HeaderValue) -> Self {
        Self {
            path,
            last: Mutex::new(LastToken {
                header,
                problem: None,
            }),
        }
    }

    /// The present token; while the file cannot be used, the last one that could be.
    fn current(&self) -> HeaderValue {
        let read = read_token(&self.path);
        let mut last = self.last.lock();
        match read {
            Ok(header) => {
                if last.problem.take().is_some() {
                    info!(file = %self.path.display(), "the token file can be used again");
                }
                last.header = header;
            }
            Err(problem) if last.problem.as_ref() != Some(&problem) => {
                warn!(
                    problem,
                    "the token file cannot be used; the last token stays in use"
                );
                last.problem = Some(problem);
            }
            Err(_) => {}
        }
        last.header.clone()
    }
}

/// The header for the token in a file. Errors name the file.
fn read_token(file: &Path) -> Result<HeaderValue, String> {
    let named = |reason: String| format!("{}: {reason}", file.display());
    let token = fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    bearer(&token).map_err(named)
}

/// The header for a token.
fn bearer(token: &str) -> Result<HeaderValue, String> {
    let token = token.trim();
    if token.is_empty() {
        return Err("it is empty, and should hold a token".to_owned());
    }
    // The type would let other bytes than ASCII pass, as those of a byte order mark.
    let header = HeaderValue::from_str(&format!("Bearer {token}"))
        .ok()
        .filter(|_| token.is_ascii());
    let mut header = header.ok_or_else(|| unusable(token))?;
    header.set_sensitive(true);
    Ok(header)
}

fn basic(name: &str, password: &SecretString) -> Result<HeaderValue, String> {
    let text = format!(
        "Basic {}",
        BASE64.encode(format!("{name}:{}", password.expose_secret()))
    );
    let mut header = HeaderValue::from_str(&text).map_err(|error| format!("username: {error}"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The first character that no header can have. The text is not repeated, since it is a secret.
fn unusable(text: &str) -> String {
    let is_usable = |c: char| matches!(c, '\t' | ' '..='~');
    match text.chars().enumerate().find(|(_, c)| !is_usable(*c)) {
        Some((position, c)) => format!(
            "its character {} is U+{:04X}, which no request can carry; write it again without",
            position + 1,
            u32::from(c)
        ),
        None => "no request can carry it".to_owned(),
    }
}

/// `kube` makes headers of these fields too, and its error names none of them.
fn check_impersonation(user: &AuthInfo) -> Result<(), String> {
    let groups = user
        .impersonate_groups
        .iter()
        .flatten()
        .map(|group| ("as-groups".to_owned(), group));
    let extra: BTreeMap<_, _> = user.impersonate_user_extra.iter().flatten().collect();
    let extra = extra.into_iter().flat_map(|(name, values)| {
        values
            .iter()
            .map(move |value| (format!("as-user-extra: {name}"), value))
    });
    let one = |name: &str, value: &Option<String>| {
        value.as_ref().map(|value| (name.to_owned(), value.clone()))
    };
    let single = [
        one("as", &user.impersonate),
        one("as-uid", &user.impersonate_uid),
    ];
    let all = single.into_iter().flatten();
    let all = all.chain(
        groups
            .chain(extra)
            .map(|(field, value)| (field, value.clone())),
    );
    for (field, value) in all {
        HeaderValue::from_str(&value).map_err(|_| format!("{field}: {}", unusable(&value)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_trimmed_and_one_no_header_can_have_is_named() {
        for token in ["tok1", "tok1\n", " tok1\r\n", "tok1\n\n\t"] {
            assert_eq!(bearer(token).unwrap(), "Bearer tok1", "{token:?}");
        }
        for (token, expected) in [
            ("", "it is empty, and should hold a token"),
            ("\n \n", "it is empty, and should hold a token"),
            (
                "a\nb",
                "its character 2 is U+000A, which no request can carry; write it again without",
            ),
            (
                "ab\u{7f}",
                "its character 3 is U+007F, which no request can carry; write it again without",
            ),
            (
                "\u{feff}ab",
                "its character 1 is U+FEFF, which no request can carry; write it again without",
            ),
            (
                "a\0b",
                "its character 2 is U+0000, which no request can carry; write it again without",
            ),
        ] {
            assert_eq!(bearer(token).unwrap_err(), expected, "{token:?}");
        }
    }

    #[tokio::test]
    async fn fields_that_no_header_can_have_are_named() {
        let bad = || Some("a\u{1}".to_owned());
        let user = AuthInfo::default;
        for (user, field) in [
            (
                AuthInfo {
                    token: Some("a\nb".to_owned().into()),
                    ..user()
                },
                "token: ",
            ),
            (
                AuthInfo {
                    impersonate: bad(),
                    ..user()
                },
                "as: ",
            ),
            (
                AuthInfo {
                    impersonate_uid: bad(),
                    ..user()
                },
                "as-uid: ",
            ),
            (
                AuthInfo {
                    impersonate_groups: Some(vec!["a".to_owned(), "\n".to_owned()]),
                    ..user()
                },
                "as-groups: ",
            ),
            (
                AuthInfo {
                    impersonate_user_extra: Some([("k".to_owned(), vec!["\r".to_owned()])].into()),
                    ..user()
                },
                "as-user-extra: k: ",
            ),
        ] {
            let mut user = user;
            let error = Credentials::take(&mut user).await.err().unwrap_or_default();
            assert!(
                error.starts_with(field) && error.contains("U+00"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn token_file_counts_before_the_token_and_empty_fields_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let user = |token: &str, file: &PathBuf| AuthInfo {
            token: Some(token.to_owned().into()),
            token_file: Some(file.display().to_string()),
            ..AuthInfo::default()
        };
        let header = async |mut user: AuthInfo| {
            let credentials = Credentials::take(&mut user).await?;
            let request = credentials.authorization.authorize(Request::new(()));
            Ok::<_, String>(request.headers().get(AUTHORIZATION).cloned())
        };
        fs::write(&file, "of-file\n").unwrap();
        assert_eq!(
            header(user("inline", &file)).await.unwrap().unwrap(),
            "Bearer of-file"
        );
        assert_eq!(
            header(user("", &file)).await.unwrap().unwrap(),
            "Bearer of-file"
        );
        fs::write(&file, "").unwrap();
        assert_eq!(
            header(user("inline", &file)).await.unwrap().unwrap(),
            "Bearer inline"
        );
        let expected = format!("{}: it is empty, and should hold a token", file.display());
        assert_eq!(header(user("", &file)).await.unwrap_err(), expected);
        assert_eq!(header(user("", &PathBuf::new())).await.unwrap(), None);
        let named = AuthInfo {
            username: Some("me".to_owned()),
            ..AuthInfo::default()
        };
        assert_eq!(header(named).await.unwrap().unwrap(), "Basic bWU6");
    }

    #[test]
    fn token_file_that_becomes_unusable_leaves_the_last_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "first").unwrap();
        let file = TokenFile::new(path.clone(), read_token(&path).unwrap());
        for (content, expected) in [
            ("", "first"),
            ("a\0b", "first"),
            ("second\n", "second"),
            ("\n", "second"),
            ("third", "third"),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(file.current(), format!("Bearer {expected}"));
        }
        fs::remove_file(path).unwrap();
        assert_eq!(file.current(), "Bearer third");
    }
}
