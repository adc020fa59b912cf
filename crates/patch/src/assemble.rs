//! A small assembler: raw bytes, labels, and references to addresses outside.
//!
//! Its one property that matters: the length of the code does not depend on where the code will lie. A branch to a
//! label takes two bytes when the label is near, and five or six otherwise. A reference to an outside address always
//! has 32 bits. So a detour is composed and measured first, then placed, then linked.

use crate::{Refusal, TargetAddress};

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(u32);

/// The code so far: bytes in pieces, which end at fields whose values are not known yet.
#[derive(Debug)]
pub(crate) struct Assembler {
    bytes: Vec<u8>,
    /// In order of position.
    pieces: Vec<Piece>,
    labels: u32,
    /// 8-byte constants, laid out after the code.
    literals: Vec<(u64, Label)>,
}

#[derive(Debug)]
struct Piece {
    /// The position in `bytes`.
    at: u32,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The label is bound to this position.
    Bind(Label),
    /// A branch to a label is inserted here: `jmp` if `None`, else the conditional jump with this condition's number.
    Branch(Option<u8>, Label),
    /// A field of `width` bytes, `field` bytes before this position, gets the distance of a label from this position.
    Local { field: u8, width: u8, label: Label },
    /// A field of 4 bytes, `field` bytes before this position, gets the distance of an address from this position.
    External {
        field: u8,
        target: TargetAddress,
        modulo: bool,
    },
}

/// Code whose positions are final, and whose address is not chosen yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assembled {
    bytes: Vec<u8>,
    labels: Vec<u32>,
    externals: Vec<External>,
    literals: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct External {
    field: u32,
    end: u32,
    target: TargetAddress,
    /// Whether only the low 32 bits of the distance matter.
    modulo: bool,
}

impl Default for Assembler {
    /// With room for most detours: each list is allocated once.
    fn default() -> Assembler {
        Assembler {
            bytes: Vec::with_capacity(256),
            pieces: Vec::with_capacity(32),
            labels: 0,
            literals: Vec::with_capacity(8),
        }
    }
}

impl Assembler {
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    pub fn bind(&mut self, label: Label) {
        self.piece(What::Bind(label));
    }

    /// Makes a label for this position.
    pub fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes followed by a 32-bit immediate.
    pub fn bytes_u32(&mut self, bytes: &[u8], immediate: u32) {
        self.bytes(bytes);
        self.bytes(&immediate.to_le_bytes());
    }

    /// Bytes followed by a 64-bit immediate.
    pub fn bytes_u64(&mut self, bytes: &[u8], immediate: u64) {
        self.bytes(bytes);
        self.bytes(&immediate.to_le_bytes());
    }

    /// `jmp label`.
    pub fn jump(&mut self, label: Label) {
        self.piece(What::Branch(None, label));
    }

    /// `jcc label`; the condition as in the opcode (4: equal, 5: not equal, 2: below).
    pub fn jump_if(&mut self, condition: u8, label: Label) {
        self.piece(What::Branch(Some(condition & 15), label));
    }

    /// Bytes that end in an 8-bit displacement to a label, which must be near.
    pub fn short(&mut self, bytes: &[u8], label: Label) {
        self.bytes(bytes);
        self.bytes(&[0]);
        self.piece(What::Local {
            field: 1,
            width: 1,
            label,
        });
    }

    /// Adds an instruction that ends in a 32-bit displacement to a label, such as the label of an operand among the
    /// literals.
    pub fn local(&mut self, bytes: &[u8], label: Label) {
        self.bytes_u32(bytes, 0);
        self.piece(What::Local {
            field: 4,
            width: 4,
            label,
        });
    }

    /// Bytes that end in a 32-bit displacement to an address outside.
    pub fn external(&mut self, bytes: &[u8], target: TargetAddress) {
        self.bytes_u32(bytes, 0);
        self.piece(What::External {
            field: 4,
            target,
            modulo: false,
        });
    }

    /// A whole instruction with a 32-bit displacement at `field`, which is rewritten to refer to `target`.
    pub fn external_within(&mut self, instruction: &[u8], field: usize, target: TargetAddress) {
        self.whole(instruction, field, target, false);
    }

