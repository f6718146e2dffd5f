//! Reads values from the text format of Prometheus.

/// The sum of all series of a metric that have each of these labels, as `name="value"`. Zero without such a series: a counter that
/// has never counted may be missing.
pub(super) fn sum(text: &str, metric: &str, labels: &[&str]) -> f64 {
    text.lines()
        .filter_map(|line| value(line, metric, labels))
        .sum()
}

fn value(line: &str, metric: &str, labels: &[&str]) -> Option<f64> {
    let rest = line.strip_prefix(metric)?;
    let (series_labels, number) = match rest.strip_prefix('{') {
        Some(rest) => rest.rsplit_once("} ")?,
        None => ("", rest.strip_prefix(' ')?),
    };
    let has_all = labels
        .iter()
        .all(|label| series_labels.split(',').any(|other| other == *label));
    has_all.then(|| number.split(' ').next()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP etcd_network_client_grpc_sent_bytes_total The total number of bytes sent to grpc clients.
# TYPE etcd_network_client_grpc_sent_bytes_total counter
etcd_network_client_grpc_sent_bytes_total 1.290406e+06
etcd_network_client_grpc_sent_bytes_total_other 5
grpc_server_msg_received_total{grpc_method=\"Watch\",grpc_service=\"etcdserverpb.Watch\",grpc_type=\"bidi_stream\"} 7
grpc_server_msg_received_total{grpc_method=\"Range\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 30
grpc_server_msg_received_total{grpc_method=\"Txn\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 2 1395066363000
";

    #[test]
    fn series_are_summed_by_exact_name_and_labels() {
        let sent = sum(TEXT, "etcd_network_client_grpc_sent_bytes_total", &[]);
        assert!((sent - 1_290_406.0).abs() < 1e-6, "{sent}");
        let received = |labels: &[&str]| sum(TEXT, "grpc_server_msg_received_total", labels);
        let seen = [
            received(&[]),
            received(&["grpc_service=\"etcdserverpb.KV\""]),
            received(&["grpc_service=\"etcdserverpb.KV\"", "grpc_method=\"Range\""]),
            received(&["grpc_method=\"Ran\""]),
        ];
        assert!(
            seen.iter()
                .zip([39.0, 32.0, 30.0, 0.0])
                .all(|(seen, expected)| (seen - expected).abs() < 1e-6),
            "{seen:?}"
        );
    }
}
