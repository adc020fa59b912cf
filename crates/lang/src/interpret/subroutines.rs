//! Calls of subroutines. This file evaluates the arguments and reads their memory; [`super::text`]
//! computes the results.

use super::evaluate::{Evaluator, NULL};
use super::{Fault, FaultKind, Value, World, json, text};
use crate::program::{Expression, ExpressionKind, Function, Side, USER_FRAMES_MAX};

const ILLEGAL: Fault = Fault {
    kind: FaultKind::Illegal,
    value: 0,
};
/// Families of addresses, as `<sys/socket.h>` has them.
const AF_INET: i64 = 2;
const AF_INET6: i64 = 10;
const ARPHRD_ETHER: i64 = 1;
const ARPHRD_INFINIBAND: i64 = 32;

/// The arguments of a call. Each is evaluated when it is taken, in order.
struct Arguments<'a, 'e, W: ?Sized> {
    evaluator: &'e mut Evaluator<'a, W>,
    left: std::slice::Iter<'e, Expression>,
}

impl<W: World + ?Sized> Arguments<'_, '_, W> {
    fn value(&mut self) -> Result<Value, Fault> {
        self.evaluator.value(self.left.next().ok_or(ILLEGAL)?)
    }

    fn number(&mut self) -> Result<i64, Fault> {
        Ok(self.value()?.as_integer())
    }

    fn address(&mut self) -> Result<u64, Fault> {
        Ok(self.number()? as u64)
    }

    /// The bytes of a string argument, which must not be NULL.
    fn text(&mut self) -> Result<Vec<u8>, Fault> {
        let value = self.evaluator.present(self.left.next().ok_or(ILLEGAL)?)?;
        Ok(self.evaluator.kept(value.as_bytes()).to_vec())
    }

    fn copy_in(&mut self) -> Result<Value, Fault> {
        let (address, bytes) = (self.address()?, self.address()?);
        let copy = self.evaluator.copied(address, bytes)?;
        Ok(self.evaluator.in_scratch(copy))
    }

    fn copy_in_string(&mut self) -> Result<Value, Fault> {
        let address = self.address()?;
        // A limit of 0 means strsize; the NUL counts.
        let limit = match self.left.len() {
            0 => 0,
            _ => self.address()?,
        };
        let strsize = self.evaluator.string_limit() as u64;
        let limit = self.evaluator.room(if limit == 0 { strsize } else { limit })?;
        let text = self.evaluator.read_string(address, limit.saturating_sub(1))?;
        Ok(Value::String(text))
    }

    fn allocate(&mut self) -> Result<Value, Fault> {
        let bytes = self.address()?;
        let bytes = self.evaluator.room(bytes)?;
        Ok(Value::Integer(self.evaluator.in_scratch(vec![0; bytes]).as_integer()))
    }

    fn copy_in_to(&mut self) -> Result<Value, Fault> {
        let (address, bytes, destination) = (self.address()?, self.address()?, self.address()?);
        self.evaluator.scratch_place(destination, bytes)?;
        let copy = self.evaluator.copied(address, bytes)?;
        self.evaluator.store(destination, &copy)?;
        Ok(Value::Integer(destination as i64))
    }

    fn copy_out(&mut self) -> Result<Value, Fault> {
        let (buffer, address, bytes) = (self.address()?, self.address()?, self.address()?);
        let place = self.evaluator.scratch_place(buffer, bytes)?;
        self.evaluator.copy_out(place, address)
    }

    fn copy_out_string(&mut self) -> Result<Value, Fault> {
        let (mut text, address, bytes) = (self.text()?, self.address()?, self.address()?);
        text.push(0);
        text.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.evaluator.world().write(address, &text)?;
        Ok(Value::Integer(0))
    }

    fn join(&mut self) -> Result<Value, Fault> {
        let joined = [self.text()?, self.text()?].concat();
        if joined.len() >= self.evaluator.string_limit() {
            return Err(Fault::new(FaultKind::Scratch));
        }
        Ok(Value::String(joined))
    }

    fn token(&mut self) -> Result<Value, Fault> {
        let state = self.left.next().ok_or(ILLEGAL)?;
        let separators = self.text()?;
        self.evaluator.token(state, &separators)
    }

    fn path(&mut self) -> Result<Value, Fault> {
        let descriptor = self.number()?;
        self.evaluator.world().path(descriptor).map(Value::String)
    }

    fn file_system(&mut self) -> Result<Value, Fault> {
        let (descriptor, part) = (self.number()?, self.number()?);
        self.evaluator.world().file_system(descriptor, part).map(Value::String)
    }

    fn internet_address(&mut self) -> Result<Value, Fault> {
        let (family, address) = (self.number()?, self.address()?);
        match family {
            AF_INET => Ok(Value::String(text::ipv4(self.evaluator.fetched(address)?))),
            AF_INET6 => Ok(Value::String(text::ipv6(self.evaluator.fetched(address)?, false))),
            _ => Err(ILLEGAL),
        }
    }

    fn link_address(&mut self) -> Result<Value, Fault> {
        let (kind, address) = (self.number()?, self.address()?);
        match kind {
            ARPHRD_ETHER => Ok(Value::String(text::link(&self.evaluator.fetched::<6>(address)?))),
            ARPHRD_INFINIBAND => Ok(Value::String(text::link(&self.evaluator.fetched::<20>(address)?))),
            _ => Err(ILLEGAL),
        }
    }
}