    /// As `external_within`, for an operand whose address is computed modulo 4 GiB.
    pub fn external_modulo_within(&mut self, instruction: &[u8], field: usize, target: TargetAddress) {
        self.whole(instruction, field, target, true);
    }

    fn whole(&mut self, instruction: &[u8], field: usize, target: TargetAddress, modulo: bool) {
        self.bytes(instruction);
        let field = instruction.len().saturating_sub(field) as u8;
        self.piece(What::External { field, target, modulo });
    }

    /// Adds a 64-bit constant after the code, and returns its label.
    pub fn literal(&mut self, value: u64) -> Label {
        if let Some((_, label)) = self.literals.iter().find(|(known, _)| *known == value) {
            return *label;
        }
        let label = self.label();
        self.literals.push((value, label));
        label
    }

    fn piece(&mut self, what: What) {
        let at = self.bytes.len() as u32;
        self.pieces.push(Piece { at, what });
    }

    /// Chooses the length of every branch and lays the code out.
    pub fn finish(mut self) -> Result<Assembled, Refusal> {
        let literals = self.literals.len();
        for (value, label) in std::mem::take(&mut self.literals) {
            self.bind(label);
            self.bytes(&value.to_le_bytes());
        }
        if self.bytes.len() > 1 << 24 {
            return Err(Refusal::TooLarge { what: "detour" });
        }
        // Branches grow until all of them reach; they never shrink, so this ends.
        let mut long = vec![false; self.pieces.len()];
        loop {
            let labels = self.positions(&long);
            let mut grown = false;
            let mut inserted = 0;
            for (piece, long) in self.pieces.iter().zip(long.iter_mut()) {
                let What::Branch(condition, label) = piece.what else {
                    continue;
                };
                inserted += branch_length(condition, *long);
                let distance = i64::from(position(&labels, label)) - i64::from(piece.at + inserted);
                if !*long && i8::try_from(distance).is_err() {
                    *long = true;
                    grown = true;
                }
            }
            if !grown {
                return self.lay_out(&long, labels, literals);
            }
        }
    }

    fn positions(&self, long: &[bool]) -> Vec<u32> {
        let mut labels = vec![0; self.labels as usize];
        let mut inserted = 0;
        for (piece, long) in self.pieces.iter().zip(long) {
            match piece.what {
                What::Branch(condition, _) => inserted += branch_length(condition, *long),
                What::Bind(Label(index)) => {
                    if let Some(label) = labels.get_mut(index as usize) {
                        *label = piece.at + inserted;
                    }
                }
                What::Local { .. } | What::External { .. } => {}
            }
        }
        labels
    }

    fn lay_out(&self, long: &[bool], labels: Vec<u32>, literals: usize) -> Result<Assembled, Refusal> {
        let mut bytes = Vec::with_capacity(self.bytes.len() + 8 * self.pieces.len());
        let mut externals = Vec::with_capacity(self.pieces.len());
        let mut copied = 0;
        for (piece, long) in self.pieces.iter().zip(long) {
            bytes.extend_from_slice(self.bytes.get(copied..piece.at as usize).unwrap_or_default());
            copied = piece.at as usize;
            let here = bytes.len() as u32;
            match piece.what {
                What::Bind(_) => {}
                What::Branch(condition, label) => {
                    let end = here + branch_length(condition, *long);
                    let distance = position(&labels, label) as i32 - end as i32;
                    match (condition, long) {
                        (None, false) => bytes.push(0xeb),
                        (None, true) => bytes.push(0xe9),
                        (Some(condition), false) => bytes.push(0x70 | condition),
                        (Some(condition), true) => bytes.extend_from_slice(&[0x0f, 0x80 | condition]),
                    }
                    if *long {
                        bytes.extend_from_slice(&distance.to_le_bytes());
                    } else {
                        bytes.push(distance as u8);
                    }
                }
                What::Local { field, width, label } => {
                    let distance = position(&labels, label) as i32 - here as i32;
                    if width == 1 && i8::try_from(distance).is_err() {
                        return Err(Refusal::TooLarge {
                            what: "distance of a short branch",
                        });
                    }
                    let field = bytes.len() - usize::from(field);
                    for (to, from) in bytes[field..]
                        .iter_mut()
                        .zip(distance.to_le_bytes())
                        .take(usize::from(width))
                    {
                        *to = from;
                    }
                }
                What::External { field, target, modulo } => {
                    externals.push(External {
                        field: here - u32::from(field),
                        end: here,
                        target,
                        modulo,
                    });
                }
            }
        }
        bytes.extend_from_slice(self.bytes.get(copied..).unwrap_or_default());
        Ok(Assembled {
            bytes,
            labels,
            externals,
            literals,
        })
    }
}

