//! Container runtimes differ in the capabilities that a program starts with: the agent says which set lacks the one it needs.

use std::fs;

use contiv_tests::{
    agent::binary,
    lab::{Lab, LabError, Result, isolated},
};

/// Starts the agent in namespaces of its own as this user, with `CAP_NET_ADMIN` alone in the bounding set and with
/// `no_new_privs`, as a container does with `allowPrivilegeEscalation: false`. Prints the first status that contains the text,
/// and the agent's capabilities.
const SCRIPT: &str = r#"
    user=$1 contiv=$2 folder=$3 text=$4
    exec unshare --user --map-user="$user" --map-group="$user" --net --keep-caps -- sh -c '
        ip link set lo up
        setpriv --bounding-set=-all,+net_admin --inh-caps=-all --ambient-caps=-all --no-new-privs \
            "$1" agent --node-name n1 --store "dir:$2/store" --state-dir "$2/state" --log-level error &
        agent=$!
        for attempt in $(seq 400); do
            status=$("$1" status 2>&1)
            case $status in *"$3"*) break ;; esac
            sleep 0.1
        done
        printf "%s\n" "$status"
        grep -E "^(Uid|CapPrm|CapBnd|NoNewPrivs):" /proc/$agent/status
        kill $agent
        wait $agent || true
    ' sh "$contiv" "$folder" "$text"
"#;

/// The output of the script for this user.
fn status_of_agent_as(lab: &Lab, user: &str, text: &str) -> Result<String> {
    let folder = format!("/run/agent-of-{user}");
    for folder in [format!("{folder}/store"), format!("{folder}/state")] {
        fs::create_dir_all(&folder).map_err(|error| LabError::system(folder, error))?;
    }
    lab.node.exec(&[
        "sh",
        "-c",
        SCRIPT,
        "sh",
        user,
        &binary()?.to_string_lossy(),
        &folder,
        text,
    ])
}

#[test]
fn runtime_with_only_the_bounding_set_is_explained() -> Result<()> {
    isolated(
        "capabilities::runtime_with_only_the_bounding_set_is_explained",
        |lab| {
            // As Docker through cri-dockerd starts a user other than root.
            let status = status_of_agent_as(lab, "65532", "CAP_NET_ADMIN")?;
            for part in [
                "\nagent     not ready",
                "CAP_NET_ADMIN is not in these sets of user 65532: permitted, effective, ambient; it is in bounding; \
             no_new_privs is set: ",
                "agent.podSecurityContext with runAsUser: 0 and runAsNonRoot: false",
                "\nUid:\t65532\t",
                "\nCapPrm:\t0000000000000000\n",
                "\nCapBnd:\t0000000000001000\n",
                "\nNoNewPrivs:\t1\n",
            ] {
                assert!(status.contains(part), "{part:?} is not in:\n{status}");
            }
            // As advised.
            let status = status_of_agent_as(lab, "0", "agent     ready")?;
            for part in [
                "\nagent     ready (",
                "\nCapPrm:\t0000000000001000\n",
                "\nNoNewPrivs:\t1\n",
            ] {
                assert!(status.contains(part), "{part:?} is not in:\n{status}");
            }
            Ok(())
        },
    )
}
