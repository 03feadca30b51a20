// SPDX-License-Identifier: Apache-2.0
//! Calls functions whose names a compiler mangles: Cart::add 10 times, twice::<u64> 3 times.
pub struct Cart {
    sum: u64,
}

impl Cart {
    #[inline(never)]
    pub fn add(&mut self, count: u64) -> u64 {
        self.sum += count;
        self.sum
    }
}

#[inline(never)]
pub fn twice<T: Copy + std::ops::Add<Output = T>>(value: T) -> T {
    value + value
}

fn main() {
    let mut cart = Cart { sum: std::env::args().count() as u64 };
    for count in 0..10 {
        assert!(std::hint::black_box(cart.add(count)) > count);
    }
    for count in 0..3 {
        let sum = cart.sum;
        cart.sum += twice(count + sum);
    }
    assert!(cart.sum > 45);
}
