//! What the rows of a list of formats become: the static list, and a macro that repeats an
//! expression with a type for each of them.

/// `weight_rows! { ($) file::Type, .. }`: the module of each file, `FORMATS`, and
/// `weight_formats! { |W| expr }`, which runs `{ type W = file::Type; expr }` for each row in order.
macro_rules! weight_rows {
    (($d:tt) $($module:ident::$format:ident,)*) => {
        $(pub mod $module;)*

        /// Every weight format.
        pub static FORMATS: &[&Format] =
            &[$(<$module::$format as tessera_kernel_dsl::Packed>::FORMAT,)*];

        /// Runs an expression once for each weight format, which is the type it names.
        #[allow(unused_macros, reason = "kernels take it up one by one")]
        macro_rules! weight_formats {
            (|$d name:ident| $d body:expr) => {{
                $({
                    type $d name = $crate::formats::$module::$format;
                    $d body;
                })*
            }};
        }
        #[allow(unused_imports, reason = "kernels take it up one by one")]
        pub(crate) use weight_formats;
    };
}
pub(super) use weight_rows;

/// `kv_rows! { ($) "name": number, scaled; .. }`: `KV_FORMATS`, and `kv_formats! { |KV| expr }` as
/// `weight_formats!` above, with the type of the stored number.
macro_rules! kv_rows {
    (($d:tt) $($name:literal: $number:ident, scaled = $scaled:literal;)*) => {
        /// Every KV-cache format.
        pub const KV_FORMATS: &[KvFormat] = &[$(KvFormat {
            name: $name,
            element: <super::number::$number as tessera_kernel_dsl::Stored>::ELEMENT,
            scaled: $scaled,
        },)*];

        /// Runs an expression once for each KV-cache format, as the number it names.
        #[allow(unused_macros, reason = "kernels take it up one by one")]
        macro_rules! kv_formats {
            (|$d name:ident| $d body:expr) => {{
                $({
                    type $d name = $crate::formats::number::$number;
                    $d body;
                })*
            }};
        }
        #[allow(unused_imports, reason = "kernels take it up one by one")]
        pub(crate) use kv_formats;
    };
}
pub(super) use kv_rows;