fn position(labels: &[u32], label: Label) -> u32 {
    labels.get(label.0 as usize).copied().unwrap_or(0)
}

fn branch_length(condition: Option<u8>, long: bool) -> u32 {
    match (condition, long) {
        (_, false) => 2,
        (None, true) => 5,
        (Some(_), true) => 6,
    }
}

impl Assembled {
    /// The length of the code in bytes. It does not depend on the code's address.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The number of 8-byte literals at the end of the code.
    pub fn literals(&self) -> usize {
        self.literals
    }

    /// The position of a label, in bytes from the start.
    pub fn position(&self, label: Label) -> u64 {
        u64::from(position(&self.labels, label))
    }

    /// The addresses outside of the code that its displacements must reach.
    pub fn targets(&self) -> impl Iterator<Item = TargetAddress> + '_ {
        let near = self.externals.iter().filter(|external| !external.modulo);
        near.map(|external| external.target)
    }

    /// The bytes at an address.
    pub fn link(&self, address: TargetAddress) -> Result<Vec<u8>, Refusal> {
        let mut bytes = self.bytes.clone();
        for external in &self.externals {
            let out_of_reach = Refusal::OutOfReach {
                from: address,
                target: external.target,
            };
            let end = address.checked_add(u64::from(external.end));
            let displacement = match end {
                Some(end) if external.modulo => Some(external.target.0.wrapping_sub(end.0) as i32),
                end => end.and_then(|end| external.target.displacement_from(end)),
            };
            let displacement = displacement.ok_or(out_of_reach)?;
            let field = external.field as usize;
            if let Some(field) = bytes.get_mut(field..field + 4) {
                field.copy_from_slice(&displacement.to_le_bytes());
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_short_where_they_reach() {
        let mut assembler = Assembler::default();
        let (near, far) = (assembler.label(), assembler.label());
        assembler.jump_if(4, near);
        assembler.jump(far);
        assembler.bind(near);
        assembler.bytes(&[0x90; 128]);
        assembler.bind(far);
        assembler.jump(near);
        let code = assembler.finish().unwrap();
        let bytes = code.link(TargetAddress(0x1000)).unwrap();
        assert_eq!(bytes[..7], [0x74, 5, 0xe9, 128, 0, 0, 0]);
        assert_eq!(bytes[7 + 128..], [0xe9, 0x7b, 0xff, 0xff, 0xff]);
        assert_eq!(code.position(far), 7 + 128);
    }

    #[test]
    fn externals_are_linked_to_where_the_code_lies() {
        let mut assembler = Assembler::default();
        assembler.bytes(&[0x90]);
        // cmp dword [rip + x], 7: the field is not at the end.
        assembler.external_within(&[0x83, 0x3d, 0, 0, 0, 0, 7], 2, TargetAddress(0x2000));
        let code = assembler.finish().unwrap();
        assert_eq!(
            code.link(TargetAddress(0x1000)).unwrap(),
            [0x90, 0x83, 0x3d, 0xf8, 0x0f, 0, 0, 7]
        );
        assert_eq!(
            code.link(TargetAddress(0x2_0000_0000)),
            Err(Refusal::OutOfReach {
                from: TargetAddress(0x2_0000_0000),
                target: TargetAddress(0x2000)
            })
        );
    }
}
