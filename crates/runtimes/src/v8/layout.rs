//! Where V8 keeps the parts of a stack.

use std::collections::HashMap;

use nanoprobe_arena::layout::V8;

use crate::memory::{Memory, bytes, half};

/// The symbol of the lengths of bytecodes, for each of three widths of operands.
pub const SIZES: &str = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE";
const MAJOR: &str = "_ZN2v88internal7Version6major_E";
const MINOR: &str = "_ZN2v88internal7Version6minor_E";
/// A version that claims more bytecodes than this is not believed.
const BYTECODES_MAX: u64 = 256;
/// Offsets count from tagged addresses.
const TAG: i32 = 1;

/// A version of V8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Before the point.
    pub major: u32,
    /// After the point.
    pub minor: u32,
}

impl Version {
    /// Node 20's.
    pub const KNOWN: [Version; 1] = [Version { major: 11, minor: 3 }];
}

/// Integers that a program's symbols stand for: `v8dbg_*`, and V8's version.
#[derive(Clone, Debug, Default)]
pub struct Constants(HashMap<&'static str, i32>);

/// All symbols that are needed.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    MAJOR, MINOR,
    "v8dbg_class_Map__instance_type__uint16_t", "v8dbg_FirstContextType", "v8dbg_LastContextType",
    "v8dbg_type_JSFunction__JS_FUNCTION_TYPE", "v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
    "v8dbg_type_Script__SCRIPT_TYPE", "v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE", "v8dbg_type_Code__CODE_TYPE",
    "v8dbg_type_ByteArray__BYTE_ARRAY_TYPE", "v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE",
    "v8dbg_off_fp_context", "v8dbg_off_fp_function", "v8dbg_off_fp_bytecode_array", "v8dbg_off_fp_bytecode_offset",
    "v8dbg_class_JSFunction__shared__SharedFunctionInfo", "v8dbg_class_JSFunction__raw_feedback_cell__FeedbackCell",
    "v8dbg_class_SharedFunctionInfo__function_data__Object",
    "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object",
    "v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
    "v8dbg_class_SharedFunctionInfo__flags__int",
    "v8dbg_class_Script__source__Object", "v8dbg_class_Script__name__Object", "v8dbg_class_Script__line_ends__Object",
    "v8dbg_class_BytecodeArray__data__uintptr_t", "v8dbg_CodeKindFieldMask", "v8dbg_CodeKindBaseline",
    "v8dbg_class_Code__bytecode_or_interpreter_data__HeapObject", "v8dbg_class_Code__bytecode_offset_table__ByteArray",
    "v8dbg_type_FixedArray__FIXED_ARRAY_TYPE", "v8dbg_type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE",
    "v8dbg_class_FixedArrayBase__length__SMI", "v8dbg_class_FixedArray__data__uintptr_t",
    "v8dbg_class_Code__deoptimization_data__FixedArray", "v8dbg_DeoptimizationDataInlinedFunctionCountIndex",
    "v8dbg_DeoptimizationDataLiteralArrayIndex", "v8dbg_DeoptimizationDataSharedFunctionInfoIndex",
    "v8dbg_scopeinfo_idx_first_vars", "v8dbg_scopeinfo_idx_ncontextlocals", "v8dbg_FirstNonstringType",
];

impl Constants {
    /// The symbols that [`Constants::read`] needs.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().copied()
    }

    /// Reads them at their addresses.
    pub fn read(memory: &dyn Memory, address: impl Fn(&str) -> Option<u64>) -> Constants {
        let value = |name: &&'static str| Some((*name, half(memory, address(name)?)? as i32));
        Constants(NAMES.iter().filter_map(value).collect())
    }

    /// The version of V8.
    pub fn version(&self) -> Option<Version> {
        Some(Version {
            major: self.get(MAJOR)?.try_into().ok()?,
            minor: self.get(MINOR)?.try_into().ok()?,
        })
    }

    fn get(&self, name: &str) -> Option<i32> {
        self.0.get(name).copied()
    }

    /// The offset of a field in a tagged object.
    fn field(&self, name: &str) -> Option<i32> {
        self.get(name)?.checked_sub(TAG)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.try_into().ok()
    }
}

/// The offsets that are needed of one version's structures. Offsets count from tagged addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The part for the agent.
    pub agent: V8,
    /// A function's name, or the data about its scope.
    pub shared_name: i32,
    /// A script's fields.
    pub script_source: i32,
    /// See above.
    pub script_name: i32,
    /// The line on which its source begins in its file.
    pub script_line: i32,
    /// The table of positions of a bytecode, and the first of its bytes.
    pub bytecode_positions: i32,
    /// The bytecode of baseline code.
    pub code_bytecode: i32,
    /// Which piece of baseline code belongs to which bytecode.
    pub code_offsets: i32,
    /// Among the exits of optimised code: how many functions were inlined into it.
    pub exit_inlined: u32,
    /// Numbers of types.
    pub scope_type: u32,
    /// The lowest type that is no string's.
    pub not_string: u32,
    /// Words of a scope, from 0 on: how many names it has, and the first name.
    pub scope_names: u32,
    /// See above.
    pub scope_first_name: u32,
    /// The lengths of bytecodes, for each of three widths of operands.
    pub sizes: [Vec<u8>; 3],
}

