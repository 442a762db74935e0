//! Files of a request whose sandbox is made on demand: few of them are put while it is being made, the others afterwards.

use belljar::{Bytes, ExecuteIo, FileIn, GuestPath, Request};
use belljar_linux::PoolSettings;

use super::{FORKED, MADE, cold, engine, go, origin, owner, prepare, printed, python, runtime};
use crate::again::{alone, test_name};

const LISTING: &str = "import os\nnames = sorted(n for n in os.listdir('.') if n != 'main.py')\n\
                       print(len(names), sum(os.path.getsize(n) for n in names), os.listdir('/tmp'))";

fn with_files(files: impl IntoIterator<Item = usize>) -> Request {
    let mut request = python(LISTING);
    for (number, size) in files.into_iter().enumerate() {
        let path: GuestPath = format!("file{number:02}").parse().expect("a path");
        request.files.insert(path, FileIn::inline(vec![b'x'; size]));
    }
    request
}

#[test]
fn files_are_there_on_demand_few_or_many() {
    alone(test_name!(), || {
        let forking = engine(PoolSettings {
            stock: 1,
            after: u32::MAX,
            ..PoolSettings::default()
        });
        // Of another shape: its interpreter is the same, its sandboxes are not.
        let mut other = python("pass");
        other.limits.memory = Some(Bytes::from_mib(200));
        prepare(&forking, &other);
        for (engine, expected) in [(cold(), MADE), (forking, FORKED)] {
            runtime().block_on(async {
                for sizes in [vec![1; 3], vec![1; 40], vec![2 << 20], vec![]] {
                    let run = go(&engine, &with_files(sizes.clone())).await;
                    let (count, total) = (sizes.len(), sizes.iter().sum::<usize>());
                    assert_eq!(printed(&run), format!("{count} {total} []\n"));
                    assert_eq!(origin(&run), expected);
                }
                // Less than a megabyte, but not in whole pages.
                let mut request = with_files([1; 14].into_iter().chain([1_040_000]));
                request.limits.disk = Some(Bytes::from_mib(1));
                let error = engine
                    .execute(&owner(&request), &request, ExecuteIo::default())
                    .await;
                let error = error.expect_err("it does not fit").to_string();
                assert!(
                    error.contains("No space left") && error.contains("file14"),
                    "{error}"
                );
                assert_eq!(printed(&go(&engine, &with_files([1; 2])).await), "2 2 []\n");
            });
        }
    });
}