impl<'a, W: World + ?Sized> Evaluator<'a, W> {
    pub(super) fn call(&mut self, function: Function, arguments: &[Expression]) -> Result<Value, Fault> {
        let strsize = self.string_limit();
        let mut take = Arguments {
            left: arguments.iter(),
            evaluator: self,
        };
        let integer = |value: i64| Ok(Value::Integer(value));
        let string = |text: &[u8]| Ok(Value::String(text.to_vec()));
        let found = |text: Option<&[u8]>| Ok(text.map_or(NULL, |text| Value::String(text.to_vec())));
        match function {
            Function::CopyIn => take.copy_in(),
            Function::CopyInString => take.copy_in_string(),
            Function::CopyInTo => take.copy_in_to(),
            Function::CopyOut => take.copy_out(),
            Function::CopyOutString => take.copy_out_string(),
            Function::Allocate => take.allocate(),
            Function::StringLength => integer(take.text()?.len() as i64),
            Function::StringJoin => take.join(),
            Function::StringCharacter => found(text::character(&take.text()?, take.number()? as u8, false)),
            Function::StringLastCharacter => found(text::character(&take.text()?, take.number()? as u8, true)),
            Function::StringSearch => found(text::search(&take.text()?, &take.text()?)),
            Function::StringToken => take.token(),
            Function::Substring => {
                let (whole, index, count) = (take.text()?, take.number()?, take.number()?);
                string(text::substring(&whole, index, count, strsize as i64))
            }
            Function::Index => integer(text::index(&take.text()?, &take.text()?, take.number()?)),
            Function::LastIndex => integer(text::last_index(&take.text()?, &take.text()?, take.number()?)),
            Function::UpperCase => string(&take.text()?.to_ascii_uppercase()),
            Function::LowerCase => string(&take.text()?.to_ascii_lowercase()),
            Function::BaseName => string(text::path_part(&take.text()?, true)),
            Function::DirectoryName => string(text::path_part(&take.text()?, false)),
            Function::CleanPath => {
                let clean = text::clean_path(&take.text()?, strsize);
                string(super::value::until_nul(&clean))
            }
            Function::NumberToString => {
                let (value, base) = (take.number()?, base(take.number()?)?);
                Ok(Value::String(text::from_number(value, base)))
            }
            Function::StringToNumber => {
                let (digits, base) = (take.text()?, base(take.number()?)?);
                integer(text::to_number(&digits, base))
            }
            Function::AddressToString => take.internet_address(),
            Function::AddressToString6 => {
                let address = take.address()?;
                Ok(Value::String(text::ipv6(self.fetched(address)?, true)))
            }
            Function::LinkToString => take.link_address(),
            Function::Swap16 => integer(i64::from((take.number()? as u16).swap_bytes())),
            Function::Swap32 => integer(i64::from((take.number()? as u32).swap_bytes())),
            Function::Swap64 => integer(take.number()?.swap_bytes()),
            Function::Random => integer(self.random()),
            Function::Json => found(json::find(&take.text()?, &take.text()?)),
            Function::UserFrame => {
                let number = u32::try_from(take.number()?)
                    .ok()
                    .filter(|number| *number < USER_FRAMES_MAX);
                let mut stack = |number| self.world().stack(Side::Program, number + 1);
                let frame = number.and_then(|number| stack(number).get(number as usize).copied());
                integer(frame.unwrap_or(0) as i64)
            }
            Function::ProgenyOf => {
                let pid = take.number()?;
                integer(i64::from(self.world().is_progeny_of(pid)))
            }
            Function::Path => take.path(),
            Function::FileSystem => take.file_system(),
            // Only clauses that a thread of the target runs call these.
            Function::FileStatus
            | Function::VectorBytes
            | Function::Socket
            | Function::SocketAddress
            | Function::MessageBytes
            | Function::SignalFrame => Err(ILLEGAL),
            Function::ThreadName => self.world().thread_name().map(Value::String),
            Function::Speculation => integer(self.world().speculation()),
        }
    }

    /// Takes a token off a string variable. The separators are evaluated first, because the machine
    /// code already has the variable's address.
    fn token(&mut self, state: &Expression, separators: &[u8]) -> Result<Value, Fault> {
        let ExpressionKind::Variable(place) = &state.kind else {
            return Err(ILLEGAL);
        };
        let slot = self.slot(place)?;
        let held = self.read(&slot)?;
        let (token, rest) = text::token(held.as_bytes(), separators);
        self.write(&slot, Value::String(rest.to_vec()))?;
        Ok(match token {
            [] => NULL,
            token => Value::String(token.to_vec()),
        })
    }

    fn copied(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>, Fault> {
        let mut copy = vec![0; self.room(bytes)?];
        self.read_memory(address, &mut copy)?;
        Ok(copy)
    }

    fn fetched<const BYTES: usize>(&mut self, address: u64) -> Result<[u8; BYTES], Fault> {
        let mut bytes = [0; BYTES];
        self.read_memory(address, &mut bytes)?;
        Ok(bytes)
    }
}

fn base(base: i64) -> Result<u32, Fault> {
    u32::try_from(base)
        .ok()
        .filter(|base| (2..=36).contains(base))
        .ok_or(ILLEGAL)
}
