//! How pages of live processes compress: `process_pages NAME=PID...` prints the table that is kept in
//! `crates/trace/data/process-pages.tsv`, against which generated contents are checked. Needs the
//! right to read the memory of those processes.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use clew_trace::statistics::ratios;

const PAGE: usize = 4096;
const BLOCK: usize = 128 << 10;
/// Pages of each program, from all of its memory.
const PAGES: usize = 6144;

fn main() -> Result<(), Box<dyn Error>> {
    let mut programs: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut zeros: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for argument in std::env::args().skip(1) {
        let (name, pid) = argument.split_once('=').ok_or("NAME=PID")?;
        let pages = programs.entry(name.to_string()).or_default();
        let (seen, zero) = zeros.entry(name.to_string()).or_default();
        for block in blocks(pid.parse()?)? {
            for page in block.chunks_exact(PAGE) {
                *seen += 1;
                match page.iter().all(|byte| *byte == 0) {
                    true => *zero += 1,
                    false => pages.extend(page),
                }
            }
        }
    }
    let mut all: Vec<&[u8]> = Vec::new();
    for (name, pages) in &programs {
        let blocks: Vec<&[u8]> = pages.chunks_exact(BLOCK).collect();
        let step = (blocks.len() / (PAGES * PAGE / BLOCK)).max(1);
        let chosen: Vec<&[u8]> =
            blocks.into_iter().step_by(step).take(PAGES * PAGE / BLOCK).collect();
        let (seen, zero) = zeros[name];
        println!("# {name}: {} pages, {zero} of {seen} zero", chosen.len() * BLOCK / PAGE);
        print(name, &chosen);
        all.extend(chosen);
    }
    print("all", &all);
    Ok(())
}

fn print(name: &str, blocks: &[&[u8]]) {
    for ratio in ratios(blocks.iter().copied()) {
        println!("{name}\t{}\t{}\t{:.3}", ratio.codec, ratio.chunk_bytes, ratio.ratio);
    }
}

/// The private anonymous memory of a process that is there, in pieces of 128 KiB.
fn blocks(pid: u32) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut blocks = Vec::new();
    let mut block = Vec::with_capacity(BLOCK);
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [range, permissions, _, _, inode, ..] = fields[..] else { continue };
        let name = fields.get(5).copied().unwrap_or_default();
        let anonymous = name.is_empty() || name == "[heap]" || name.starts_with("[anon:");
        if !permissions.starts_with("rw")
            || !permissions.ends_with('p')
            || inode != "0"
            || !anonymous
        {
            continue;
        }
        let (start, end) = range.split_once('-').ok_or("a range")?;
        let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
        let mut entries = vec![0; ((end - start) as usize / PAGE).min(1 << 22) * 8];
        let read = pagemap.read_at(&mut entries, start / PAGE as u64 * 8)?;
        let mut page = [0; PAGE];
        for (number, entry) in entries[..read].as_chunks::<8>().0.iter().enumerate() {
            let present = u64::from_le_bytes(*entry) >> 63 == 1;
            let at = start + (number * PAGE) as u64;
            if present && memory.read_exact_at(&mut page, at).is_ok() {
                block.extend(page);
                if block.len() == BLOCK {
                    blocks.push(std::mem::replace(&mut block, Vec::with_capacity(BLOCK)));
                }
            }
        }
    }
    Ok(blocks)
}
