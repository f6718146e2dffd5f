//! The capability sets of this process, and what to do if they lack the one that netlink needs.
//!
//! Source: `capabilities(7)`, "Transformation of capabilities during `execve()`".

use std::fs;

/// The number of `CAP_NET_ADMIN`.
const NET_ADMIN: u32 = 12;
const GENERAL_ADVICE: &str = "run as root or with CAP_NET_ADMIN";

/// Which sets of a thread have `CAP_NET_ADMIN`, and what decides whether an executed program gets it.
#[derive(Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a set of the kernel, or a flag of its own"
)]
struct CapabilitySets {
    user: u32,
    bounding: bool,
    permitted: bool,
    effective: bool,
    ambient: bool,
    no_new_privs: bool,
}

/// What to do after the kernel has refused a request of this thread for lack of permission.
pub(super) fn advice() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    CapabilitySets::parse(&status).map_or_else(|| GENERAL_ADVICE.to_owned(), |sets| sets.advice())
}

impl CapabilitySets {
    /// Reads the fields of `/proc/PID/status`; none if one is missing.
    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = status.lines().filter_map(|line| line.split_once(':'));
            fields.find_map(|(found, value)| (found == name).then(|| value.trim()))
        };
        let has = |name| {
            let set = u64::from_str_radix(field(name)?, 16).ok()?;
            Some((set >> NET_ADMIN) & 1 == 1)
        };
        Some(Self {
            // The real, effective, saved and file-system user.
            user: field("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
            bounding: has("CapBnd")?,
            permitted: has("CapPrm")?,
            effective: has("CapEff")?,
            ambient: has("CapAmb")?,
            no_new_privs: field("NoNewPrivs")? == "1",
        })
    }

    fn advice(&self) -> String {
        if self.effective {
            return "CAP_NET_ADMIN is effective, but not for this network namespace: it belongs to another user \
                    namespace, in which the process must be started"
                .to_owned();
        }
        format!("{}: {}", self.describe(), self.remedy())
    }

    /// The sets with and without the capability, by the names of `capabilities(7)`.
    fn describe(&self) -> String {
        let sets = [
            ("bounding", self.bounding),
            ("permitted", self.permitted),
            ("effective", self.effective),
            ("ambient", self.ambient),
        ];
        let names = |has: bool| {
            let of_it = sets
                .iter()
                .filter(|(_, has_it)| *has_it == has)
                .map(|(name, _)| *name);
            of_it.collect::<Vec<_>>().join(", ")
        };
        let with = if self.bounding {
            format!("; it is in {}", names(true))
        } else {
            String::new()
        };
        let no_new_privs = if self.no_new_privs {
            "; no_new_privs is set"
        } else {
            ""
        };
        format!(
            "CAP_NET_ADMIN is not in these sets of user {}: {}{with}{no_new_privs}",
            self.user,
            names(false)
        )
    }

    fn remedy(&self) -> &'static str {
        if !self.bounding {
            "the process may not have it; add it to the container (Kubernetes: securityContext.capabilities.add: \
             [NET_ADMIN], podman: --cap-add=NET_ADMIN), or to CapabilityBoundingSet and AmbientCapabilities of the unit"
        } else if self.permitted || self.user == 0 {
            "something took it away before the program was started; start it as root or with AmbientCapabilities"
        } else if self.no_new_privs {
            "this container runtime gives it to root only, and no_new_privs (allowPrivilegeEscalation: false) keeps the \
             capability of the program's file from counting; run as root with this capability alone (Helm chart: \
             agent.podSecurityContext with runAsUser: 0 and runAsNonRoot: false; podman: --user 0), or add it to \
             AmbientCapabilities of the unit"
        } else {
            "the program's file does not have it, or is on a file system mounted with nosuid; run as root with this \
             capability alone (Helm chart: agent.podSecurityContext with runAsUser: 0 and runAsNonRoot: false), or give it \
             to the file: setcap cap_net_admin=p"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITH: &str = "0000000000001000";
    const WITHOUT: &str = "0000000000000000";

    fn status(
        user: u32,
        [bounding, permitted, effective, ambient]: [&str; 4],
        no_new_privs: u8,
    ) -> String {
        format!(
            "Name:\tcontiv\nUid:\t{user}\t{user}\t{user}\t{user}\nCapInh:\t{WITHOUT}\nCapPrm:\t{permitted}\n\
             CapEff:\t{effective}\nCapBnd:\t{bounding}\nCapAmb:\t{ambient}\nNoNewPrivs:\t{no_new_privs}\n"
        )
    }

    #[test]
    fn advice_names_sets_without_the_capability() {
        let only_bounding = [WITH, WITHOUT, WITHOUT, WITHOUT];
        for (user, sets, no_new_privs, parts) in [
            (
                65532,
                only_bounding,
                1,
                [
                    "not in these sets of user 65532: permitted, effective, ambient; it is in bounding; no_new_privs is set: ",
                    "runAsUser: 0",
                ],
            ),
            (
                65532,
                only_bounding,
                0,
                [
                    "permitted, effective, ambient; it is in bounding: ",
                    "setcap cap_net_admin=p",
                ],
            ),
            (
                0,
                [WITHOUT; 4],
                0,
                [
                    "of user 0: bounding, permitted, effective, ambient: ",
                    "capabilities.add: [NET_ADMIN]",
                ],
            ),
            (
                0,
                only_bounding,
                1,
                ["of user 0: permitted", "something took it away"],
            ),
            (
                1000,
                [WITH, WITH, WITHOUT, WITHOUT],
                0,
                [
                    ": effective, ambient; it is in bounding, permitted: ",
                    "took it away",
                ],
            ),
            (
                0,
                [WITH; 4],
                0,
                [
                    "is effective, but not for this network namespace",
                    "another user namespace",
                ],
            ),
        ] {
            let advice = CapabilitySets::parse(&status(user, sets, no_new_privs))
                .unwrap()
                .advice();
            for part in parts {
                assert!(advice.contains(part), "{part:?} is not in {advice:?}");
            }
        }
    }

    #[test]
    fn status_with_missing_field_gives_no_sets() {
        let whole = status(0, [WITH; 4], 0);
        for field in ["Uid", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"] {
            let without: String = whole
                .lines()
                .filter(|line| !line.starts_with(field))
                .collect();
            assert_eq!(CapabilitySets::parse(&without), None, "{field}");
        }
        assert!(
            CapabilitySets::parse(&fs::read_to_string("/proc/thread-self/status").unwrap())
                .is_some()
        );
    }
}
