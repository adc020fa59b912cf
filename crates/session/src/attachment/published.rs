//! Which tables of redirects and origins are current. A row is written once, and a byte is set when its row is
//! there (the agent's `redirects.c` says why).

use nanoprobe_arena::layout::{TABLE_ROWS, Tables};
use nanoprobe_patch::TargetAddress;
use nanoprobe_text::space::{Full, Space};

const ROW_BYTES: u64 = size_of::<Tables>() as u64;

/// The rows in the code block through which the agent finds its current tables.
#[derive(Debug)]
pub struct Published {
    tables: TargetAddress,
    rows: TargetAddress,
    left: Space,
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row(u64);

impl Published {
    /// Reserves the rows in the code block; no row is taken yet.
    ///
    /// # Errors
    /// The code block has no room for them.
    pub fn reserve(code: &mut Space) -> Result<Published, Full> {
        let tables = code.reserve(TABLE_ROWS * ROW_BYTES, 64)?;
        Ok(Published {
            tables,
            rows: code.reserve(TABLE_ROWS, 64)?,
            left: Space::new(tables, TABLE_ROWS * ROW_BYTES),
        })
    }

    /// Takes the next row.
    ///
    /// # Errors
    /// All rows are taken.
    pub fn take(&mut self) -> Result<Row, Full> {
        let address = self.left.reserve(ROW_BYTES, ROW_BYTES)?;
        Ok(Row((address.0 - self.tables.0) / ROW_BYTES))
    }

    /// How many rows are taken.
    pub fn taken(&self) -> u64 {
        self.left.used() / ROW_BYTES
    }

    /// The first row, which is current as long as no byte selects another row.
    pub fn first(&self) -> Row {
        Row(0)
    }

    /// Frees all rows except the first. No thread may be in a look-up.
    pub fn begin_again(&mut self) {
        self.left = Space::new(self.tables, TABLE_ROWS * ROW_BYTES);
        let _ = self.take();
    }

    /// Where the addresses of the row's tables are written.
    pub fn tables(&self, row: Row) -> TargetAddress {
        TargetAddress(self.tables.0 + row.0 * ROW_BYTES)
    }

    /// The byte that makes the row current.
    pub fn byte(&self, row: Row) -> TargetAddress {
        TargetAddress(self.rows.0 + row.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn rows_are_taken_once_each() {
        let mut code = Space::new(TargetAddress(0x1_0000), 1 << 20);
        let mut published = Published::reserve(&mut code).unwrap();
        let rows: Vec<Row> = std::iter::from_fn(|| published.take().ok()).collect();
        assert_eq!(rows.len() as u64, TABLE_ROWS);
        let last = *rows.last().unwrap();
        assert_eq!(published.tables(rows[0]), TargetAddress(0x1_0000));
        assert_eq!(published.tables(last).0 + 16, published.byte(rows[0]).0);
        assert_eq!(
            published.byte(last).0 + 1 - 0x1_0000,
            code.reserve(1, 1).unwrap().0 - 0x1_0000
        );
    }
}
