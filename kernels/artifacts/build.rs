//! Runs the builder of every kernel for the CPU and writes what comes of it: `cpu.rs` and the folder
//! `cpu`, the code, and `manifest.json`, which says what of.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tessera_kernel_cpu::SourceFile;
use tessera_kernel_dsl::ir::{Access, BuildError, Elem, Kernel, Param, ParamKind};
use tessera_kernel_dsl::{Entry, Target};

fn main() -> ExitCode {
    for folder in ["../src", "../../kernel-dsl"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let mut entries = tessera_kernels::tiles::entries();
    entries.sort_by_key(|entry| entry.name);
    match generate(&entries) {
        Ok(files) => {
            let out = std::env::var_os("OUT_DIR").map(PathBuf::from);
            let out = out.expect("cargo names a folder for what is generated");
            files.iter().for_each(|file| write(&out, file));
            ExitCode::SUCCESS
        }
        Err(mistakes) => {
            for mistake in &mistakes {
                eprintln!("{mistake}\n");
            }
            eprintln!("error: {} mistakes in kernels", mistakes.len());
            ExitCode::FAILURE
        }
    }
}

fn write(out: &Path, SourceFile { name, text }: &SourceFile) {
    let path = out.join(name);
    let folder = path.parent().unwrap_or(out);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// The files, or every mistake of every kernel.
fn generate(entries: &[Entry]) -> Result<Vec<SourceFile>, Vec<BuildError>> {
    let mut kernels = Vec::new();
    let mut mistakes = Vec::new();
    for entry in entries {
        let mut variants = Vec::new();
        for variant in (entry.build)(Target::Cpu) {
            match variant {
                Ok(kernel) => variants.push(kernel),
                Err(found) => mistakes.extend(found),
            }
        }
        kernels.push(variants);
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let mut files = tessera_kernel_cpu::modules(&kernels, "cpu")?;
    let others =
        [("by_name.rs", by_name(&kernels)), ("manifest.json", manifest(entries, &kernels))];
    files.extend(others.map(|(name, text)| SourceFile { name: name.to_owned(), text }));
    Ok(files)
}

/// The function that launches a kernel by its name.
fn by_name(kernels: &[Vec<Kernel>]) -> String {
    let mut text = String::from(
        "/// Launches the kernel of that name with arguments in the order of its parameters.\n\
         ///\n\
         /// # Errors\n\
         /// An unknown name, arguments of another kind, and what the launch itself refuses.\n\
         #[expect(clippy::too_many_lines, reason = \"one arm a kernel\")]\n\
         pub fn launch(name: &str, args: &mut [Argument<'_>], cpu: &Cpu) -> Taken<()> {\n    \
         let got = args.len();\n    match name {\n",
    );
    for kernel in kernels.iter().filter_map(|variants| variants.first()) {
        let names: Vec<&str> = kernel.params.iter().map(|param| param.name.as_str()).collect();
        let fields = kernel.params.iter().map(|param| {
            let name = &param.name;
            format!("                {name}: {name}.{}?,\n", getter(param))
        });
        let (name, list, want) = (&kernel.name, names.join(", "), names.len());
        let launch: String = name.split('_').map(capital).collect();
        write!(
            text,
            "        \"{name}\" => {{\n            let [{list}] = args else {{\n                \
             return Err(ByNameError::Count {{ kernel: \"{name}\", got, want: {want} }});\n            \
             }};\n            let launch = crate::cpu::{launch} {{\n{}            }};\n            \
             Ok(launch.launch(cpu)?)\n        }}\n",
            fields.collect::<String>(),
        )
        .expect("a string takes everything");
    }
    text + "        other => Err(ByNameError::Unknown(other.to_owned())),\n    }\n}\n"
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(usize::from(!word.is_empty()));
    first.to_uppercase() + rest
}

/// What makes a typed argument of an untyped one.
fn getter(param: &Param) -> String {
    match &param.kind {
        ParamKind::Scalar(Elem::F32) => "float()".to_owned(),
        ParamKind::Scalar(Elem::U64) => "int().map(i64::cast_unsigned)".to_owned(),
        ParamKind::Scalar(_) => "int()".to_owned(),
        ParamKind::View { elem, access, .. } => {
            let read = *access == Access::Read;
            let end = if read || matches!(elem, Elem::Packed(_)) { "()" } else { "_mut()" };
            match elem {
                Elem::Packed(_) => format!("packed{end}"),
                Elem::Stored(_) => format!("stored{end}"),
                number => format!("{number}{end}"),
            }
        }
    }
}

/// One object a variant, in the order of the code.
fn manifest(entries: &[Entry], kernels: &[Vec<Kernel>]) -> String {
    let mut text = String::from("[");
    let variants = entries
        .iter()
        .zip(kernels)
        .flat_map(|(entry, all)| all.iter().map(move |kernel| (entry, kernel)));
    for (i, (entry, kernel)) in variants.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let quoted = |names: &[String]| {
            let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            names.join(", ")
        };
        let class = format!("{:?}", entry.class).to_lowercase();
        let hash = source_hash(Path::new(entry.loc.file));
        write!(
            text,
            "{comma}\n  {{\"kernel\": \"{}\", \"variant\": \"{}\", \"class\": \"{class}\", \
             \"dims\": [{}], \"source\": \"{}:{}\", \"source_hash\": \"{hash:016x}\"}}",
            entry.name,
            kernel.label(),
            quoted(&kernel.dims),
            entry.loc.file.rsplit("kernels/src/").next().unwrap_or_default(),
            entry.loc.line,
        )
        .expect("a string takes everything");
    }
    text + "\n]\n"
}

/// FNV-1a of the file that declares a kernel: tells whether a measurement still stands.
fn source_hash(declared_in: &Path) -> u64 {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let bytes = std::fs::read(root.join(declared_in)).unwrap_or_default();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
