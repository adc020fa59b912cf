//! Internet addresses that D knows without any program's types: `struct in6_addr`, `in6_addr_t`,
//! and the families.
//!
//! In DTrace these types come from the kernel, and each system names the bytes differently. Here all
//! the names exist, as unions:
//!
//! ```text
//! in6_u.u6_addr8     DTrace for Linux        __in6_u.__u6_addr8   the C library
//! _S6_un._S6_u8      illumos                 __u6_addr.__u6_addr8 FreeBSD, macOS
//! ```
//!
//! A definition in the text, or of the traced program, takes precedence.

use crate::program::{Declared, IntegerType, Packing, Structure, Type, alignment_of};

/// The tag of the structure that `inet_ntoa6( )` takes.
pub(super) const ADDRESS: &str = "struct in6_addr";

/// The typedef of `struct in6_addr`.
pub(crate) const ADDRESS_NAME: &str = "in6_addr_t";

/// The names of the unions, and of their members of one, two and four bytes.
const UNIONS: [(&str, [&str; 3]); 4] = [
    ("in6_u", ["u6_addr8", "u6_addr16", "u6_addr32"]),
    ("__in6_u", ["__u6_addr8", "__u6_addr16", "__u6_addr32"]),
    ("__u6_addr", ["__u6_addr8", "__u6_addr16", "__u6_addr32"]),
    ("_S6_un", ["_S6_u8", "_S6_u16", "_S6_u32"]),
];

/// `struct in6_addr`.
pub(super) fn address() -> Structure {
    let unions = UNIONS.map(|(name, members)| {
        let declared = [1, 2, 4].into_iter().zip(members).map(|(bytes, name)| {
            let of = Type::Integer(IntegerType { bytes, signed: false });
            let member_type = Type::Array {
                of: Box::new(of),
                count: 16 / u32::from(bytes),
            };
            member(name, member_type)
        });
        let union = Structure::new("union".to_owned());
        union.define(declared.collect(), true, Packing::default());
        member(name, Type::Structure(union))
    });
    let all = Structure::new("union".to_owned());
    all.define(unions.into(), true, Packing::default());
    let structure = Structure::new(ADDRESS.to_owned());
    structure.define(vec![member("", Type::Structure(all))], false, Packing::default());
    structure
}

fn member(name: &str, member_type: Type) -> Declared {
    Declared {
        name: name.to_owned(),
        width: None,
        shown: None,
        packed: false,
        aligned: 0,
        alignment: alignment_of(&member_type),
        member_type,
    }
}

/// The families that `inet_ntop( )` takes and the types that `link_ntop( )` takes, as on Linux.
pub(super) fn family(name: &str) -> Option<i64> {
    match name {
        "AF_INET" => Some(2),
        "AF_INET6" => Some(10),
        "ARPHRD_ETHER" => Some(1),
        "ARPHRD_INFINIBAND" => Some(32),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_sixteen_bytes_by_every_name() {
        let address = address();
        assert_eq!(crate::program::size_of(&Type::Structure(address.clone())), Some(16));
        for (name, members) in UNIONS {
            let found = address.member(name).unwrap();
            assert_eq!(found.offset, 0, "{name}");
            let Type::Structure(union) = &found.member_type else {
                panic!("{name} is no union");
            };
            for member in members {
                let found = union.member(member).unwrap();
                assert_eq!(
                    (found.offset, crate::program::size_of(&found.member_type)),
                    (0, Some(16)),
                    "{member}"
                );
            }
        }
    }
}
