//! How a test gets at the library: a folder in which it has the driver's names.

use std::io;
use std::path::{Path, PathBuf};

/// The names under which programs look for the driver, in the order in which `cudarc` does.
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// This crate's library, which cargo built beside the running test, or a folder above it.
fn library() -> io::Result<PathBuf> {
    let name = "libtessera_emulator_driver.so";
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places = [folder.join(name), folder.join("deps").join(name)];
    let found = places.iter().find(|place| place.exists());
    found.cloned().ok_or_else(|| {
        let message = format!("{name} is not in {} nor in its deps", folder.display());
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// Makes `folder` anew, with links to this crate's library under the driver's names. A program that
/// is started with the folder in `LD_LIBRARY_PATH` then has the stand-in for a driver.
///
/// # Errors
/// If cargo has not built the library, as when this crate is no dependency of the running test, or
/// the folder cannot be made.
pub fn install(folder: &Path) -> io::Result<()> {
    let library = library()?;
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => std::fs::create_dir_all(folder)?,
    }
    NAMES.iter().try_for_each(|name| std::os::unix::fs::symlink(&library, folder.join(name)))
}
