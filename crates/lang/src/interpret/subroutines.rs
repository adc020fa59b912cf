//! Calls of subroutines: evaluates their arguments and fetches their memory; [`super::text`]
//! computes the results.

use super::evaluate::{Evaluator, NULL};
use super::{Fault, FaultKind, Value, World, json, text};
use crate::program::{Expression, ExpressionKind, Function};

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

    /// The bytes of a string, which is not NULL.
    fn text(&mut self) -> Result<Vec<u8>, Fault> {
        let value = self.evaluator.present(self.left.next().ok_or(ILLEGAL)?)?;
        Ok(self.evaluator.kept(value.as_bytes()).to_vec())
    }
}

impl<'a, W: World + ?Sized> Evaluator<'a, W> {
    pub(super) fn call(&mut self, function: Function, arguments: &[Expression]) -> Result<Value, Fault> {
        let strsize = self.string_limit();
        let mut take = Arguments {
            left: arguments.iter(),
            evaluator: self,
        };
        let string = |text: &[u8]| Ok(Value::String(text.to_vec()));
        let found = |text: Option<&[u8]>| Ok(text.map_or(NULL, |text| Value::String(text.to_vec())));
        match function {
            Function::CopyIn => {
                let (address, bytes) = (take.number()? as u64, take.number()? as u64);
                let copy = self.copied(address, bytes)?;
                Ok(self.in_scratch(copy))
            }
            Function::CopyInString => {
                let address = take.number()? as u64;
                // 0 means strsize; the NUL counts.
                let limit = match arguments.get(1) {
                    Some(_) => take.number()? as u64,
                    None => 0,
                };
                let limit = if limit == 0 { strsize as u64 } else { limit };
                let limit = self.room(limit)?;
                Ok(Value::String(self.read_string(address, limit.saturating_sub(1))?))
            }
            Function::StringLength => {
                let value = self.present(arguments.first().ok_or(ILLEGAL)?)?;
                Ok(Value::Integer(self.kept(value.as_bytes()).len() as i64))
            }
            Function::Allocate => {
                let bytes = take.number()? as u64;
                let bytes = self.room(bytes)?;
                Ok(Value::Integer(self.in_scratch(vec![0; bytes]).as_integer()))
            }
            Function::CopyInTo => {
                let (address, bytes) = (take.number()? as u64, take.number()? as u64);
                let destination = take.number()? as u64;
                self.scratch_place(destination, bytes)?;
                let copy = self.copied(address, bytes)?;
                self.store(destination, &copy)?;
                Ok(Value::Integer(destination as i64))
            }
            Function::StringJoin => {
                let joined = [take.text()?, take.text()?].concat();
                if joined.len() >= strsize {
                    return Err(Fault::new(FaultKind::Scratch));
                }
                Ok(Value::String(joined))
            }
            Function::StringCharacter | Function::StringLastCharacter => {
                let (whole, wanted) = (take.text()?, take.number()?);
                let last = function == Function::StringLastCharacter;
                found(text::character(&whole, wanted as u8, last))
            }
            Function::StringSearch => found(text::search(&take.text()?, &take.text()?)),
            Function::StringToken => {
                let separators = {
                    take.left.next();
                    take.text()?
                };
                self.token(arguments.first().ok_or(ILLEGAL)?, &separators)
            }
            Function::Substring => {
                let (whole, index, count) = (take.text()?, take.number()?, take.number()?);
                string(text::substring(&whole, index, count, strsize as i64))
            }
            Function::Index => {
                let (whole, wanted) = (take.text()?, take.text()?);
                Ok(Value::Integer(text::index(&whole, &wanted, take.number()?)))
            }
            Function::LastIndex => {
                let (whole, wanted) = (take.text()?, take.text()?);
                Ok(Value::Integer(text::last_index(&whole, &wanted, take.number()?)))
            }
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
                Ok(Value::Integer(text::to_number(&digits, base)))
            }
            Function::AddressToString => {
                let (family, address) = (take.number()?, take.number()? as u64);
                match family {
                    AF_INET => Ok(Value::String(text::ipv4(self.fetched(address)?))),
                    AF_INET6 => Ok(Value::String(text::ipv6(self.fetched(address)?, false))),
                    _ => Err(ILLEGAL),
                }
            }
            Function::AddressToString6 => {
                let address = take.number()? as u64;
                Ok(Value::String(text::ipv6(self.fetched(address)?, true)))
            }
            Function::LinkToString => {
                let (kind, address) = (take.number()?, take.number()? as u64);
                match kind {
                    ARPHRD_ETHER => Ok(Value::String(text::link(&self.fetched::<6>(address)?))),
                    ARPHRD_INFINIBAND => Ok(Value::String(text::link(&self.fetched::<20>(address)?))),
                    _ => Err(ILLEGAL),
                }
            }
            Function::Swap16 => Ok(Value::Integer(i64::from((take.number()? as u16).swap_bytes()))),
            Function::Swap32 => Ok(Value::Integer(i64::from((take.number()? as u32).swap_bytes()))),
            Function::Swap64 => Ok(Value::Integer(take.number()?.swap_bytes())),
            Function::Random => Ok(Value::Integer(self.random())),
            Function::Json => {
                let (whole, path) = (take.text()?, take.text()?);
                found(json::find(&whole, &path))
            }
            Function::ProgenyOf => {
                let pid = take.number()?;
                Ok(Value::Integer(i64::from(self.world().is_progeny_of(pid))))
            }
            Function::Path => {
                let descriptor = take.number()?;
                self.world().path(descriptor).map(Value::String)
            }
            Function::ThreadName => self.world().thread_name().map(Value::String),
            Function::Speculation => Ok(Value::Integer(self.world().speculation())),
            Function::CopyOut => {
                let (buffer, address, bytes) = (take.number()? as u64, take.number()? as u64, take.number()? as u64);
                let place = self.scratch_place(buffer, bytes)?;
                self.copy_out(place, address)
            }
            Function::CopyOutString => {
                let (text, address, bytes) = (take.text()?, take.number()? as u64, take.number()? as u64);
                let mut text = text;
                text.push(0);
                text.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
                self.world().write(address, &text)?;
                Ok(Value::Integer(0))
            }
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
