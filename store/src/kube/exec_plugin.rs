//! Runs a plugin that gives credentials (`exec` of a kubeconfig), as client-go does.

use std::{
    io::{self, IsTerminal},
    process::Stdio,
    time::Duration,
};

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::{process::Command, time::timeout};

/// How long a plugin may take, also one that asks a user.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(120);
/// How much of what a plugin prints is repeated.
const MAX_QUOTED_CHARS: usize = 200;

/// What a plugin has given: a token, a certificate with its key in PEM, or both.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PluginCredentials {
    pub(super) token: Option<String>,
    pub(super) certificate: Option<(String, String)>,
    pub(super) expires_at: Option<Timestamp>,
}

/// The answer of a plugin, in JSON or YAML.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// The plugin's command, for errors.
pub(super) fn name(plugin: &ExecConfig) -> &str {
    plugin.command.as_deref().unwrap_or("without a command")
}

/// Runs the plugin.
///
/// # Errors
/// Why it has given nothing that can be used.
pub(super) async fn run(plugin: &ExecConfig) -> Result<PluginCredentials, String> {
    let program = plugin.command.as_ref().ok_or("command is missing")?;
    let may_ask =
        plugin.interactive_mode != Some(ExecInteractiveMode::Never) && io::stdin().is_terminal();
    if plugin.interactive_mode == Some(ExecInteractiveMode::Always) && !may_ask {
        return Err("interactiveMode is Always, and there is no terminal here".to_owned());
    }
    let cluster = plugin
        .cluster
        .as_ref()
        .filter(|_| plugin.provide_cluster_info);
    let mut spec = json!({ "interactive": may_ask });
    if let Some(cluster) = cluster {
        spec["cluster"] = serde_json::to_value(cluster).map_err(|error| error.to_string())?;
    }
    let info = json!({ "kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec });
    let mut command = Command::new(program);
    command.args(plugin.args.iter().flatten());
    for variable in plugin.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    command
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .kill_on_drop(true);
    command.stdin(if may_ask {
        Stdio::inherit()
    } else {
        Stdio::null()
    });
    command.stdout(Stdio::piped()).stderr(if may_ask {
        Stdio::inherit()
    } else {
        Stdio::piped()
    });
    let output = command
        .spawn()
        .map_err(|error| match &plugin.install_hint {
            Some(hint) => format!("{error}; {}", quoted(hint)),
            None => error.to_string(),
        })?;
    let output = timeout(PLUGIN_TIMEOUT, output.wait_with_output()).await;
    let output = output.map_err(|_| format!("it has not ended within {PLUGIN_TIMEOUT:?}"))?;
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!(
            "{}: {}",
            output.status,
            quoted(&String::from_utf8_lossy(&output.stderr))
        ));
    }
    read(&output.stdout)
}

/// Reads what a plugin has printed, which is not repeated: it has secrets.
fn read(printed: &[u8]) -> Result<PluginCredentials, String> {
    let unreadable = "what it prints is no ExecCredential";
    let text = std::str::from_utf8(printed).map_err(|_| unreadable)?;
    let credential: ExecCredential = serde_saphyr::from_str(text).map_err(|_| unreadable)?;
    let Status {
        expiration_timestamp,
        token,
        client_certificate_data,
        client_key_data,
    } = credential
        .status
        .ok_or("its ExecCredential has no status")?;
    let expires_at = expiration_timestamp.map(|time| {
        time.parse()
            .map_err(|_| format!("status.expirationTimestamp: {:?} is no time", quoted(&time)))
    });
    let token = token.filter(|token| !token.is_empty());
    let certificate = match (client_certificate_data, client_key_data) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("clientCertificateData and clientKeyData come together".to_owned()),
    };
    if token.is_none() && certificate.is_none() {
        return Err("its status has neither a token nor a certificate".to_owned());
    }
    Ok(PluginCredentials {
        token,
        certificate,
        expires_at: expires_at.transpose()?,
    })
}

fn quoted(text: &str) -> String {
    text.trim().chars().take(MAX_QUOTED_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(script: &str) -> ExecConfig {
        ExecConfig {
            api_version: Some("client.authentication.k8s.io/v1".to_owned()),
            command: Some("/bin/sh".to_owned()),
            args: Some(vec!["-c".to_owned(), script.to_owned()]),
            env: Some(vec![
                [("name", "TOKEN"), ("value", "abc")]
                    .map(|(k, v)| (k.to_owned(), v.to_owned()))
                    .into(),
            ]),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..ExecConfig::default()
        }
    }

    #[tokio::test]
    async fn plugin_gets_its_environment_and_its_answer_is_read() {
        let script = r#"case "$KUBERNETES_EXEC_INFO" in *ExecCredential*interactive*) ;; *) exit 1 ;; esac
            echo "{\"status\":{\"token\":\"$TOKEN\",\"expirationTimestamp\":\"2030-01-01T00:00:00Z\"}}""#;
        let given = run(&plugin(script)).await.unwrap();
        assert_eq!(
            (given.token.as_deref(), given.certificate),
            (Some("abc"), None)
        );
        assert_eq!(
            given.expires_at.unwrap().to_string(),
            "2030-01-01T00:00:00Z"
        );
        let yaml = "apiVersion: client.authentication.k8s.io/v1\nkind: ExecCredential\nstatus:\n  clientCertificateData: C\n  clientKeyData: K\n";
        let certificate = Some(("C".to_owned(), "K".to_owned()));
        assert_eq!(
            read(yaml.as_bytes()).unwrap(),
            PluginCredentials {
                token: None,
                certificate,
                expires_at: None
            }
        );
    }

    #[tokio::test]
    async fn plugin_that_gives_nothing_usable_says_why() {
        for (script, expected) in [
            ("echo no >&2; exit 3", "exit status: 3: no"),
            ("echo '[secret'", "what it prints is no ExecCredential"),
            ("echo '{}'", "its ExecCredential has no status"),
            (
                r#"echo '{"status":{"token":""}}'"#,
                "its status has neither a token nor a certificate",
            ),
            (
                r#"echo '{"status":{"clientKeyData":"x"}}'"#,
                "clientCertificateData and clientKeyData come together",
            ),
            (
                r#"echo '{"status":{"token":"x","expirationTimestamp":"soon"}}'"#,
                "status.expirationTimestamp: \"soon\" is no time",
            ),
        ] {
            assert_eq!(
                run(&plugin(script)).await.unwrap_err(),
                expected,
                "{script}"
            );
        }
        let missing = ExecConfig {
            command: Some("/nonexistent/plugin".to_owned()),
            install_hint: Some("install it".to_owned()),
            ..plugin("")
        };
        let error = run(&missing).await.unwrap_err();
        assert!(
            error.contains("No such file") && error.ends_with("; install it"),
            "{error}"
        );
    }
}
