//! Whose a container is, and removing those whose owner is gone.

use std::collections::HashMap;
use std::sync::LazyLock;

use belljar_linux::start_time;
use bollard::Docker;
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};

/// The label that everything of ours carries: the engine's kernel, its pid and when it started.
pub(super) const OWNER: &str = "belljar.owner";
/// The id of the sandbox.
pub(super) const SANDBOX: &str = "belljar.sandbox";

/// How long a container that does not run may be there before it counts as left behind, whoever made it.
const FORGOTTEN: i64 = 3600;

/// This process, so that no other is taken for it.
pub(super) fn own() -> &'static str {
    static OWN: LazyLock<String> = LazyLock::new(|| {
        let pid = std::process::id();
        format!("{}.{pid}.{}", boot(), start_time(pid).unwrap_or_default())
    });
    &OWN
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Whether the owner of that name is on this machine and gone.
fn is_dead(owner: &str) -> bool {
    let mut parts = owner.split('.');
    let (Some(kernel), Some(pid), Some(start)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    kernel == boot()
        && pid
            .parse()
            .is_ok_and(|pid| start_time(pid).unwrap_or_default().to_string() != start)
}

/// Removes what engines that are gone left behind.
pub(super) async fn sweep(docker: &Docker) {
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), vec![OWNER.to_owned()])])),
        ..ListContainersOptions::default()
    };
    // What cannot be listed cannot be swept; the next one will try again.
    let Ok(found) = docker.list_containers(Some(options)).await else {
        return;
    };
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64);
    for container in found {
        let owner = container.labels.as_ref().and_then(|labels| labels.get(OWNER));
        let dead = owner.is_some_and(|owner| is_dead(owner));
        let runs = container
            .state
            .is_some_and(|state| state.to_string() == "running");
        let old = container.created.is_some_and(|created| now - created > FORGOTTEN);
        if dead || (!runs && old && owner.is_some_and(|owner| owner != own())) {
            remove(docker, container.id.as_deref().unwrap_or_default()).await;
        }
    }
}

/// Kills and removes a container of ours, and no other.
pub(super) async fn remove(docker: &Docker, id: &str) -> bool {
    if id.is_empty() {
        return false;
    }
    let options = RemoveContainerOptions {
        force: true,
        v: true,
        ..RemoveContainerOptions::default()
    };
    docker.remove_container(id, Some(options)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_dead_of_this_machine_are_swept() {
        assert!(!is_dead(own()));
        assert!(is_dead(&format!("{}.{}.1", boot(), std::process::id())));
        assert!(is_dead(&format!("{}.4194305.1", boot())));
        assert!(!is_dead("another-machine.1.1"));
        assert!(!is_dead(""));
    }
}
