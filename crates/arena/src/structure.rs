//! Plain structures that are read from bytes and written to bytes, field by field.
//!
//! The structures of the contract hold only integers and arrays of integers, so any bytes
//! make a value. Reading needs no validity check and no `unsafe`; the result may be nonsense
//! but is never undefined.

/// One field of a structure, for the test that compares this crate with `contract.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name, the same in Rust and in C.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Size of the field in bytes.
    pub bytes: usize,
}

/// A structure that target and tracer share.
pub trait Structure: Sized {
    /// The structure's name in `contract.h`, without `struct`.
    const C_NAME: &'static str;
    /// Size of the structure in bytes.
    const BYTES: usize;
    /// The fields in order; this includes padding and arrays named `reserved`.
    const FIELDS: &'static [Field];

    /// The structure at the start of `bytes`; `None`: there are too few bytes.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;

    /// The structure's [`Structure::BYTES`] bytes, as they lie in memory.
    fn to_bytes(&self) -> Vec<u8>;
}

/// An integer, or an array of integers: any bytes are valid.
pub(crate) trait Plain: Copy + Default {
    /// The value at the start of `bytes`; bytes that are missing are zero.
    fn get(bytes: &[u8]) -> Self;
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! plain_integers {
    ($($type:ty),*) => { $(
        impl Plain for $type {
            fn get(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$type>()];
                for (to, from) in raw.iter_mut().zip(bytes) {
                    *to = *from;
                }
                <$type>::from_le_bytes(raw)
            }

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )* };
}
plain_integers!(u8, u16, i16, u32, i32, u64);

impl<T: Plain, const N: usize> Plain for [T; N]
where
    [T; N]: Default,
{
    fn get(bytes: &[u8]) -> Self {
        let mut out = Self::default();
        for (element, raw) in out.iter_mut().zip(bytes.chunks(size_of::<T>())) {
            *element = T::get(raw);
        }
        out
    }

    fn put(&self, out: &mut Vec<u8>) {
        for element in self {
            element.put(out);
        }
    }
}

/// Declares a `repr(C)` structure of integers with its [`Structure`] mirror.
macro_rules! structure {
    (
        $(#[$meta:meta])*
        $name:ident = $c_name:literal {
            $( $(#[$field_meta:meta])* $field:ident: $type:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl $crate::structure::Structure for $name {
            const C_NAME: &'static str = $c_name;
            const BYTES: usize = size_of::<$name>();
            const FIELDS: &'static [$crate::structure::Field] = &[
                $( $crate::structure::Field {
                    name: stringify!($field),
                    offset: core::mem::offset_of!($name, $field),
                    bytes: size_of::<$type>(),
                }, )*
            ];

            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                if bytes.len() < Self::BYTES {
                    return None;
                }
                Some(<Self as $crate::structure::Plain>::get(bytes))
            }

            fn to_bytes(&self) -> Vec<u8> {
                let mut out = Vec::with_capacity(Self::BYTES);
                $crate::structure::Plain::put(self, &mut out);
                out
            }
        }

        impl $crate::structure::Plain for $name {
            fn get(bytes: &[u8]) -> Self {
                Self {
                    $( $field: $crate::structure::Plain::get(
                        bytes.get(core::mem::offset_of!($name, $field)..).unwrap_or(&[]),
                    ), )*
                }
            }

            fn put(&self, out: &mut Vec<u8>) {
                let start = out.len();
                $(
                    out.resize(start + core::mem::offset_of!($name, $field), 0);
                    $crate::structure::Plain::put(&self.$field, out);
                )*
                out.resize(start + size_of::<$name>(), 0);
            }
        }
    };
}
pub(crate) use structure;
