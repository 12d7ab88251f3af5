//! What each question may be answered.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use clew_core::{
    Admission, Admit, AppId, Arrival, Candidate, Cause, CodecKind, Demand, Event, Eviction, Group,
    Hotness, Out, Packing, PageId, Place, Placement, Prefetch, Reclaim, SampleDemand, SpaceId,
    Tier, Trigger, Unit, Verdict, Victim,
};

use crate::life::{Answered, Broken, Life, play};

const CLASSES: [Hotness; 3] = [Hotness::Cold, Hotness::Warm, Hotness::Hot];

/// Checks who leaves DRAM next.
///
/// # Errors
/// The first history that the policy does not live through.
pub fn reclaim(build: impl Fn() -> Box<dyn Reclaim>) -> Result<(), Broken> {
    play(&build, true, |life| {
        let (app, which) = (life.an_app(), life.random.below(6));
        let mut out = Vec::new();
        match which {
            0 => {
                out = life.ask(|policy, view| {
                    policy.pick_app(app, view, &mut out);
                    out
                })
            }
            1 => return samples(life, app),
            2 => return classes(life),
            _ => {
                let demand =
                    Demand { pages: 1 + life.random.below(12) as usize, urgent: which == 3 };
                out = life.ask(|policy, view| {
                    policy.pick_victims(demand, view, &mut out);
                    out
                });
            }
        }
        for verdict in out {
            let Verdict::Take(Victim { unit, .. }) = verdict else { continue };
            let of_app = |life: &Life<dyn Reclaim>, app| {
                let of = |page: &PageId| life.world.facts.app_of(page.space()) == Some(app);
                life.takeable().into_iter().filter(of).collect()
            };
            let pages: Vec<PageId> = match unit {
                Unit::Page(page) => vec![page],
                Unit::Pages(pages) => pages,
                Unit::App(app) => of_app(life, app),
            };
            for page in pages {
                if !life.world.table.resident.contains(&page) {
                    return Err(format!("it hands out {page:?}, which is not resident"));
                }
                if !life.world.table.moving.insert(page) {
                    return Err(format!("it hands out {page:?}, which nobody has told it back"));
                }
                life.handed_out = true;
            }
        }
        let of = |page: &PageId| life.world.facts.app_of(page.space()) == Some(app);
        match life.takeable().into_iter().find(of) {
            Some(page) if which == 0 && life.handed_out => {
                Err(format!("asked for all of {app:?}, it keeps {page:?}"))
            }
            _ => Ok(()),
        }
    })
}

fn samples(life: &mut Life<dyn Reclaim>, app: AppId) -> Answered {
    let runs = life.ask(|policy, view| {
        let mut out = Vec::new();
        policy.pick_samples(SampleDemand { app, pages: 8, run_pages: 4 }, view, &mut out);
        out
    });
    let takeable = life.takeable();
    let of = |page| life.world.facts.app_of(PageId::space(page)) == Some(app);
    let mut pages = runs.iter().flat_map(|run| run.pages());
    match pages.find(|page| !of(*page) || !takeable.contains(page)) {
        Some(page) => Err(format!("it samples {page:?}, which is not resident of {app:?}")),
        None => Ok(()),
    }
}

/// What is said of classes fits together.
fn classes(life: &mut Life<dyn Reclaim>) -> Answered {
    let Life { world, policy, .. } = life;
    for app in (0..4).map(AppId) {
        for class in CLASSES {
            let counts = policy.class_counts(app, class);
            let mut out = Vec::new();
            for place in [Out::Pool, Out::Beyond] {
                policy.for_each_out(app, class, place, &mut |page| {
                    out.push(page);
                    ControlFlow::Continue(())
                });
            }
            let known: BTreeSet<PageId> = out.iter().copied().collect();
            if known.len() as u64 != counts.out || out.len() != known.len() {
                return Err(format!(
                    "{class:?} pages of {app:?} that are out: {counts:?}, but {out:?}"
                ));
            }
            let fits = |page: &PageId| {
                let is_out =
                    world.table.stored.contains_key(page) || world.table.moving.contains(page);
                world.facts.app_of(page.space()) == Some(app)
                    && is_out
                    && policy.class(*page) == Some(class)
            };
            if let Some(page) = out.iter().find(|page| !fits(page)) {
                return Err(format!("{page:?} is no {class:?} page of {app:?} that is out"));
            }
        }
    }
    let ended = (0..4).map(SpaceId).filter(|space| world.facts.app_of(*space).is_none());
    let mut pages = ended.flat_map(|space| crate::run(space.0, 0, 80).pages());
    match pages.find(|page| policy.class(*page).is_some()) {
        Some(page) => Err(format!("it knows {page:?}, whose space has ended")),
        None => Ok(()),
    }
}

