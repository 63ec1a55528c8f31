//! Every kernel is listed once and builds for the CPU in every format and variant.

use std::collections::BTreeSet;
use tessera_kernel_dsl::Target;
use tessera_kernels::tiles::entries;

#[test]
fn every_kernel_builds_for_the_cpu() {
    let mut labels = BTreeSet::new();
    let mut mistakes = String::new();
    for entry in entries() {
        let variants = (entry.build)(Target::Cpu);
        assert!(!variants.is_empty(), "{} has no variant", entry.name);
        for variant in variants {
            match variant {
                Ok(kernel) => assert!(labels.insert(kernel.label()), "{} twice", kernel.label()),
                Err(errors) => errors.iter().for_each(|e| mistakes += &format!("{e}\n")),
            }
        }
    }
    assert!(mistakes.is_empty(), "{mistakes}");
}

#[test]
fn the_list_is_sorted_by_file_and_names_are_unique() {
    let names: Vec<&str> = entries().iter().map(|entry| entry.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}

/// With the generator's own test of the same, this makes a second build of the same sources give
/// the same bytes.
#[test]
fn building_twice_records_the_same() {
    for entry in entries() {
        let (once, again) = ((entry.build)(Target::Cpu), (entry.build)(Target::Cpu));
        assert!(once == again, "{} differs", entry.name);
    }
}
