//! Whose a container is, and removing those whose owner is gone.

use std::collections::HashMap;
use std::sync::LazyLock;

use belljar_linux::owner;
use bollard::Docker;
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};

/// The label that everything of ours carries: the engine's kernel, its pid and when it started.
pub(super) const OWNER: &str = "belljar.owner";
/// The id of the sandbox.
pub(super) const SANDBOX: &str = "belljar.sandbox";

/// How long a container that does not run may be there before it counts as left behind, whoever made it.
const FORGOTTEN: i64 = 3600;

/// This process of this machine.
pub(super) fn own() -> &'static str {
    static OWN: LazyLock<String> = LazyLock::new(|| format!("{}.{}", boot(), owner::own()));
    &OWN
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Whether the owner of that name is on this machine and gone.
fn is_dead(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(kernel, process)| kernel == boot() && owner::is_gone(process))
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
        let (dead, _) = own().rsplit_once('-').unwrap();
        assert!(is_dead(&format!("{dead}-1")));
        assert!(!is_dead("another-machine.1.1"));
        assert!(!is_dead(""));
    }
}
