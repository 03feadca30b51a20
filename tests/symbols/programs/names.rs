// SPDX-License-Identifier: Apache-2.0
//! Functions whose names a compiler mangles.
pub struct Cart {
    sum: u64,
}

impl Cart {
    #[inline(never)]
    pub fn total(&self, count: u64) -> u64 {
        self.sum.wrapping_mul(count)
    }
}

pub trait Priced {
    fn price(&self) -> u64;
}

impl Priced for Cart {
    #[inline(never)]
    fn price(&self) -> u64 {
        self.sum ^ 5
    }
}

#[inline(never)]
pub fn twice<T: Copy + std::ops::Add<Output = T>>(value: T) -> T {
    value + value
}

#[no_mangle]
pub extern "C" fn run(sum: u64, count: u64) -> u64 {
    let cart = Cart { sum };
    cart.total(count).wrapping_add(Priced::price(&cart)).wrapping_add(twice(count))
}
