//! The D language: text to typed program.
