//! What its user tells a governor while it runs: lines, one order each. Who is in front is known best to whoever
//! switches between programs; where nobody says it, it is told from activity.

use std::io::{BufRead, Read};
use std::str::FromStr;

use crossbeam_channel::Sender;

/// Bytes of a line, at most.
const LINE: u64 = 256;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The app of this process comes to the front.
    Front(u32),
    /// It goes to the background.
    Back(u32),
    /// Show the state of everything.
    Status,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(line: &str) -> Result<Order, String> {
        let mut words = line.split_ascii_whitespace();
        let (verb, pid, rest) = (words.next(), words.next(), words.next());
        match (verb, pid.map(str::parse), rest) {
            (Some("fg"), Some(Ok(pid)), None) => Ok(Order::Front(pid)),
            (Some("bg"), Some(Ok(pid)), None) => Ok(Order::Back(pid)),
            (Some("status"), None, None) => Ok(Order::Status),
            _ => Err(format!("'{}': expected 'fg PID', 'bg PID' or 'status'", line.trim_end())),
        }
    }
}

/// Reads orders until there are no more, or nobody wants them; says what could not be understood.
pub fn heed(mut from: impl BufRead, to: &Sender<Order>, mut refuse: impl FnMut(String)) {
    loop {
        let mut line = Vec::new();
        // A line without end is cut into several, none of which is an order.
        match from.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match String::from_utf8_lossy(&line).parse() {
            Ok(order) if to.send(order).is_err() => return,
            Ok(_) => {}
            Err(why) => refuse(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_understood_and_nonsense_is_refused() {
        let (to, orders) = crossbeam_channel::unbounded();
        let mut refused = Vec::new();
        let long = "fg ".repeat(400);
        let text = format!("fg 12\n\nbg 7 \nstatus\nfg\nfg x\nfg 1 2\nstatus 3\n{long}\nfg 9");
        heed(text.as_bytes(), &to, |why| refused.push(why));
        drop(to);
        let wanted = [Order::Front(12), Order::Back(7), Order::Status, Order::Front(9)];
        assert_eq!(orders.iter().collect::<Vec<Order>>(), wanted);
        assert!(refused.len() >= 6 && refused.iter().all(|why| why.len() < 350), "{refused:?}");
    }
}
