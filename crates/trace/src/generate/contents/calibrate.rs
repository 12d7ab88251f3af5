use super::*;
use crate::statistics::ratios;
#[test]
#[ignore]
fn kinds() {
    for kind in Kind::ALL {
        let mut blocks = Vec::new();
        for seed in 0..2u64 {
            let contents = Contents::new(Profile::ALL[0], seed);
            for arena in 0..24u64 {
                let mut block = Vec::new();
                for n in 0..32 {
                    let mut page = vec![0; 4096];
                    let mut s = Seeded::of(seed, &[10, arena]);
                    let mut r = Seeded::of(seed, &[11, arena * 32 + n]);
                    contents.fill(kind, &mut page, &mut s, &mut r);
                    block.extend(page);
                }
                blocks.push(block);
            }
        }
        for r in ratios(blocks.iter().map(|b| &b[..])) {
            println!("K {kind:?} {} {} {:.5}", r.codec, r.chunk_bytes, r.ratio);
        }
    }
}
