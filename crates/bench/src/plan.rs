//! The sequence of switches: which app comes to the foreground next. The same in every arm.

use clew_core::Seeded;

/// `count` switches between `apps` apps, each about equally often, never twice the same in a row
/// (unless there is only one).
pub fn switches(seed: u64, apps: usize, count: usize) -> Vec<usize> {
    let mut seeded = Seeded::of(seed, &[30]);
    let mut left: Vec<usize> =
        (0..apps).map(|app| count / apps + usize::from(app < count % apps)).collect();
    let mut sequence = Vec::with_capacity(count);
    for position in 0..count {
        let last = sequence.last().copied();
        let open: Vec<usize> =
            (0..apps).filter(|&app| left[app] > 0 && Some(app) != last).collect();
        // An app that fills every second place of what is left must come now.
        let remaining = count - position;
        let pressing = open.iter().copied().find(|&app| left[app] * 2 > remaining);
        let next = pressing.unwrap_or_else(|| {
            let total: usize = open.iter().map(|&app| left[app]).sum();
            let mut draw = seeded.below(total.max(1) as u64) as usize;
            open.iter()
                .copied()
                .find(|&app| {
                    let hit = draw < left[app];
                    draw = draw.saturating_sub(left[app]);
                    hit
                })
                .unwrap_or_else(|| last.unwrap_or(0))
        });
        left[next] -= 1;
        sequence.push(next);
    }
    sequence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_and_without_repeats() {
        for seed in 0..200 {
            for (apps, count) in [(2, 7), (3, 10), (4, 28), (4, 30)] {
                let sequence = switches(seed, apps, count);
                assert_eq!(sequence.len(), count);
                assert!(sequence.windows(2).all(|pair| pair[0] != pair[1]), "{sequence:?}");
                for app in 0..apps {
                    let times = sequence.iter().filter(|&&one| one == app).count();
                    assert!((count / apps..=count.div_ceil(apps)).contains(&times));
                }
            }
        }
        assert_eq!(switches(1, 1, 3), [0, 0, 0]);
        assert_eq!(switches(9, 4, 28), switches(9, 4, 28));
        assert_ne!(switches(9, 4, 28), switches(8, 4, 28));
    }
}
