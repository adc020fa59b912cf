//! CPython 3.8 to 3.13.

mod code;
mod layout;
mod lines;
mod sampled;
mod thread;

pub use code::{Code, object_at};
pub use layout::{Layout, Version};
pub use lines::{Form, Lines};
pub use sampled::{NativeCall, Sampled, ShownFrame, StackCopy};
pub use thread::{Call, PythonFrame, agreed, calls, find_thread, instructions, is_thread};
