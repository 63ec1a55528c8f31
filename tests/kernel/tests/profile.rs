//! No kernel does more than it did when somebody last looked.

use std::path::Path;
use tessera_kernel_tool::floor::ratchet::{Profile, path};

#[test]
fn no_kernel_does_more_than_its_profile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let committed = Profile::read(&path(&root)).unwrap();
    let worse = committed.worse(&Profile::count(&root).unwrap());
    let accept = "`cargo xtask bench floor --bless` accepts this";
    assert!(worse.is_empty(), "{}\n{accept}", worse.join("\n"));
}