impl Layout {
    /// The layout that a program's symbols describe; `None`: its version is not known here.
    pub fn of(constants: &Constants) -> Option<Layout> {
        if !Version::KNOWN.contains(&constants.version()?) {
            return None;
        }
        let function = constants.number("v8dbg_type_JSFunction__JS_FUNCTION_TYPE")?;
        let cell = constants.field("v8dbg_class_JSFunction__raw_feedback_cell__FeedbackCell")?;
        let flags = constants.field("v8dbg_class_SharedFunctionInfo__flags__int")?;
        let lines = constants.field("v8dbg_class_Script__line_ends__Object")?;
        let agent = V8 {
            page_mask: (256 << 10) - 1,
            page_heap: 16,
            map_type: constants.field("v8dbg_class_Map__instance_type__uint16_t")?,
            context_first: constants.number("v8dbg_FirstContextType")?,
            context_last: constants.number("v8dbg_LastContextType")?,
            function_first: function,
            // Constructors have types of their own, which follow.
            function_last: function.checked_add(31)?,
            shared_type: constants.number("v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")?,
            script_type: constants.number("v8dbg_type_Script__SCRIPT_TYPE")?,
            bytecode_type: constants.number("v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE")?,
            code_type: constants.number("v8dbg_type_Code__CODE_TYPE")?,
            frame_context: constants.get("v8dbg_off_fp_context")?,
            frame_function: constants.get("v8dbg_off_fp_function")?,
            frame_bytecode: constants.get("v8dbg_off_fp_bytecode_array")?,
            frame_offset: constants.get("v8dbg_off_fp_bytecode_offset")?,
            function_shared: constants.field("v8dbg_class_JSFunction__shared__SharedFunctionInfo")?,
            function_code: cell.checked_add(8)?,
            shared_data: constants.field("v8dbg_class_SharedFunctionInfo__function_data__Object")?,
            shared_script: constants.field("v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject")?,
            shared_number: flags.checked_add(4)?,
            script_number: lines.checked_add(8)?,
            code_start: 0x28 - TAG,
            code_size: 0x38 - TAG,
            code_flags: 0x30 - TAG,
            code_kind_mask: constants.number("v8dbg_CodeKindFieldMask")?,
            code_baseline: constants.number("v8dbg_CodeKindBaseline")?,
            bytecode_start: constants.field("v8dbg_class_BytecodeArray__data__uintptr_t")?,
            ..V8::default()
        };
        Layout::around(constants, Layout::with_exits(constants, agent)?)
    }

    /// Adds what is needed of optimised code.
    fn with_exits(constants: &Constants, agent: V8) -> Option<V8> {
        Some(V8 {
            // Between the two is Maglev, whose tables have another form.
            code_optimized: agent.code_baseline.checked_add(2)?,
            array_type: constants.number("v8dbg_type_FixedArray__FIXED_ARRAY_TYPE")?,
            literals_type: constants.number("v8dbg_type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE")?,
            bytes_type: constants.number("v8dbg_type_ByteArray__BYTE_ARRAY_TYPE")?,
            array_length: constants.field("v8dbg_class_FixedArrayBase__length__SMI")?,
            array_start: constants.field("v8dbg_class_FixedArray__data__uintptr_t")?,
            code_exits: constants.field("v8dbg_class_Code__deoptimization_data__FixedArray")?,
            exit_lists: 0,
            exit_literals: constants.number("v8dbg_DeoptimizationDataLiteralArrayIndex")?,
            exit_function: constants.number("v8dbg_DeoptimizationDataSharedFunctionInfoIndex")?,
            exit_start: 8,
            exit_eager: 9,
            exit_lazy: 10,
            // Each exit has three elements; the second says where its list begins.
            exit_first: 12,
            ..agent
        })
    }

    fn around(constants: &Constants, agent: V8) -> Option<Layout> {
        let source = constants.field("v8dbg_class_Script__source__Object")?;
        Some(Layout {
            agent,
            shared_name: constants.field("v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object")?,
            script_source: source,
            script_name: constants.field("v8dbg_class_Script__name__Object")?,
            script_line: source.checked_add(16)?,
            bytecode_positions: 0x20 - TAG,
            code_bytecode: constants.field("v8dbg_class_Code__bytecode_or_interpreter_data__HeapObject")?,
            code_offsets: constants.field("v8dbg_class_Code__bytecode_offset_table__ByteArray")?,
            exit_inlined: constants.number("v8dbg_DeoptimizationDataInlinedFunctionCountIndex")?,
            scope_type: constants.number("v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE")?,
            not_string: constants.number("v8dbg_FirstNonstringType")?,
            scope_names: constants.number("v8dbg_scopeinfo_idx_ncontextlocals")?,
            scope_first_name: constants.number("v8dbg_scopeinfo_idx_first_vars")?,
            sizes: Default::default(),
        })
    }

    /// Reads the lengths of bytecodes, which the symbol [`SIZES`] stands for. Without them, baseline code has no lines.
    pub fn read_sizes(&mut self, memory: &dyn Memory, address: u64, length: u64) {
        let each = length / 3;
        if each == 0 || each > BYTECODES_MAX {
            return;
        }
        for (index, sizes) in (0..).zip(&mut self.sizes) {
            let start = address.checked_add(each * index);
            *sizes = start
                .and_then(|start| bytes(memory, start, each as usize))
                .unwrap_or_default();
        }
    }
}
