//! From a clause to a [`Handler`]: configures Cranelift, runs it, and converts its result.

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, ExternalName, Function, Signature, UserFuncName, types};
use cranelift_codegen::isa::{self, CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, FinalizedRelocTarget, binemit::Reloc};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use nanoprobe_lang::layout::{Limits, Storage};
use nanoprobe_lang::program::Program;

use crate::contract::REGISTER_PARAMETERS;
use crate::emit;
use crate::error::Error;
use crate::handler::{Handler, Relocation};
use crate::scan::{self, Needs};
use crate::{ArenaLayout, MAX_STACK_BYTES, ProbeKind, static_slots};

/// Compiles clauses. A compiler keeps data that the next clause can use again (the machine's description, allocations).
pub struct Compiler {
    isa: OwnedTargetIsa,
    context: Context,
    builder_context: FunctionBuilderContext,
}

impl Compiler {
    /// A compiler for x86-64 without extensions. Its code runs on every such processor, and uses no SIMD.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`] if Cranelift was built without a feature that the compiler needs.
    pub fn new() -> Result<Compiler, Error> {
        let mut flags = settings::builder();
        for (name, value) in [
            ("opt_level", "speed"),
            ("enable_pinned_reg", "true"),
            ("is_pic", "false"),
            ("unwind_info", "false"),
            ("preserve_frame_pointers", "false"),
            ("enable_probestack", "false"),
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
        ] {
            flags
                .set(name, value)
                .map_err(|error| Error::Setup(format!("{name}={value}: {error}")))?;
        }
        let isa = isa::lookup_by_name("x86_64-unknown-linux-gnu")
            .map_err(|error| Error::Setup(error.to_string()))?
            .finish(settings::Flags::new(flags))
            .map_err(|error| Error::Setup(error.to_string()))?;
        Ok(Compiler {
            isa,
            context: Context::new(),
            builder_context: FunctionBuilderContext::new(),
        })
    }

    /// Compiles clause number `clause` of `program` for probes of one kind.
    ///
    /// `storage` and `limits` must be those of the whole session: all clauses must agree on where variables are.
    ///
    /// # Errors
    ///
    /// See [`Error`]. After an error the compiler can still be used.
    pub fn compile(
        &mut self,
        program: &Program,
        clause: usize,
        kind: ProbeKind,
        storage: &Storage,
        limits: Limits,
        arena: &ArenaLayout,
    ) -> Result<Handler, Error> {
        let count = program.clauses.len();
        let found = program
            .clauses
            .get(clause)
            .ok_or(Error::NoSuchClause { clause, count })?;
        let slots = static_slots(program, clause);
        let needs = Needs::of(program, found, kind, &slots, arena)?;
        let slot_bytes = slots.bytes;

        // An earlier compilation that failed may have left some state.
        self.context.clear();
        self.builder_context = FunctionBuilderContext::new();
        self.context.func = Function::with_name_signature(UserFuncName::default(), handler_signature());
        let builder = FunctionBuilder::new(&mut self.context.func, &mut self.builder_context);
        let source = emit::Source {
            program,
            clause: found,
            kind,
            storage,
            limits,
            arena,
            slots,
            needs,
            follows_exit: scan::follows_exit(program, clause),
        };
        let symbols = emit::emit(builder, &source, self.isa.frontend_config())?;

        let code = self
            .context
            .compile(self.isa.as_ref(), &mut ControlPlane::default())
            .map_err(|error| Error::Generator(error.inner.to_string()))?;
        let stack_bytes = code
            .buffer
            .frame_layout()
            .map_or(0, |layout| layout.frame_to_fp_offset)
            .saturating_add(16);
        if stack_bytes > MAX_STACK_BYTES {
            return Err(Error::TooMuchStack {
                bytes: stack_bytes,
                limit: MAX_STACK_BYTES,
            });
        }
        let bytes = code.buffer.data().to_vec();
        let relocations = code
            .buffer
            .relocs()
            .iter()
            .map(|relocation| {
                let target = match &relocation.target {
                    FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => symbols.target(*name),
                    _ => None,
                };
                match (relocation.kind, target) {
                    (Reloc::Abs8, Some(target)) => Ok(Relocation {
                        offset: relocation.offset,
                        target,
                        addend: relocation.addend,
                    }),
                    _ => Err(Error::Generator(format!("unexpected relocation {:?}", relocation.kind))),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Handler {
            code: bytes,
            relocations,
            constants: symbols.constants,
            full_frame: source.needs.full_frame,
            slot_bytes,
            stack_bytes,
        })
    }

    /// Cranelift's intermediate form of the last clause, after optimisation, for people to read.
    pub fn intermediate_form(&self) -> String {
        self.context.func.display().to_string()
    }
}

/// The six register parameters. There is no result, because `preserve_all` has no register for it.
fn handler_signature() -> Signature {
    let mut signature = Signature::new(CallConv::PreserveAll);
    signature
        .params
        .extend([AbiParam::new(types::I64); REGISTER_PARAMETERS]);
    signature
}
