//! What the reclaimer has not finished yet. Decisions free memory at once; the reclaimer, one thread,
//! needs its time, and as long as memory is full the program waits for it (direct reclaim).

use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Backlog {
    /// When each order is done, and the bytes it frees then.
    orders: VecDeque<(f64, u64)>,
    bytes: u64,
}

impl Backlog {
    /// At `at_ns` an order was given that takes `cpu_ns` and frees `bytes` when it is done.
    pub fn push(&mut self, at_ns: f64, cpu_ns: f64, bytes: u64) {
        self.drain(at_ns);
        let begins = self.orders.back().map_or(at_ns, |(done, _)| done.max(at_ns));
        self.orders.push_back((begins + cpu_ns, bytes));
        self.bytes += bytes;
    }

    fn drain(&mut self, at_ns: f64) {
        while let Some((_, bytes)) = self.orders.front().filter(|(done, _)| *done <= at_ns) {
            self.bytes -= bytes;
            self.orders.pop_front();
        }
    }

    /// How long somebody waits who needs memory at `at_ns`, when `used_bytes` of `total_bytes` are
    /// used without what is on its way out.
    #[inline]
    pub fn wait(&mut self, at_ns: f64, used_bytes: u64, total_bytes: u64) -> f64 {
        if self.orders.is_empty() {
            return 0.0;
        }
        self.drain(at_ns);
        let mut until = at_ns;
        while used_bytes + self.bytes > total_bytes
            && let Some((done, bytes)) = self.orders.pop_front()
        {
            until = done;
            self.bytes -= bytes;
        }
        until - at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_order_after_the_other_and_no_longer_than_needed() {
        let mut backlog = Backlog::default();
        backlog.push(100.0, 50.0, 10);
        backlog.push(110.0, 50.0, 10);
        backlog.push(110.0, 50.0, 10);
        // 90 used, 30 on their way: one must be done.
        assert_eq!(backlog.wait(120.0, 90, 110), 30.0);
        // Then 20 are left, which fit.
        assert_eq!(backlog.wait(150.0, 90, 110), 0.0);
        assert_eq!(backlog.wait(150.0, 95, 110), 50.0);
        assert_eq!(backlog.wait(300.0, 200, 110), 0.0);
    }
}
