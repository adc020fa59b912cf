//! The whole state of the processor that a program sees, without memory.

/// Registers in the order in which the trampoline reads and writes them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rax rbx rcx rdx rsi rdi rbp r8 .. r15
    pub general: [u64; 15],
    pub flags: u64,
    pub rsp: u64,
    pub fs_base: u64,
    pub gs_base: u64,
}

pub const NAMES: [&str; 15] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
];

/// Room for the image of `xsave64`, and for the same in a signal frame of the kernel's.
pub const XSTATE_BYTES: usize = 16 << 10;
const HEADER: usize = 512;

/// The components that are compared and loaded: x87, SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM.
const COMPONENTS: u64 = 0xe7;

/// The places of the state components in an image of `xsave64`, in the standard format.
#[derive(Clone, Debug)]
pub struct XLayout {
    /// Which of [`COMPONENTS`] the processor has and the system enables.
    pub mask: u64,
    /// Component, offset, bytes.
    areas: Vec<(u32, usize, usize)>,
    /// The offset after the last component.
    pub bytes: usize,
    /// Whether the x87 unit keeps the last instruction's opcode when its state is saved and loaded,
    /// as every signal does.
    keeps_opcode: bool,
}

/// The image of `fxsave64`.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Legacy([u8; HEADER]);

/// Where `fxsave64` has the opcode of the last x87 instruction.
const OPCODE: std::ops::Range<usize> = 6..8;

/// Asks the processor. AMD's save and load the opcode only for a pending exception.
fn keeps_opcode() -> bool {
    let (mut now, mut then) = (Legacy([0; HEADER]), Legacy([0; HEADER]));
    // SAFETY: the state that is loaded first is the present one with another opcode, without a
    // pending exception; the second is the present one.
    unsafe {
        std::arch::asm!("fxsave64 [{}]", in(reg) &raw mut now);
        let mut other = now;
        other.0[2..4].fill(0);
        other.0[OPCODE.start] = 1;
        std::arch::asm!(
            "fxrstor64 [{other}]", "fxsave64 [{then}]", "fxrstor64 [{now}]",
            other = in(reg) &raw const other, then = in(reg) &raw mut then, now = in(reg) &raw const now,
        );
    }
    then.0[OPCODE.start] == 1
}

impl XLayout {
    /// The layout of this processor.
    pub fn of_processor() -> XLayout {
        use std::arch::x86_64::{__cpuid_count, _xgetbv};
        #[target_feature(enable = "xsave")]
        fn enabled() -> u64 {
            // SAFETY: register 0 always exists.
            unsafe { _xgetbv(0) }
        }
        // SAFETY: 64-bit Linux on a processor without xsave is not supported by this test, and `main` says so.
        let mask = unsafe { enabled() } & COMPONENTS;
        let mut areas = Vec::new();
        for component in (2..64).filter(|component| mask >> component & 1 != 0) {
            let leaf = __cpuid_count(13, component);
            areas.push((component, leaf.ebx as usize, leaf.eax as usize));
        }
        let bytes = areas
            .iter()
            .map(|(_, offset, bytes)| offset + bytes)
            .max()
            .unwrap_or(HEADER + 64);
        XLayout {
            mask,
            areas,
            bytes,
            keeps_opcode: keeps_opcode(),
        }
    }

    /// Makes two images comparable: components in their initial state are written out, and meaningless bytes are
    /// zeroed. The x87 unit's last instruction and data pointer are left out: they belong to the copy, see
    /// `nanoprobe_patch::relocate`. The opcode is left out, too, if the processor loses it at every signal.
    pub fn normalize(&self, image: &mut [u8]) {
        let present = u64::from_le_bytes(image[HEADER..HEADER + 8].try_into().unwrap_or_default());
        if present & 1 == 0 {
            image[..24].fill(0);
            image[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
            image[32..160].fill(0);
        }
        if !self.keeps_opcode {
            image[OPCODE].fill(0);
        }
        image[8..24].fill(0);
        image[28..32].fill(0);
        // The upper 6 of the 16 bytes of each x87 register mean nothing.
        for register in 0..8 {
            image[32 + 16 * register + 10..48 + 16 * register].fill(0);
        }
        if present & 2 == 0 {
            image[160..416].fill(0);
        }
        image[416..HEADER + 64].fill(0);
        for (component, offset, bytes) in &self.areas {
            if present >> component & 1 == 0 {
                image[*offset..offset + bytes].fill(0);
            }
        }
    }

    /// A description of an offset in an image, for messages.
    pub fn name(&self, offset: usize) -> String {
        match offset {
            0..24 => format!("x87 control, byte {offset}"),
            24..32 => "mxcsr".to_owned(),
            32..160 => format!("st{}", (offset - 32) / 16),
            160..416 => format!("xmm{}", (offset - 160) / 16),
            _ => {
                let area = self
                    .areas
                    .iter()
                    .find(|(_, start, bytes)| (*start..start + bytes).contains(&offset));
                match area {
                    Some((2, start, _)) => format!("ymm{}, upper half", (offset - start) / 16),
                    Some((5, start, _)) => format!("k{}", (offset - start) / 8),
                    Some((6, start, _)) => format!("zmm{}, upper half", (offset - start) / 32),
                    Some((7, start, _)) => format!("zmm{}", 16 + (offset - start) / 64),
                    _ => format!("extended state, byte {offset}"),
                }
            }
        }
    }

    /// An image to be loaded, with random bits everywhere except in the control words.
    pub fn random(&self, random: &mut crate::random::Random) -> Vec<u8> {
        let mut image = vec![0; self.bytes];
        random.fill(&mut image);
        // Exceptions are usually masked; the rounding is random.
        let unmasked = random.once_in(16);
        let control = 0x37f & !(if unmasked { random.next() as u16 & 0x3f } else { 0 });
        image[..2].copy_from_slice(&(control | (random.next() as u16 & 0xc00)).to_le_bytes());
        // No exception is pending; the top of the stack and the condition bits are random.
        image[2..4].copy_from_slice(&(random.next() as u16 & 0x7f00 & !0x8000).to_le_bytes());
        if random.once_in(2) {
            image[4] = 0;
        }
        image[5] = 0;
        image[6..24].fill(0);
        let unmasked = random.once_in(16);
        let mxcsr = 0x1f80 & !(if unmasked { random.next() as u32 & 0x1f80 } else { 0 });
        let mxcsr = mxcsr | (random.next() as u32 & 0x6000) | if random.once_in(4) { 0x8040 } else { 0 };
        image[24..28].copy_from_slice(&mxcsr.to_le_bytes());
        image[28..32].fill(0);
        for register in 0..8 {
            image[32 + 16 * register + 10..48 + 16 * register].fill(0);
        }
        // Small numbers among the vectors, for indices and for numbers that are not NaNs.
        for register in (160..416).step_by(16) {
            match random.below(4) {
                0 => image[register..register + 16].fill(0),
                1 => {
                    for lane in (register..register + 16).step_by(4) {
                        image[lane + 1..lane + 4].fill(0);
                    }
                }
                _ => {}
            }
        }
        image[416..HEADER + 64].fill(0);
        let mut present = self.mask;
        for component in [2, 5, 6, 7] {
            if random.once_in(4) {
                present &= !(1 << component);
            }
        }
        image[HEADER..HEADER + 8].copy_from_slice(&present.to_le_bytes());
        image
    }
}
