// SPDX-License-Identifier: MIT OR Apache-2.0
//! An input, read piece by piece. At its end all is 0.

pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// True for odd numbers.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::from(self.u8()) % values.len()]
    }
}
