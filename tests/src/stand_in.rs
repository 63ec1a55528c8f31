//! How a test meets the stand-in CUDA driver: the test program runs itself again, with a folder on
//! the library path in which the library has the names of the real driver.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Set in the process that runs a test's body.
const INSIDE: &str = "TESSERA_STAND_IN_TEST";

/// What a test program knows of itself.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// `env!("CARGO_TARGET_TMPDIR")`.
    pub tmp: &'static str,
}

impl Program {
    /// A folder of this test program alone.
    ///
    /// # Panics
    /// If the program has no path.
    pub fn folder(&self, name: &str) -> PathBuf {
        let this = std::env::current_exe().expect("this program's path");
        let stem = this.file_stem().expect("a name");
        PathBuf::from(self.tmp).join(stem).join(name)
    }

    /// The folder with the library under the driver's names.
    fn driver(&self) -> &'static PathBuf {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        FOLDER.get_or_init(|| {
            let this = std::env::current_exe().expect("this program's path");
            let library = this.with_file_name("libtessera_emulator_driver.so");
            assert!(library.exists(), "{} was not built", library.display());
            let folder = self.folder("driver");
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).expect("a folder for the library");
            for name in ["libcuda.so", "libcuda.so.1"] {
                std::os::unix::fs::symlink(&library, folder.join(name)).expect("a link");
            }
            folder
        })
    }

    /// Runs `body` in a process of its own in which the stand-in driver is the driver. There it
    /// returns `None`; in the process that asked it returns what the other wrote to the error
    /// output.
    ///
    /// `name` is the test's own name, as the program must be told which test to run.
    ///
    /// # Panics
    /// If the body does, in the process that asked.
    pub fn stand_in(
        &self,
        name: &str,
        settings: &[(&str, &str)],
        body: impl FnOnce(),
    ) -> Option<String> {
        if is_inside() {
            body();
            return None;
        }
        let mut command = Command::new(std::env::current_exe().expect("this program's path"));
        command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
        command.env(INSIDE, "1").env("LD_LIBRARY_PATH", self.driver());
        for (setting, value) in settings {
            command.env(format!("TESSERA_EMULATOR_{setting}"), value);
        }
        let output = command.output().expect("this program starts");
        let [out, err] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
        Some(err)
    }
}

/// Whether the stand-in driver is this process' driver.
fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}
