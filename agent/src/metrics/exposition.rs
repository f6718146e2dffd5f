//! The text forms of metrics: Prometheus' own, and `OpenMetrics` for those who ask for it.

use std::fmt;

use prometheus_client::{
    encoding::{prometheus_text, text},
    registry::Registry,
};

/// A text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

impl Exposition {
    /// The form that the header `Accept` prefers: `OpenMetrics` only if it is named, and not less wanted than plain text.
    pub fn accepted(accept: &str) -> Self {
        let mut quality = [0.0, 0.0];
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let parameter = |name: &str, parameters: &[&str]| {
                let found = parameters
                    .iter()
                    .filter_map(|parameter| parameter.split_once('='));
                let mut found = found.filter(|(key, _)| key.trim().eq_ignore_ascii_case(name));
                found
                    .next()
                    .map(|(_, value)| value.trim().trim_matches('"').to_owned())
            };
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<&str> = parts.collect();
            let version = parameter("version", &parameters);
            let form = match media.as_str() {
                // Versions before 1.0 were drafts.
                "application/openmetrics-text"
                    if version.as_deref().is_none_or(|it| it == "1.0.0") =>
                {
                    1
                }
                "text/plain" | "text/*" | "*/*"
                    if version.as_deref().is_none_or(|it| it == "0.0.4") =>
                {
                    0
                }
                _ => continue,
            };
            let wanted = parameter("q", &parameters).map_or(Ok(1.0), |q| q.parse::<f32>());
            quality[form] = wanted.unwrap_or(0.0_f32).max(quality[form]);
        }
        let [plain, open] = quality;
        if open > 0.0 && open >= plain {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Its media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The metrics in this form.
    ///
    /// # Errors
    /// Never: writing to a `String` cannot fail.
    pub(super) fn encode(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut written = String::new();
        match self {
            Self::Prometheus => prometheus_text::encode(&mut written, registry)?,
            Self::OpenMetrics => text::encode(&mut written, registry)?,
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_returned_only_on_request() {
        use Exposition::{OpenMetrics, Prometheus};
        for (accept, expected) in [
            ("", Prometheus),
            ("*/*", Prometheus),
            ("text/plain", Prometheus),
            ("application/openmetrics-text", OpenMetrics),
            (
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                OpenMetrics,
            ),
            ("application/openmetrics-text;version=0.0.1", Prometheus),
            ("application/openmetrics-text;q=0", Prometheus),
            (
                "application/openmetrics-text;q=0.5,text/plain;version=0.0.4;q=0.8",
                Prometheus,
            ),
            // The Accept header of Prometheus 3.
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;q=0.7",
                Prometheus,
            ),
        ] {
            assert_eq!(Exposition::accepted(accept), expected, "{accept}");
        }
    }
}
