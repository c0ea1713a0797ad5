//! The empirical driver (6.1): a birth-death process over a distribution of spans.
//!
//! Requests come as a Poisson process, each span lives exponentially long, and rates follow from
//! Little's law: spans that live = rate × lifetime. When the target rises, spans are added in the
//! shares in which they live; when it falls, each span has the same chance to go. So the number of
//! living spans of each class is a Poisson variable around its target at every moment, not only
//! after a few lifetimes.

use crate::error::Error;
use crate::hugepages;
use crate::operation::{Event, Operation, Operations};
use crate::prefetch;
use crate::sizes::Sizes;
use crate::target::Target;
use crate::weights::Weights;
use rand::{RngExt, SeedableRng};
use rand_distr::weighted::WeightedAliasIndex;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How often the target is looked at. In between rates are constant, and the process exact.
const TICK_S: f64 = 0.01;
/// Events in a batch.
const BATCH: usize = 512;
/// A target of nothing, for logarithms: a thousandth of a page.
const NOTHING: f64 = 1e-3;

/// A birth, or the death of one of those that live. What a batch consists of is decided first and
/// carried out then, so that the processor can fetch what it takes meanwhile.
#[derive(Clone, Copy)]
struct Decision {
    class: u32,
    /// Its place in the list of its class at that time.
    victim: u32,
}

/// No victim: a birth.
const NOBODY: u32 = u32::MAX;

/// Generates operations.
pub struct Driver {
    sizes: Sizes,
    target: Target,
    random: Xoshiro256PlusPlus,
    /// Which class is asked for, in the shares of requests.
    requests: WeightedAliasIndex<f64>,
    /// The same in the shares of what lives, for when the target rises.
    stock: WeightedAliasIndex<f64>,
    /// Living spans of each class.
    living: Vec<Vec<u32>>,
    /// How many of them there are when all is done that was decided.
    counts: Vec<u32>,
    /// At which rate they die, class by class.
    deaths: Weights,
    /// Rates of death of one span of each class.
    mortality: Vec<f64>,
    /// Rates of birth per second.
    renewing: f64,
    growing: f64,
    free_ids: Vec<u32>,
    next_id: u32,
    now_s: f64,
    tick_end_s: f64,
    hint: usize,
    /// Operations that may still come.
    left: u64,
    over: bool,
    said_over: bool,
    /// What was decided and not yet carried out.
    decisions: Vec<(u64, Decision)>,
}

impl Driver {
    /// Operations until the target ends, or this many.
    ///
    /// # Errors
    /// More spans would live at once than 32 bits can name.
    pub fn new(
        sizes: Sizes,
        target: Target,
        seed: u64,
        operations: Option<u64>,
    ) -> Result<Self, Error> {
        let classes = sizes.classes();
        let spans = target.peak() / sizes.mean_live_pages();
        if spans > f64::from(u32::MAX) / 2.0 {
            return Err(Error::new(
                "more than two billion spans at once; take a smaller heap or larger spans",
            ));
        }
        let alias = |weight: &dyn Fn(usize) -> f64| {
            WeightedAliasIndex::new((0..classes.len()).map(weight).collect())
                .map_err(|why| Error::new(format!("weights that cannot be added up: {why}")))
        };
        let requests = alias(&|at| classes[at].weight)?;
        let stock = alias(&|at| classes[at].weight * classes[at].lifetime_s)?;
        let all: f64 = classes.iter().map(|c| c.weight * c.lifetime_s).sum();
        // Room for the target and five standard deviations: a list that doubles would keep twice
        // as much as it needs.
        let room = |c: &crate::Class| {
            let mean = spans * c.weight * c.lifetime_s / all;
            (mean + 5.0 * mean.sqrt() + 8.0) as usize
        };
        Ok(Self {
            living: classes.iter().map(|class| hugepages::vec(room(class))).collect(),
            deaths: Weights::new(classes.len()),
            mortality: vec![0.0; classes.len()],
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            requests,
            stock,
            renewing: 0.0,
            growing: 0.0,
            free_ids: Vec::new(),
            next_id: 0,
            now_s: 0.0,
            tick_end_s: 0.0,
            hint: 0,
            left: operations.unwrap_or(u64::MAX),
            over: false,
            said_over: false,
            decisions: Vec::with_capacity(BATCH),
            counts: vec![0; classes.len()],
            sizes,
            target,
        })
    }

