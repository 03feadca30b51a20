// SPDX-License-Identifier: Apache-2.0
//! Says which thread it is below closures, a trait object, a sort and a thread of the standard library, and waits there.
use std::io::Write;

extern "C" {
    fn pause() -> i32;
    fn gettid() -> i32;
    fn prctl(option: i32, ...) -> i32;
}

trait Step {
    fn go(&self, depth: u32) -> u32;
}

struct Deep(u32);

impl Step for Deep {
    #[inline(never)]
    fn go(&self, depth: u32) -> u32 {
        if depth == 0 {
            stop();
            return self.0;
        }
        self.0 + self.go(depth - 1)
    }
}

#[inline(never)]
fn stop() {
    println!("{}", unsafe { gettid() });
    std::io::stdout().flush().unwrap();
    while unsafe { pause() } != 0 {}
}

fn main() {
    unsafe { prctl(0x59616d61, -1i64) }; // PR_SET_PTRACER, anyone
    let worker = std::thread::spawn(|| {
        let step: Box<dyn Step> = Box::new(Deep(3));
        let mut values = vec![4, 9, 7, 1, 3];
        values.sort_by_key(|value| if *value == 7 { step.go(4) as i32 } else { *value });
        values.len()
    });
    worker.join().unwrap();
}
