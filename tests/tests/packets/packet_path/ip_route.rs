//! The routes of a namespace, as `ip` shows them.

use std::{net::IpAddr, process::Command};

use contiv_model::InterfaceName;
use contiv_renderer::packet_path::{AddressKind, Network, PathError, Route, RouteQuery};
use serde_json::Value;

/// Asks `ip route get` in the namespace of the calling thread.
pub(crate) struct IpRoute;

fn get(arguments: &[String]) -> Result<Result<Value, String>, PathError> {
    let failed = |error: &dyn std::fmt::Display| PathError(format!("ip route get: {error}"));
    let output = Command::new("ip")
        .args(["-j", "route", "get"])
        .args(arguments)
        .output()
        .map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let json: Value = serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))?;
    Ok(Ok(json[0].clone()))
}

impl Network for IpRoute {
    fn route(&mut self, query: &RouteQuery) -> Result<Route, PathError> {
        let mut arguments = vec![query.destination.to_string()];
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        if let Some(source) = query.source {
            add("from", source.to_string());
        }
        if let Some(input) = &query.input {
            add("iif", input.to_string());
        }
        if query.mark != 0 {
            add("mark", query.mark.to_string());
        }
        let json = match get(&arguments)? {
            Ok(json) => json,
            Err(error) if error.contains("ermission denied") => return Ok(Route::Prohibited),
            Err(error) if error.contains("nvalid argument") => return Ok(Route::Blackhole),
            Err(error) if error.contains("cross-device") => return Ok(Route::InvalidSource),
            Err(_) => return Ok(Route::Unreachable),
        };
        let address = |name: &str| json[name].as_str().and_then(|address| address.parse().ok());
        Ok(match json["type"].as_str() {
            Some("local") => Route::Local,
            None | Some("unicast") => Route::Unicast {
                interface: InterfaceName::new(json["dev"].as_str().unwrap_or_default()),
                gateway: address("gateway"),
                source: address("prefsrc"),
                mtu: None,
            },
            Some("blackhole") => Route::Blackhole,
            Some("prohibit") => Route::Prohibited,
            Some("unreachable") => Route::Unreachable,
            Some(other) => Route::Failed(other.to_owned()),
        })
    }

    fn address_kind(&mut self, address: IpAddr) -> Result<AddressKind, PathError> {
        Ok(match get(&[address.to_string()])? {
            Ok(json) => match json["type"].as_str() {
                Some("local") => AddressKind::Local,
                Some("broadcast") => AddressKind::Broadcast,
                Some("multicast") => AddressKind::Multicast,
                _ => AddressKind::Unicast,
            },
            Err(_) => AddressKind::Unreachable,
        })
    }
}