    fn now_ms(&self) -> u64 {
        (self.now_s * 1000.0) as u64
    }

    /// Rates for the time from now to the next tick or corner of the target.
    fn tick(&mut self) {
        let from = self.target.at(self.now_s, &mut self.hint);
        let end =
            (self.now_s + TICK_S).min(self.target.next_point(self.hint)).min(self.target.end_s());
        let mut hint = self.hint;
        let to = self.target.at(end, &mut hint);
        let seconds = (end - self.now_s).max(f64::MIN_POSITIVE);
        self.tick_end_s = end;
        self.renewing = (from + to) / 2.0 / self.sizes.page_seconds();
        self.growing = (to - from).max(0.0) / self.sizes.mean_live_pages() / seconds;
        let shrinking = (from.max(NOTHING) / to.max(NOTHING)).ln().max(0.0) / seconds;
        for (mortality, class) in self.mortality.iter_mut().zip(self.sizes.classes()) {
            *mortality = 1.0 / class.lifetime_s + shrinking;
        }
        let rates =
            self.living.iter().zip(&self.mortality).map(|(ids, rate)| ids.len() as f64 * rate);
        self.deaths.set_all(rates);
    }

    /// What happens next, until the end.
    #[inline]
    fn decide(&mut self) -> Option<Decision> {
        loop {
            let births = self.renewing + self.growing;
            let rate = births + self.deaths.total();
            let wait: f64 = Exp1.sample(&mut self.random);
            self.now_s += wait / rate;
            // Also when the rate is zero. The process has no memory: at a tick it begins anew.
            if self.now_s.is_nan() || self.now_s >= self.tick_end_s {
                self.now_s = self.tick_end_s;
                if self.now_s >= self.target.end_s() {
                    return None;
                }
                self.tick();
                continue;
            }
            let point = self.random.random::<f64>() * rate;
            if point < births {
                let from = if point < self.renewing { &self.requests } else { &self.stock };
                let class = from.sample(&mut self.random);
                self.counts[class] += 1;
                self.deaths.add(class, self.mortality[class]);
                return Some(Decision { class: class as u32, victim: NOBODY });
            }
            let class = self.deaths.find(point - births);
            // Rounding may lead to a class of which nothing lives.
            let Some(count) = self.counts.get_mut(class).filter(|count| **count > 0) else {
                continue;
            };
            let victim = self.random.random_range(0..*count);
            *count -= 1;
            self.deaths.add(class, -self.mortality[class]);
            if let Some(ids) = self.living.get(class) {
                prefetch::element(ids, victim as usize);
            }
            return Some(Decision { class: class as u32, victim });
        }
    }

    #[inline]
    fn carry_out(&mut self, decision: Decision) -> Operation {
        let class = decision.class as usize;
        if decision.victim != NOBODY {
            let id = self.living[class].swap_remove(decision.victim as usize);
            self.free_ids.push(id);
            return Operation::Delete { id };
        }
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.next_id += 1;
            self.next_id - 1
        });
        self.living[class].push(id);
        let class = &self.sizes.classes()[class];
        Operation::New { id, pages: class.pages, align: class.align, objects: class.objects }
    }
}

impl Operations for Driver {
    fn fill(&mut self, batch: &mut Vec<Event>) -> Result<(), Error> {
        batch.clear();
        let mut decisions = std::mem::take(&mut self.decisions);
        while decisions.len() < BATCH && !self.over {
            let decision = if self.left == 0 { None } else { self.decide() };
            self.left = self.left.saturating_sub(1);
            self.over = decision.is_none();
            decisions.extend(decision.map(|decision| (self.now_ms(), decision)));
        }
        for (at_ms, decision) in decisions.drain(..) {
            batch.push(Event { at_ms, operation: self.carry_out(decision) });
        }
        self.decisions = decisions;
        if self.over && !self.said_over {
            self.said_over = true;
            batch.push(Event { at_ms: self.now_ms(), operation: Operation::Pass });
        }
        Ok(())
    }

    fn bookkeeping_bytes(&self) -> usize {
        let lists: usize = self.living.iter().map(Vec::capacity).sum();
        (lists + self.free_ids.capacity()) * size_of::<u32>()
    }
}
