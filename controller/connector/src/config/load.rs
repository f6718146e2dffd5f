//! Reads the connector's configuration file.

use std::{fs, path::Path};

use super::{ConfigError, ConnectorConfig};

impl ConnectorConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When the file cannot be read or is invalid. Invalid TOML is one problem with its line; invalid settings are all reported,
    /// each with its key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| {
            ConfigError(vec![format!(
                "failed to read the connector's file {name}: {error}"
            )])
        })?;
        Self::parse(&name, &text)
    }

    /// Reads and checks the text of a file. Errors call the file `name`.
    ///
    /// # Errors
    /// As [`ConnectorConfig::load`].
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let config = toml::Deserializer::parse(text)
            .map_err(|error| parse_error(name, text, "", &error))
            .and_then(|deserializer| {
                serde_path_to_error::deserialize::<_, Self>(deserializer).map_err(|error| {
                    parse_error(name, text, &error.path().to_string(), error.inner())
                })
            })?;
        let problems = config.problems();
        if problems.is_empty() {
            return Ok(config);
        }
        Err(ConfigError(
            problems
                .into_iter()
                .map(|problem| format!("{name}: {problem}"))
                .collect(),
        ))
    }
}

/// An error of the TOML parser as `FILE:LINE: KEY: MESSAGE`.
fn parse_error(name: &str, text: &str, key: &str, error: &toml::de::Error) -> ConfigError {
    let line = error.span().map_or(1, |span| {
        text.bytes()
            .take(span.start)
            .filter(|byte| *byte == b'\n')
            .count()
            + 1
    });
    let key = if key.is_empty() || key == "." {
        String::new()
    } else {
        format!("{key}: ")
    };
    ConfigError(vec![format!(
        "{name}:{line}: {key}{}",
        error.message().trim()
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        ConnectorConfig::parse("c.toml", text)
            .unwrap_err()
            .to_string()
    }

    #[cfg(feature = "dns")]
    #[test]
    fn example_in_documentation_is_valid() {
        let text = include_str!("../../../../docs/users/connector.md");
        let example = text
            .split("```toml\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        let config = ConnectorConfig::parse("connector.md", example).unwrap();
        assert_eq!(config.registries.len(), 3);
        assert_eq!(
            config
                .parts(crate::ConnectorMetrics::default())
                .registries
                .len(),
            3
        );
    }

    #[cfg(not(feature = "dns"))]
    #[test]
    fn registry_that_needs_disabled_cargo_feature_is_refused() {
        let error = problems(
            "[[registries]]\nname = \"a\"\ndns = { services = { web = \"_http._tcp.web.example.org\" } }\n",
        );
        assert_eq!(
            error,
            "c.toml: registries[0].dns: this contiv was built without the cargo feature dns; take a build with it"
        );
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let error = problems(
            "namespace = \"x\"\n\n[[registries]]\nname = \"a\"\nconsul = { uri = \"http://c\" }\n",
        );
        assert!(
            error.starts_with("c.toml:5: registries[0].consul") && error.contains("uri"),
            "{error}"
        );
        let error = problems(
            "[[registries]]\nname = \"a\"\nconsul = { url = \"http://c\", wait = \"long\" }\n",
        );
        assert!(
            error.starts_with("c.toml:3: registries[0].consul.wait: \"long\" is not a duration"),
            "{error}"
        );
        assert!(problems("registries = [\n").starts_with("c.toml:"));
        assert!(problems("").contains("registries"));
    }

    #[test]
    fn consul_url_with_secret_is_refused_without_showing_it() {
        for url in [
            "http://root:s3cret@consul:8500",
            "http://root:s3cret@consul:8500/x",
            "http://root:s3/c@ret s3cret@consul",
            "root:s3cret@consul",
            "http://consul:8500?token=s3cret",
            "http://consul:8500/?token=s3cret#s3cret",
        ] {
            let error = problems(&format!(
                "[[registries]]\nname = \"a\"\nconsul = {{ url = \"{url}\" }}\n"
            ));
            assert!(
                error.starts_with("c.toml: registries[0].consul.url: ") && error.contains("consul"),
                "{error}"
            );
            assert!(!error.contains("s3"), "{url}: {error}");
        }
    }

    #[test]
    fn errors_of_validation_are_reported_together() {
        let error = problems(
            "namespace = \"a/b\"\nsync-period = \"100ms\"\ncluster-ip-ranges = [\"10.0.0.0/16\", \"10.1.0.0/16\", \"fd00::/127\"]\n\
             [[registries]]\nname = \"A\"\nfile = \"/f\"\nservice-port = 0\n\
             [[registries]]\nname = \"A\"\n\
             [[registries]]\nname = \"b\"\nprefix = \"x_\"\nfile = \"/f\"\nconsul = { url = \"consul\", cert-file = \"/c\", wait = \"1h\", connections = 0 }\n\
             [[registries]]\nname = \"c\"\ndns = { services = { web = \"example.org\" } }\n",
        );
        for expected in [
            "namespace: ",
            "sync-period: ",
            "cluster-ip-ranges[1]: ",
            "cluster-ip-ranges[2]: ",
            "registries[0].name: ",
            "registries[0].service-port: ",
            "registries[1].name: ",
            "registries[1]: ",
            "registries[2]: ",
            "registries[2].prefix: ",
            "registries[2].consul.url: ",
            "registries[2].consul.cert-file: ",
            "registries[2].consul.wait: ",
            "registries[2].consul.connections: ",
            if cfg!(feature = "dns") {
                "registries[3].dns.services.web: "
            } else {
                "registries[3].dns: "
            },
        ] {
            assert!(
                error.contains(&format!("c.toml: {expected}")),
                "{expected} is not in\n{error}"
            );
        }
    }
}
