//! Misuse that must not compile, with the text that the author sees. `TRYBUILD=overwrite` renews
//! the texts.

#[test]
fn misuse_is_explained_at_the_authors_token() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
