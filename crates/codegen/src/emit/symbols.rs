//! The symbols that the code refers to by absolute address: functions of the agent, and constants.

use std::collections::HashMap;

use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, FuncRef, GlobalValue, GlobalValueData, Signature, UserExternalName,
    UserExternalNameRef, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::FunctionBuilder;

use crate::AgentFunction;
use crate::handler::RelocationTarget;

/// The symbols of one function.
#[derive(Default)]
pub(crate) struct Symbols {
    /// The bytes of all constants.
    pub constants: Vec<u8>,
    functions: HashMap<AgentFunction, FuncRef>,
    strings: HashMap<Vec<u8>, GlobalValue>,
    null: Option<GlobalValue>,
    targets: HashMap<UserExternalNameRef, RelocationTarget>,
}

impl Symbols {
    /// The target for which a relocation's name stands.
    pub(crate) fn target(&self, name: UserExternalNameRef) -> Option<RelocationTarget> {
        self.targets.get(&name).copied()
    }

    /// A function of the agent with this many parameters, including the context.
    pub(super) fn function(
        &mut self,
        builder: &mut FunctionBuilder<'_>,
        function: AgentFunction,
        parameters: usize,
    ) -> FuncRef {
        if let Some(known) = self.functions.get(&function) {
            return *known;
        }
        let mut signature = Signature::new(CallConv::PreserveAll);
        signature
            .params
            .extend(std::iter::repeat_n(AbiParam::new(types::I64), parameters));
        let signature = builder.import_signature(signature);
        let name = self.declare(builder, RelocationTarget::Agent(function));
        let found = builder.import_function(ExtFuncData {
            name,
            signature,
            colocated: false,
            patchable: false,
        });
        self.functions.insert(function, found);
        found
    }

    /// The address of a string constant. As everywhere, a string ends at its first NUL.
    pub(super) fn string(&mut self, builder: &mut FunctionBuilder<'_>, text: &[u8]) -> GlobalValue {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let found = self.constant(builder, text);
        self.strings.insert(text.to_vec(), found);
        found
    }

    /// The string NULL: an empty constant that no other string shares, recognised by its address.
    pub(super) fn null(&mut self, builder: &mut FunctionBuilder<'_>) -> GlobalValue {
        if let Some(known) = self.null {
            return known;
        }
        let found = self.constant(builder, &[]);
        self.null = Some(found);
        found
    }

    fn constant(&mut self, builder: &mut FunctionBuilder<'_>, text: &[u8]) -> GlobalValue {
        let offset = self.constants.len() as u32;
        self.constants.extend_from_slice(text);
        self.constants.push(0);
        let name = self.declare(builder, RelocationTarget::Constant(offset));
        builder.create_global_value(GlobalValueData::Symbol {
            name,
            offset: 0.into(),
            colocated: false,
            tls: false,
        })
    }

    /// A new name for a target. The number of the name has no other meaning.
    fn declare(&mut self, builder: &mut FunctionBuilder<'_>, target: RelocationTarget) -> ExternalName {
        let name = UserExternalName::new(0, self.targets.len() as u32);
        let reference = builder.func.declare_imported_user_function(name);
        self.targets.insert(reference, target);
        ExternalName::user(reference)
    }
}
