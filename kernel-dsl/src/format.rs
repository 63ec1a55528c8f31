//! The texts that declare number formats and block formats, each once.
//!
//! [`number_format!`](crate::number_format) makes a type of a stored number from its fields;
//! [`block_format!`](crate::block_format) makes a type of a weight or activation format from an
//! element, the tile that shares a scale, and the quantizer's rule. Codec, f64 rule, vector decode,
//! packing and quantizer all follow from these fields: see [`crate::ir::format`].

/// Declares a number format and the type that kernels name it by.
///
/// ```
/// use tessera_kernel_dsl::{Stored, number_format};
/// number_format! {
///     /// OCP FP6 E3M2.
///     pub E3M2 = "e3m2": 6 bits {
///         float(exp = 3, man = 2, bias = 3, inf = none, nan = none, max = 0x1f), exact_in = f16
///     }
/// }
/// assert_eq!(E3M2::ELEMENT.decode(0x1f), 28.0);
/// ```
/// Codes are written without the sign bit. `inf` and `nan` are `none` or a code; `int(bias = 8)`
/// instead of `float(..)` declares the integers `code - 8`. `exact_in` is the narrowest of f16, bf16
/// and f32 that holds every value. Contradictions stop the build.
///
/// `pub E4M3 = Element::F8E4M3` makes a type of a number that [`Element`](crate::ir::format::Element)
/// already names.
#[macro_export]
macro_rules! number_format {
    ($(#[$doc:meta])* $vis:vis $marker:ident = Element::$element:ident) => {
        $crate::number_format!(@marker $(#[$doc])* $vis $marker $crate::ir::format::Element::$element);
    };
    ($(#[$doc:meta])* $vis:vis $marker:ident = $name:literal: $bits:literal bits { $($fields:tt)* }) => {
        $crate::number_format!(@marker $(#[$doc])* $vis $marker {
            const NUMBER: $crate::ir::format::NumberFormat =
                $crate::ir::number_format!($name: $bits bits { $($fields)* });
            $crate::ir::format::Element::of(&NUMBER)
        });
    };
    (@marker $(#[$doc:meta])* $vis:vis $marker:ident $element:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        $vis struct $marker;

        impl $crate::Elem for $marker {
            const ELEM: $crate::ir::Elem =
                $crate::ir::Elem::Stored(<Self as $crate::Stored>::ELEMENT);
        }

        impl $crate::Codes for $marker {}

        impl $crate::Stored for $marker {
            const ELEMENT: $crate::ir::format::Element = $element;
        }
    };
}

/// Declares a block format and the type that kernels name it by.
///
/// ```
/// use tessera_kernel_dsl::{Packed, block_format, number_format};
/// number_format! { pub I8 = "i8": 8 bits { int(bias = 128), exact_in = f16 } }
/// block_format! {
///     /// Eight-bit integers, an f32 scale for each 64 elements of a row.
///     pub Int8G64 = "int8-g64" {
///         element = I8,
///         scale = F32 per (1, 64), ragged = true,
///         divisor = 127.0, precision = F32,
///         zero_point = false, tensor_scale = false,
///         tol = (0.004, 0.01),
///         activation = self,
///     }
/// }
/// assert_eq!(Int8G64::FORMAT.row_bytes(64), 64);
/// ```
/// `scale` is a [`ScaleType`](crate::ir::format::ScaleType) and the rows and columns that share one
/// (`whole` for all of them); `ragged` says whether the last tile of a row may be short; `divisor`
/// and `precision` are the quantizer's rule; `tol` is the largest error of an element and of a
/// tensor. `scale = none` leaves out the lines up to `tol`. `activation` is the format that
/// activations take in a scaled dot, `self` for this one. Contradictions stop the build.
#[macro_export]
macro_rules! block_format {
    ($(#[$doc:meta])* $vis:vis $marker:ident = $name:literal {
        element = $element:ty,
        scale = none,
        tol = ($tol_element:literal, $tol_tensor:literal),
        activation = $($activation:tt)::+ $(,)?
    }) => {
        $crate::block_format!(@declare [$(#[$doc])* $vis] $marker [$($activation)::+]
            $crate::ir::format::Format {
                name: $name,
                element: <$element as $crate::Stored>::ELEMENT,
                scale_tile: None,
                zero_point: false,
                tensor_scale: false,
                tol: $crate::ir::format::Tol { element: $tol_element, tensor: $tol_tensor },
                activation: $crate::block_format!(@activation $($activation)::+),
            });
    };
    ($(#[$doc:meta])* $vis:vis $marker:ident = $name:literal {
        element = $element:ty,
        scale = $scale:ident per ($rows:tt, $cols:tt), ragged = $ragged:literal,
        divisor = $divisor:literal, precision = $precision:ident,
        zero_point = $zero_point:literal, tensor_scale = $tensor_scale:literal,
        tol = ($tol_element:literal, $tol_tensor:literal),
        activation = $($activation:tt)::+ $(,)?
    }) => {
        $crate::block_format!(@declare [$(#[$doc])* $vis] $marker [$($activation)::+]
            $crate::ir::format::Format {
                name: $name,
                element: <$element as $crate::Stored>::ELEMENT,
                scale_tile: Some($crate::ir::format::ScaleTile {
                    scale: $crate::ir::format::ScaleType::$scale,
                    rows: $crate::block_format!(@extent $rows),
                    cols: $crate::block_format!(@extent $cols),
                    ragged: $ragged,
                    divisor: $divisor,
                    precision: $crate::ir::format::ScaleType::$precision,
                }),
                zero_point: $zero_point,
                tensor_scale: $tensor_scale,
                tol: $crate::ir::format::Tol { element: $tol_element, tensor: $tol_tensor },
                activation: $crate::block_format!(@activation $($activation)::+),
            });
    };
    (@declare [$(#[$doc:meta])* $vis:vis] $marker:ident [$($activation:tt)::+] $format:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        $vis struct $marker;

        impl $crate::Elem for $marker {
            const ELEM: $crate::ir::Elem = $crate::ir::Elem::Packed(<Self as $crate::Packed>::FORMAT);
        }

        impl $crate::Codes for $marker {}

        impl $crate::Packed for $marker {
            const FORMAT: &'static $crate::ir::format::Format = {
                const FORMAT: $crate::ir::format::Format = $format.checked();
                &FORMAT
            };
            type Activation = $crate::block_format!(@activation_type $($activation)::+);
        }
    };
    (@extent whole) => { $crate::ir::format::WHOLE };
    (@extent $extent:literal) => { $extent };
    (@activation self) => { None };
    (@activation $($activation:tt)::+) => {
        Some(<$($activation)::+ as $crate::Packed>::FORMAT)
    };
    (@activation_type self) => { Self };
    (@activation_type $($activation:tt)::+) => { $($activation)::+ };
}

#[cfg(test)]
mod tests {
    use crate::{Elem, Packed, Stored, ir};

    crate::number_format! { pub(super) E2M3 = "e2m3": 6 bits {
        float(exp = 2, man = 3, bias = 1, inf = none, nan = none, max = 0x1f), exact_in = f16
    } }
    crate::number_format! { pub(super) Number = Element::F32 }
    crate::block_format! { pub(super) Plain = "plain" {
        element = Number, scale = none, tol = (0.0, 0.0), activation = self,
    } }
    crate::block_format! { pub(super) Six = "six" {
        element = E2M3,
        scale = Ue8m0 per (1, 32), ragged = false,
        divisor = 4.0, precision = Ue8m0,
        zero_point = false, tensor_scale = false,
        tol = (0.1, 0.1),
        activation = Plain,
    } }

    #[test]
    fn a_declaration_is_a_type_and_its_data() {
        assert_eq!(E2M3::ELEM, ir::Elem::Stored(E2M3::ELEMENT));
        assert_eq!(E2M3::ELEMENT.max(), 7.5);
        assert_eq!(Six::ELEM, ir::Elem::Packed(Six::FORMAT));
        assert_eq!(Six::FORMAT.row_bytes(32), 24);
        assert_eq!(Six::FORMAT.activation(), <Six as Packed>::Activation::FORMAT);
        assert_eq!(Plain::FORMAT.activation().name, "plain");
    }
}