/// Checks what may enter the pool.
///
/// # Errors
/// The first history that the policy does not live through.
pub fn admission(build: impl Fn() -> Box<dyn Admission>) -> Result<(), Broken> {
    play(&build, false, |life| {
        let Some(page) = life.any(life.takeable()) else { return Ok(()) };
        let (values, bytes) = (1 + life.random.below(256), life.random.below(513));
        let sample: Vec<u8> = (0..bytes).map(|_| life.random.below(values) as u8).collect();
        let candidate = Candidate { page, sample: &sample };
        let admitted = life.ask(|policy, view| policy.admit(candidate, view));
        if admitted == Admit::No && life.policy.admits_all() {
            return Err(format!("it admits all pages, but not {page:?}"));
        }
        Ok(())
    })
}

/// Checks what is compressed together, in what chunks.
///
/// # Errors
/// The first history that the policy does not live through.
pub fn packing(build: impl Fn() -> Box<dyn Packing>) -> Result<(), Broken> {
    play(&build, false, |life| {
        let (mut victims, mut taken) = (Vec::new(), BTreeSet::new());
        for first in life.takeable() {
            if life.one_in(3) && !taken.contains(&first) {
                let more = life.random.below(4) as u32;
                let near = clew_core::PageRun { first, count: 1 + more };
                let takeable = life.takeable();
                let pages =
                    near.pages().filter(|page| takeable.contains(page) && taken.insert(*page));
                let pages: Vec<PageId> = pages.collect();
                let unit = if pages.len() == 1 { Unit::Page(first) } else { Unit::Pages(pages) };
                let hotness = [None, Some(Hotness::Cold), Some(Hotness::Warm), Some(Hotness::Hot)];
                victims.push(Victim { unit, hotness: hotness[life.random.below(4) as usize] });
            }
        }
        let flush = life.one_in(2);
        let (groups, left) = life.ask(|policy, view| {
            let mut groups = Vec::new();
            policy.pack(&mut victims, flush, view, &mut groups);
            (groups, victims)
        });
        if flush && !left.is_empty() {
            return Err(format!("it must leave nothing, and leaves {left:?}"));
        }
        let page_bytes = life.world.facts.page_bytes;
        let owner = |page: &PageId| life.world.facts.app_of(page.space());
        for Group { pages, chunk_bytes, .. } in &groups {
            let holds = pages.len() as u32 * page_bytes;
            if *chunk_bytes == 0 || *chunk_bytes > holds {
                return Err(format!("chunks of {chunk_bytes} in a group of {holds} bytes"));
            }
            if pages.iter().any(|page| owner(page) != owner(&pages[0])) {
                return Err(format!("{pages:?} are not of one app"));
            }
        }
        let of_unit = |victim: Victim| match victim.unit {
            Unit::Page(page) => vec![page],
            Unit::Pages(pages) => pages,
            Unit::App(_) => Vec::new(),
        };
        let packed = groups.into_iter().flat_map(|group| group.pages);
        let packed: Vec<PageId> = packed.collect();
        let mut all: Vec<PageId> =
            left.into_iter().flat_map(of_unit).chain(packed.clone()).collect();
        all.sort_unstable();
        if !all.iter().eq(&taken) {
            return Err(format!("of {taken:?} it makes {all:?}"));
        }
        packed.into_iter().try_for_each(|page| life.leave(page))?;
        let anew = life.ask(|policy, view| {
            let mut groups = Vec::new();
            policy.pick_repacks(8, view, &mut groups);
            groups
        });
        let mut named = BTreeSet::new();
        for page in anew.into_iter().flat_map(|group| group.pages) {
            if life.world.table.stored.get(&page) != Some(&Tier::Pool) || !named.insert(page) {
                return Err(format!("{page:?} is to be stored anew and is not in the pool"));
            }
        }
        Ok(())
    })
}

/// Checks what leaves the pool.
///
/// # Errors
/// The first history that the policy does not live through.
pub fn eviction(build: impl Fn() -> Box<dyn Eviction>) -> Result<(), Broken> {
    play(&build, false, |life| {
        if life.one_in(2) {
            // What was evicted has gone to another tier, or stays where it is.
            for page in std::mem::take(&mut life.out) {
                match (life.world.table.stored.get(&page).copied(), life.random.below(4)) {
                    (None, _) => {}
                    (Some(_), 0) => life.tell(Event::Stayed { page })?,
                    (Some(tier), 1) => life.tell(Event::PageIn { page, tier, demand: true })?,
                    (Some(_), _) => {
                        life.tell(Event::Stored { page, tier: Tier::Kernel, bytes: 9 })?
                    }
                }
            }
        }
        let bytes = life.random.below(1 << 16);
        let units = life.ask(|policy, view| {
            let mut out = Vec::new();
            policy.pick_evictions(bytes, view, &mut out);
            out
        });
        for unit in units {
            let pages = match unit {
                Unit::Page(page) => vec![page],
                Unit::Pages(pages) => pages,
                Unit::App(_) => Vec::new(),
            };
            for page in pages {
                if life.world.table.stored.get(&page) != Some(&Tier::Pool) {
                    return Err(format!("it evicts {page:?}, which is not in the pool"));
                }
                if !life.out.insert(page) {
                    return Err(format!("it evicts {page:?}, which is on its way"));
                }
            }
        }
        Ok(())
    })
}

/// Checks which tier.
///
/// # Errors
/// The first history that the policy does not live through.
pub fn placement(build: impl Fn() -> Box<dyn Placement>) -> Result<(), Broken> {
    play(&build, false, |life| {
        if life.one_in(4) {
            let pages = 1 + life.random.below(8) as usize;
            let moves = life.ask(|policy, view| {
                let mut out = Vec::new();
                policy.pick_moves(pages, view, &mut out);
                out
            });
            let different: BTreeSet<&PageId> = moves.iter().collect();
            let stored = |page: &PageId| life.world.table.stored.contains_key(page);
            if different.len() < moves.len() || moves.len() > pages || !moves.iter().all(stored) {
                return Err(format!("of {pages} stored pages, it would move {moves:?}"));
            }
            return Ok(());
        }
        let cause =
            [Cause::SwapOut, Cause::Rejected, Cause::Evicted][life.random.below(3) as usize];
        let from = if cause == Cause::Evicted { life.stored() } else { life.takeable() };
        let Some(page) = life.any(from) else { return Ok(()) };
        let Some(app) = life.world.facts.app_of(page.space()) else { return Ok(()) };
        let hotness =
            [None, Some(Hotness::Cold), Some(Hotness::Hot)][life.random.below(3) as usize];
        let page_bytes = life.world.facts.page_bytes;
        let (codec, chunk_bytes) = (CodecKind::Lz4, page_bytes);
        let group = Group { pages: vec![page], hotness, codec, chunk_bytes, park_siblings: false };
        match life.ask(|policy, view| policy.place(&group, app, cause, view)) {
            Place::Tier(tier) if life.world.facts.tiers.contains_key(&tier) => {
                life.tell(Event::Stored { page, tier, bytes: 1000 })
            }
            Place::Tier(tier) => Err(format!("it places in {tier:?}, which is not there")),
            Place::FlashPages if life.world.facts.tiers.contains_key(&Tier::Flash) => {
                life.tell(Event::Stored { page, tier: Tier::Flash, bytes: page_bytes })
            }
            Place::FlashPages => Err("it places on flash, which is not there".to_string()),
            Place::DonorPages(donor) => {
                let tier = Tier::Donor(donor);
                match life.world.facts.tiers.contains_key(&tier) {
                    true => life.tell(Event::Stored { page, tier, bytes: page_bytes }),
                    false => Err(format!("it places at {donor:?}, which is not there")),
                }
            }
            Place::Stay | Place::EndApp(_) => Ok(()),
        }
    })
}

/// Checks what comes back early.
///
/// # Errors
/// The first history that the policy does not live through.
pub fn prefetch(build: impl Fn() -> Box<dyn Prefetch>) -> Result<(), Broken> {
    play(&build, false, |life| {
        for page in std::mem::take(&mut life.out) {
            match life.random.below(4) {
                _ if !life.world.table.resident.contains(&page) => {}
                0 => {
                    life.tell(Event::PrefetchExpired { page })?;
                    life.leave(page)?;
                }
                1 => {
                    life.touch(page)?;
                    life.tell(Event::PrefetchUsed { page })?;
                    pick(life, Trigger::Hit(page))?;
                }
                _ => drop(life.out.insert(page)),
            }
        }
        match life.random.below(3) {
            0 => {
                life.switch()?;
                match life.world.facts.starting {
                    Some(starting) => pick(life, Trigger::Relaunch(starting.app)),
                    None => Ok(()),
                }
            }
            _ => match life.any(life.stored()) {
                Some(page) => {
                    life.touch(page)?;
                    pick(life, Trigger::Fault(page))
                }
                None => Ok(()),
            },
        }
    })
}

fn pick(life: &mut Life<dyn Prefetch>, trigger: Trigger) -> Answered {
    let pages = life.ask(|policy, view| {
        let mut out = Vec::new();
        policy.pick_prefetch(trigger, view, &mut out);
        out
    });
    if let Arrival::Parked { pages: 0, .. } = life.policy.arrival() {
        return Err("what it picks waits in a buffer of no pages".to_string());
    }
    let different: BTreeSet<PageId> = pages.iter().copied().collect();
    if different.len() < pages.len() {
        return Err(format!("it picks a page twice: {pages:?}"));
    }
    for page in pages {
        if life.world.facts.app_of(page.space()).is_none() {
            return Err(format!("it picks {page:?}, whose space has ended"));
        }
        if let (Trigger::Fault(other) | Trigger::Hit(other), true) =
            (trigger, different.contains(&page))
            && other == page
        {
            return Err(format!("it picks {page:?}, which is what was used"));
        }
        if let Some(tier) = life.world.table.stored.get(&page).copied() {
            life.tell(Event::PageIn { page, tier, demand: false })?;
            life.out.insert(page);
        }
    }
    Ok(())
}
